"""Counts into trackers: keys, scopes, devices, and what is no count."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from realparts.measures import Flat, Record, absorbed, cpu_as_device, exported, fake_cuda
from rltel.core.errors import RecordError
from rltel.record.recorder import Recorder
from rltel.record.tracker import Tracker
from rltel.reduce.trackers import Trackers
from rltel.rl import moe

Counts = dict[int, list[int]]


def recorded(counts: Any, **options: Any) -> Record:
    return lambda tracker: moe.record(counts, tracker=tracker, **options)


def tokens(flat: Flat, layer: int, experts: int) -> list[float]:
    return [flat[f"moe_balance/layer_{layer}/expert_{expert}/tokens"] for expert in range(experts)]


def test_keys_are_areal_s_and_in_no_scope() -> None:
    found = exported(recorded({3: [4, 2, 0, 2]}))
    assert found["moe_balance/layer_3/max_over_ideal"] == 2.0
    assert found["moe_balance/layer_3/expert_1/load_percent"] == 25.0
    assert found["moe_balance/layer_3/ideal"] == 2.0
    assert not [key for key in found if key.endswith(("/nonfinite", "__count"))]


def test_a_scope_and_a_tracker_s_name_lead_the_keys() -> None:
    trackers = Trackers(Recorder())
    with trackers.default.scope("critic"):
        moe.record({0: [1]}, tracker=trackers.default)
    moe.record({0: [2]}, tracker=trackers.get("actor"))
    found = trackers.export_all()
    assert found["critic/moe_balance/layer_0/expert_0/tokens"] == 1.0
    assert found["actor/moe_balance/layer_0/expert_0/tokens"] == 2.0


@pytest.mark.parametrize(
    "given_as",
    [list, tuple, np.array, torch.tensor, lambda c: torch.tensor(c, dtype=torch.int32), lambda c: np.array(c, float)],
)
def test_counts_come_as_any_sequence_array_or_tensor(given_as: Any) -> None:
    assert tokens(exported(recorded({0: given_as([3, 0, 5])})), 0, 3) == [3.0, 0.0, 5.0]


@given(st.lists(st.lists(st.lists(st.integers(0, 99), min_size=3, max_size=3), min_size=1, max_size=3), max_size=3))
def test_any_split_into_micro_batches_and_workers_is_the_same(workers: Sequence[Sequence[list[int]]]) -> None:
    everything = [counts for batches in workers for counts in batches]
    total = [sum(column) for column in zip(*everything, strict=True)] if everything else []

    def worker(batches: Sequence[list[int]]) -> Record:
        return lambda tracker: [moe.record({1: counts}, tracker=tracker) for counts in batches]

    expected = exported(recorded({1: total})) if everything else {}
    assert exported(*map(worker, workers)) == expected
    assert absorbed(*map(worker, workers)) == expected


def test_an_export_starts_anew() -> None:
    trackers = Trackers(Recorder())
    moe.record({0: [1, 1]}, tracker=trackers.default)
    trackers.export_all()
    moe.record({0: [0, 4]}, tracker=trackers.default)
    assert tokens(dict(trackers.export_all()), 0, 2) == [0.0, 4.0]
    assert not trackers.export_all()


class TestDevices:
    @settings(max_examples=30)
    @given(
        st.dictionaries(st.integers(0, 5), st.lists(st.integers(0, 2**40), min_size=1, max_size=5), max_size=4),
        st.integers(1, 3),
        st.integers(1, 3),
    )
    def test_gives_what_the_host_gives(self, counts: Counts, times: int, replicas: int) -> None:
        def record(tracker: Tracker) -> None:
            for _ in range(times):
                of_layers = {layer: torch.tensor(each) for layer, each in counts.items()}
                moe.record(of_layers, replicas=replicas, tracker=tracker)

        expected = exported(record)
        with cpu_as_device():
            assert exported(record) == expected

    def test_is_not_waited_for(self) -> None:
        tracker = Trackers(Recorder()).default
        with fake_cuda() as spy:
            counts = {layer: torch.zeros(8, dtype=torch.int64, device="cuda") for layer in range(4)}
            for _ in range(2):
                moe.record(counts, tracker=tracker)
            assert spy.calls > 0
            assert spy.seen == []

    def test_floats_there_are_refused_since_nobody_can_look_at_them(self) -> None:
        with cpu_as_device(), pytest.raises(RecordError, match=r"layer_0: expected whole numbers \[experts\], got"):
            exported(recorded({0: torch.zeros(3)}))


@pytest.mark.parametrize(
    ("counts", "message"),
    [
        ({0: torch.zeros(2, 2)}, r"moe_balance/layer_0: expected counts \[experts\], got"),
        ({0: 3}, r"moe_balance/layer_0: expected counts \[experts\], got"),
        ({0: "abc"}, r"moe_balance/layer_0: expected counts \[experts\], got"),
        ({-1: [1]}, "layer: expected a whole number >= 0, got -1"),
        ({"0": [1]}, "layer: expected a whole number >= 0, got '0'"),
    ],
)
def test_what_is_no_count_is_refused_and_nothing_recorded(counts: Any, message: str) -> None:
    trackers = Trackers(Recorder())
    with pytest.raises(RecordError, match=message):
        moe.record({5: [1], **counts}, tracker=trackers.default)
    assert not trackers.export_all()


@pytest.mark.parametrize("counts", [None, [1, 2], 7])
def test_counts_come_by_layer(counts: Any) -> None:
    with pytest.raises(RecordError, match="moe: record: expected counts by layer"):
        moe.record(counts)


def test_a_number_of_one_s_own_under_such_a_key_is_refused() -> None:
    """It would come out under a name that the layer's own number has."""
    trackers = Trackers(Recorder())
    moe.record({0: [1]}, tracker=trackers.default)
    with pytest.raises(RecordError, match="max_over_ideal"):
        trackers.default.gauge({"moe_balance/layer_0/max_over_ideal": 1.0})
