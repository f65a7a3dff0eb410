"""The series of experts' loads: their names, and what the limit of series does to them."""

import logging
import random
import re
from contextlib import nullcontext
from pathlib import Path

import pytest

from export.making import recorded
from realparts.prometheus import backfill, prometheus
from realparts.requirements import REPOSITORY
from rltel.export.moe_series import Series, series_of_loads
from rltel.names.otel import Namer
from rltel.reduce.trackers import Trackers
from rltel.rl import moe

Counts = dict[int, list[int]]
NAMES = {f"rl.moe.{name}" for name in moe.Balance._fields}


def series(counts: Counts, namer: Namer | None = None, scope: str = "", tracker: str = "") -> list[Series]:
    def record(trackers: Trackers) -> None:
        into = trackers.get(tracker)
        with into.scope(scope) if scope else nullcontext():
            moe.record(counts, tracker=into)

    return list(series_of_loads(recorded(record), namer or Namer()))


def values(found: list[Series], name: str) -> dict[tuple[str, ...], float]:
    return {tuple(each.name.attributes.values()): each.value for each in found if each.name.name == name}


def test_each_layer_s_numbers_and_each_expert_s_assignments() -> None:
    found = series({3: [2, 6], 11: [0, 0]})
    assert values(found, "rl.moe.expert.tokens") == {("3", "0"): 2, ("3", "1"): 6, ("11", "0"): 0, ("11", "1"): 0}
    assert values(found, "rl.moe.max_over_ideal") == {("3",): 1.5, ("11",): 0.0}
    assert {each.name.name for each in found} == {"rl.moe.expert.tokens", *NAMES}
    assert dict(found[0].name.attributes) == {"rl.moe.layer": "3"}
    assert all(each.name.canonical for each in found)


def test_other_metrics_are_none_of_them() -> None:
    snapshot = recorded(lambda trackers: trackers.default.scalar({"moe_balance/layer_0/expert_0/tokens": 1.0}))
    assert list(series_of_loads(snapshot, Namer())) == []


@pytest.mark.parametrize(("scope", "tracker"), [("critic", ""), ("", "critic")])
def test_models_apart_are_series_apart(scope: str, tracker: str) -> None:
    found = series({3: [2, 6]}, scope=scope, tracker=tracker)
    assert {each.tracker for each in found} == {tracker}
    for each in found:
        assert "critic" in each.name.attributes.values()
        assert each.name.name in {"rl.moe.expert.tokens", *NAMES}


def test_opentelemetry_2700_the_limit_takes_whole_layers_and_loses_no_assignment(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """48 layers of 128 experts are 6,144 series of a metric that may have 2,000."""
    chance = random.Random(1)
    counts = {n: [chance.randrange(1000) for _ in range(128)] for n in range(48)}
    namer = Namer(max_series=2000)
    with caplog.at_level(logging.WARNING, "rltel"):
        for _ in range(3):
            found = series(counts, namer)
    tokens = values(found, "rl.moe.expert.tokens")
    whole = {layer: [count for place, count in _of_experts(tokens) if place[0] == str(layer)] for layer in range(15)}
    assert whole == {layer: counts[layer] for layer in range(15)}
    assert tokens[("true",)] == sum(sum(counts[layer]) for layer in range(15, 48))
    assert len(tokens) == 15 * 128 + 1
    assert len(values(found, "rl.moe.max_over_ideal")) == 48
    (said,) = [record.getMessage() for record in caplog.records]
    assert said.startswith("rl_moe_expert_tokens has 1920 label sets, as many as names.max_series_per_metric allows")
    assert namer.overflowed == {"rl_moe_expert_tokens": 33}


def _of_experts(tokens: dict[tuple[str, ...], float]) -> list[tuple[tuple[str, str], float]]:
    return [((key[0], key[1]), count) for key, count in tokens.items() if len(key) == 2]


def test_a_limit_below_the_layers_leaves_their_mean() -> None:
    found = series({0: [4, 0], 1: [1, 1], 2: [1, 3]}, Namer(max_series=1))
    assert values(found, "rl.moe.max_over_ideal") == {("0",): 2.0, ("true",): 1.25}
    assert values(found, "rl.moe.expert.tokens") == {("true",): 10.0}


def test_the_documented_query_for_shares_is_right_in_prometheus(tmp_path: Path) -> None:
    page = (REPOSITORY / "docs" / "moe.md").read_text()
    (query,) = re.findall(r"`(100 \* rl_moe_expert_tokens [^`]*)`", page)
    found = series({3: [2, 6], 11: [1, 1]})
    samples = [
        f'rl_moe_expert_tokens{{rl_moe_layer="{layer}",rl_moe_expert="{expert}"}} {count} 1000'
        for (layer, expert), count in _of_experts(values(found, "rl.moe.expert.tokens"))
    ]
    backfill(tmp_path, "\n".join(["# TYPE rl_moe_expert_tokens gauge", *samples, "# EOF", ""]))
    with prometheus(tmp_path=tmp_path) as server:
        shares = {
            (labels["rl_moe_layer"], labels["rl_moe_expert"]): share for labels, share in server.query(query, time=1001)
        }
    assert shares == {("3", "0"): 25.0, ("3", "1"): 75.0, ("11", "0"): 50.0, ("11", "1"): 50.0}
