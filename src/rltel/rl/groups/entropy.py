"""Entropy of the distributions that tokens were drawn from, in nats."""

from typing import Any

import numpy as np

from rltel.core.errors import RecordError
from rltel.record.fold import is_tensor
from rltel.record.inputs import as_values, summary
from rltel.record.tracker import Tracker
from rltel.rl.groups.statistics import SCOPE
from rltel.rl.inputs import tracker_of_rollouts

_PIECE = 1 << 22  # logits that are looked at at once: 16 MB in float32


def record_entropy(
    entropies: Any = None,
    mask: Any | None = None,
    *,
    logits: Any | None = None,
    temperature: float = 1.0,
    tracker: Tracker | None = None,
) -> None:
    """Record the entropy of tokens' distributions as ``<current scope>/groups/entropy``, spread over valid tokens.

    Args:
        entropies: of each token, in nats, ``[batch, length]`` or ``[tokens]``. Or:
        logits: ``[..., vocabulary]``; see `entropy_of`.
        mask: bool, of the tokens' shape; None: every token counts.
        temperature: of the sampling, for ``logits``.
        tracker: None is the process's default one; inside `rltel.eval_scope`, ``eval-rollout``.

    Raises `RecordError` if a shape or dtype does not fit, or if both or neither are given.
    """
    if (entropies is None) == (logits is None):
        given = "neither" if logits is None else "both"
        raise RecordError(f"record_entropy: expected entropies or logits, got {given}")
    values = entropy_of(logits, temperature=temperature) if entropies is None else entropies
    tracker = tracker_of_rollouts(tracker)
    with tracker.scope(SCOPE):
        tracker.distribution({"entropy": values}, mask=mask)


def entropy_of(logits: Any, *, temperature: float = 1.0) -> Any:
    """Entropy in nats of ``softmax(logits / temperature)`` over the last dimension: ``[...]``, in float32 at least.

    A token that cannot be drawn (logit -inf) adds nothing. A piece at a time: no second copy of all logits is made.
    Torch tensors stay on their device and are not waited for.

    Raises `RecordError` for what has no last dimension or no real numbers, or a temperature that is not above 0.
    """
    _check_temperature(temperature)
    given: Any = logits if is_tensor(logits) else as_values("entropy_of: logits", logits, None, "")
    if is_tensor(given) and given.is_complex():
        raise RecordError(f"entropy_of: logits: expected real numbers, got {summary(logits)}")
    if not len(given.shape) or not given.shape[-1]:
        raise RecordError(f"entropy_of: expected logits [..., vocabulary], got {summary(logits)}")
    rows = given.reshape(-1, given.shape[-1])
    step = max(_PIECE // given.shape[-1], 1)
    if not is_tensor(given):
        pieces = (rows[begin : begin + step] for begin in range(0, max(len(rows), 1), step))
        return np.concatenate([_of_array(piece, temperature) for piece in pieces]).reshape(given.shape[:-1])
    import torch  # there is a tensor, so it is loaded already

    return torch.cat([_of_tensor(piece, temperature) for piece in rows.split(step)]).reshape(given.shape[:-1])


def _check_temperature(temperature: Any) -> None:
    try:
        if temperature > 0:
            return
    except TypeError:
        pass
    raise RecordError(f"entropy_of: temperature: expected a number above 0, got {temperature!r:.60}")


def _of_tensor(rows: Any, temperature: float) -> Any:
    import torch

    rows = rows.detach()
    rows = rows if rows.dtype == torch.float64 else rows.float()
    return torch.special.entr((rows / temperature).softmax(-1)).sum(-1)


def _of_array(rows: Any, temperature: float) -> Any:
    with np.errstate(all="ignore"):  # all -inf, or a NaN: that is what comes out, whatever the trainer's `np.seterr`
        scaled = rows.astype(np.float64) / temperature
        weights = np.exp(scaled - scaled.max(-1, keepdims=True))
        shares = weights / weights.sum(-1, keepdims=True)
        return np.where(shares == 0, 0.0, shares * -np.log(shares)).sum(-1)
