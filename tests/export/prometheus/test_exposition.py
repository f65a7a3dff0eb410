"""The two text formats, beside those of the library, byte for byte."""

import math
from collections.abc import Iterable, Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, Counter, generate_latest
from prometheus_client.core import Metric
from prometheus_client.openmetrics.exposition import generate_latest as generate_openmetrics
from prometheus_client.registry import Collector

from export.making import commit, recorded
from export.scraping import everything, registry_after
from rltel.export.prometheus.exposition import Family, Labels, expose

OPENMETRICS = "application/openmetrics-text; version=1.0.0"


def test_a_family_of_others_that_has_the_name_of_ours_goes_with_ours() -> None:
    """Twice would be an error in the text format: all but the first are lost to those who read it strictly."""
    theirs = Metric("rltel_series", "Of somebody else.", "gauge")
    theirs.add_sample("rltel_series", {"of": "other"}, 7.0)
    registry = registry_after(commit({"x": 1.0}))
    registry.register(Fixed(theirs))
    text = expose(registry, "").body.decode()
    assert text.count("# TYPE rltel_series ") == 1
    assert 'rltel_series{of="other"} 7.0\n' in text
    assert text.count("\nrltel_series ") == 1


class Fixed(Collector):
    def __init__(self, *families: Metric) -> None:
        self.families = families

    def describe(self) -> Iterable[Metric]:
        return ()

    def collect(self) -> Iterable[Metric]:
        return self.families


def registry_of(*families: Metric) -> CollectorRegistry:
    registry = CollectorRegistry()
    registry.register(Fixed(*families))
    return registry


def filled(family: Metric, rows: Iterable[tuple[str, Mapping[str, str], float, Any]]) -> Metric:
    for suffix, labels, value, time in rows:
        family.add_sample(family.name + suffix, labels, value, time)
    return family


SUFFIXES = {"gauge": "", "unknown": "", "counter": "_total", "info": "_info", "histogram": "_bucket"}
ROWS = st.lists(
    st.tuples(
        st.dictionaries(st.sampled_from(["rl_stat", "rl_key", "a"]), st.text(max_size=8)),
        st.floats(),
        st.none() | st.floats(0, 4e9),
    ),
    max_size=5,
)


@given(st.sampled_from(sorted(SUFFIXES)), st.text(max_size=20), ROWS, st.booleans())
def test_the_same_bytes_as_the_library(
    kind: str, about: str, rows: list[tuple[dict[str, str], float, float | None]], prepared: bool
) -> None:
    ours, theirs = Family("rl_x", about, kind), Metric("rl_x", about, kind)
    for family, made in ((ours, Labels if prepared else dict), (theirs, dict)):
        filled(family, [(SUFFIXES[kind], made(labels), value, time) for labels, value, time in rows])
    assert expose(registry_of(ours), "").body == generate_latest(registry_of(theirs))
    if kind != "unknown":  # those are taken apart first
        assert expose(registry_of(ours), OPENMETRICS).body == generate_openmetrics(registry_of(theirs))


def test_a_commit_of_everything_is_the_same_too() -> None:
    registry = registry_after(commit(recorded(everything)), timestamps=True)
    assert expose(registry, "").body == generate_latest(registry)


@pytest.mark.parametrize("bound", ["-1024.0", "0.0", "+Inf"])
def test_a_bound_comes_before_every_label_of_ours(bound: str) -> None:
    for labels in ({}, {"rl_key": "a"}, {"otel_metric_overflow": "true"}):
        made = Labels(labels).with_bound(bound)
        assert made == {"le": bound, **labels}
        assert made.text == Labels(made).text


def test_what_only_the_library_can_write_goes_through_it() -> None:
    registry = registry_of(filled(Family("rl_x", "x", "gauge"), [("", {}, math.nan, None)]))
    Counter("users", "A user's.", registry=registry).inc(2, exemplar={"trace_id": "abc"})
    text = expose(registry, OPENMETRICS).body.decode()
    assert '# {trace_id="abc"} 2.0' in text
    assert "rl_x NaN\n" in text
    assert text.count("# EOF") == 1
    assert text.endswith("# EOF\n")
