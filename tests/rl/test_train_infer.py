from __future__ import annotations

import gc
import math
import tracemalloc
import weakref
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any
from unittest import mock

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import rltel
from realparts.measures import (
    Flat,
    Record,
    absorbed,
    areal_vector,
    bools,
    cpu_as_device,
    differences,
    exported,
    fake_cuda,
    numbers,
    reduced_in_rank,
    same,
)
from realparts.ranks import Ranks, ranks
from rltel.core.errors import RecordError
from rltel.names.catalogue import catalogue
from rltel.record.recorder import Recorder
from rltel.record.tracker import Tracker
from rltel.reduce.trackers import Trackers
from rltel.rl import inputs, train_infer
from rltel.rl.inputs import to_prediction_positions

NAN, INF = math.nan, math.inf
AT = "ppo_actor/train_infer/"
Token = tuple[float, float, bool]
"""Trainer's and rollout's logprob, and whether it is valid."""

logprobs = st.floats(-40.0, 0.0, width=32)
anything = logprobs | st.sampled_from([NAN, INF, -INF])
finite_tokens = st.lists(st.tuples(logprobs, logprobs, st.booleans()), max_size=40)
any_tokens = st.lists(st.tuples(anything, anything, st.booleans()), max_size=40)


def record(tracker: Tracker, trainer: Any, rollout: Any, mask: Any, **options: Any) -> None:
    with tracker.scope("ppo_actor"):
        train_infer.record(trainer, rollout, mask, tracker=tracker, **options)


def of_tokens(tokens: Sequence[Token], **options: Any) -> Record:
    trainer, rollout, mask = (list(column) for column in zip(*tokens, strict=True)) if tokens else ([], [], [])
    columns = numbers(trainer), numbers(rollout), bools(mask)
    return lambda tracker: record(tracker, *columns, **options)


def of_batch(batch: dict[str, Any]) -> Record:
    columns = numbers(batch["trainer"]), numbers(batch["rollout"]), bools(batch["mask"])
    return lambda tracker: record(tracker, *columns)


def split(tokens: Sequence[Token], cuts: Sequence[int]) -> list[Sequence[Token]]:
    """In as many parts as there are cuts, and one; some may be empty."""
    places = [0, *sorted(cut % (len(tokens) + 1) for cut in cuts), len(tokens)]
    return [tokens[begin:end] for begin, end in pairwise(places)]


def by_definition(tokens: Sequence[Token]) -> Flat:
    """The page's table, token by token, in plain Python."""
    valid = [(t, r) for t, r, is_valid in tokens if is_valid]
    gaps = [t - r for t, r in valid]

    def mean(values: Sequence[float]) -> float:
        return math.fsum(values) / len(values)

    flat = {"n_valid_tokens": float(len(valid))}
    if valid:
        flat |= {
            "logp_diff/avg": mean(gaps), "logp_diff/min": min(gaps), "logp_diff/max": max(gaps),
            "logp_abs_diff/avg": mean([abs(d) for d in gaps]),
            "logp_abs_diff/min": min(abs(d) for d in gaps), "logp_abs_diff/max": max(abs(d) for d in gaps),
            "logp_diff_squared": mean([d * d for d in gaps]),
            "trainer_nll": mean([-t for t, _ in valid]), "rollout_nll": mean([-r for _, r in valid]),
            "kl_k1": mean([-d for d in gaps]), "kl_k2": mean([d * d / 2 for d in gaps]),
            "kl_k3": mean([math.expm1(d) - d for d in gaps]),
            "kl_k3_overflow_fraction": 0.0, "nonfinite_logp_fraction": 0.0,
            "importance_weight": mean([math.exp(d) for d in gaps]),
            "importance_weight_squared": mean([math.exp(2 * d) for d in gaps]),
        }  # fmt: skip
        for threshold in (1.5, 2, 3, 5, 10):
            flat[f"ratio_outside_{threshold}"] = mean([float(abs(d) > math.log(threshold)) for d in gaps])
    return {AT + key: value for key, value in flat.items()}


class TestVectors:
    @pytest.mark.parametrize("name", ["train_infer_compact", "train_infer_stat_variant"])
    def test_two_batches(self, name: str) -> None:
        vector = areal_vector(name)
        found = exported(*map(of_batch, vector["input"]["batches"]))
        rel = 1e-6 if name == "train_infer_stat_variant" else 1e-12  # that one was computed in float32
        assert not differences(found, vector["output"], rel)

    @pytest.mark.parametrize(
        "name", ["train_infer_invalid_valid_token", "train_infer_ratio_tails", "train_infer_large_gap"]
    )
    def test_one_batch(self, name: str) -> None:
        vector = areal_vector(name)
        assert not differences(exported(of_batch(vector["input"])), vector["output"], 1e-12)

    @pytest.mark.parametrize("name", ["train_infer_invalid_valid_token", "train_infer_ratio_tails"])
    def test_on_a_device(self, name: str) -> None:
        vector = areal_vector(name)
        with cpu_as_device():
            assert not differences(exported(of_batch(vector["input"])), vector["output"], 1e-12)


class TestDefinitions:
    @given(finite_tokens)
    def test_every_key_is_the_page_s_mean(self, tokens: list[Token]) -> None:
        expected = by_definition(tokens)
        found = exported(of_tokens(tokens, distribution=False))
        assert not differences(found, expected)
        assert found.keys() == expected.keys()

    @given(any_tokens)
    @settings(max_examples=40)
    def test_a_device_gives_what_the_host_gives(self, tokens: list[Token]) -> None:
        host = exported(of_tokens(tokens))
        with cpu_as_device():
            device = exported(of_tokens(tokens))
        assert device.keys() == host.keys()
        assert not differences(device, host)

    def test_logprobs_of_float64_lose_no_digits(self) -> None:
        gap = 1e-7  # its square is 1e-14; exp(d) - 1 - d in float32 would be noise
        trainer, rollout = np.array([-1.0 + gap]), np.array([-1.0])
        found = exported(lambda tracker: record(tracker, trainer, rollout, np.array([True])))
        assert found[AT + "kl_k3"] == pytest.approx(gap**2 / 2, rel=1e-2)
        assert found[AT + "kl_k2"] == pytest.approx(gap**2 / 2, rel=1e-6)

    def test_a_gap_beyond_float64_is_counted_and_makes_k3_infinite(self) -> None:
        found = exported(of_tokens([(-1.0, -801.0, True), (-1.0, -1.0, True)]))
        assert found[AT + "kl_k3"] == INF
        assert found[AT + "kl_k3_overflow_fraction"] == 0.5
        assert found[AT + "logp_diff/max"] == 800.0
        assert found[AT + "ratio_outside_10"] == 0.5
        assert found[AT + "nonfinite_logp_fraction"] == 0.0

    def test_a_trainer_s_handling_of_floating_point_errors_is_not_for_us(self) -> None:
        """An underflow of exp is no more than a small weight, and what overflows is what is measured."""
        tokens = [(-1000.0, 0.0, True), (0.0, -900.0, True), (NAN, 0.0, True), (INF, INF, True)]
        expected = exported(of_tokens(tokens))
        with np.errstate(all="raise"):
            assert exported(of_tokens(tokens)) == pytest.approx(expected, nan_ok=True)

    def test_an_infinite_logprob_is_no_overflow(self) -> None:
        """As top-p filtering returns for a token that it would never sample."""
        found = exported(of_tokens([(-1.0, -INF, True), (-1.0, -1.0, True)]))
        assert found[AT + "kl_k3_overflow_fraction"] == 0.0
        assert found[AT + "nonfinite_logp_fraction"] == 0.5
        assert math.isnan(found[AT + "ratio_outside_2"])
        assert found[AT + "logp_diff/max"] == INF
        assert found[AT + "rollout_nll"] == INF
        assert found[AT + "trainer_nll"] == 1.0

    @given(finite_tokens, any_tokens)
    def test_padding_never_matters(self, tokens: list[Token], padding: list[Token]) -> None:
        padded = [*tokens, *((t, r, False) for t, r, _ in padding)]
        found, expected = exported(of_tokens(padded)), exported(of_tokens(tokens))
        assert found.keys() == expected.keys()
        assert not differences(found, expected)

    def test_no_valid_token_gives_a_count_of_zero_and_nothing_else(self) -> None:
        assert exported(of_tokens([(NAN, 1.0, False)])) == {AT + "n_valid_tokens": 0.0}
        assert exported(of_tokens([])) == {AT + "n_valid_tokens": 0.0}


class TestDerived:
    @pytest.fixture
    def trackers(self) -> Trackers:
        trackers = Trackers(Recorder())
        train_infer.derive("ppo_actor/train_infer", trackers=trackers)
        return trackers

    @given(st.lists(st.tuples(logprobs, logprobs), min_size=1, max_size=30))
    def test_are_those_of_all_tokens_and_not_means_over_batches(self, pairs: list[tuple[float, float]]) -> None:
        trackers = Trackers(Recorder())
        train_infer.derive("ppo_actor/train_infer", trackers=trackers)
        for trainer, rollout in pairs:
            of_tokens([(trainer, rollout, True)])(trackers.default)
        found = trackers.export_all()
        gaps = np.array([trainer - rollout for trainer, rollout in pairs])
        weights = np.exp(gaps)
        # The variance is a difference of two means of up to 1600: its error is of their size times 1e-16.
        assert found[AT + "logp_abs_diff/std"] == pytest.approx(np.abs(gaps).std(), rel=1e-6, abs=1e-5)
        assert found[AT + "effective_sample_size"] == pytest.approx(
            weights.sum() ** 2 / (len(pairs) * (weights**2).sum()), rel=1e-9
        )

    def test_equal_gaps_have_no_deviation_though_rounding_says_less_than_none(self) -> None:
        below = 1.0 - 2**-53
        assert train_infer.standard_deviation(mean_of_squares=below, mean=1.0) == 0.0

    def test_equal_weights_leave_every_sample(self, trackers: Trackers) -> None:
        of_tokens([(-1.0, -2.0, True)] * 7)(trackers.default)
        assert trackers.export_all()[AT + "effective_sample_size"] == pytest.approx(1.0)

    def test_squares_beyond_float64_leave_no_made_up_zero_among_many_samples(self, trackers: Trackers) -> None:
        """The mean's square stays finite among enough tokens, and over an infinite mean of squares it would be 0."""
        of_tokens([(0.0, -355.0, True), *[(0.0, 0.0, True)] * 999])(trackers.default)
        assert math.isnan(trackers.export_all()[AT + "effective_sample_size"])

    def test_one_weight_above_all_leaves_one_sample(self, trackers: Trackers) -> None:
        of_tokens([(-1.0, -41.0, True), *[(-41.0, -1.0, True)] * 9])(trackers.default)
        assert trackers.export_all()[AT + "effective_sample_size"] == pytest.approx(0.1)

    def test_nan_stays_visible(self, trackers: Trackers) -> None:
        of_tokens([(NAN, -1.0, True), (-1.0, -1.0, True)])(trackers.default)
        found = trackers.export_all()
        assert math.isnan(found[AT + "logp_abs_diff/std"])
        assert math.isnan(found[AT + "effective_sample_size"])

    def test_weights_that_are_all_zero_have_no_effective_size(self, trackers: Trackers) -> None:
        of_tokens([(-2000.0, 0.0, True)])(trackers.default)
        assert math.isnan(trackers.export_all()[AT + "effective_sample_size"])

    def test_of_nothing_are_left_out(self, trackers: Trackers) -> None:
        of_tokens([(-1.0, -1.0, False)])(trackers.default)
        assert dict(trackers.export_all()) == {AT + "n_valid_tokens": 0.0}

    def test_the_process_s_own_trackers_need_no_call(self) -> None:
        tokens = torch.tensor([-1.0]), torch.tensor([-3.0]), torch.tensor([True])
        rltel.export_all()
        with rltel.scope("ppo_actor"):
            train_infer.record(*tokens)
        with rltel.get("other").scope("x"):
            train_infer.record(*tokens, tracker=rltel.get("other"))
        found = rltel.export_all()
        assert found[AT + "logp_abs_diff/std"] == 0.0
        assert found["other/x/train_infer/effective_sample_size"] == pytest.approx(1.0)

    def test_other_trackers_are_left_alone(self) -> None:
        """Keys of a tracker that a test or library made for itself must not be derived from the process's."""
        rltel.export_all()
        trackers = Trackers(Recorder())
        of_tokens([(-1.0, -1.0, True)])(trackers.default)
        assert AT + "logp_abs_diff/std" not in trackers.export_all()


class TestDistribution:
    def test_says_how_the_gaps_are_spread(self) -> None:
        found = exported(of_tokens([(-1.0, -1.0 - 0.01 * i, True) for i in range(101)]))
        at = AT + "logp_abs_diff_distribution"
        assert found[at + "/p50"] == pytest.approx(0.5, rel=0.022)
        assert found[at + "/p90"] == pytest.approx(0.9, rel=0.022)
        assert found[at + "/max"] == pytest.approx(1.0)

    def test_can_be_left_out(self) -> None:
        found = exported(of_tokens([(-1.0, -2.0, True)], distribution=False))
        assert not any("distribution" in key for key in found)
        assert AT + "logp_abs_diff/avg" in found


class TestSplits:
    """The same tokens give the same numbers, however they come."""

    @given(any_tokens, st.lists(st.integers(0, 40), max_size=4))
    @settings(max_examples=40)
    def test_into_batches(self, tokens: list[Token], cuts: list[int]) -> None:
        expected = exported(of_tokens(tokens))
        found = exported(*map(of_tokens, split(tokens, cuts)))
        assert found.keys() == expected.keys()
        assert not differences(found, expected)

    @given(any_tokens, st.lists(st.integers(0, 40), max_size=4))
    @settings(max_examples=40)
    def test_into_workers(self, tokens: list[Token], cuts: list[int]) -> None:
        expected = exported(of_tokens(tokens))
        found = absorbed(*map(of_tokens, split(tokens, cuts)))
        assert found.keys() == expected.keys()
        assert not differences(found, expected)

    @given(any_tokens, st.integers(1, 7))
    @settings(max_examples=40)
    def test_into_pieces(self, tokens: list[Token], size: int) -> None:
        expected = exported(of_tokens(tokens))
        with mock.patch.object(inputs, "PIECE", size):
            found = exported(of_tokens(tokens))
        assert found.keys() == expected.keys()
        assert not differences(found, expected)

    def test_a_batch_of_several_pieces_as_large_as_real_ones(self) -> None:
        shape = (7, inputs.PIECE // 3)
        generator = torch.Generator().manual_seed(0)
        rollout = -torch.rand(shape, generator=generator)
        trainer = rollout + 0.3 * torch.randn(shape, generator=generator)
        mask = torch.rand(shape, generator=generator) > 0.2
        found = exported(lambda tracker: record(tracker, trainer, rollout, mask))
        gaps = trainer[mask].double() - rollout[mask].double()
        assert found[AT + "n_valid_tokens"] == len(gaps)
        assert same(found[AT + "logp_diff/avg"], gaps.mean().item())
        assert same(found[AT + "ratio_outside_1.5"], (gaps.abs() > math.log(1.5)).double().mean().item())
        assert same(found[AT + "kl_k3"], (torch.expm1(gaps) - gaps).mean().item())


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
    def test_vector_of_two_ranks(self, two: Ranks) -> None:
        vector = areal_vector("train_infer_and_staleness_two_ranks")
        records = [of_batch(vector["input"][f"rank{rank}"]) for rank in range(2)]
        expected = {key: value for key, value in vector["output"].items() if key.startswith(AT)}
        assert len(expected) == 20
        for found in two.run(reduced_in_rank, records):
            assert not differences(found, expected, 1e-12)

    @given(tokens=any_tokens, cut=st.integers(0, 40))
    @settings(max_examples=10)
    def test_any_split_over_two(self, two: Ranks, tokens: list[Token], cut: int) -> None:
        check_ranks(two, tokens, [cut])

    @given(tokens=any_tokens, cuts=st.lists(st.integers(0, 40), min_size=3, max_size=3))
    @settings(max_examples=10)
    def test_any_split_over_four(self, four: Ranks, tokens: list[Token], cuts: list[int]) -> None:
        check_ranks(four, tokens, cuts)


def check_ranks(group: Ranks, tokens: list[Token], cuts: list[int]) -> None:
    expected = exported(of_tokens(tokens))
    for found in group.run(reduced_in_rank, [of_tokens(part) for part in split(tokens, cuts)]):
        assert found.keys() == expected.keys()
        assert not differences(found, expected)


class TestNotRecorded:
    def test_without_recomputed_logprobs(self) -> None:
        assert exported(lambda tracker: record(tracker, None, numbers([-1.0]), bools([1]))) == {}

    def test_for_pure_mopd(self) -> None:
        assert exported(of_tokens([(-1.0, -2.0, True)], pure_mopd=True)) == {}


class TestInputs:
    @pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16], ids=str)
    def test_of_any_float_dtype(self, dtype: torch.dtype) -> None:
        trainer, rollout = torch.tensor([-1.5, -2.0], dtype=dtype), torch.tensor([-1.0, -4.0], dtype=dtype)
        found = exported(lambda tracker: record(tracker, trainer, rollout, torch.tensor([True, True])))
        assert found[AT + "logp_diff/avg"] == 0.75
        assert found[AT + "kl_k2"] == (0.125 + 2.0) / 2

    def test_bf16_beside_float32(self) -> None:
        """An engine's bf16 logprobs are compared as they are, without rounding the trainer's."""
        trainer, rollout = torch.tensor([-1.001953125]), torch.tensor([-1.0], dtype=torch.bfloat16)
        found = exported(lambda tracker: record(tracker, trainer, rollout, torch.tensor([True])))
        assert found[AT + "logp_diff/avg"] == -0.001953125

    def test_packed_gives_what_padded_gives(self) -> None:
        padded = torch.tensor([[-1.0, -2.0, NAN], [-3.0, NAN, INF]])
        mask = torch.tensor([[True, True, False], [True, False, False]])
        packed = torch.tensor([-1.0, -2.0, -3.0])
        one = exported(lambda tracker: record(tracker, padded, padded - 1.0, mask))
        other = exported(lambda tracker: record(tracker, packed, packed - 1.0, torch.ones(3, dtype=torch.bool)))
        assert one == other

    def test_views_that_are_not_contiguous(self) -> None:
        values = torch.arange(12.0).reshape(3, 4)
        mask = values % 3 == 0
        one = exported(lambda tracker: record(tracker, values.T, 0.5 * values.T, mask.T))
        other = exported(lambda tracker: record(tracker, values, 0.5 * values, mask))
        assert not differences(one, other)

    @pytest.mark.parametrize("on_device", [False, True])
    def test_neither_inference_mode_nor_autograd_matters(self, on_device: bool) -> None:
        def both(tracker: Tracker) -> None:
            with torch.inference_mode():
                values = torch.tensor([-1.0, -2.0])
                record(tracker, values, values - 1.0, values < 0)
            values = torch.tensor([-1.0, -2.0], requires_grad=True)
            record(tracker, values * 1.0, values - 1.0, values < 0)

        if on_device:
            with cpu_as_device():
                found = exported(both)
        else:
            found = exported(both)
        assert found[AT + "logp_diff/avg"] == 1.0
        assert found[AT + "n_valid_tokens"] == 4.0

    @pytest.mark.parametrize(
        ("trainer", "rollout", "mask", "message"),
        [
            ([-1.0, -2.0], [-1.0], [True, True], r"rollout: expected the shape of the mask, \(2,\), got \(1,\)"),
            ([[-1.0]], [-1.0], [True], r"trainer: expected the shape of the mask, \(1,\), got \(1, 1\)"),
            ([-1.0], [-1.0], [1.0], "train_infer: mask: expected a bool mask, got dtype float64"),
            ([-1.0], None, [True], "rollout: expected a tensor, array or sequence of real numbers, got NoneType"),
            ([1j], [-1.0], [True], "trainer: expected a tensor, array or sequence of real numbers"),
        ],
    )
    def test_what_does_not_fit_is_refused_and_nothing_recorded(
        self, trainer: Any, rollout: Any, mask: Any, message: str
    ) -> None:
        trackers = Trackers(Recorder())
        with pytest.raises(RecordError, match=message):
            record(trackers.default, trainer, rollout, np.array(mask))
        assert dict(trackers.export_all()) == {}

    def test_a_tensor_on_another_device_is_refused(self) -> None:
        with fake_cuda():
            there, here = torch.empty(3, device="cuda:0"), torch.empty(3, device="cuda:1")
            mask = torch.empty(3, dtype=torch.bool, device="cuda")
            with pytest.raises(
                RecordError, match="expected all values on one device, got trainer on cuda:0, rollout on cuda:1"
            ):
                record(Tracker(), there, here, mask)


def test_values_on_the_host_go_to_their_mask_which_would_have_to_be_waited_for() -> None:
    """A mask on a device says where it is, and not what it is, until somebody waits."""

    def recorded() -> Flat:
        values = np.array([-1.0, -2.0, -3.0]), np.array([-1.5, -2.0, NAN])
        return exported(lambda tracker: train_infer.record(*values, torch.tensor([True, True, False]), tracker=tracker))

    expected = recorded()
    with cpu_as_device(), mock.patch.object(inputs, "_on_host", side_effect=AssertionError("it was waited for")):
        found = recorded()
    assert found == pytest.approx(expected, nan_ok=True)


class TestCosts:
    @pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
    def test_no_synchronisation_on_cuda(self, dtype: torch.dtype) -> None:
        trackers = Trackers(Recorder())
        with fake_cuda() as copies:
            values = torch.empty(4, 5, device="cuda", dtype=dtype, requires_grad=True)
            mask = torch.empty(4, 5, device="cuda", dtype=torch.bool)
            for _ in range(2):
                record(trackers.default, values, values, mask)
            trackers.default.cut()
        assert copies.calls > 100
        assert copies.seen == []

    @pytest.mark.parametrize("on_device", [False, True])
    def test_no_tensor_is_retained(self, on_device: bool) -> None:
        """AReaL keeps 57 bytes a token until the export (reference/areal.md, section 8)."""
        trackers = Trackers(Recorder())
        values, mask = torch.rand(100_000), torch.rand(100_000) > 0.1
        seen = [weakref.ref(values), weakref.ref(mask)]
        record(trackers.default, values[:9], values[:9], mask[:9])  # keys and scopes exist from here on
        tracemalloc.start()
        before = tracemalloc.get_traced_memory()[0]
        if on_device:
            with cpu_as_device():
                record(trackers.default, values, values, mask)
                rows = [
                    row
                    for entry in trackers.default._entries.values()
                    for m in entry.on_devices.values()
                    for row in m.packed()
                ]
                assert 0 < max(row.numel() for row in rows) < 3000
        else:
            record(trackers.default, values, values, mask)
        kept = tracemalloc.get_traced_memory()[0] - before
        tracemalloc.stop()
        del values, mask
        gc.collect()
        assert [reference() for reference in seen] == [None, None]
        assert kept < 100_000


class TestToPredictionPositions:
    def test_rolls_as_areal_does(self) -> None:
        values = torch.tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])
        assert torch.equal(to_prediction_positions(values), torch.roll(values, -1, dims=-1))

    def test_packed_sequences_do_not_take_each_other_s_first(self) -> None:
        values = torch.tensor([1, 2, 3, 4, 5, 6])
        cu_seqlens = torch.tensor([0, 2, 2, 5, 6])  # the second sequence is empty
        assert to_prediction_positions(values, cu_seqlens=cu_seqlens).tolist() == [2, 1, 4, 5, 3, 6]
        assert to_prediction_positions(values, last=-1, cu_seqlens=cu_seqlens).tolist() == [2, -1, 4, 5, -1, -1]
        assert to_prediction_positions(values.numpy(), cu_seqlens=[0, 6]).tolist() == [2, 3, 4, 5, 6, 1]

    @given(st.lists(st.integers(0, 5), max_size=6), st.booleans())
    def test_packed_gives_what_each_sequence_gives(self, lengths: list[int], fill: bool) -> None:
        total = sum(lengths)
        values, ends = torch.arange(total), [0, *np.cumsum(lengths).tolist()]
        last = -1 if fill else None
        found = to_prediction_positions(values, last=last, cu_seqlens=torch.tensor(ends))
        expected = [to_prediction_positions(part, last=last) for part in torch.split(values, lengths)] if total else []
        assert found.tolist() == [value for part in expected for value in part.tolist()]

    @pytest.mark.parametrize("dtype", [torch.int32, torch.int64, torch.bool, torch.bfloat16, torch.float32], ids=str)
    def test_keeps_the_dtype(self, dtype: torch.dtype) -> None:
        values = torch.ones(2, 3, dtype=dtype)
        last = False if dtype is torch.bool else -1
        assert to_prediction_positions(values, last=last).dtype is dtype
        assert to_prediction_positions(values).dtype is dtype
        if dtype is not torch.bfloat16:  # NumPy has none
            assert to_prediction_positions(values.numpy(), last=last).dtype == values.numpy().dtype

    def test_of_nothing(self) -> None:
        assert to_prediction_positions(torch.empty(2, 0), last=0.0).shape == (2, 0)
        assert to_prediction_positions(np.empty(0), cu_seqlens=[0]).shape == (0,)

    @pytest.mark.parametrize("values", [torch.ones(3), np.ones(3)], ids=["torch", "numpy"])
    @pytest.mark.parametrize(
        "cu_seqlens", [[0, 2], [1, 3], [], [[0, 3]], [0, 2, 1, 3], [0.0, 3.0], [False, True], "03", [[0], [1, 3]], None]
    )
    def test_lengths_that_do_not_fit_are_refused(self, values: Any, cu_seqlens: Any) -> None:
        cu_seqlens = torch.tensor([0, 4, 3], dtype=torch.int32) if cu_seqlens is None else cu_seqlens
        with pytest.raises(RecordError, match="cu_seqlens: expected"):
            to_prediction_positions(values, cu_seqlens=cu_seqlens)

    def test_lengths_on_the_host_are_looked_at_beside_values_on_a_device(self) -> None:
        with cpu_as_device(), pytest.raises(RecordError, match="grow from 0 to the 3 tokens, got list"):
            to_prediction_positions(torch.ones(3), cu_seqlens=[0, 2, 1, 3])

    def test_lengths_on_a_device_have_a_dtype_and_a_shape_that_are_looked_at(self) -> None:
        with fake_cuda():
            values = torch.empty(6, device="cuda")
            for wrong in (torch.empty(3, device="cuda"), torch.empty(2, 3, device="cuda", dtype=torch.int32)):
                with pytest.raises(RecordError, match="cu_seqlens: expected whole numbers"):
                    to_prediction_positions(values, cu_seqlens=wrong)

    @pytest.mark.parametrize("dtype", [np.int32, np.int64, np.uint32])
    def test_lengths_as_attention_kernels_take_them(self, dtype: Any) -> None:
        ends = np.array([0, 2, 3], dtype)
        assert to_prediction_positions(np.array([1, 2, 3]), last=-1, cu_seqlens=ends).tolist() == [2, -1, -1]
        if dtype is not np.uint32:
            ends = torch.from_numpy(ends)
        assert to_prediction_positions(torch.tensor([1, 2, 3]), last=-1, cu_seqlens=ends).tolist() == [2, -1, -1]

    def test_ragged_lists_are_refused(self) -> None:
        with pytest.raises(RecordError, match="expected a tensor, an array or equally long lists, got list"):
            to_prediction_positions([[1, 2], [1]], last=-1)

    def test_lengths_beside_padded_values_are_refused(self) -> None:
        with pytest.raises(RecordError, match=r"expected values of packed sequences, \[tokens\], got Tensor of shape"):
            to_prediction_positions(torch.ones(2, 3), cu_seqlens=[0, 6])

    def test_one_number_is_refused(self) -> None:
        with pytest.raises(RecordError, match=r"expected values \[\.\.\., length\], got Tensor of shape \(\)"):
            to_prediction_positions(torch.tensor(1.0))

    def test_waits_for_no_device(self) -> None:
        with fake_cuda() as copies:
            values = torch.empty(6, device="cuda")
            to_prediction_positions(values, last=0.0)
            to_prediction_positions(values, cu_seqlens=torch.empty(3, device="cuda", dtype=torch.int32))
        assert copies.calls > 3
        assert copies.seen == []

    def test_aligns_a_rollout_s_logprobs_for_the_comparison(self) -> None:
        """The rollout gives token i's logprob at i; the trainer at i - 1, where it is predicted."""
        rollout = torch.tensor([[0.0, 0.0, -1.0, -2.0]])
        generated = torch.tensor([[False, False, True, True]])
        trainer = torch.tensor([[-9.0, -1.5, -2.5, -9.0]])
        found = exported(lambda tracker: record(tracker, trainer, *map(to_prediction_positions, (rollout, generated))))
        assert found[AT + "n_valid_tokens"] == 2.0
        assert found[AT + "logp_diff/min"] == found[AT + "logp_diff/max"] == -0.5


def test_every_key_has_a_name_in_the_catalogue() -> None:
    trackers = Trackers(Recorder())
    train_infer.derive("ppo_actor/train_infer", trackers=trackers)
    of_tokens([(-1.0, -2.0, True)])(trackers.default)
    keys = trackers.export_all().snapshot.keys()
    assert len(keys) == 21
    assert [key for key in keys if catalogue().find(key) is None] == []
