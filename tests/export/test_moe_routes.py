"""Experts' loads on every way out: points, Prometheus's text, the console, JSONL and a replay's totals."""

import io

import pytest
from prometheus_client import CollectorRegistry

from export.making import Points, commit, point, recorded
from export.scraping import registry_after
from rltel.export.console import ConsoleSink
from rltel.reduce.trackers import Trackers
from rltel.rl import moe


def record(trackers: Trackers) -> None:
    moe.record({3: [2, 6]}, tracker=trackers.default)
    trackers.default.scalar(loss=1.0)


def test_points_have_their_canonical_names_and_no_histogram() -> None:
    points = [each for each in Points().of(commit(recorded(record))) if each.name.startswith("rl.moe.")]
    assert point(points, "rl.moe.expert.tokens", rl_moe_layer="3", rl_moe_expert="1").value == 6.0
    assert point(points, "rl.moe.max_over_ideal", rl_moe_layer="3").value == 1.5
    assert {each.kind for each in points} == {"gauge"}
    assert len(points) == 2 + 4


def test_prometheus_has_them() -> None:
    registry: CollectorRegistry = registry_after(commit(recorded(record)))
    assert registry.get_sample_value("rl_moe_expert_tokens", {"rl_moe_layer": "3", "rl_moe_expert": "0"}) == 2.0
    assert registry.get_sample_value("rl_moe_max_over_ideal", {"rl_moe_layer": "3"}) == 1.5


@pytest.mark.parametrize("table", [True, False])
def test_the_console_shows_layers_only(table: bool) -> None:
    stream = io.StringIO()
    sink = ConsoleSink(stream, 0.0, lambda: 10**12, table=table)
    sink.write(commit(recorded(record)), [])
    assert "expert_" not in stream.getvalue()
