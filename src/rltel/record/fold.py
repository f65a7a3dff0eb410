"""Values of any make into moments: Python numbers, sequences, NumPy arrays and torch tensors on any device.

Nothing here keeps a tensor, and nothing waits for a device: a tensor that is not on the CPU becomes a `DeviceMoments`
on its own device, and is read with all others in one copy when the tracker exports.
"""

import math
import sys
from collections.abc import Sequence
from typing import Any, TypeGuard

import numpy as np
import numpy.typing as npt

from rltel.record.kinds import Moments

Array = npt.NDArray[Any]
_FEW = 64  # below this many numbers plain Python beats NumPy's fixed costs


def is_tensor(value: Any) -> TypeGuard[Any]:
    """Whether this is a torch tensor. Never imports torch."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.Tensor)


def on_device(value: Any) -> bool:
    """Whether this is a tensor whose numbers the host cannot read without waiting."""
    return is_tensor(value) and value.device.type != "cpu"


def number(value: Any) -> float:
    """One number from anything that is one: int, bool, NumPy scalar, 0-d array or CPU tensor, numeric string.

    Raises TypeError or ValueError, as ``float`` does.
    """
    if is_tensor(value):
        value = value.detach()
    return float(value)


def moments_of_numbers(values: Sequence[float], scale: float = 1.0) -> Moments:
    """Moments of plain numbers; ``scale`` multiplies each (nanoseconds to seconds)."""
    total = sum(values)
    if math.isfinite(total):  # then every value is finite
        return Moments(total * scale, float(len(values)), min(values) * scale, max(values) * scale)
    return moments_of_array(np.asarray(values, np.float64) * scale)


def moments_of_array(values: Array) -> Moments:
    """Moments of every element of an array."""
    if values.size == 0:
        return Moments()
    low, high = float(values.min()), float(values.max())  # a NaN anywhere makes both NaN
    if math.isfinite(low) and math.isfinite(high):
        return Moments(float(values.sum(dtype=np.float64)), float(values.size), low, high)
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


def _host_tensor(tensor: Any) -> Array:
    tensor = tensor.detach()
    if tensor.is_complex():
        raise TypeError(f"expected real numbers, got dtype {tensor.dtype}")
    try:
        return np.asarray(tensor.numpy())
    except TypeError:  # bfloat16 and the 8-bit floats have no NumPy dtype; float32 holds each of their values
        return np.asarray(tensor.float().numpy())


class DeviceMoments:
    """Moments of tensors on one device, kept there: sums (5) and extremes (max, -min), both float64.

    Folding launches a fixed number of kernels and never waits. Where the device has no float64 (MPS), each fold's
    float32 moments are kept apart and added in float64 on the host.
    """

    __slots__ = ("_extremes", "_sums")

    def __init__(self) -> None:
        self._sums: list[Any] = []
        self._extremes: list[Any] = []

    def fold(self, values: Any, mask: Any | None) -> None:
        """Add a tensor's moments, over the elements where ``mask`` (bool, same shape and device) is true."""
        sums, extremes = _device_moments(values.detach(), mask)
        if self._sums and sums.device.type != "mps":
            self._sums[0] += sums
            torch = sys.modules["torch"]
            self._extremes[0] = torch.maximum(self._extremes[0], extremes)
        else:
            self._sums.append(sums)
            self._extremes.append(extremes)

    def packed(self) -> list[Any]:
        """The tensors to copy to the host, of 7 numbers each."""
        torch = sys.modules["torch"]
        return [torch.cat((sums, extremes)) for sums, extremes in zip(self._sums, self._extremes, strict=True)]


def _device_moments(values: Any, mask: Any | None) -> tuple[Any, Any]:
    torch = sys.modules["torch"]
    wide = torch.float32 if values.device.type == "mps" else torch.float64
    valid = torch.ones_like(values, dtype=torch.bool) if mask is None else mask
    floats = values if values.is_floating_point() else values.to(wide)
    finite = torch.isfinite(floats) & valid
    sums = torch.stack(
        (
            torch.where(finite, floats, 0).sum(dtype=wide),
            finite.sum().to(wide),
            (torch.isnan(floats) & valid).sum().to(wide),
            (torch.isposinf(floats) & valid).sum().to(wide),
            (torch.isneginf(floats) & valid).sum().to(wide),
        )
    )
    highest = torch.where(finite, floats, -math.inf).amax().to(wide)
    lowest = torch.where(finite, floats, math.inf).amin().to(wide)
    return sums, torch.stack((highest, -lowest))


def unpacked(row: Sequence[float]) -> Moments:
    """Moments from what `DeviceMoments.packed` gave, once on the host."""
    total, count, nan, positive, negative, high, negative_low = row
    return Moments(total, count, -negative_low, high, nan, positive, negative)


def copy_to_host(rows: Sequence[Any]) -> list[list[float]]:
    """Rows of 7 numbers on one device as Python floats: one copy, and one wait, for all of them."""
    torch = sys.modules["torch"]
    packed: list[list[float]] = torch.stack(list(rows)).cpu().tolist()
    return packed


def mask_on(device: Any | None, mask: Any) -> Any:
    """A mask as a tensor on this device, or as a NumPy array (device None)."""
    if device is None:
        return np.asarray(mask.detach().cpu().numpy() if is_tensor(mask) else mask)
    torch = sys.modules["torch"]
    return torch.as_tensor(mask).to(device, non_blocking=True)


def scalars_to_host(tensors: Sequence[Any]) -> list[float]:
    """One-element tensors of one device as Python floats, in one copy."""
    torch = sys.modules["torch"]
    wide = torch.float32 if tensors[0].device.type == "mps" else torch.float64
    read: list[float] = torch.stack([tensor.detach().reshape(()).to(wide) for tensor in tensors]).cpu().tolist()
    return read
