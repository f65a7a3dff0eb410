"""How long each sequence of a batch is, from its mask, without waiting for the device that the mask is on."""

from collections.abc import Callable
from typing import Any

from rltel.core.errors import RecordError
from rltel.record import fold
from rltel.record.inputs import summary
from rltel.rl.inputs import given_array

Lengths = Callable[[], list[int]]
"""Gives one length per sequence, in tokens; to be called once the work put on the device so far is done."""


def lengths_of(attention_mask: Any = None, lengths: Any = None) -> Lengths:
    """The lengths of a batch's sequences. What lies on a device is copied to the host without waiting for it.

    Args:
        attention_mask: ``[sequences, length]``, a tensor or array of bool or of numbers that are not 0 where a token
            is: of whole sequences, not of this rank's slices.
        lengths: or the lengths themselves (tokens), a tensor, array or list ``[sequences]``.

    Raises `RecordError` for both, neither, or what does not fit.
    """
    if (attention_mask is None) == (lengths is None):
        given = "neither" if lengths is None else "both"
        raise RecordError(f"throughput: batch: expected attention_mask or lengths, got {given}")
    if attention_mask is not None:
        return _from_mask(attention_mask)
    return _from_lengths(lengths)


def _from_mask(mask: Any) -> Lengths:
    given = given_array("throughput: batch: attention_mask", mask)
    if given.ndim != 2 or not (fold.is_tensor(given) or given.dtype.kind in "fiub"):
        raise RecordError(
            "throughput: batch: attention_mask: expected [sequences, length] (packed sequences give their lengths), "
            f"got {summary(mask)}"
        )
    if fold.is_tensor(given):
        return _soon(given.detach().bool().sum(dim=-1))
    found = (given != 0).sum(axis=-1).tolist()
    return lambda: found


def _from_lengths(lengths: Any) -> Lengths:
    given = given_array("throughput: batch: lengths", lengths)
    if given.ndim == 1 and not fold.is_tensor(given) and not given.size:
        return list
    is_whole = (
        not (given.is_floating_point() or given.is_complex()) if fold.is_tensor(given) else given.dtype.kind in "iu"
    )
    if given.ndim != 1 or not is_whole or str(given.dtype).endswith("bool"):
        raise RecordError(f"throughput: batch: lengths: expected whole numbers [sequences], got {summary(lengths)}")
    if not fold.on_device(given) and (given < 0).any():
        raise RecordError(f"throughput: batch: lengths: expected whole numbers >= 0, got {min(given.tolist())}")
    if fold.is_tensor(given):
        return _soon(given.detach())
    found = given.tolist()
    return lambda: found


def _soon(lengths: Any) -> Lengths:
    """On the host by the time that the work put on its device so far is done."""
    if not fold.on_device(lengths):
        found = lengths.tolist()
        return lambda: found
    if lengths.device.type == "cuda":
        lengths = lengths.to("cpu", non_blocking=True)  # torch pins the memory of such a copy
    return lambda: _seen(lengths.tolist())  # other devices copy, and are waited for, only here


def _seen(lengths: list[int]) -> list[int]:
    """What could not be checked while it was on a device."""
    if min(lengths, default=0) < 0:
        raise RecordError(f"throughput: batch: lengths: expected whole numbers >= 0, got {min(lengths)}")
    return lengths
