"""`Stats`: AReaL's flat dict of numbers, and a view of the Snapshot that it came from."""

import math
from collections.abc import Mapping
from typing import Any

from rltel.core.errors import RecordError
from rltel.record import fold
from rltel.reduce.snapshot import Snapshot

_known_keys: set[str] = set()  # those that were looked at: most steps have the keys of the step before
_MOST_KEYS = 100_000


class Stats(dict[str, float]):
    """A flat dict of numbers with the snapshot behind it.

    ``update`` and ``a | b`` join the snapshots too: keys of ``b`` replace those of ``a``, as in any dict. Plain dicts
    that are merged in become plain gauges, and so does a number that is assigned.
    """

    def __init__(self, snapshot: Snapshot | None = None) -> None:
        self._snapshot = snapshot or Snapshot()
        self._flat = self._snapshot.flat()
        super().__init__(self._flat)

    @property
    def snapshot(self) -> Snapshot:
        """The merged states. Numbers that were assigned or deleted by hand since are taken into account."""
        flat = self._flat
        if dict.__eq__(self, flat):  # the very same numbers, NaN too
            return self._snapshot
        changed = {key: value for key, value in self.items() if key not in flat or not _same(flat[key], value)}
        gone = flat.keys() - self.keys()
        if not changed and not gone:
            return self._snapshot
        kept = {key: metric for key, metric in self._snapshot.items() if not self._touched(key, changed, gone)}
        rest = Snapshot(kept).flat()
        by_hand = numbers_of({key: value for key, value in self.items() if key not in rest})
        return Snapshot({**kept, **Snapshot.of_numbers(by_hand)})

    def _touched(self, key: str, changed: Mapping[str, float], gone: set[str]) -> bool:
        names = [f"{key}{value.suffix}" for value in self._snapshot.values_of(key)]
        return any(name in changed or name in gone for name in names)

    def update(self, *others: Any, **numbers: Any) -> None:
        """As dict.update; the snapshots of other `Stats` come along."""
        for other in (*others, numbers):
            if isinstance(other, Stats):
                theirs = other.snapshot
                self._snapshot = Snapshot({**self.snapshot, **theirs})
                self._flat = self._snapshot.flat()
                super().update(theirs.flat())
            else:
                super().update(numbers_of(dict(other)))

    def copy(self) -> "Stats":
        """A copy, with its snapshot."""
        copied = Stats.__new__(Stats)
        copied._snapshot, copied._flat = self._snapshot, self._flat
        dict.update(copied, self)
        return copied

    def __or__(self, other: Any) -> "Stats":  # type: ignore[override]  # narrower: what a Stats joins is a Stats
        if not isinstance(other, Mapping):
            return NotImplemented
        joined = self.copy()
        joined.update(other)
        return joined

    def __ror__(self, other: Any) -> "Stats":  # type: ignore[override]  # as __or__
        if not isinstance(other, Mapping):
            return NotImplemented
        joined = Stats()
        joined.update(other, self)
        return joined

    def __ior__(self, other: Any) -> "Stats":  # type: ignore[override]  # as __or__
        self.update(other)
        return self


def snapshot_of(stats: Mapping[str, Any]) -> Snapshot:
    """The snapshot behind a `Stats`, or a plain mapping of numbers as gauges.

    Takes floats, ints, NumPy scalars and 0-d tensors; tensors on a device are read in one copy per device.
    Raises `RecordError` naming each key whose value is not one number.
    """
    return stats.snapshot if isinstance(stats, Stats) else Snapshot.of_numbers(numbers_of(stats))


def numbers_of(values: Mapping[str, Any]) -> dict[str, float]:
    """A mapping's values as floats. Raises `RecordError` for what is none, or holds what is no number."""
    if not isinstance(values, Mapping):
        raise RecordError(f"stats: expected a mapping of keys to numbers, got {type(values).__name__}")
    if set(map(type, values.values())) == {float} and _known_keys.issuperset(values):
        return dict(values)
    numbers: dict[str, float] = {}
    wrong: list[str] = []
    on_devices: dict[Any, list[str]] = {}
    for key, value in values.items():
        if not isinstance(key, str) or not key.strip("/"):
            wrong.append(f"{key!r} is not a key (expected a non-empty string)")
        elif type(value) is float:
            numbers[key] = value
        elif fold.on_device(value) and value.numel() == 1:
            on_devices.setdefault(value.device, []).append(key)
            numbers[key] = 0.0  # keeps the order; read below
        else:
            try:
                numbers[key] = fold.number(value)
            except (TypeError, ValueError, RuntimeError, OverflowError):
                wrong.append(f"{key}: expected one number, got {type(value).__name__}")
    if wrong:
        raise RecordError("; ".join(wrong))
    for keys in on_devices.values():
        numbers.update(zip(keys, fold.scalars_to_host([values[key] for key in keys]), strict=True))
    if len(_known_keys) < _MOST_KEYS:
        _known_keys.update(numbers)
    return numbers


def _same(a: float, b: float) -> bool:
    return a == b or (math.isnan(a) and math.isnan(b))
