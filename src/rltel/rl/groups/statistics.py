"""Statistics of groups: rollouts of the same prompt, as GRPO compares them."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from rltel.core.errors import RecordError
from rltel.record.fold import is_tensor
from rltel.record.inputs import as_values
from rltel.record.tracker import Tracker
from rltel.rl.groups.matrices import places, taken
from rltel.rl.groups.pass_at_k import passes, weights_of_best
from rltel.rl.inputs import tracker_of_rollouts

SCOPE = "groups"


def record(
    rewards: Any,
    *,
    group_size: int | None = None,
    prompt_ids: Any | None = None,
    correct: Any | None = None,
    k: int | Iterable[int] = (1,),
    lengths: Any | None = None,
    truncated: Any | None = None,
    tolerance: float = 0.0,
    tracker: Tracker | None = None,
) -> None:
    """Record statistics of groups under ``<current scope>/groups/`` (docs/groups.md). Never waits for a device.

    A group must be whole: all its rollouts in this call. Different groups may be recorded by different calls, workers
    and ranks, in any split: everything merges as sums over groups, or over rollouts.

    Args:
        rewards: one for each rollout, ``[rollouts]``, any real dtype.
        group_size: rollouts of a prompt. Without ``prompt_ids`` they follow each other.
        prompt_ids: the prompt of each rollout, in any order: strings, numbers, or rows of tokens ``[rollouts, ...]``,
            on the host (a tensor on a device would be waited for). Without ``group_size`` groups may differ in size,
            and parts of one are not noticed.
        correct: whether each rollout solved its prompt, bool ``[rollouts]`` (a NaN among numbers makes its group's
            unknown). None: nothing about passing is recorded.
        k: for pass@k and, above 1, best@k; a group with fewer rollouts does not count there.
        lengths: tokens of each rollout. ``truncated``: whether each was cut off, bool. Both ``[rollouts]``.
        tolerance: a group whose rewards differ by at most this teaches nothing: it has zero variance.
        tracker: None is the process's default one; inside `rltel.eval_scope`, ``eval-rollout``.

    Raises `RecordError`, and records nothing, for other shapes, for groups that are not whole, and for a k above
    ``group_size``.
    """
    given = {"rewards": rewards, "correct": correct, "lengths": lengths, "truncated": truncated}
    flat = {name: as_values(f"groups: {name}", value, None, "") for name, value in given.items() if value is not None}
    count = _same_length(flat)
    at = places(count, group_size, prompt_ids)
    ks = _checked_k(k, group_size)
    _check_tolerance(tolerance)
    whole = {name: list(taken(flat[name], at)) for name in ("rewards", "correct") if name in flat}
    groups = sum(len(place) for place in at)
    tracker = tracker_of_rollouts(tracker)
    with tracker.scope(SCOPE):
        tracker.stat({"n_groups": [float(groups)], "n_rollouts": [float(count)]}, reduce_type="sum")
        tracker.distribution({"reward": flat["rewards"]})
        if "lengths" in flat:
            tracker.distribution({"length": flat["lengths"]})
        if "truncated" in flat:
            tracker.stat({"truncated_fraction": flat["truncated"]}, reduce_type="avg")
        with np.errstate(all="ignore"):  # NaN and infinity are what comes out then, whatever the trainer's `np.seterr`
            for matrix in whole["rewards"]:
                _of_rewards(tracker, matrix, ks, tolerance)
            for matrix in whole.get("correct", ()):
                _of_correct(tracker, matrix, ks)


def _same_length(flat: Mapping[str, Any]) -> int:
    for name, values in flat.items():
        if len(values.shape) != 1 or values.shape != flat["rewards"].shape:
            shapes = {each: tuple(found.shape) for each, found in flat.items()}
            raise RecordError(f"groups: {name}: expected one for each rollout, [rollouts], as rewards; got {shapes}")
    return int(flat["rewards"].shape[0])


def _checked_k(k: Any, group_size: int | None) -> list[int]:
    given = k.tolist() if hasattr(k, "tolist") else k
    ks = list(given) if isinstance(given, Iterable) and not isinstance(given, (str, bytes)) else [given]
    for each in ks:
        if not hasattr(each, "__index__") or int(each) < 1:
            raise RecordError(f"groups: k: expected whole numbers >= 1, got {each!r:.60}")
        # Without a size, how large groups are is the batch's matter: one whose groups are small stops no training.
        if group_size is not None and each > group_size:
            raise RecordError(f"groups: k: expected at most the group's {group_size} rollouts, got {each}")
    return [int(each) for each in ks]


def _check_tolerance(tolerance: Any) -> None:
    try:
        if tolerance >= 0:
            return
    except TypeError:
        pass
    raise RecordError(f"groups: tolerance: expected a number >= 0, got {tolerance!r:.60}")


def _of_rewards(tracker: Tracker, rewards: Any, ks: Sequence[int], tolerance: float) -> None:
    """Of groups of one size, ``[groups, size]``."""
    lowest, highest = _extremes(rewards)
    # A NaN leaves open whether the rewards are the same: it makes the fraction NaN.
    unknown = (highest - lowest) * 0
    flat = (highest - lowest <= tolerance) + unknown
    tracker.stat({"reward_mean": rewards.mean(1), "reward_std": _deviation(rewards)})
    tracker.stat({"zero_variance_fraction": flat}, reduce_type="avg")
    size = rewards.shape[1]
    best = {f"best@{k}": _highest(rewards, k) @ _beside(weights_of_best(size, k), rewards) for k in ks if 1 < k <= size}
    if best:
        tracker.stat(best, reduce_type="avg")


def _of_correct(tracker: Tracker, correct: Any, ks: Sequence[int]) -> None:
    size = correct.shape[1]
    right = (correct != 0).sum(1)
    found = {f"pass@{k}": _beside(passes(size, k), correct).take(right) for k in ks if k <= size}
    found |= {"all_correct_fraction": right == size, "none_correct_fraction": right == 0}
    unknown = (correct * 0).sum(1)  # NaN where one is: that is neither right nor wrong
    tracker.stat({key: values + unknown for key, values in found.items()}, reduce_type="avg")


def _extremes(rewards: Any) -> tuple[Any, Any]:
    return (rewards.amin(1), rewards.amax(1)) if is_tensor(rewards) else (rewards.min(1), rewards.max(1))


def _deviation(rewards: Any) -> Any:
    """The population's, as GRPO divides by (some trainers use the sample's, which a group of one has not)."""
    return rewards.std(1, correction=0) if is_tensor(rewards) else rewards.std(1)


def _highest(rewards: Any, k: int) -> Any:
    """From the k-th lowest on, in order."""
    if is_tensor(rewards):
        return rewards.sort(1).values.narrow(1, k - 1, rewards.shape[1] - k + 1)
    return np.sort(rewards, axis=1)[:, k - 1 :]


def _beside(table: Any, values: Any) -> Any:
    """A small table where the values lie."""
    if not is_tensor(values):
        return table
    import torch  # there is a tensor, so it is loaded already

    return torch.from_numpy(table).to(values.dtype).to(values.device, non_blocking=True)
