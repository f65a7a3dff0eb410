"""What is published of a tag stays as it is: `stable_schema.json` holds it, and these tests compare.

To add a tag: add its line to `robot_rl.toml`, then

    REGENERATE=1 python -m pytest tests/names/test_stable_schema.py && rltel schema --markdown > docs/schema.md

which writes additions only. A tag that is renamed or removed, or means something else, fails all the same: it needs a
new `METRIC_SCHEMA_VERSION` (in `names/schema.py` and `robot_rl.toml`), with which the file is written anew.
"""

import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from rltel.cli.schema import schema_data

FILE = Path(__file__).with_name("stable_schema.json")
FIELDS = (
    "unit", "local", "ranks", "kind", "parent", "persisted", "instrument", "omitted", "zero_is_absent", "never",
)  # fmt: skip
"""Of each tag. Labels, descriptions, owners, algorithms and OpenTelemetry names may improve."""

Schema = dict[str, Any]


def stable(data: Mapping[str, Any]) -> Schema:
    """Of ``rltel schema --json``, what may not change."""
    return {
        "metric_schema_version": data["metric_schema_version"],
        "local": {name: {"gauge": each["gauge"], "alpha": each["alpha"]} for name, each in data["local"].items()},
        "removed": sorted(each["prefix"] for each in data["removed"]),
        "tags": {
            each["name"]: {field: each[field] for field in FIELDS if field in each}
            for each in sorted(data["tags"], key=lambda each: each["name"])
        },
    }


def plain() -> Schema:
    """As it reads from JSON."""
    made: Schema = json.loads(json.dumps(stable(schema_data())))
    return made


def changes(published: Mapping[str, Any], now: Mapping[str, Any], where: str = "") -> Iterator[str]:
    """What of the published is gone or different. Additions are none."""
    for name, was in published.items():
        path = f"{where}/{name}" if where else name
        if name not in now:
            yield f"{path}: gone (renamed or removed)"
        elif isinstance(was, dict) and isinstance(now[name], dict):
            yield from changes(was, now[name], path)
        elif type(was) is not type(now[name]) or was != now[name]:
            yield f"{path}: was {was!r}, is {now[name]!r}"


@pytest.fixture
def published() -> Schema:
    if os.environ.get("REGENERATE"):
        regenerate(FILE, plain())
    read: Schema = json.loads(FILE.read_text())
    return read


def regenerate(file: Path, now: Schema) -> None:
    """Write it, unless something published changed under the same version."""
    before = json.loads(file.read_text()) if file.exists() else {}
    same_version = before.get("metric_schema_version") == now["metric_schema_version"]
    if not (same_version and list(changes(before, now))):
        file.write_text(json.dumps(now, indent=1) + "\n")


def test_nothing_published_has_changed(published: Schema) -> None:
    found = list(changes(published, plain()))
    assert not found, "\n".join([*found, "a new METRIC_SCHEMA_VERSION is needed, or the old meaning"])


def test_what_is_new_is_published(published: Schema) -> None:
    new = list(changes(plain(), published))
    assert not new, f"see the top of {Path(__file__).name} for how to add: {new}"


class TestItNotices:
    """Each kind of change, on a copy."""

    @pytest.fixture
    def now(self) -> Schema:
        return plain()

    @pytest.mark.parametrize(
        ("field", "value"),
        [
            ("unit", "s"),
            ("instrument", "gauge"),
            ("omitted", "never"),
            ("zero_is_absent", True),
            ("zero_is_absent", 0),  # of another type, though equal
            ("ranks", "sum"),
            ("parent", None),
            ("persisted", False),
        ],
    )
    def test_another_meaning(self, published: Schema, now: Schema, field: str, value: Any) -> None:
        now["tags"]["Perf/learner_inference_ms"][field] = value
        (found,) = changes(published, now)
        assert found.startswith(f"tags/Perf/learner_inference_ms/{field}: was ")

    def test_a_new_name(self, published: Schema, now: Schema) -> None:
        now["tags"]["Perf/learner_infer_ms"] = now["tags"].pop("Perf/learner_inference_ms")
        assert list(changes(published, now)) == ["tags/Perf/learner_inference_ms: gone (renamed or removed)"]

    def test_an_ema_with_another_alpha(self, published: Schema, now: Schema) -> None:
        now["local"]["ema"]["alpha"] = 0.2
        assert list(changes(published, now)) == ["local/ema/alpha: was 0.1, is 0.2"]

    def test_and_additions_are_no_change(self, published: Schema, now: Schema) -> None:
        now["tags"]["Train/new"] = {}
        assert not list(changes(published, now))
        assert list(changes(now, published)) == ["tags/Train/new: gone (renamed or removed)"]


class TestRegenerate:
    def test_writes_additions(self, tmp_path: Path) -> None:
        (tmp_path / "f").write_text('{"metric_schema_version": 1, "tags": {}}')
        regenerate(tmp_path / "f", {"metric_schema_version": 1, "tags": {"a": {}}})
        assert json.loads((tmp_path / "f").read_text())["tags"] == {"a": {}}

    def test_writes_no_change(self, tmp_path: Path) -> None:
        (tmp_path / "f").write_text('{"metric_schema_version": 1, "tags": {"a": {}}}')
        regenerate(tmp_path / "f", {"metric_schema_version": 1, "tags": {"b": {}}})
        assert json.loads((tmp_path / "f").read_text())["tags"] == {"a": {}}

    def test_writes_all_of_a_new_version(self, tmp_path: Path) -> None:
        (tmp_path / "f").write_text('{"metric_schema_version": 1, "tags": {"a": {}}}')
        regenerate(tmp_path / "f", {"metric_schema_version": 2, "tags": {"b": {}}})
        assert json.loads((tmp_path / "f").read_text())["tags"] == {"b": {}}
