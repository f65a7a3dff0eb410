"""Of which sign tokens' advantages are: how many tokens push up, push down, or teach nothing."""

import math
from typing import Any

from rltel.record.tracker import Tracker
from rltel.rl.inputs import Valid, pieces, tracker_or_default


def record(advantages: Any, mask: Any, *, pure_mopd: bool = False, tracker: Tracker | None = None) -> None:
    """Record ``<current scope>/advantage_{positive,negative,zero}_fraction`` over valid tokens.

    This is how many tokens, not task success nor the signs of gradients. An advantage of NaN has no sign: it makes all
    three NaN. Nothing is recorded for pure MOPD.

    Args:
        advantages: shaped advantages at prediction positions, any real dtype, ``[batch, length]`` or ``[tokens]``.
        mask: bool, the batch's loss mask before rejection filtering, same shape.
        pure_mopd: whether this is pure multi-teacher distillation, whose advantages are no rewards'.
        tracker: None is the process's default one.

    Raises `RecordError` if a shape or dtype does not fit.
    """
    if pure_mopd:
        return
    tracker = tracker_or_default(tracker)
    for tokens in pieces("advantages", mask, advantages=advantages):
        tracker.stat(_signs(tokens), mask=tokens.mask, reduce_type="avg")


def _signs(tokens: Valid) -> dict[str, Any]:
    values, where = tokens.values["advantages"], tokens.xp.where
    unknown = tokens.xp.isnan(values)
    signs = {"positive": values > 0, "negative": values < 0, "zero": values == 0}
    return {f"advantage_{sign}_fraction": where(unknown, math.nan, found) for sign, found in signs.items()}
