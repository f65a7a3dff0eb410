"""Groups: every statistic is what its definition says, whatever the split of groups over calls, workers, ranks."""

from __future__ import annotations

import itertools
import math
import random
import warnings
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import rltel
from realparts.measures import (
    Flat,
    Record,
    absorbed,
    cpu_as_device,
    differences,
    exported,
    fake_cuda,
    reduced_in_rank,
    same,
)
from realparts.ranks import Ranks, ranks
from rltel.core.errors import RecordError
from rltel.record.recorder import Recorder
from rltel.reduce.trackers import Trackers
from rltel.rl import groups

NAN, INF = math.nan, math.inf
SIZE = 4
Group = list[tuple[float, bool, int]]
"""Of each rollout: reward, whether it is correct, tokens."""

rollout = st.tuples(st.sampled_from([0.0, 0.5, 1.0]) | st.floats(-10, 10, width=32), st.booleans(), st.integers(0, 500))
group = st.lists(rollout, min_size=SIZE, max_size=SIZE)
many_groups = st.lists(group, max_size=8)


def of_groups(given: Sequence[Group], **options: Any) -> Record:
    rows = [row for each in given for row in each]
    options = {"group_size": SIZE, "k": (1, 2, 4), **options}

    def record(tracker: Any) -> None:
        groups.record(
            [reward for reward, _, _ in rows],
            correct=np.array([correct for _, correct, _ in rows], bool),
            lengths=[length for _, _, length in rows],
            truncated=np.array([length > 400 for _, _, length in rows], bool),
            tracker=tracker,
            **options,
        )

    return record


def by_definition(given: Sequence[Group]) -> Flat:
    """Each key in plain Python, with pass@k and best@k as means over every choice of k rollouts."""
    found: Flat = {"n_groups": float(len(given)), "n_rollouts": float(len(given) * SIZE)}
    if not given:
        return {f"groups/{key}": value for key, value in found.items()}
    rewards = [[row[0] for row in each] for each in given]
    correct = [[row[1] for row in each] for each in given]
    means = [math.fsum(each) / SIZE for each in rewards]
    stds = [math.sqrt(math.fsum((r - m) ** 2 for r in each) / SIZE) for each, m in zip(rewards, means, strict=True)]
    rows = [row for each in given for row in each]

    def mean(values: Sequence[float]) -> float:
        return math.fsum(values) / len(values)

    found |= {
        "zero_variance_fraction": mean([float(max(each) == min(each)) for each in rewards]),
        "reward_mean/avg": mean(means), "reward_mean/min": min(means), "reward_mean/max": max(means),
        "reward_std/avg": mean(stds), "reward_std/min": min(stds), "reward_std/max": max(stds),
        "reward/avg": mean([row[0] for row in rows]), "length/max": float(max(row[2] for row in rows)),
        "truncated_fraction": mean([float(row[2] > 400) for row in rows]),
        "all_correct_fraction": mean([float(all(each)) for each in correct]),
        "none_correct_fraction": mean([float(not any(each)) for each in correct]),
    }  # fmt: skip
    for k in (1, 2, 4):
        chosen = [[any(c) for c in itertools.combinations(each, k)] for each in correct]
        found[f"pass@{k}"] = mean([mean([float(one) for one in each]) for each in chosen])
        if k > 1:
            best = [[max(c) for c in itertools.combinations(each, k)] for each in rewards]
            found[f"best@{k}"] = mean([mean(each) for each in best])
    return {f"groups/{key}": value for key, value in found.items()}


def parts_of(given: Sequence[Group], cuts: Sequence[int]) -> list[Sequence[Group]]:
    places = [0, *sorted(cut % (len(given) + 1) for cut in cuts), len(given)]
    return [given[begin:end] for begin, end in itertools.pairwise(places)]


class TestEstimators:
    @given(st.lists(st.booleans(), min_size=1, max_size=8), st.integers(1, 8))
    def test_pass_at_k_is_the_mean_over_every_choice_of_k(self, correct: list[bool], k: int) -> None:
        assume(k <= len(correct))
        chosen = [any(choice) for choice in itertools.combinations(correct, k)]
        assert groups.pass_at_k(len(correct), sum(correct), k) == pytest.approx(sum(chosen) / len(chosen))

    @given(st.lists(st.floats(-100, 100), min_size=1, max_size=8), st.integers(1, 8))
    def test_best_at_k_is_the_mean_best_of_every_choice_of_k(self, rewards: list[float], k: int) -> None:
        assume(k <= len(rewards))
        chosen = [max(choice) for choice in itertools.combinations(rewards, k)]
        assert groups.best_at_k(rewards, k) == pytest.approx(math.fsum(chosen) / len(chosen), abs=1e-9)

    def test_of_rewards_0_and_1_best_is_pass(self) -> None:
        for c, k in itertools.product(range(9), range(1, 9)):
            assert groups.best_at_k([1.0] * c + [0.0] * (8 - c), k) == pytest.approx(groups.pass_at_k(8, c, k))

    def test_many_rollouts_do_not_overflow(self) -> None:
        assert groups.pass_at_k(100_000, 1, 1000) == pytest.approx(0.01)
        assert groups.pass_at_k(200, 0, 100) == 0
        assert groups.pass_at_k(200, 101, 100) == 1

    def test_best_at_k_of_any_kind_of_rewards(self) -> None:
        for rewards in ([1.0, 2.0], np.array([1, 2], np.int8), torch.tensor([1.0, 2.0], dtype=torch.bfloat16)):
            assert groups.best_at_k(rewards, 1) == 1.5
        with pytest.raises(ValueError, match="one for each rollout"):
            groups.best_at_k([[1.0], [2.0]], 1)

    def test_unbiased_where_the_plain_estimate_is_not(self) -> None:
        """1 - (1 - c/n)^k, Chen et al.: "an underestimate". Over all outcomes of 4 rollouts, each right with 0.3."""
        p, n, k = 0.3, 4, 2
        chance = [math.comb(n, c) * p**c * (1 - p) ** (n - c) for c in range(n + 1)]
        true = 1 - (1 - p) ** k
        assert sum(w * groups.pass_at_k(n, c, k) for c, w in enumerate(chance)) == pytest.approx(true)
        assert sum(w * (1 - (1 - c / n) ** k) for c, w in enumerate(chance)) < true - 0.01

    @pytest.mark.parametrize(("n", "c", "k"), [(4, 5, 1), (4, 1, 5), (4, 1, 0), (4, -1, 1)])
    def test_what_cannot_be_is_refused(self, n: int, c: int, k: int) -> None:
        with pytest.raises(ValueError, match=f"n={n}, c={c}, k={k}"):
            groups.pass_at_k(n, c, k)
        if k != 1:
            with pytest.raises(ValueError, match="best_at_k"):
                groups.best_at_k([0.0] * n, k)


class TestGroups:
    @given(many_groups)
    def test_every_key_is_its_definition(self, given: list[Group]) -> None:
        assert not differences(exported(of_groups(given)), by_definition(given))

    @given(many_groups, st.lists(st.integers(0, 8), max_size=3))
    def test_any_split_into_calls_and_workers_gives_the_same(self, given: list[Group], cuts: list[int]) -> None:
        whole = exported(of_groups(given))
        parts = [of_groups(part) for part in parts_of(given, cuts)]
        assert not differences(exported(*parts), whole)
        assert not differences(absorbed(*parts), whole)

    @given(many_groups, st.integers(0, 1 << 30))
    def test_prompt_ids_bring_groups_together_in_any_order(self, given: list[Group], seed: int) -> None:
        rows = [(f"prompt {number}", row) for number, each in enumerate(given) for row in each]
        random.Random(seed).shuffle(rows)
        shuffled = [[row for _, row in rows]]
        ids = [prompt for prompt, _ in rows]
        assert not differences(exported(of_groups(shuffled, prompt_ids=ids)), by_definition(given))
        numbers = torch.tensor([int(prompt.split()[1]) for prompt in ids])
        found = exported(of_groups(shuffled, prompt_ids=numbers, group_size=None, k=(1, 2, 4) if ids else ()))
        assert not differences(found, by_definition(given))

    @given(many_groups)
    def test_on_a_device_it_is_the_same(self, given: list[Group]) -> None:
        rows = [row for each in given for row in each]

        def record(tracker: Any) -> None:
            groups.record(
                torch.tensor([reward for reward, _, _ in rows], dtype=torch.float64),
                group_size=SIZE,
                correct=torch.tensor([correct for _, correct, _ in rows], dtype=torch.bool),
                lengths=torch.tensor([length for _, _, length in rows]),
                truncated=torch.tensor([length > 400 for _, _, length in rows], dtype=torch.bool),
                k=(1, 2, 4),
                tracker=tracker,
            )

        with cpu_as_device():
            assert not differences(exported(record), by_definition(given))
        assert not differences(exported(record), by_definition(given))

    def test_a_device_is_not_waited_for(self) -> None:
        with fake_cuda() as spy:
            rewards = torch.zeros(16, device="cuda")

            def record(tracker: Any) -> None:
                groups.record(
                    rewards, group_size=4, correct=rewards > 0, lengths=rewards, truncated=rewards > 0, k=(1, 4),
                    tracker=tracker,
                )  # fmt: skip
                groups.record_entropy(logits=torch.zeros(4, 8, 32, device="cuda"), tracker=tracker)

            trackers = Trackers(Recorder())
            record(trackers.default)
            trackers.default.cut()
            assert spy.calls > 0
            assert spy.seen == []

    def test_groups_of_different_sizes(self) -> None:
        def record(tracker: Any) -> None:
            groups.record(
                [1, 0, 1, 1, 0, 0], prompt_ids="aabbbc", correct=[True, False, True, True, False, False],
                k=(1, 2, 3), tracker=tracker,
            )  # fmt: skip

        with pytest.raises(RecordError, match="one for each rollout"):
            exported(record)

        def record_list(tracker: Any) -> None:
            correct = [True, False, True, True, False, False]
            groups.record(correct, prompt_ids=list("aabbbc"), correct=correct, k=(1, 2, 3), tracker=tracker)

        found = exported(record_list)
        assert found["groups/n_groups"] == 3
        assert found["groups/pass@1"] == pytest.approx((1 / 2 + 2 / 3 + 0) / 3)
        assert found["groups/pass@2"] == pytest.approx((1 + 1) / 2)  # of the two that have 2 rollouts
        assert found["groups/pass@3"] == 1
        assert found["groups/zero_variance_fraction"] == pytest.approx(1 / 3)

    def test_a_batch_whose_groups_are_all_small_stops_no_training(self) -> None:
        """How large groups are is the batch's matter where no size is given: filters leave what they leave."""

        def record(tracker: Any) -> None:
            groups.record([1, 0, 1], prompt_ids=[7, 7, 8], correct=[True, False, True], k=(1, 8), tracker=tracker)

        found = exported(record)
        assert found["groups/pass@1"] == 0.75
        assert not {"groups/pass@8", "groups/best@8"} & found.keys()

    @pytest.mark.parametrize(
        "prompt_ids",
        [
            torch.tensor([3, 5, 3, 5]),
            list(torch.tensor([3, 5, 3, 5])),  # tensors hash by where they are, and none is another's equal
            list(np.array([3, 5, 3, 5])),
            torch.tensor([[3, 1], [3, 2], [3, 1], [3, 2]]),
            np.array([[3, 1], [3, 2], [3, 1], [3, 2]]),
            [torch.tensor([3, 1]), torch.tensor([3]), torch.tensor([3, 1]), torch.tensor([3])],
            [[3, 1], [3], [3, 1], [3]],
            [("a", [1]), ("b", [1]), ("a", [1]), ("b", [1])],
            ["a", 1, "a", 1],
            (each for each in "abab"),
        ],
    )
    def test_prompts_are_told_apart_by_what_they_are(self, prompt_ids: Any) -> None:
        found = exported(lambda tracker: groups.record([1, 0, 1, 0], prompt_ids=prompt_ids, tracker=tracker))
        assert found["groups/n_groups"] == 2
        assert found["groups/zero_variance_fraction"] == 1

    def test_whether_a_nan_is_correct_is_not_known(self) -> None:
        correct = torch.tensor([NAN, 0.0, 1.0, 1.0])

        def record(tracker: Any) -> None:
            groups.record([0, 0, 1, 1], group_size=2, correct=correct, k=(1, 2), tracker=tracker)

        found = exported(record)
        with cpu_as_device():
            assert exported(record) == pytest.approx(found, nan_ok=True)
        for key in ("pass@1", "pass@2", "all_correct_fraction", "none_correct_fraction"):
            assert math.isnan(found[f"groups/{key}"])
            assert found[f"groups/{key}/nonfinite"] == 1

    @pytest.mark.parametrize("k", [2, (1, 2), [1, 2], {1, 2}, range(1, 3), np.array([1, 2]), torch.tensor([1, 2])])
    def test_k_comes_in_any_form(self, k: Any) -> None:
        found = exported(lambda tracker: groups.record([1, 0], group_size=2, k=k, tracker=tracker))
        assert found["groups/best@2"] == 1

    def test_a_group_that_is_split_over_calls_is_refused(self) -> None:
        """A half would count as a whole group, with its variance and its pass@k made up."""
        with pytest.raises(RecordError, match=r"4 rollouts of each prompt in one call; prompt 'b' has 2; bring"):
            exported(of_groups([[(0.0, True, 1)] * 6], prompt_ids=["a", "a", "b", "a", "b", "a"]))
        with pytest.raises(RecordError, match="whole groups of 4 rollouts, got 6"):
            exported(of_groups([[(0.0, True, 1)] * 6]))

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            ({}, "got neither"),
            ({"group_size": 0}, "whole number >= 1"),
            ({"group_size": 2.0}, "whole number >= 1"),
            ({"group_size": 2, "correct": [True]}, "correct: expected one for each rollout"),
            ({"group_size": 2, "lengths": [[1, 2, 3, 4]]}, "lengths: expected one for each rollout"),
            ({"prompt_ids": [1, 2]}, "a prompt_id for each of 4"),
            ({"prompt_ids": [{1}, {1}, {2}, {2}]}, "numbers, texts or rows of them, got set {1}"),
            ({"prompt_ids": {1: 1, 2: 1, 3: 2, 4: 2}}, "one for each rollout"),
            ({"prompt_ids": 7}, "one for each rollout"),
            ({"group_size": 2, "k": (3,)}, "at most the group's 2"),
            ({"group_size": 2, "k": (0,)}, "whole numbers >= 1"),
            ({"group_size": 2, "k": "1"}, "whole numbers >= 1"),
            ({"group_size": 2, "k": np.array([1.5])}, "whole numbers >= 1, got 1.5"),
            ({"group_size": 2, "tolerance": NAN}, "tolerance: expected a number >= 0"),
            ({"group_size": 2, "tolerance": "1"}, "tolerance: expected a number >= 0"),
        ],
    )
    def test_what_cannot_be_is_refused_and_nothing_is_recorded(self, options: dict[str, Any], message: str) -> None:
        tracker = rltel.get("refused")
        with pytest.raises(RecordError, match=message):
            groups.record([1.0, 2.0, 3.0, 4.0], tracker=tracker, **options)
        assert not tracker.export()

    @pytest.mark.parametrize("wrong", [NAN, INF])
    def test_a_reward_that_is_not_finite_stays_visible(self, wrong: float) -> None:
        found = exported(lambda tracker: groups.record([wrong, 1.0, 2.0, 2.0], group_size=2, k=(2,), tracker=tracker))
        assert math.isnan(found["groups/zero_variance_fraction"])
        assert same(found["groups/reward/max"], wrong)
        assert same(found["groups/reward_mean/max"], wrong)

    @pytest.mark.parametrize("on_device", [False, True])
    def test_a_reward_that_is_never_the_best_does_not_matter_to_the_best(self, on_device: bool) -> None:
        """-inf marks what is out of bounds; its weight of 0 must not make NaN of it."""

        def record(tracker: Any) -> None:
            rewards = torch.tensor([-INF, 1.0, 3.0, 2.0])
            groups.record(rewards if on_device else rewards.numpy(), group_size=4, k=(2, 4), tracker=tracker)

        with cpu_as_device() if on_device else nullcontext():
            found = exported(record)
        assert found["groups/best@2"] == pytest.approx((3 * 3 + 2 * 2 + 1) / 6)
        assert found["groups/best@4"] == 3
        assert groups.best_at_k([-INF, 1.0, INF], 2) == INF

    def test_a_trainer_s_handling_of_floating_point_errors_is_not_for_us(self) -> None:
        wild = [NAN, 1.0, INF, -INF, 1e308, 1e308]
        with np.errstate(all="raise"):
            found = exported(lambda tracker: groups.record(wild, group_size=2, k=(1, 2), tracker=tracker))
            assert math.isnan(groups.entropy_of(np.array([NAN, 1e4])))
            assert groups.entropy_of(np.array([1e4, -1e4])) == 0
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            again = exported(lambda tracker: groups.record(wild, group_size=2, k=(1, 2), tracker=tracker))
        assert again == pytest.approx(found, nan_ok=True)

    def test_rewards_that_differ_little_may_count_as_the_same(self) -> None:
        def record(tolerance: float) -> Flat:
            rewards = [1.0, 1.0 + 1e-7, 0.0, 1.0]
            return exported(lambda tracker: groups.record(rewards, group_size=2, tolerance=tolerance, tracker=tracker))

        assert record(0.0)["groups/zero_variance_fraction"] == 0
        assert record(1e-6)["groups/zero_variance_fraction"] == 0.5

    def test_keys_follow_the_scope(self) -> None:
        def record(tracker: Any) -> None:
            with tracker.scope("ppo_actor"):
                groups.record([1.0, 2.0], group_size=2, tracker=tracker)

        assert "ppo_actor/groups/reward_std/avg" in exported(record)

    def test_the_process_s_own_tracker_is_the_default(self) -> None:
        rltel.export_all()
        groups.record([1.0, 2.0], group_size=2)
        assert rltel.export_all()["groups/n_groups"] == 1


@pytest.fixture(scope="module", params=[2, 4])
def group_of_ranks(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ranks]:
    with ranks(request.param, tmp_path_factory.mktemp("ranks")) as running:
        yield running


class _Recorded:
    """One rank's part, which pickles."""

    def __init__(self, part: Sequence[Group]) -> None:
        self.part = part

    def __call__(self, tracker: Any) -> None:
        of_groups(self.part)(tracker)


@pytest.mark.xdist_group("four ranks")
@settings(max_examples=10, deadline=None)
@given(st.lists(group, min_size=1, max_size=8), st.lists(st.integers(0, 8), min_size=3, max_size=3))
def test_real_ranks_give_the_same_however_groups_are_split(
    group_of_ranks: Ranks, given: list[Group], cuts: list[int]
) -> None:
    size = len(group_of_ranks.processes)
    parts = parts_of(given, cuts[: size - 1])
    found = group_of_ranks.run(reduced_in_rank, [_Recorded(part) for part in parts])
    for flat in found:
        assert not differences(flat, by_definition(given))


class TestEntropy:
    @pytest.mark.parametrize("make", [np.array, torch.tensor], ids=["numpy", "torch"])
    @pytest.mark.parametrize("temperature", [0.5, 1.0, 2.0])
    def test_is_its_definition(self, make: Any, temperature: float) -> None:
        logits = [[0.3, -1.0, 2.0, 0.0], [5.0, 5.0, -INF, 5.0]]
        found = groups.entropy_of(make(logits), temperature=temperature)
        for row, entropy in zip(logits, found, strict=True):
            weights = [math.exp(logit / temperature) for logit in row]
            shares = [weight / sum(weights) for weight in weights]
            assert float(entropy) == pytest.approx(-sum(p * math.log(p) for p in shares if p), rel=1e-5)

    def test_pieces_make_no_difference(self, monkeypatch: pytest.MonkeyPatch) -> None:
        from rltel.rl.groups import entropy

        logits = torch.randn(3, 5, 7, generator=torch.Generator().manual_seed(0))
        whole = groups.entropy_of(logits)
        monkeypatch.setattr(entropy, "_PIECE", 14)
        assert groups.entropy_of(logits).shape == (3, 5)
        torch.testing.assert_close(groups.entropy_of(logits), whole)
        np.testing.assert_allclose(groups.entropy_of(logits.numpy()), whole, rtol=1e-5)
        assert groups.entropy_of(torch.zeros(0, 4)).shape == (0,)

    def test_of_large_and_half_precision_logits(self) -> None:
        logits = torch.tensor([[1000.0, 0.0], [3.0, 3.0]], dtype=torch.bfloat16)
        torch.testing.assert_close(groups.entropy_of(logits), torch.tensor([0.0, math.log(2)]))

    def test_only_valid_tokens_count(self) -> None:
        mask = torch.tensor([[True, False]])
        found = exported(
            lambda tracker: groups.record_entropy(torch.tensor([[0.5, NAN]]), mask, tracker=tracker),
            lambda tracker: groups.record_entropy(logits=torch.zeros(1, 2, 4), mask=mask, tracker=tracker),
        )
        assert found["groups/entropy/avg"] == pytest.approx((0.5 + math.log(4)) / 2)
        assert found["groups/entropy/max"] == pytest.approx(math.log(4))

    def test_what_cannot_be_is_refused(self) -> None:
        with pytest.raises(RecordError, match="got neither"):
            groups.record_entropy()
        with pytest.raises(RecordError, match="got both"):
            groups.record_entropy([0.1], logits=[[0.1]])
        with pytest.raises(RecordError, match="vocabulary"):
            groups.entropy_of(3.0)
        for temperature in (0.0, -1.0, NAN, "1", None):
            with pytest.raises(RecordError, match="above 0"):
                groups.entropy_of([[1.0]], temperature=temperature)  # type: ignore[arg-type]  # what is refused
        for logits in ([[1.0, 2.0], [1.0]], [["a"]], torch.zeros(2, 3, dtype=torch.complex64), None):
            with pytest.raises(RecordError, match="logits: expected"):
                groups.record_entropy(logits=[[None]] if logits is None else logits)

    def test_a_certain_token_has_none_and_no_negative_one(self) -> None:
        assert math.copysign(1.0, groups.entropy_of(np.array([1e30, -1e30]))) == 1.0


class TestRepetition:
    @given(st.lists(st.integers(0, 2), max_size=12), st.integers(1, 5))
    def test_repeated_ngrams_is_its_definition(self, tokens: list[int], n: int) -> None:
        grams = [tuple(tokens[place : place + n]) for place in range(len(tokens) - n + 1)]
        expected = 1 - len(set(grams)) / len(grams) if grams else None
        assert groups.repeated_ngrams(tokens, n) == expected

    @given(st.lists(st.integers(0, 1), max_size=14))
    def test_loop_length_is_the_longest_end_with_a_period_twice_in_it(self, tokens: list[int]) -> None:
        def has_period(end: list[int], period: int) -> bool:
            return all(end[place] == end[place - period] for place in range(period, len(end)))

        ends = [tokens[begin:] for begin in range(len(tokens))]
        loops = [len(end) for end in ends if any(has_period(end, p) for p in range(1, len(end) // 2 + 1))]
        assert groups.loop_length(tokens) == max(loops, default=0)

    def test_examples(self) -> None:
        assert groups.loop_length("xababa") == 5
        assert groups.loop_length("abc") == 0
        assert groups.loop_length([7] * 1000) == 1000
        assert groups.repeated_ngrams("aaaa", 2) == pytest.approx(2 / 3)
        with pytest.raises(RecordError, match="n: expected"):
            groups.repeated_ngrams("ab", 0)

    def test_recorded_over_completions_of_any_kind(self) -> None:
        completions = [[1, 2, 3, 4], np.array([5, 5, 5, 5, 5]), torch.tensor([1, 2]), []]
        found = exported(lambda tracker: groups.record_repetition(completions, n=2, tracker=tracker))
        assert found["groups/repetition/avg"] == pytest.approx((0 + 0.75 + 0) / 3)
        assert found["groups/loop_fraction/avg"] == pytest.approx((0 + 1 + 0) / 3)
        assert exported(lambda tracker: groups.record_repetition([], tracker=tracker)) == {}

    @pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.int16])
    def test_tokens_are_told_apart_by_what_they_are(self, dtype: torch.dtype) -> None:
        """Tensors hash by where they are: nothing would ever repeat."""
        tokens = torch.tensor([5, 5, 5, 5, 5], dtype=dtype)
        for form in (tokens, list(tokens), tokens.numpy(), list(tokens.numpy()), tokens.tolist(), "55555"):
            assert groups.repeated_ngrams(form, 2) == 0.75
            assert groups.loop_length(form) == 5
        found = exported(lambda tracker: groups.record_repetition([list(tokens)], n=2, tracker=tracker))
        assert found["groups/repetition/avg"] == 0.75

    @pytest.mark.parametrize("completions", [None, 7, "text", [7], [[{1}]], [None]])
    def test_what_has_no_tokens_is_refused(self, completions: Any) -> None:
        with pytest.raises(RecordError, match="record_repetition: expected"):
            groups.record_repetition(completions, tracker=rltel.get("refused"))

    @pytest.mark.parametrize("n", [0, -1, 2.5, "2", None])
    def test_n_is_a_whole_number(self, n: Any) -> None:
        with pytest.raises(RecordError, match="n: expected a whole number >= 1"):
            groups.record_repetition([[1, 2]], n=n, tracker=rltel.get("refused"))

    def test_text_is_no_list_of_tokens(self) -> None:
        with pytest.raises(RecordError, match="expected tokens"):
            groups.record_repetition(["text"], tracker=rltel.get("refused"))


class TestSamples:
    def rows(self, **options: Any) -> list[dict[str, Any]]:
        rewards = [0.1, 0.9, 0.5, 0.9, NAN, 0.0, 0.3, 0.2]
        prompts, completions = ([f"{what} {number}" for number in range(8)] for what in ("prompt", "completion"))
        return groups.sample_completions(prompts, completions, rewards, **options)

    def test_the_best_and_the_worst_lead_and_nothing_is_picked_twice(self) -> None:
        rows = self.rows(best=2, worst=2, random=100)
        assert [row["picked"] for row in rows] == ["best"] * 2 + ["worst"] * 2 + ["random"] * 4
        assert [row["completion"][-1] for row in rows[:4]] == ["1", "3", "5", "0"]
        assert len({row["prompt"] for row in rows}) == 8

    def test_random_ones_follow_from_seed_and_step_and_move_no_generator(self) -> None:
        random.seed(7)
        np.random.seed(7)
        before = random.getstate(), np.random.get_state()[1].tolist(), torch.get_rng_state()
        drawn = [[row["prompt"] for row in self.rows(best=0, worst=0, random=3, step=step)] for step in range(20)]
        after = random.getstate(), np.random.get_state()[1].tolist(), torch.get_rng_state()
        assert before[:2] == after[:2]
        assert torch.equal(before[2], after[2])
        assert drawn == [[row["prompt"] for row in self.rows(best=0, worst=0, random=3, step=s)] for s in range(20)]
        assert len({tuple(each) for each in drawn}) > 5

    def test_texts_are_redacted_and_then_cut(self) -> None:
        (row,) = self.rows(best=1, worst=0, random=0, max_chars=6, redact=lambda text: text.replace("o", "*"))
        assert row["prompt"] == "pr*mpt... (2 more)"
        assert row["completion"] == "c*mple... (6 more)"

    def test_more_columns(self) -> None:
        (row,) = self.rows(best=1, worst=0, random=0, columns={"version": list(range(8))})
        assert row == {
            "picked": "best",
            "prompt": "prompt 1",
            "completion": "completion 1",
            "reward": 0.9,
            "version": 1,
        }

    def test_what_does_not_fit_is_refused(self) -> None:
        with pytest.raises(RecordError, match="one of each for each rollout"):
            self.rows(columns={"version": [1]})
        with pytest.raises(RecordError, match="reward: that name is taken"):
            self.rows(columns={"reward": list(range(8))})

    @pytest.mark.parametrize("name", ["best", "worst", "random", "max_chars"])
    def test_fewer_than_none_are_refused(self, name: str) -> None:
        """A slice to -1 is all but the last."""
        with pytest.raises(RecordError, match=f"{name}: expected a number >= 0, got -1"):
            self.rows(**{name: -1})

    def test_rewards_of_any_kind(self) -> None:
        for rewards in (torch.tensor([0.5, 1.0], dtype=torch.bfloat16), np.array([False, True]), [0, 1]):
            row = groups.sample_completions(["p", "q"], ["c", "d"], rewards, best=1, worst=0, random=0)[0]
            assert (row["prompt"], row["reward"], type(row["reward"])) == ("q", 1.0, float)
        with pytest.raises(RecordError, match="rewards: expected a tensor, array or sequence of real numbers"):
            groups.sample_completions(["p"], ["c"], [None])  # type: ignore[list-item]  # what is refused

    def test_a_negative_step_or_seed_draws_as_well(self) -> None:
        def drawn(step: int) -> list[str]:
            return [row["prompt"] for row in self.rows(best=0, worst=0, random=3, seed=-7, step=step)]

        assert [drawn(step) for step in (-1, -2, -3, -4)] == [drawn(step) for step in (-1, -2, -3, -4)]
        assert len({tuple(drawn(step)) for step in range(-9, 0)}) > 1

    def test_messages_are_shown_and_cut_and_redacted_as_text(self) -> None:
        messages = [[{"role": "user", "content": "secret " * 10}]]
        (row,) = groups.sample_completions(
            messages, ["c"], [1.0], max_chars=30, redact=lambda text: text.replace("secret", "*")
        )  # type: ignore[arg-type]  # a chat's prompts are often lists
        assert "secret" not in row["prompt"]
        assert row["prompt"].endswith("more)")

    def test_few_rollouts(self) -> None:
        assert groups.sample_completions([], [], []) == []
        (row,) = groups.sample_completions(["p"], ["c"], [1.0])
        assert row["picked"] == "best"

    def test_a_table_of_them_is_a_table(self) -> None:
        from rltel.export.media import table

        assert table("samples", self.rows()).columns == ("picked", "prompt", "completion", "reward")


def test_evaluation_s_groups_are_not_training_s() -> None:
    """As its sessions are: AReaL's ``stat_scope``."""
    rltel.export_all()
    groups.record([1.0, 0.0], group_size=2)
    with rltel.eval_scope():
        groups.record([1.0, 1.0], group_size=2)
        groups.record_entropy(np.full((1, 2), 0.5), mask=np.ones((1, 2), bool))
        groups.record_repetition([[1, 1, 1]], n=1)
    stats = rltel.export_all()
    assert (stats["groups/reward/avg"], stats["eval-rollout/groups/reward/avg"]) == (0.5, 1.0)
    assert {"eval-rollout/groups/entropy/avg", "eval-rollout/groups/repetition/avg"} <= set(stats)
    assert not {"groups/entropy/avg", "groups/repetition/avg"} & set(stats)
