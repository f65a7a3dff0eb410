"""What the measures of tokens take: values and a mask at the same positions, checked, in float64 where they lie.

A logprob at a prediction position belongs to the token that is predicted there, one place to the right. Trainers
compute it there; rollouts return it at the token's own place, and `to_prediction_positions` shifts it.
"""

import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from rltel.core.errors import RecordError
from rltel.record import fold
from rltel.record.inputs import MaskViews, as_mask, as_values, summary
from rltel.record.tracker import Tracker
from rltel.reduce.scopes import EVALUATION, stat_scope
from rltel.reduce.trackers import Trackers, of_process

PIECE = 32768
"""Tokens: a few arrays of so many float64 fit into a core's second cache."""


def process_trackers() -> Trackers:
    """The process's own trackers, which ``rltel.stat`` and the others record into."""
    return of_process


def tracker_or_default(tracker: Tracker | None) -> Tracker:
    """This tracker; None: the process's default one."""
    return process_trackers().default if tracker is None else tracker


def tracker_of_rollouts(tracker: Tracker | None) -> Tracker:
    """This tracker; None: the process's default one, or inside ``rltel.eval_scope()`` that of evaluation's rollouts."""
    name = stat_scope()
    return process_trackers().get(name) if tracker is None and name == EVALUATION else tracker_or_default(tracker)


def scope_of(tracker: Tracker) -> str:
    """The path of the scope that the caller is in, with the tracker's name."""
    return tracker.path


def given_array(what: str, given: Any) -> Any:
    """A tensor as it is, anything else as a NumPy array. Raises `RecordError` for what is none (ragged lists, say)."""
    if fold.is_tensor(given):
        return given
    try:
        return np.asarray(given)
    except (TypeError, ValueError, RuntimeError) as error:
        raise RecordError(f"{what}: expected a tensor, an array or equally long lists, got {summary(given)}") from error


@dataclass(frozen=True, slots=True)
class Valid:
    """Values at the valid positions, in float64 (float32 where the device has no other).

    On the host they are flat and nothing else is left (``mask`` is None). On a device picking them out would wait for
    it: they keep their shape there, and ``mask`` goes along to where they are folded.
    """

    values: Mapping[str, Any]
    mask: Any | None
    count: Any
    """What sums up to the number of valid positions, under ``mask``."""
    xp: Any
    """NumPy or torch: whose functions take the values."""


def valid(what: str, mask: Any, **values: Any) -> Valid:
    """Values where the mask is true; what is elsewhere, NaN too, never matters. Never waits for a device.

    Args:
        what: the measure's name, for errors.
        mask: bool, of any shape: ``[batch, length]``, or ``[tokens]`` where sequences are packed.
        values: by name, of the mask's shape, any real dtype, all on the host or all on one device.

    Raises `RecordError` if a shape or dtype does not fit.
    """
    (everything,) = _pieces(what, mask, values, None)
    return everything


def pieces(what: str, mask: Any, **values: Any) -> Iterator[Valid]:
    """As `valid`, in pieces of tokens on the host (at least one), so that what is made of them stays in its caches."""
    return _pieces(what, mask, values, PIECE)


def _pieces(what: str, mask: Any, values: Mapping[str, Any], size: int | None) -> Iterator[Valid]:
    mask = as_mask(f"{what}: mask", mask, empty_is_wrong=False)
    given = {name: as_values(f"{what}: {name}", value, mask, "the mask") for name, value in values.items()}
    if fold.on_device(mask) and all(isinstance(array, np.ndarray) for array in given.values()):
        given = {name: to_device_of(mask, array) for name, array in given.items()}
    places = {name: _place(array) for name, array in given.items()}
    if len(set(places.values())) > 1:
        on = ", ".join(f"{name} on {place}" for name, place in places.items())
        raise RecordError(f"{what}: expected all values on one device, got {on}")
    first = next(iter(given.values()))
    beside = MaskViews(mask).beside(first)
    return _on_host(given, beside, size) if isinstance(first, np.ndarray) else iter([_on_device(given, beside)])


def to_prediction_positions(values: Any, *, last: Any = None, cu_seqlens: Any = None) -> Any:
    """What lies at tokens' own places, shifted one to the left: to where they are predicted.

    Args:
        values: tensor or array ``[..., length]``, or ``[tokens]`` of packed sequences with ``cu_seqlens``.
        last: what the last place of each sequence gets, where nothing is predicted: -1 for versions, False for masks.
            None: its first value comes round, as AReaL's roll by -1 has it (the mask, shifted alike, hides it).
        cu_seqlens: cumulative lengths ``[sequences + 1]`` from 0 to the number of tokens. None: the last dimension is
            one sequence. Packed sequences shifted without it would take each other's first value.

    Returns a new tensor or array; a device is not waited for.

    Raises `RecordError` if there is no last dimension, or ``cu_seqlens`` does not fit (its numbers are looked at where
    they are on the host).
    """
    xp: Any = sys.modules["torch"] if fold.is_tensor(values) else np
    values = given_array("to_prediction_positions", values)
    if not values.ndim:
        raise RecordError(f"to_prediction_positions: expected values [..., length], got {summary(values)}")
    length = values.shape[-1]
    at = np.arange(length) if xp is np else xp.arange(length, device=values.device)
    if cu_seqlens is None:
        following, is_last = xp.roll(at, -1), at == length - 1
    else:
        following, is_last = _within_sequences(xp, values, at, cu_seqlens)
    shifted = values.take(following, -1) if xp is np else values.index_select(-1, following)
    return shifted if last is None else xp.where(is_last, last, shifted)


def _within_sequences(xp: Any, values: Any, at: Any, cu_seqlens: Any) -> tuple[Any, Any]:
    """From where each place takes its value, and which are the last of their sequence."""
    if values.ndim != 1:
        raise RecordError(f"cu_seqlens: expected values of packed sequences, [tokens], got {summary(values)}")
    ends = _checked_ends(cu_seqlens, len(at))
    if xp is not np:
        ends = xp.as_tensor(ends).to(values.device, xp.int64, non_blocking=True)
    # On a device wrong lengths cannot be seen without waiting. Clamped, they give wrong values, and no dead context.
    sequence = xp.searchsorted(ends, at, side="right").clip(max=len(ends) - 1)
    is_last = at + 1 == xp.take(ends, sequence)
    begins = xp.take(ends, (sequence - 1).clip(min=0))
    return xp.where(is_last, begins, at + 1).clip(0, max(len(at) - 1, 0)), is_last


def _checked_ends(cu_seqlens: Any, tokens: int) -> Any:
    """The cumulative lengths as they lie: with what the host can tell of them without waiting for a device checked."""
    ends = given_array("cu_seqlens", cu_seqlens)
    is_whole = str(ends.dtype).rpartition(".")[2].lstrip("u").startswith("int")
    fits = is_whole and ends.ndim == 1 and len(ends) > 0
    if fits and not fold.on_device(ends):
        found = fold.as_array(ends).astype(np.int64)
        fits = found[0] == 0 and found[-1] == tokens and bool((np.diff(found) >= 0).all())
        ends = found
    if not fits:
        raise RecordError(
            f"cu_seqlens: expected whole numbers that grow from 0 to the {tokens} tokens, got {summary(cu_seqlens)}"
        )
    return ends


def to_device_of(mask: Any, values: Any) -> Any:
    """Host values where their mask is, if that is on a device: the mask would have to be waited for."""
    if not fold.on_device(mask) or not isinstance(values, np.ndarray):
        return values
    return sys.modules["torch"].as_tensor(values).to(mask.device, non_blocking=True)


def _place(values: Any) -> str:
    return "the host" if isinstance(values, np.ndarray) else str(values.device)


def _on_host(given: Mapping[str, Any], where: Any | None, size: int | None) -> Iterator[Valid]:
    flat = {name: array.ravel() for name, array in given.items()}
    total = next(iter(flat.values())).size if where is None else where.size
    step = total if size is None else size
    for begin in range(0, max(total, 1), max(step, 1)):
        part = slice(begin, min(begin + step, total))
        taken = {name: array[part] if where is None else array.take(where[part]) for name, array in flat.items()}
        wide = {name: array.astype(np.float64) for name, array in taken.items()}
        yield Valid(wide, None, float(part.stop - begin), np)


def _on_device(given: Mapping[str, Any], mask: Any) -> Valid:
    torch = sys.modules["torch"]
    wide = torch.float32 if mask.device.type == "mps" else torch.float64
    return Valid({name: tensor.detach().to(wide) for name, tensor in given.items()}, mask, mask, torch)
