"""Counts of routing assignments into trackers, under ``moe_balance/layer_<id>``."""

import sys
from collections.abc import Mapping
from typing import Any

import numpy as np

from rltel.core.errors import RecordError
from rltel.record import fold
from rltel.record.buckets import OVERFLOW
from rltel.record.entries import Sent
from rltel.record.inputs import summary
from rltel.record.tracker import Tracker
from rltel.rl.inputs import scope_of, tracker_or_default
from rltel.rl.moe.loads import EXPERT_LOADS, check, state_of

SCOPE = "moe_balance"
_HERE = Sent("")


def record(counts: Mapping[int, Any], *, replicas: int = 1, tracker: Tracker | None = None) -> None:
    """Record assignments of layers, under ``<current scope>/moe_balance/layer_<id>/``. AReaL has it in no scope.

    What is recorded until the next export adds up, here and over workers and ranks; loads are normalised after that.

    Args:
        counts: by layer id (zero-based, over all pipeline stages), how many assignments each routed expert got: whole
            numbers ``[experts]``, a tensor on any device, an array or a sequence. Top-k routing assigns a token k
            times.
        replicas: how many ranks of the reduction hold these same counts (tensor parallel ranks without sequence
            parallelism); they are divided out.
        tracker: None is the process's default one.

    A device is not waited for: its counts are not checked. Raises `RecordError` for counts that are none.
    """
    if not isinstance(counts, Mapping):
        raise RecordError(f"moe: record: expected counts by layer, {{0: [6, 2]}}, got {summary(counts)}")
    tracker = tracker_or_default(tracker)
    scope = scope_of(tracker)
    prefix = f"{scope}/{SCOPE}" if scope else SCOPE
    keys = {f"{prefix}/layer_{_layer(layer)}": given for layer, given in counts.items()}
    there = {key: given for key, given in keys.items() if fold.on_device(given)}
    here = {key: state_of(_numbers(key, given), replicas, key) for key, given in keys.items() if key not in there}
    moments = _on_devices(there, replicas)
    if here:
        tracker.absorb(here, _HERE)
    if moments:
        tracker._add_all(EXPERT_LOADS, moments)


def _layer(given: Any) -> int:
    if isinstance(given, bool) or not isinstance(given, (int, np.integer)) or given < 0:
        raise RecordError(f"moe: layer: expected a whole number >= 0, got {given!r}")
    return int(given)


def _numbers(key: str, given: Any) -> list[float]:
    try:
        array = fold.as_array(given)
    except (TypeError, ValueError) as error:
        raise RecordError(f"{key}: expected counts [experts], got {summary(given)}") from error
    if array.ndim != 1:
        raise RecordError(f"{key}: expected counts [experts], got {summary(given)}")
    numbers: list[float] = array.tolist()
    return numbers


def _on_devices(counts: Mapping[str, Any], replicas: int) -> dict[str, fold.DeviceMoments]:
    """The same states, where the counts are. All layers of one shape and device take a fixed number of kernels."""
    alike: dict[Any, dict[str, Any]] = {}
    for key, given in counts.items():
        if given.ndim != 1 or given.is_floating_point() or given.is_complex():
            raise RecordError(f"{key}: expected whole numbers [experts], got {summary(given)}")
        check(len(given), replicas, key)
        alike.setdefault((given.device, len(given)), {})[key] = given
    made: dict[str, fold.DeviceMoments] = {}
    for (_, experts), of_shape in alike.items():
        for key, row in zip(of_shape, _rows(list(of_shape.values()), experts, replicas), strict=True):
            made[key] = fold.DeviceMoments()
            made[key]._add(row)
    return made


def _rows(counts: list[Any], experts: int, replicas: int) -> list[tuple[Any, Any, Any]]:
    """Sums, extremes and buckets of each layer, as `DeviceMoments` has them."""
    torch = sys.modules["torch"]
    wide = torch.float32 if counts[0].device.type == "mps" else torch.float64
    loads = torch.stack([each.detach() for each in counts]).to(wide)
    total, most = loads.sum(dim=1), loads.new_full((len(counts),), float(experts))

    def none(width: int) -> Any:
        return loads.new_zeros((len(counts), width))

    marker = (none(OVERFLOW - replicas), none(1) + 1.0, none(replicas - 1))  # as in `state_of`
    buckets = torch.cat((*marker, loads, none(OVERFLOW + 1 - experts)), dim=1)
    sums = torch.cat((torch.stack((total, total + 1.0), dim=1), none(3)), dim=1)
    extremes = torch.stack((most, -most), dim=1)
    return list(zip(sums.unbind(), extremes.unbind(), buckets.unbind(), strict=True))
