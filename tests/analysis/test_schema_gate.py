"""What is certain is read, all else is refused with the reason. V06 is in tests/cli/test_extract.py."""

import pytest

from rltel.analysis.schema_gate import Gate, Reading
from rltel.core.errors import RltelError

GATE = Gate(1, {"Perf/new", "Perf/newer"}, {"perf/old"})
UNVERSIONED: list[Reading] = ["canonical-unversioned", "legacy-unversioned"]


@pytest.mark.parametrize(
    ("summary", "said"),
    [
        (None, "no run_summary.json.*--legacy-unversioned.*--canonical-unversioned"),
        ({}, "no metric_schema_version"),
        ({"metric_schema_version": None}, "no metric_schema_version"),
        ({"metric_schema_version": 2}, "expected 1, got 2"),
        ({"metric_schema_version": 0}, "expected 1, got 0"),
        ({"metric_schema_version": True}, "expected an integer, got True"),
        ({"metric_schema_version": 1.0}, "expected an integer, got 1.0"),
        ({"metric_schema_version": "1"}, "expected an integer, got '1'"),
    ],
)
def test_a_stamped_run_needs_the_version(summary: dict[str, object] | None, said: str) -> None:
    with pytest.raises(RltelError, match=f"^here: .*{said}"):
        GATE.check_summary(summary, "stamped", "here")


@pytest.mark.parametrize("reading", UNVERSIONED)
@pytest.mark.parametrize("version", [1, None, 2])
def test_an_unversioned_run_must_not_have_one(reading: Reading, version: object) -> None:
    with pytest.raises(RltelError, match=f"--{reading} is for runs without metric_schema_version"):
        GATE.check_summary({"metric_schema_version": version}, reading, "here")
    GATE.check_summary({"status": "completed"}, reading, "here")
    GATE.check_summary(None, reading, "here")


@pytest.mark.parametrize(
    ("reading", "tags", "said"),
    [
        ("stamped", {"Perf/new", "perf/old"}, "old tags do not belong beside canonical ones .*migrate.*perf/old"),
        ("stamped", {"other"}, "at least one canonical tag of these, found none: Perf/new, Perf/newer"),
        ("canonical-unversioned", {"Perf/new", "perf/old"}, "perf/old"),
        ("canonical-unversioned", set(), "at least one canonical tag"),
        ("legacy-unversioned", {"Perf/new", "perf/old"}, "canonical tags do not belong into an old run.*Perf/new"),
        ("legacy-unversioned", {"Perf/new"}, "--canonical-unversioned.*Perf/new"),
        ("legacy-unversioned", {"other"}, "at least one old tag of these, found none: perf/old"),
    ],
)
def test_tags_have_to_be_of_one_kind_and_known(reading: Reading, tags: set[str], said: str) -> None:
    with pytest.raises(RltelError, match=f"^here: .*{said}"):
        GATE.check_tags(tags, reading, "here")


def test_one_known_tag_is_enough() -> None:
    GATE.check_summary({"metric_schema_version": 1}, "stamped", "here")
    GATE.check_tags({"Perf/new", "other"}, "stamped", "here")
    GATE.check_tags({"Perf/new", "other"}, "canonical-unversioned", "here")
    GATE.check_tags({"perf/old", "other"}, "legacy-unversioned", "here")
