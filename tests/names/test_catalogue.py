"""The catalogue: a data file whose every entry must be usable."""

import re
import tomllib
from importlib.resources import files
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rltel.names.catalogue import Catalogue, Entry, catalogue
from rltel.names.phases import RlPart
from rltel.names.prometheus import prometheus_name

ENTRIES = catalogue().entries
OTEL_RULES = re.compile(r"rl(\.[a-z][a-z0-9_]*)+")
UNITS = {"", "s", "By", "1"}
ANNOTATED = re.compile(r"\{[a-z]+\}(/s)?")


def example(entry: Entry) -> str:
    return re.sub(r"\{\w+\}", "x", entry.key)


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry.key)
class TestEveryEntry:
    def test_follows_the_conventions(self, entry: Entry) -> None:
        """Lower-case dotted names without unit or ``_total``; UCUM units, or annotations."""
        assert OTEL_RULES.fullmatch(entry.name)
        assert not entry.name.endswith(("_total", ".total", "_seconds", "_ms", "_bytes"))
        assert entry.unit in UNITS or ANNOTATED.fullmatch(entry.unit)
        assert entry.unit != "s" or entry.name.endswith((".duration", ".time"))
        assert all(OTEL_RULES.fullmatch(name) for name in entry.attributes)

    def test_is_found_by_its_own_key(self, entry: Entry) -> None:
        match = catalogue().find(example(entry))
        assert match is not None
        assert match.entry is entry, "an earlier entry hides it"

    def test_says_what_it_is(self, entry: Entry) -> None:
        assert entry.kind in ("gauge", "counter", "histogram")
        assert entry.about.endswith(".")

    def test_stays_out_of_the_names_by_rule(self, entry: Entry) -> None:
        assert not entry.name.startswith("rl.stats")

    def test_parts_of_its_key_are_all_it_uses(self, entry: Entry) -> None:
        parts = set(re.findall(r"\{(\w+)\}", entry.key))
        used = {
            part
            for text in (*entry.attributes.values(), entry.headline or "")
            for part in re.findall(r"\{(\w+)\}", text)
        }
        assert used <= parts

    def test_a_key_in_milliseconds_is_scaled_to_seconds(self, entry: Entry) -> None:
        assert entry.scale == (0.001 if re.search("_ms(_|$)", entry.key) else 1.0)

    def test_only_the_phase_of_a_role_is_a_part_of_an_iteration(self, entry: Entry) -> None:
        assert entry.rl is None or (entry.rl in get_args(RlPart) and entry.name == "rl.phase.duration")
        assert entry.rl is None or "rl.role" in entry.attributes


def test_one_name_has_one_unit_and_one_kind() -> None:
    """Else two keys of one metric would contradict each other in a backend."""
    shapes: dict[str, tuple[str, str]] = {}
    for entry in ENTRIES:
        assert shapes.setdefault(entry.name, (entry.unit, entry.kind)) == (entry.unit, entry.kind)


def test_two_names_are_two_in_prometheus() -> None:
    names = {entry.name: entry.unit for entry in ENTRIES}
    assert len({prometheus_name(name, unit, "gauge") for name, unit in names.items()}) == len(names)


def test_a_part_spans_no_slash_unless_the_entry_is_deep() -> None:
    assert catalogue().find("Loss/a/b") is None
    match = catalogue().find("timeperf/update/actor")
    assert match is not None
    assert match.attributes == {"rl.timing": "update/actor"}


def test_an_exact_key_comes_before_a_pattern() -> None:
    pattern, exact = Entry("a/{x}", "rl.pattern", "", "gauge", "."), Entry("a/b", "rl.exact", "", "gauge", ".")
    match = Catalogue((pattern, exact)).find("a/b")
    assert match is not None
    assert match.entry is exact


def test_a_part_that_a_pattern_never_has_is_left_to_others() -> None:
    narrow, wide = Entry("a/{x}", "rl.n", "", "gauge", ".", never=("b",)), Entry("{y}/b", "rl.w", "", "gauge", ".")
    match = Catalogue((narrow, wide)).find("a/b")
    assert match is not None
    assert match.entry is wide


def test_the_headline_is_filled_in() -> None:
    match = catalogue().find("Loss/critic")
    assert match is not None
    assert match.headline == "critic"


@given(st.text())
def test_any_text_may_be_looked_up(key: str) -> None:
    catalogue().find(key)


def test_names_the_convention_it_follows() -> None:
    assert "experimental" in tomllib.loads(files("rltel.names").joinpath("catalogue.toml").read_text())["convention"]
