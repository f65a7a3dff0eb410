"""What metrics share stands once in a line, and what a line leaves out comes back."""

import math
from typing import Any

import pytest

from export.making import recorded
from rltel.core.errors import PayloadError
from rltel.export.jsonl_metrics import plain_groups, read_groups
from rltel.record.kinds import KINDS, Moments, State
from rltel.reduce.snapshot import Metric, Snapshot


def test_plain_numbers_are_one_group_of_numbers() -> None:
    snapshot = Snapshot.of_numbers({"a": 1.5, "b": -0.0})
    assert plain_groups(snapshot) == [{"kind": "gauge_mean", "states": {"a": 1.5, "b": -0.0}}]
    assert read_groups(plain_groups(snapshot)).flat() == {"a": 1.5, "b": -0.0}


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_a_number_that_is_not_finite_is_a_count(value: float) -> None:
    (group,) = plain_groups(Snapshot.of_numbers({"a": 1.0, "b": value}))
    assert group["states"]["a"] == 1.0
    assert sum(group["states"]["b"]) == 1.0
    assert str(read_groups([group]).flat()["b"]) == str(value)


def test_numbers_whose_sum_is_too_large_are_numbers() -> None:
    large = Snapshot.of_numbers({"a": 1.7e308, "b": 1.7e308})
    assert read_groups(plain_groups(large)).flat() == {"a": 1.7e308, "b": 1.7e308}


def test_kinds_trackers_and_reduction_are_told_apart() -> None:
    def record(trackers: Any) -> None:
        trackers.default.scalar(x=1.0)
        trackers.get("rollout").scalar(x=2.0)
        trackers.default.scalar(y=3.0)
        trackers.default.scalar(y=5.0)

    here = recorded(record)
    reduced = Snapshot({"z": Metric(State(KINDS["sum"], Moments(4.0)), reduced=True)})
    groups = plain_groups(Snapshot({**here, **reduced}))
    assert groups == [
        {"kind": "scalar", "states": {"x": 1.0, "y": (8.0, 2.0)}},
        {"kind": "scalar", "tracker": "rollout", "states": {"rollout/x": 2.0}},
        {"kind": "sum", "reduced": True, "states": {"z": [4.0]}},
    ]


@pytest.mark.parametrize("moments", [Moments(-6.0, 2.0, -4.0, -0.0), Moments(6.0, 2.0, 0.0, 6.0, 1.0), Moments()])
def test_zeros_that_are_left_out_come_back(moments: Moments) -> None:
    made = Snapshot({"k": Metric(State(KINDS["avg_min_max"], moments))})
    states = read_groups(plain_groups(made))["k"].state.moments
    assert [str(value) for value in states] == [str(value) for value in moments]


def test_buckets_stand_beside_the_states() -> None:
    (group,) = plain_groups(recorded(lambda trackers: trackers.default.distribution(n=[1.0, 2.0, 2.0])))
    assert sum(count for _, count in group["buckets"]["n"]) == 3
    assert read_groups([group]).flat()["n/max"] == 2.0


@pytest.mark.parametrize(
    ("groups", "what"),
    [
        ("x", "expected a list of groups, got str"),
        ([3], "expected a list of groups"),
        ([{"kind": "other", "states": {}}], "kind: expected a known one, got 'other'"),
        ([{"kind": "avg", "states": [1]}], "expected states and buckets by key"),
        ([{"kind": "sum", "states": {"x": 1.0}}], "x: state: expected 4 numbers"),  # one number stands for a mean only
        ([{"kind": "avg", "states": {"x": [1.0] * 6}}], "x: state: expected 5 numbers"),
        ([{"kind": "avg", "states": {"x": "1"}}], "x: state: expected 5 numbers"),
    ],
)
def test_what_is_no_group_is_refused(groups: Any, what: str) -> None:
    with pytest.raises(PayloadError, match=what):
        read_groups(groups)
