from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterator, Sequence
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
    reduced_in_rank,
)
from realparts.ranks import Ranks, ranks
from rltel.core.errors import RecordError
from rltel.names.catalogue import catalogue
from rltel.record.recorder import Recorder
from rltel.record.tracker import Tracker
from rltel.reduce.trackers import Trackers
from rltel.rl import inputs, staleness
from rltel.rl.inputs import to_prediction_positions

AT = "version_stats/"
CURRENT = 5
Token = tuple[int, bool]
"""The version that generated it, and whether it counts."""

any_tokens = st.lists(st.tuples(st.integers(-1, 8), st.booleans()), max_size=30)


def of_batch(batch: dict[str, Any], current: int = CURRENT, **options: Any) -> Record:
    versions, mask = torch.tensor(batch["versions"], dtype=torch.int64), bools(batch["mask"])
    return lambda tracker: staleness.record(versions, mask, current, tracker=tracker, **options)


def of_tokens(tokens: Sequence[Token], **options: Any) -> Record:
    return of_batch({"versions": [version for version, _ in tokens], "mask": [valid for _, valid in tokens]}, **options)


def by_definition(tokens: Sequence[Token]) -> Flat:
    """The page's words, token by token, in plain Python."""
    ages = [CURRENT - version for version, is_valid in tokens if is_valid and version >= 0]
    flat = {"v_theta": 5.0, "v_proximal": 5.0, "n_valid_generated_tokens": float(len(ages))}
    if ages:
        for of in ("theta", "proximal"):
            flat[f"sample_staleness_{of}_avg"] = statistics.fmean(ages)
            flat[f"sample_staleness_{of}_min"] = float(min(ages))
            flat[f"sample_staleness_{of}_max"] = float(max(ages))
        flat["stale_token_fraction"] = statistics.fmean(age > 0 for age in ages)
        flat["future_token_fraction"] = statistics.fmean(age < 0 for age in ages)
    return {AT + key: value for key, value in flat.items()}


def without_counts(found: Flat) -> Flat:
    return {key: value for key, value in found.items() if not key.endswith("__count")}


def on_host(*records: Record) -> Flat:
    return exported(*records)


def on_device(*records: Record) -> Flat:
    with cpu_as_device():
        return exported(*records)


both = pytest.mark.parametrize("export", [on_host, on_device])
Export = Callable[..., Flat]


class TestVectors:
    @both
    def test_tokens_weigh_alike_whatever_their_batch(self, export: Export) -> None:
        vector = areal_vector("staleness_new")
        found = export(*[of_batch(batch, distribution=False) for batch in vector["input"]["batches"]])
        assert found == vector["output"]

    @both
    def test_none_generated(self, export: Export) -> None:
        vector = areal_vector("staleness_none_generated")
        assert export(of_batch(vector["input"])) == vector["output"]

    @both
    def test_the_older_meaning(self, export: Export) -> None:
        vector = areal_vector("staleness_old_main_cbff54d")
        found = export(*[of_batch(batch, meaning="areal-v2.0") for batch in vector["input"]["batches"]])
        assert found == vector["output"]


class TestDefinitions:
    @given(any_tokens)
    def test_every_key_is_the_page_s(self, tokens: list[Token]) -> None:
        found = without_counts(exported(of_tokens(tokens, distribution=False)))
        expected = by_definition(tokens)
        assert found.keys() == expected.keys()
        assert not differences(found, expected)

    def test_tokens_of_the_future_are_negative_and_counted(self) -> None:
        """A rollout engine that was updated before the trainer's counter was."""
        found = exported(of_tokens([(7, True), (5, True), (5, True), (4, True)]))
        assert found[AT + "sample_staleness_theta_min"] == -2.0
        assert found[AT + "future_token_fraction"] == 0.25
        assert found[AT + "stale_token_fraction"] == 0.25
        assert found[AT + "sample_staleness/min"] == -2.0

    def test_the_distribution_tells_a_few_old_ones_from_many_young_ones(self) -> None:
        found = exported(of_tokens([(4, True)] * 95 + [(0, True)] * 5))
        assert found[AT + "sample_staleness/p50"] == pytest.approx(1.0, rel=0.022)
        assert found[AT + "sample_staleness/p99"] == pytest.approx(5.0, rel=0.022)

    def test_an_update_counts_its_tokens_once_in_however_many_minibatches(self) -> None:
        tokens = [(4, True), (3, True), (5, True), (2, False)]
        whole = exported(of_tokens(tokens, distribution=False))
        parts = exported(*[of_tokens([token], distribution=False) for token in tokens])
        assert whole[AT + "n_valid_generated_tokens"] == 3.0
        assert without_counts(parts) == without_counts(whole)

    def test_two_updates_that_use_the_same_trajectories_count_them_twice(self) -> None:
        update = of_tokens([(4, True), (3, True)])
        assert exported(update, update)[AT + "n_valid_generated_tokens"] == 4.0

    def test_areal_1736_extremes_are_not_averaged_over_minibatches(self) -> None:
        found = exported(of_tokens([(0, True)]), of_tokens([(4, True)] * 3))
        assert found[AT + "sample_staleness_theta_max"] == 5.0
        assert found[AT + "sample_staleness_theta_min"] == 1.0
        assert found[AT + "sample_staleness_theta_avg"] == 2.0

    def test_padding_of_any_version_never_matters(self) -> None:
        def padded(tracker: Tracker) -> None:
            versions = np.array([[4.0, math.nan], [3.0, 99.0]])
            staleness.record(versions, np.array([[True, False], [True, False]]), CURRENT, tracker=tracker)

        assert exported(padded) == exported(of_tokens([(4, True), (3, True)]))


class TestOlderMeaning:
    @both
    def test_a_call_without_generated_tokens_is_no_call(self, export: Export) -> None:
        one = [of_tokens([(3, True)], meaning="areal-v2.0")]
        none = [of_tokens([(-1, True), (2, False)], meaning="areal-v2.0"), of_tokens([], meaning="areal-v2.0")]
        found, expected = export(*one, *none), export(*one)
        assert found.pop(AT + "n_valid_tokens") == 2.0
        assert expected.pop(AT + "n_valid_tokens") == 1.0
        assert found == expected

    def test_does_not_mix_with_the_newer(self) -> None:
        with pytest.raises(RecordError, match="n_valid_generated_tokens: recorded as sum before, and now as scalar"):
            exported(of_tokens([(3, True)]), of_tokens([(3, True)], meaning="areal-v2.0"))


class TestShifting:
    def test_versions_are_moved_to_where_tokens_are_predicted(self) -> None:
        """As AReaL does for this diagnostic: rolled by -1, and the last place generated by none."""
        versions = torch.tensor([[-1, 3, 4], [-1, -1, 5]])
        generated = torch.tensor([[False, True, True], [False, False, True]])

        def record(tracker: Tracker) -> None:
            shifted = to_prediction_positions(versions, last=-1)
            assert shifted.tolist() == [[3, 4, -1], [-1, 5, -1]]
            mask = to_prediction_positions(generated, last=False)
            staleness.record(shifted, mask, CURRENT, tracker=tracker)

        found = exported(record)
        assert found[AT + "n_valid_generated_tokens"] == 3.0
        assert found[AT + "sample_staleness_theta_avg"] == 1.0

    def test_packed_gives_what_padded_gives(self) -> None:
        packed, mask = torch.tensor([-1, 3, 4, -1, 5]), torch.tensor([False, True, True, False, True])
        padded, padded_mask = (
            torch.tensor([[-1, 3, 4], [-1, 5, -1]]),
            torch.tensor([[False, True, True], [False, True, False]]),
        )
        lengths = torch.tensor([0, 3, 5])

        def record_packed(tracker: Tracker) -> None:
            versions = to_prediction_positions(packed, last=-1, cu_seqlens=lengths)
            where = to_prediction_positions(mask, last=False, cu_seqlens=lengths)
            staleness.record(versions, where, CURRENT, tracker=tracker)

        def record_padded(tracker: Tracker) -> None:
            versions = to_prediction_positions(padded, last=-1)
            staleness.record(versions, to_prediction_positions(padded_mask, last=False), CURRENT, tracker=tracker)

        assert exported(record_packed) == exported(record_padded)


class TestSplits:
    """The same tokens give the same numbers, however they come."""

    @given(st.lists(any_tokens, min_size=1, max_size=4))
    @settings(max_examples=50)
    def test_into_batches_workers_and_devices(self, parts: list[list[Token]]) -> None:
        expected = without_counts(exported(of_tokens([token for part in parts for token in part])))
        records = [of_tokens(part) for part in parts]
        for found in map(without_counts, (exported(*records), absorbed(*records), on_device(*records))):
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
    def test_vector_of_two_ranks(self, two: Ranks) -> None:
        vector = areal_vector("train_infer_and_staleness_two_ranks")
        expected = {key: value for key, value in vector["output"].items() if key.startswith(AT)}
        assert len(expected) == 13
        records = [of_batch(vector["input"][f"rank{rank}"]) for rank in range(2)]
        for found in two.run(reduced_in_rank, records):
            assert not differences(found, expected, 1e-12)

    @given(parts=st.tuples(any_tokens, any_tokens))
    @settings(max_examples=10)
    def test_any_split_over_two(self, two: Ranks, parts: tuple[list[Token], ...]) -> None:
        check_ranks(two, parts)

    @given(parts=st.tuples(any_tokens, any_tokens, any_tokens, any_tokens))
    @settings(max_examples=10)
    def test_any_split_over_four(self, four: Ranks, parts: tuple[list[Token], ...]) -> None:
        check_ranks(four, parts)


def check_ranks(group: Ranks, parts: Sequence[list[Token]]) -> None:
    expected = without_counts(exported(of_tokens([token for part in parts for token in part])))
    for found in map(without_counts, group.run(reduced_in_rank, [of_tokens(part) for part in parts])):
        assert found.keys() == expected.keys()
        assert not differences(found, expected)


class TestInputs:
    def test_scopes_lead_the_keys_as_in_areal(self) -> None:
        rltel.export_all()
        with rltel.scope("ppo_actor"), rltel.scope("update"):
            staleness.record(torch.tensor([4]), torch.tensor([True]), 5)
        assert rltel.export_all()["ppo_actor/update/version_stats/sample_staleness_theta_avg"] == 1.0

    @pytest.mark.parametrize(
        ("versions", "mask", "current", "options", "message"),
        [
            ([1, 2], [True], 5, {}, r"staleness: versions: expected the shape of the mask, \(1,\), got \(2,\)"),
            ([1], [1], 5, {}, "staleness: mask: expected a bool mask, got dtype int64"),
            ([1], [True], 5.0, {}, "staleness: current_version: expected an int of 64 bits, got float 5.0"),
            ([1], [True], None, {}, "staleness: current_version: expected an int of 64 bits, got NoneType None"),
            ([1], [True], 10**400, {}, "staleness: current_version: expected an int of 64 bits, got int 1000"),
            ([1], [True], 5, {"meaning": "old"}, "meaning: expected one of checkpoint, areal-v2.0, got 'old'"),
        ],
    )
    def test_what_does_not_fit_is_refused_and_nothing_recorded(
        self, versions: Any, mask: Any, current: Any, options: dict[str, Any], message: str
    ) -> None:
        trackers = Trackers(Recorder())
        with pytest.raises(RecordError, match=message):
            staleness.record(versions, mask, current, tracker=trackers.default, **options)
        assert dict(trackers.export_all()) == {}

    def test_versions_on_the_host_beside_a_mask_on_a_device(self) -> None:
        def recorded() -> Flat:
            mask = torch.tensor([True, True, False])
            return exported(lambda tracker: staleness.record(np.array([3, -1, 4]), mask, 5, tracker=tracker))

        expected = recorded()
        with cpu_as_device(), mock.patch.object(inputs, "_on_host", side_effect=AssertionError("it was waited for")):
            assert recorded() == pytest.approx(expected)

    @pytest.mark.parametrize("meaning", staleness.MEANINGS)
    def test_a_trainer_s_handling_of_floating_point_errors_is_not_for_us(self, meaning: str) -> None:
        with np.errstate(all="raise"):
            found = exported(
                lambda tracker: staleness.record(
                    [math.nan, math.inf, 1.0], [True] * 3, 3, meaning=meaning, tracker=tracker
                )
            )
        assert found["version_stats/n_valid_generated_tokens"] == 2

    def test_versions_are_exact_in_any_integer_dtype(self) -> None:
        for dtype in (torch.int64, torch.int32, torch.int16, torch.float32):
            versions = torch.tensor([3, 5], dtype=dtype)
            found = exported(
                lambda tracker, given=versions: staleness.record(given, torch.tensor([True, True]), 5, tracker=tracker)
            )
            assert found[AT + "sample_staleness_theta_avg"] == 1.0


class TestCosts:
    @pytest.mark.parametrize("meaning", staleness.MEANINGS)
    def test_no_synchronisation_on_cuda(self, meaning: str) -> None:
        trackers = Trackers(Recorder())
        with fake_cuda() as copies:
            versions = torch.empty(4, 5, device="cuda", dtype=torch.int32)
            mask = torch.empty(4, 5, device="cuda", dtype=torch.bool)
            for _ in range(2):
                staleness.record(versions, mask, 5, meaning=meaning, tracker=trackers.default)
            trackers.default.cut()
        assert copies.calls > 50
        assert copies.seen == []


def test_every_key_has_a_name_in_the_catalogue() -> None:
    trackers = Trackers(Recorder())
    with trackers.default.scope("ppo_actor/update"):
        of_tokens([(4, True)])(trackers.default)
    keys = trackers.export_all().snapshot.keys()
    assert len(keys) == 12
    assert [key for key in keys if catalogue().find(key) is None] == []
