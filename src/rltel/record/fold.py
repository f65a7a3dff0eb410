"""Values of any make into moments: Python numbers, sequences, NumPy arrays and torch tensors on any device.

Nothing here keeps a tensor, and nothing waits for a device: a tensor that is not on the CPU becomes a `DeviceMoments`
on its own device, and is read with all others in one copy when the tracker exports.
"""

import math
import sys
from collections.abc import Mapping, Sequence
from itertools import islice
from typing import Any, NamedTuple, TypeGuard

import numpy as np
import numpy.typing as npt

from rltel.record.buckets import MIN_EXPONENT, OVERFLOW, PER_OCTAVE, SIZE, THRESHOLDS, count_buckets, sparse
from rltel.record.kinds import Moments

Array = npt.NDArray[Any]
_NOWHERE = "meta"  # of tensors that have a shape and no numbers: whoever reads them is told at once
_HOST = "cpu"  # the type of the device whose numbers are read without waiting
_FEW = 64  # up to this many numbers plain Python beats NumPy's fixed costs
_MOMENTS = 7  # numbers of a row of device moments: sum, count, NaN, +inf, -inf, maximum, negated minimum


def is_tensor(value: Any) -> TypeGuard[Any]:
    """Whether this is a torch tensor. Never imports torch."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.Tensor)


def on_device(value: Any) -> bool:
    """Whether this is a tensor whose numbers the host cannot read without waiting."""
    return is_tensor(value) and value.device.type not in (_HOST, _NOWHERE)


def number(value: Any) -> float:
    """One number from anything that is one: int, bool, NumPy scalar, 0-d array or tensor, numeric string.

    Raises TypeError, ValueError or OverflowError, as ``float`` does, and RuntimeError for a tensor of several.
    """
    return float(value.item() if is_tensor(value) else value)


def one(value: Any) -> Any:
    """As `number`, but a tensor on a device that holds one real number is returned as it is: nobody waits for it."""
    if type(value) is int or not is_tensor(value):
        return float(value)
    if value.device.type not in (_HOST, _NOWHERE) and value.numel() == 1:
        return real_tensor(value)
    return float(value.item())


def moments_of_numbers(values: Sequence[float], scale: float = 1.0) -> Moments:
    """Moments of plain numbers; ``scale`` multiplies each (nanoseconds to seconds)."""
    total = sum(values)
    if math.isfinite(total):  # then every value is finite
        return Moments(total * scale, float(len(values)), min(values) * scale, max(values) * scale)
    with np.errstate(all="ignore"):
        scaled = np.asarray(values, np.float64) * scale
    return moments_of_array(scaled)


def moments_of_array(values: Array) -> Moments:
    """Moments of every element of an array."""
    if values.size == 0:
        return Moments()
    if values.size <= _FEW:
        numbers = values.ravel().tolist()
        total = float(sum(numbers))
        if math.isfinite(total):  # then every value is finite
            return Moments(total, float(len(numbers)), float(min(numbers)), float(max(numbers)))
    low, high = float(values.min()), float(values.max())  # a NaN anywhere makes both NaN
    if math.isfinite(low) and math.isfinite(high):
        with np.errstate(all="ignore"):  # a sum that overflows is infinite; a trainer's `np.seterr` is not for us
            total = float(values.sum(dtype=np.float64))
        return Moments(total, float(values.size), low, high)
    return _with_nonfinite(values)


def _with_nonfinite(values: Array) -> Moments:
    finite = values[np.isfinite(values)]
    kept = moments_of_array(finite)
    nan = float(np.count_nonzero(np.isnan(values)))
    positive = float(np.count_nonzero(np.isposinf(values)))
    return kept._replace(
        nan=nan, positive_infinity=positive, negative_infinity=values.size - finite.size - nan - positive
    )


def as_array(value: Any) -> Array:
    """Host values as a NumPy array of a real dtype, without a copy where that is possible.

    Raises TypeError for what is not real numbers (complex, strings, objects).
    """
    array = _host_tensor(value) if is_tensor(value) else np.asarray(value)
    if array.dtype.kind not in "fiub":
        raise TypeError(f"expected real numbers, got dtype {array.dtype}")
    return array


def real_tensor(tensor: Any) -> Any:
    """A tensor of real numbers, as it is. Raises TypeError for others. Never waits."""
    if tensor.is_complex():
        raise TypeError(f"expected real numbers, got dtype {tensor.dtype}")
    return tensor


def at_least_zero(tensor: Any) -> Any:
    """What is positive of a tensor, else 0, also for NaN. Never waits."""
    torch = sys.modules["torch"]
    return torch.where(tensor > 0, tensor, 0)


def _host_tensor(tensor: Any) -> Array:
    tensor = real_tensor(tensor).detach().resolve_neg()
    try:
        return np.asarray(tensor.numpy())
    except TypeError:  # bfloat16 and the 8-bit floats have no NumPy dtype; float32 holds each of their values
        return np.asarray(tensor.float().numpy())


class Folded(NamedTuple):
    """Moments, with the buckets of the same values where they were asked for."""

    moments: Moments
    buckets: Mapping[int, float] | None


def folded(values: Any, mask: Any | None, bucketed: bool = False) -> "Moments | Folded | DeviceMoments":
    """What a NumPy array or device tensor adds to a state, over the elements where ``mask`` is true (None: all).

    For an array the mask may also be `indices` of the elements: found once, they serve several arrays, and taking is
    three times faster than NumPy's own indexing by a mask.

    Values on a device are folded there, and so their mask must be there too. Buckets are counted there as well, except
    where the device has no float64 (MPS): such values are read first.
    """
    if not isinstance(values, np.ndarray):
        if not (bucketed and _is_narrow(values)):
            moments = DeviceMoments()
            moments.fold(values, mask, bucketed=bucketed)
            return moments
        values, mask = as_array(values.cpu()), None if mask is None else mask.cpu().numpy()
    if mask is not None:
        values = values.ravel().take(indices(mask) if mask.dtype == bool else mask)
    found = moments_of_array(values)
    return Folded(found, _buckets(values, found)) if bucketed else found


def indices(mask: Array) -> Array:
    """Where a mask is true, as positions in the flattened array."""
    return mask.ravel().nonzero()[0]


def weighted(value: Any, weight: Any) -> "Moments | DeviceMoments | None":
    """One observation that counts ``weight`` times; None if it counts nothing. Both as `one` gives them."""
    if type(value) is not float or type(weight) is not float:
        moments = DeviceMoments()
        moments.fold_weighted(value, weight)
        return moments
    if not weight:
        return None
    if math.isfinite(value):
        return Moments(value * weight, weight, value, value)
    if math.isnan(value):
        return Moments(nan=weight)
    return Moments(positive_infinity=weight) if value > 0 else Moments(negative_infinity=weight)


def _buckets(array: Array, moments: Moments) -> dict[int, float]:
    finite = array[np.isfinite(array)] if moments.nonfinite else array
    return count_buckets(finite.astype(np.float64).ravel())


class DeviceMoments:
    """Moments of tensors on one device, kept there: sums (5), extremes (max, -min) and, if asked, all buckets' counts.

    Folding launches a fixed number of kernels and never waits. Where the device has no float64 (MPS), each fold's
    float32 moments are kept apart and added in float64 on the host.
    """

    __slots__ = ("_rows",)

    def __init__(self) -> None:
        self._rows: list[tuple[Any, Any, Any | None]] = []

    @property
    def device(self) -> Any | None:
        """Where they are; None if there are none."""
        return self._rows[0][0].device if self._rows else None

    def fold(self, values: Any, mask: Any | None = None, *, bucketed: bool = False) -> None:
        """Add a tensor's moments, over the elements where ``mask`` (bool, same shape and device) is true."""
        if values.numel():  # a shape is known without waiting
            self._add(_device_moments(values.detach(), mask, bucketed=bucketed))

    def fold_weighted(self, value: Any, weight: Any) -> None:
        """Add one observation that counts ``weight`` times.

        A weight on the device cannot be refused without waiting for it: if it is negative or not finite, the
        observation counts as one NaN.
        """
        device = (value if on_device(value) else weight).device
        self._add(_weighted_moments(*(_scalar_on(device, given) for given in (value, weight))))

    def merge(self, other: "DeviceMoments") -> None:
        """Add what another one on the same device holds."""
        for row in other._rows:
            self._add(row)

    def _add(self, row: tuple[Any, Any, Any | None]) -> None:
        if not self._rows or row[0].device.type == "mps":
            self._rows.append(row)
            return
        torch = sys.modules["torch"]
        sums, extremes, buckets = self._rows[0]
        # Not in place: what was made under torch.inference_mode must not be changed outside of it.
        counts = buckets if row[2] is None else row[2] if buckets is None else buckets + row[2]
        self._rows[0] = (sums + row[0], torch.maximum(extremes, row[1]), counts)

    def packed(self) -> list[Any]:
        """The tensors to copy to the host, of 7 numbers each, and the buckets' counts where there are any."""
        torch = sys.modules["torch"]
        return [torch.cat([part for part in row if part is not None]) for row in self._rows]


def _is_narrow(tensor: Any) -> bool:
    return bool(tensor.device.type == "mps")


def _wide(tensor: Any) -> Any:
    """The widest float type of the tensor's device."""
    torch = sys.modules["torch"]
    return torch.float32 if _is_narrow(tensor) else torch.float64


def _scalar_on(device: Any, value: Any) -> Any:
    """One number as a 0-d tensor on this device."""
    torch = sys.modules["torch"]
    if is_tensor(value):
        return value.detach().reshape(()).to(device, non_blocking=True)
    return torch.full((), value, dtype=torch.float32 if device.type == "mps" else torch.float64, device=device)


def _device_moments(values: Any, mask: Any | None, *, bucketed: bool) -> tuple[Any, Any, Any | None]:
    torch = sys.modules["torch"]
    wide = _wide(values)
    # Integers have no NaN to ask for, and the 8-bit floats have hardly any operation.
    floats = values if values.is_floating_point() and values.element_size() > 1 else values.to(wide)
    tests = (torch.isfinite, torch.isnan, torch.isposinf, torch.isneginf)
    found = [test(floats) if mask is None else test(floats) & mask for test in tests]
    finite = found[0]
    total = torch.where(finite, floats, 0).sum(dtype=wide)
    sums = torch.stack((total, *(each.sum().to(wide) for each in found)))
    highest = torch.where(finite, floats, -math.inf).amax().to(wide)
    lowest = torch.where(finite, floats, math.inf).amin().to(wide)
    counts = _device_buckets(torch.where(finite, floats, 0).to(wide), finite) if bucketed else None
    return sums, torch.stack((highest, -lowest)), counts


def _weighted_moments(value: Any, weight: Any) -> tuple[Any, Any, None]:
    torch = sys.modules["torch"]
    wide = _wide(value)
    sums, extremes, _ = _device_moments(value, None, bucketed=False)
    share = weight.to(wide)
    good = torch.isfinite(share) & (share >= 0)
    none = torch.zeros_like(share)
    as_nan = torch.stack((none, none, torch.logical_not(good).to(wide), none, none))
    return sums * torch.where(good, share, 0.0) + as_nan, extremes, None


def _device_buckets(values: Any, finite: Any) -> Any:
    """`count_buckets` on the device: the count of every bucket, where ``finite`` is true."""
    torch = sys.modules["torch"]
    mantissas, exponents = torch.frexp(values.abs())
    mantissas = mantissas * 2.0
    thresholds = torch.tensor(THRESHOLDS, dtype=values.dtype).to(values.device, non_blocking=True)
    negative = values < 0
    above, below = (torch.searchsorted(thresholds, mantissas, right=right) for right in (True, False))
    steps = torch.where(negative, above, below)
    indices = ((exponents.to(torch.int64) - 1 - MIN_EXPONENT) * PER_OCTAVE + steps).clamp(max=OVERFLOW)
    indices = torch.where(negative, -indices, indices)
    smallest = 2.0**MIN_EXPONENT
    indices = torch.where((values > -smallest) & (values <= smallest), 0, indices)
    counts = torch.zeros(SIZE, dtype=values.dtype, device=values.device)
    return counts.index_add(0, (indices + OVERFLOW).reshape(-1), finite.reshape(-1).to(values.dtype))


def unpacked(row: Sequence[float]) -> Folded:
    """What a row of `DeviceMoments.packed` holds, once on the host."""
    total, count, nan, positive, negative, high, negative_low = row[:_MOMENTS]
    moments = Moments(total, count, -negative_low, high, nan, positive, negative)
    return Folded(moments, sparse(row[_MOMENTS:]) if len(row) > _MOMENTS else None)


def copy_to_host(rows: Sequence[Any]) -> list[list[float]]:
    """Rows of numbers on one device as Python floats: one copy, and one wait, for all of them."""
    torch = sys.modules["torch"]
    numbers: list[float] = torch.cat(list(rows)).cpu().tolist()
    unread = iter(numbers)
    return [list(islice(unread, len(row))) for row in rows]


def mask_on(device: Any | None, mask: Any) -> Any:
    """A mask as a tensor on this device, or as a NumPy array (device None)."""
    if device is None:
        if is_tensor(mask):
            return np.asarray(mask.numpy() if mask.is_cpu else mask.cpu().numpy())  # a bool tensor needs no detaching
        return np.asarray(mask)
    torch = sys.modules["torch"]
    return torch.as_tensor(mask).to(device, non_blocking=True)


def scalars_to_host(tensors: Sequence[Any]) -> list[float]:
    """One-element tensors of one device as Python floats, in one copy."""
    torch = sys.modules["torch"]
    wide = torch.float32 if tensors[0].device.type == "mps" else torch.float64
    read: list[float] = torch.stack([tensor.detach().reshape(()).to(wide) for tensor in tensors]).cpu().tolist()
    return read
