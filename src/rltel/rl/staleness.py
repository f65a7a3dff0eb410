"""How many published policy versions ago tokens were generated."""

import operator
from typing import Any

import numpy as np

from rltel.core.errors import RecordError
from rltel.record.fold import mask_on
from rltel.record.inputs import as_mask, as_values, summary
from rltel.record.tracker import Tracker
from rltel.rl.inputs import Valid, to_device_of, tracker_or_default, valid

SCOPE = "version_stats"
MEANINGS = ("checkpoint", "areal-v2.0")


def record(
    versions: Any,
    mask: Any,
    current_version: int,
    *,
    meaning: str = "checkpoint",
    distribution: bool = True,
    tracker: Tracker | None = None,
) -> None:
    """Record the age of generated tokens under ``<current scope>/version_stats/``.

    Call it once an update, with the batch as it is before rejection filtering, not in each minibatch's forward: a token
    counts once an update, and again in another update that uses it again.

    Args:
        versions: the policy version that generated each token, -1 where none did (prompts, padding), any real dtype,
            ``[batch, length]`` or ``[tokens]``, at prediction positions
            (`rltel.rl.inputs.to_prediction_positions` with ``last=-1``).
        mask: bool, which tokens count, same shape.
        current_version: the last published version, that the update starts from.
        meaning: ``checkpoint``: theta and proximal both mean the last published checkpoint, averages are over tokens,
            extremes over all ranks. ``areal-v2.0``: as AReaL had it until v2.0.0: proximal is theta - 1, and the
            averages, extremes and token counts of each call are averaged over calls, whatever their sizes.
        distribution: whether to record one of staleness too, ``sample_staleness`` (of the first meaning only).
        tracker: None is the process's default one.

    Raises `RecordError` if a shape or dtype does not fit, or for another meaning.
    """
    if meaning not in MEANINGS:
        raise RecordError(f"staleness: meaning: expected one of {', '.join(MEANINGS)}, got {meaning!r}")
    current = _version(current_version)
    mask = as_mask("staleness: mask", mask, empty_is_wrong=False)
    tokens = valid("staleness", _generated(versions, mask), versions=versions)
    tracker = tracker_or_default(tracker)
    with tracker.scope(SCOPE), np.errstate(all="ignore"):  # a trainer's `np.seterr` is not for us
        if meaning == "checkpoint":
            _by_tokens(tracker, tokens, current, distribution)
        else:
            tracker.stat({"n_valid_tokens": mask}, reduce_type="sum")
            _by_calls(tracker, tokens, current)


def _version(given: Any) -> int:
    try:
        version = operator.index(given)
        if abs(version) < 1 << 63:
            return version
    except TypeError:
        pass
    raise RecordError(f"staleness: current_version: expected an int of 64 bits, got {summary(given)}")


def _generated(versions: Any, mask: Any) -> Any:
    """Where a token counts and some policy generated it."""
    given = to_device_of(mask, as_values("staleness: versions", versions, mask, "the mask"))
    device = None if isinstance(given, np.ndarray) else given.device
    return mask_on(device, mask) & (given >= 0)


def _by_tokens(tracker: Tracker, tokens: Valid, current: int, distribution: bool) -> None:
    tracker.scalar(v_theta=float(current), v_proximal=float(current))
    tracker.stat({"n_valid_generated_tokens": tokens.count}, mask=tokens.mask, reduce_type="sum")
    age = current - tokens.values["versions"]
    for statistic in ("avg", "min", "max"):
        keys = [f"sample_staleness_{of}_{statistic}" for of in ("proximal", "theta")]
        tracker.stat(dict.fromkeys(keys, age), mask=tokens.mask, reduce_type=statistic)
    fractions = {"stale_token_fraction": age > 0, "future_token_fraction": age < 0}
    tracker.stat(fractions, mask=tokens.mask, reduce_type="avg")
    if distribution:
        tracker.distribution({"sample_staleness": age}, mask=tokens.mask)


def _by_calls(tracker: Tracker, tokens: Valid, current: int) -> None:
    """One number a call, each call as much as another. A call without generated tokens is no call."""
    found = _summed_up(tokens)
    if found is None:
        return
    weight, count, mean, oldest, newest = found
    numbers = {"v_theta": current, "v_proximal": current - 1, "n_valid_generated_tokens": count}
    for of, version in (("proximal", current - 1), ("theta", current)):
        numbers[f"sample_staleness_{of}_avg"] = version - mean
        numbers[f"sample_staleness_{of}_max"] = version - oldest
        numbers[f"sample_staleness_{of}_min"] = version - newest
    tracker.scalar(numbers, weight=weight)


def _summed_up(tokens: Valid) -> tuple[Any, Any, Any, Any, Any] | None:
    """How much the call counts (1, or 0), how many tokens, and their versions' mean, lowest and highest."""
    values, mask, where = tokens.values["versions"], tokens.mask, tokens.xp.where
    if mask is None:
        return (1.0, tokens.count, values.mean(), values.min(), values.max()) if values.size else None
    if not values.numel():
        return None
    count = mask.sum()
    lowest, highest = where(mask, values, np.inf).amin(), where(mask, values, -np.inf).amax()
    # Whether there are any is not known without waiting: where there are none, all of this weighs nothing.
    return mask.any(), count, where(mask, values, 0).sum() / count, lowest, highest
