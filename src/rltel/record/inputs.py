"""What callers hand to a tracker, checked before anything of it is recorded.

Every refusal is a `RecordError` that names the key, what was given and what is needed.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from rltel.core.errors import RecordError
from rltel.record import fold
from rltel.record.kinds import KINDS, Kind

_TENSOR_KINDS = {name: KINDS[name] for name in ("avg_min_max", "avg", "sum", "min", "max")}


class MaskViews:
    """One mask as each tensor needs it: on its device, or as a NumPy array; converted once a call."""

    def __init__(self, mask: Any | None) -> None:
        self._mask = mask
        self._views: dict[Any, Any] = {}

    def beside(self, values: Any) -> Any | None:
        """The mask for these values, on the host as indices; None where it masks nothing out and the host can tell."""
        if self._mask is None:
            return None
        device = None if isinstance(values, np.ndarray) else values.device
        if device not in self._views:
            view = fold.mask_on(device, self._mask)
            if device is None:
                where = fold.indices(view)
                view = None if where.size == view.size else where
            self._views[device] = view
        return self._views[device]


def tensor_kind(reduce_type: Any) -> Kind:
    """A kind from ``"avg"``, ``"AVG"`` or an enum with such a name (AReaL's ReduceType)."""
    kind = _TENSOR_KINDS.get(reduce_type) if type(reduce_type) is str else None
    if kind is None:
        kind = _TENSOR_KINDS.get(str(getattr(reduce_type, "name", reduce_type)).lower())
    if kind is None:
        raise RecordError(f"stat: reduce_type: expected one of {', '.join(_TENSOR_KINDS)}, got {summary(reduce_type)}")
    return kind


def as_mask(what: str, mask: Any, *, empty_is_wrong: bool = True) -> Any:
    """A boolean mask as a tensor or NumPy array."""
    try:
        given = mask if fold.is_tensor(mask) else np.asarray(mask)
    except (TypeError, ValueError) as error:
        raise RecordError(f"{what}: expected a bool mask, got {summary(mask)}") from error
    if str(given.dtype).rpartition(".")[2] != "bool":
        how = "mask.bool()" if fold.is_tensor(given) else "np.asarray(mask, bool)"
        raise RecordError(
            f"{what}: expected a bool mask, got dtype {given.dtype} of shape {tuple(given.shape)}; use {how}"
        )
    if empty_is_wrong and 0 in tuple(given.shape):
        raise RecordError(f"{what}: expected a mask with elements, got shape {tuple(given.shape)}")
    return given


def as_values(key: str, values: Any, mask: Any | None, mask_name: str) -> Any:
    """Values as a NumPy array, or as a tensor where they lie on a device, checked against the mask."""
    try:
        given = fold.real_tensor(values) if fold.on_device(values) else fold.as_array(values)
    except (TypeError, ValueError, RuntimeError) as error:  # a tensor without numbers raises RuntimeError
        raise RecordError(
            f"{key}: expected a tensor, array or sequence of real numbers, got {summary(values)}"
        ) from error
    if mask is not None and tuple(given.shape) != tuple(mask.shape):
        raise RecordError(
            f"{key}: expected the shape of {mask_name}, {tuple(mask.shape)}, got {tuple(given.shape)} (no broadcasting)"
        )
    return given


def copied(mask: Any) -> Any:
    """A mask that the caller cannot change afterwards."""
    return mask.detach().clone() if fold.is_tensor(mask) else mask.copy()


def given_values(what: str, values: Any, keywords: Mapping[str, Any]) -> Mapping[str, Any]:
    """What was given, by key as given."""
    if values is None:
        return keywords
    if not isinstance(values, Mapping):
        raise RecordError(f"{what}: expected a mapping of keys to values, or keywords, got {summary(values)}")
    return {**values, **keywords} if keywords else values


def weight_of(what: str, weight: Any) -> Any:
    """A weight as a float, checked; or as it is, if that lies on a device."""
    try:
        share = fold.one(weight)
    except (TypeError, ValueError, RuntimeError, OverflowError) as error:
        raise RecordError(f"{what}: weight: expected one number, got {summary(weight)}") from error
    if type(share) is float and not 0 <= share < float("inf"):
        raise RecordError(f"{what}: weight: expected a finite number >= 0, got {share}")
    return share


def summary(value: Any) -> str:
    """What was given, short and without its contents where it is large."""
    shape = getattr(value, "shape", None)
    if shape is not None:
        return f"{type(value).__name__} of shape {tuple(shape)}, dtype {getattr(value, 'dtype', '?')}"
    shown = repr(value)
    return f"{type(value).__name__} {shown if len(shown) <= 40 else shown[:37] + '...'}"
