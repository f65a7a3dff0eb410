from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import rltel
from realparts.measures import Record, absorbed, cpu_as_device, differences, exported, fake_cuda, reduced_in_rank
from realparts.ranks import Ranks, ranks
from rltel.core.errors import RecordError
from rltel.names.catalogue import catalogue
from rltel.record.recorder import Recorder
from rltel.record.tracker import Tracker
from rltel.reduce.trackers import Trackers
from rltel.rl import advantages

NAN, INF = math.nan, math.inf
SIGNS = ("positive", "negative", "zero")
Token = tuple[float, bool]

tokens_of_anything = st.lists(
    st.tuples(st.floats(width=32) | st.sampled_from([0.0, -0.0, 1.0, -1.0]), st.booleans()), max_size=30
)


def of_tokens(tokens: list[Token], **options: Any) -> Record:
    values = torch.tensor([value for value, _ in tokens], dtype=torch.float32)
    mask = torch.tensor([is_valid for _, is_valid in tokens], dtype=torch.bool)

    def record(tracker: Tracker) -> None:
        with tracker.scope("ppo_actor"):
            advantages.record(values, mask, tracker=tracker, **options)

    return record


def fractions(positive: float, negative: float, zero: float) -> dict[str, float]:
    shares = dict(zip(SIGNS, (positive, negative, zero), strict=True))
    return {f"ppo_actor/advantage_{sign}_fraction": share for sign, share in shares.items()}


class TestFractions:
    def test_are_of_valid_tokens(self) -> None:
        tokens = [(2.0, True), (-1.0, True), (-3.0, True), (0.0, True), (5.0, False), (NAN, False)]
        assert exported(of_tokens(tokens)) == fractions(0.25, 0.5, 0.25)

    def test_zeros_of_both_signs_are_zero(self) -> None:
        assert exported(of_tokens([(0.0, True), (-0.0, True)])) == fractions(0.0, 0.0, 1.0)

    def test_infinities_have_a_sign(self) -> None:
        assert exported(of_tokens([(INF, True), (-INF, True)])) == fractions(0.5, 0.5, 0.0)

    def test_nan_has_none_and_stays_visible(self) -> None:
        found = exported(of_tokens([(NAN, True), (1.0, True)]))
        assert not differences(found, fractions(NAN, NAN, NAN))
        assert found["ppo_actor/advantage_zero_fraction/nonfinite"] == 1.0

    def test_of_nothing_are_left_out(self) -> None:
        assert exported(of_tokens([(1.0, False)]), of_tokens([])) == {}

    def test_are_not_recorded_for_pure_mopd(self) -> None:
        assert exported(of_tokens([(1.0, True)], pure_mopd=True)) == {}

    def test_are_weighted_by_tokens_and_not_by_batches(self) -> None:
        found = exported(of_tokens([(1.0, True)] * 9), of_tokens([(-1.0, True)]))
        assert found == fractions(0.9, 0.1, 0.0)

    def test_padded_and_packed(self) -> None:
        def padded(tracker: Tracker) -> None:
            values, mask = np.array([[1.0, NAN], [-1.0, 0.0]]), np.array([[True, False], [True, True]])
            with tracker.scope("ppo_actor"):
                advantages.record(values, mask, tracker=tracker)

        assert exported(padded) == exported(of_tokens([(1.0, True), (-1.0, True), (0.0, True)]))

    def test_into_the_process_s_tracker_if_none_is_given(self) -> None:
        rltel.export_all()
        with rltel.scope("mine"):
            advantages.record([1.0], [True])
        assert rltel.export_all()["mine/advantage_positive_fraction"] == 1.0

    def test_of_another_shape_are_refused(self) -> None:
        with pytest.raises(RecordError, match=r"advantages: expected the shape of the mask, \(1,\), got \(2,\)"):
            advantages.record([1.0, 2.0], [True], tracker=Tracker())


class TestSplits:
    @given(st.lists(tokens_of_anything, max_size=4))
    @settings(max_examples=50)
    def test_into_batches_workers_and_devices(self, parts: list[list[Token]]) -> None:
        expected = exported(of_tokens([token for part in parts for token in part]))
        records = [of_tokens(part) for part in parts]
        with cpu_as_device():
            on_device = exported(*records)
        for found in (exported(*records), absorbed(*records), on_device):
            assert found.keys() == expected.keys()
            assert not differences(found, expected)


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ranks]:
    with ranks(2, tmp_path_factory.mktemp("two")) as group:
        yield group


@pytest.fixture(scope="module")
def four(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ranks]:
    with ranks(4, tmp_path_factory.mktemp("four")) as group:
        yield group


@pytest.mark.xdist_group("four ranks")
class TestRanks:
    @pytest.mark.parametrize("world_size", [2, 4])
    def test_of_unequal_sizes(self, world_size: int, request: pytest.FixtureRequest) -> None:
        group: Ranks = request.getfixturevalue({2: "two", 4: "four"}[world_size])
        parts = [[(1.0, True)] * 7, [(-1.0, True), (0.0, True)], [], [(2.0, False), (3.0, True)]][:world_size]
        expected = exported(of_tokens([token for part in parts for token in part]))
        for found in group.run(reduced_in_rank, [of_tokens(part) for part in parts]):
            assert not differences(found, expected)


def test_no_synchronisation_on_cuda() -> None:
    trackers = Trackers(Recorder())
    with fake_cuda() as copies:
        values = torch.empty(4, 5, device="cuda", dtype=torch.bfloat16)
        advantages.record(values, torch.empty(4, 5, device="cuda", dtype=torch.bool), tracker=trackers.default)
        trackers.default.cut()
    assert copies.calls > 10
    assert copies.seen == []


def test_every_key_has_a_name_in_the_catalogue() -> None:
    for sign in SIGNS:
        match = catalogue().find(f"ppo_actor/advantage_{sign}_fraction")
        assert match is not None
        assert match.attributes == {"rl.advantage.sign": sign}
