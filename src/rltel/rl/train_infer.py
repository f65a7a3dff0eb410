"""How far the trainer's logprobs are from those that the rollout engine returned for the same tokens.

Let d = log p_trainer - log p_rollout. Where rollouts are stale, d holds the policy's drift too, not only the numerical
disagreement of two engines; and what an engine returns is not always what it sampled from (top-p, top-k, greedy).
"""

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from rltel.record.tracker import Tracker
from rltel.reduce.trackers import Trackers
from rltel.rl.inputs import Valid, pieces, process_trackers, scope_of, tracker_or_default

SCOPE = "train_infer"
THRESHOLDS = (1.5, 2, 3, 5, 10)
"""Of the probability ratio, in either direction, beyond which a token counts as a tail (R3, equation 3)."""


def record(
    trainer: Any | None,
    rollout: Any,
    mask: Any,
    *,
    pure_mopd: bool = False,
    distribution: bool = True,
    tracker: Tracker | None = None,
) -> None:
    """Compare logprobs at valid tokens, under ``<current scope>/train_infer/``.

    Nothing is recorded without recomputed logprobs (``trainer`` None), or for pure MOPD. Call it before PPO replaces
    the rollout's logprobs, with the generation mask as it is before rejection or advantage masking.

    Args:
        trainer: recomputed logprobs (nats) at prediction positions, of any float dtype, ``[batch, length]`` or
            ``[tokens]``.
        rollout: those that the rollout returned, shifted to prediction positions by the caller
            (`rltel.rl.inputs.to_prediction_positions`).
        mask: bool, true at predictions of generated tokens, shifted likewise.
        pure_mopd: whether this is pure multi-teacher distillation, which has no rollout policy to compare with.
        distribution: whether to record one of |d| too, ``logp_abs_diff_distribution``: it costs as much as the rest.
        tracker: None is the process's default one.

    Raises `RecordError` if a shape or dtype does not fit; shapes must be equal.
    """
    if trainer is None or pure_mopd:
        return
    compared = pieces(SCOPE, mask, trainer=trainer, rollout=rollout)
    tracker = tracker_or_default(tracker)
    with tracker.scope(SCOPE), np.errstate(all="ignore"):  # what overflows is measured here; `np.seterr` is not for us
        for tokens in compared:
            _record(tracker, tokens, distribution)
        _derive_here(tracker)


def derive(scope: str, *, trackers: Trackers | None = None) -> None:
    """Have every export compute two numbers from what was merged: `record` does so for the process's own trackers.

    Call it where metrics are exported that others recorded: in a controller that merges payloads, or on a rank that
    may have no tokens. ``logp_abs_diff/std`` is the population standard deviation of |d|, ``effective_sample_size`` the
    share of tokens that importance weights leave (see the page train_infer).

    Args:
        scope: where the keys are, such as ``"ppo_actor/train_infer"``, with the tracker's name if it has one.
        trackers: None is the process's own.
    """
    trackers = process_trackers() if trackers is None else trackers
    trackers.derive(
        f"{scope}/logp_abs_diff/std",
        standard_deviation,
        mean_of_squares=f"{scope}/logp_diff_squared",
        mean=f"{scope}/logp_abs_diff/avg",
    )
    trackers.derive(
        f"{scope}/effective_sample_size",
        effective_sample_size,
        mean=f"{scope}/importance_weight",
        mean_of_squares=f"{scope}/importance_weight_squared",
    )


def standard_deviation(mean_of_squares: float, mean: float) -> float:
    """The population's, of values whose squares have this mean: ``sqrt(max(0, E[x^2] - E[x]^2))``. NaN stays NaN."""
    variance = mean_of_squares - mean * mean
    return variance if math.isnan(variance) else math.sqrt(max(0.0, variance))


def effective_sample_size(mean: float, mean_of_squares: float) -> float:
    """Kish's ``(sum w)^2 / sum w^2`` (Survey Sampling, 1965), as a share of all samples: 1 if all weigh the same.

    From means, since the number of samples cancels. NaN where squares exceed float64 (a log ratio above 354).
    """
    if not mean_of_squares or math.isinf(mean_of_squares):
        return math.nan  # every weight is 0, or so small that its square is; or a square is beyond float64
    return mean * mean / mean_of_squares


def _record(tracker: Tracker, tokens: Valid, distribution: bool) -> None:
    tracker.stat({"n_valid_tokens": tokens.count}, mask=tokens.mask, reduce_type="sum")
    gap = tokens.values["trainer"] - tokens.values["rollout"]
    magnitude = abs(gap)
    tracker.stat({"logp_diff": gap, "logp_abs_diff": magnitude}, mask=tokens.mask)
    for key, values in _means(tokens, gap, magnitude):  # one at a time: each is as large as the batch
        tracker.stat({key: values}, mask=tokens.mask, reduce_type="avg")
    if distribution:
        tracker.distribution({"logp_abs_diff_distribution": magnitude}, mask=tokens.mask)


def _means(tokens: Valid, gap: Any, magnitude: Any) -> Iterator[tuple[str, Any]]:
    """What is averaged over tokens, by key."""
    yield "trainer_nll", -tokens.values["trainer"]
    yield "rollout_nll", -tokens.values["rollout"]
    yield "kl_k1", -gap
    squared = gap * gap
    yield "logp_diff_squared", squared
    yield "kl_k2", squared / 2
    finite = tokens.xp.isfinite(tokens.values["trainer"]) & tokens.xp.isfinite(tokens.values["rollout"])
    yield "nonfinite_logp_fraction", tokens.xp.logical_not(finite)
    yield from _exponentials(tokens.xp, gap, finite)
    for threshold in THRESHOLDS:
        beyond = magnitude > math.log(threshold)
        # What cannot be compared is neither inside nor outside: it makes the fraction NaN.
        yield f"ratio_outside_{threshold}", tokens.xp.where(finite, beyond, math.nan)


def _exponentials(xp: Any, gap: Any, finite: Any) -> Iterator[tuple[str, Any]]:
    """Each by its own function: exp(d) - 1 loses the digits of a small d, and expm1(d) + 1 those of a very negative."""
    excess = xp.expm1(gap)
    yield "kl_k3", excess - gap
    yield "kl_k3_overflow_fraction", finite & xp.isinf(excess)
    weight = xp.exp(gap)
    yield "importance_weight", weight
    yield "importance_weight_squared", weight * weight


def _derive_here(tracker: Tracker) -> None:
    trackers = process_trackers()
    if any(each is tracker for each in trackers.all()):
        derive(scope_of(tracker), trackers=trackers)
