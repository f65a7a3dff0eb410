"""The state of one layer's loads: AReaL's numbers, and the same whatever the split."""

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rltel.core.errors import RecordError
from rltel.export.jsonl_metrics import plain_groups, read_groups
from rltel.record.kinds import State
from rltel.reduce.snapshot import Metric, Snapshot
from rltel.reduce.workers import plain_metric, read_metric
from rltel.rl.moe.loads import EXPERT_LOADS, MOST, balance, state_of, tokens_of

VECTORS = json.loads((Path(__file__).parents[2] / "vectors" / "areal_moe_vectors.json").read_text())["vectors"]
counts_of_layer = st.integers(1, 9).flatmap(lambda n: st.lists(st.integers(0, 10**6), min_size=n, max_size=n))


def values(state: State) -> dict[str, float]:
    return {value.suffix: value.value for value in state.values()}


def vector(name: str) -> dict[str, Any]:
    (found,) = [each for each in VECTORS if each["id"] == name]
    return dict(found)


def cases() -> list[tuple[Sequence[int], dict[str, Any]]]:
    found = vector("moe_max_over_ideal")
    return list(zip(found["input"]["counts"], found["output"], strict=True))


@pytest.mark.parametrize(("counts", "expected"), cases())
def test_areal_s_numbers(counts: list[int], expected: dict[str, Any]) -> None:
    found = values(state_of(counts))
    assert found["/max_over_ideal"] == expected["max_over_ideal"]
    assert [found[f"/expert_{n}/load_percent"] for n in range(len(counts))] == expected["load_percent"]
    assert [found[f"/expert_{n}/tokens"] for n in range(len(counts))] == counts


def test_a_layer_without_assignments_has_zeros() -> None:
    found = values(state_of([0, 0, 0]))
    assert len(found) == 4 + 2 * 3
    assert set(found.values()) == {0.0}


def test_perfect_balance_and_none() -> None:
    assert balance([5, 5, 5, 5]) == pytest.approx((1.0, 5.0, 1.0, 0.0))
    assert balance([0, 20, 0, 0]) == pytest.approx((4.0, 5.0, 0.0, math.sqrt(3)))
    assert balance([7]) == (1.0, 7.0, 1.0, 0.0)


def test_entropy_and_variation_by_hand() -> None:
    """Shares of 1/2, 1/4, 1/4: 1.5 bits of log2(3); loads of 2, 1, 1: a deviation of sqrt(2)/3 over a mean of 4/3."""
    found = balance([2, 1, 1])
    assert found.normalized_entropy == pytest.approx(1.5 / math.log2(3))
    assert found.coefficient_of_variation == pytest.approx(math.sqrt(2) / 4)


@given(st.lists(counts_of_layer, min_size=1, max_size=5).filter(lambda parts: len({len(p) for p in parts}) == 1))
def test_any_split_gives_the_same(parts: list[list[int]]) -> None:
    merged = state_of(parts[0])
    for part in parts[1:]:
        other = state_of(part)
        merged.add(other.moments, other.buckets)
    assert values(merged) == values(state_of([sum(column) for column in zip(*parts, strict=True)]))


@given(counts_of_layer, st.integers(1, 8))
def test_replicas_are_divided_out(counts: list[int], replicas: int) -> None:
    merged = state_of(counts, replicas)
    for _ in range(replicas - 1):
        other = state_of(counts, replicas)
        merged.add(other.moments, other.buckets)
    assert values(merged) == values(state_of(counts))


@given(counts_of_layer)
def test_percentages_sum_to_a_hundred_and_bounds_hold(counts: list[int]) -> None:
    found, number = values(state_of(counts)), len(counts)
    total = sum(found[f"/expert_{n}/load_percent"] for n in range(number))
    assert total == pytest.approx(100.0 if sum(counts) else 0.0)
    assert 0 <= found["/normalized_entropy"] <= 1 + 1e-12
    if sum(counts):
        assert 1 - 1e-12 <= found["/max_over_ideal"] <= number
        assert 0 <= found["/coefficient_of_variation"] <= math.sqrt(number) + 1e-9


@given(counts_of_layer, st.integers(1, 4))
def test_payloads_and_records_keep_it(counts: list[int], replicas: int) -> None:
    state = state_of(counts, replicas)
    sent = read_metric("moe_balance/layer_0", json.loads(json.dumps(plain_metric(Metric(state)))))
    line = json.loads(json.dumps(plain_groups(Snapshot.of_states({"moe_balance/layer_0": state}))))
    for back in (sent.state, read_groups(line)["moe_balance/layer_0"].state):
        assert back.kind is EXPERT_LOADS
        assert values(back) == values(state)
        assert tokens_of(back) == tokens_of(state)


@pytest.mark.parametrize(
    ("counts", "replicas", "message"),
    [
        ([], 1, f"1 to {MOST} experts in a layer, got 0"),
        ([0] * (MOST + 1), 1, f"got {MOST + 1}"),
        ([-1], 1, "whole numbers >= 0, got -1"),
        ([0.5], 1, "whole numbers >= 0, got 0.5"),
        ([math.nan], 1, "got nan"),
        ([1], 0, f"replicas: expected a whole number from 1 to {MOST}, got 0"),
        ([1], 1.5, "got 1.5"),
    ],
)
def test_what_is_no_count_is_refused(counts: list[float], replicas: int, message: str) -> None:
    with pytest.raises(RecordError, match=message.replace(".", r"\.")):
        state_of(counts, replicas)


def test_an_empty_state_has_no_numbers() -> None:
    assert State(EXPERT_LOADS).values() == [] or State(EXPERT_LOADS).values() == ()
