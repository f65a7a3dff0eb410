"""What a tracker holds for each key, and what is taken from it for an export.

Taking has two steps, so that nobody who records waits for a device: `Entry.cut` removes what is there, under the
tracker's lock; `read` then copies what lies on devices to the host, without it. What was cut can be put back.
"""

import math
import threading
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np

from rltel.core.errors import RecordError
from rltel.record import fold
from rltel.record.buckets import bucket_of, count_buckets
from rltel.record.kinds import GAUGE_WRITER, SCALAR, SUFFIXES, Kind, Moments, State, empty_state, mean_state
from rltel.record.local_rules import Running
from rltel.record.many_keys import ManyKeys
from rltel.record.masks import Mask

NANOSECOND = 1e-9
FOLD_AT = 4096  # pending numbers of one key that are folded even if nobody exports
FEW = 16  # below this many durations plain Python counts buckets faster than NumPy


class Kinds:
    """Which kind each key is of. All trackers of a process share one: their keys meet in one export."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._by_key: dict[str, Kind] = {}
        self._many = ManyKeys()

    def claim(self, kinds: Mapping[str, Kind]) -> None:
        """Make each key a metric of its kind: all of them, or (raising `RecordError`) none."""
        with self._lock:
            for key, kind in kinds.items():
                had = self._by_key.get(key)
                if had is None:
                    _check_text(key)
                    self._check_flat(key, kind, kinds)
                elif had is not kind:
                    raise RecordError(f"{key}: recorded as {had} before, and now as {kind}; use another key")
            self._by_key.update(kinds)
            self._many.look(self._by_key)

    def of(self, key: str) -> Kind | None:
        """The kind of a key; None if nobody recorded it yet."""
        return self._by_key.get(key)

    def _check_flat(self, key: str, kind: Kind, claimed: Mapping[str, Kind]) -> None:
        """Two keys must not come out as one: "loss" with its average, and a number called "loss/avg"."""
        for suffix in kind.suffixes:
            other = key + suffix
            found = self._by_key.get(other) or claimed.get(other)
            if suffix and found is not None and "" in found.suffixes:
                raise RecordError(_comes_out_as(key, other, other))
        for suffix in SUFFIXES if "" in kind.suffixes else ():
            base = key.removesuffix(suffix)
            found = self._by_key.get(base) or claimed.get(base)
            if base != key and found is not None and suffix in found.suffixes:
                raise RecordError(_comes_out_as(key, key, base))

    def after_fork(self) -> None:
        """In the child: the thread that held the lock is not there to release it."""
        self._lock = threading.Lock()


def _comes_out_as(key: str, name: str, owner: str) -> str:
    return f'{key}: would be "{name}" in the flat dict, which is taken by "{owner}"; use another key'


def _check_text(key: str) -> None:
    try:
        key.encode()
    except UnicodeEncodeError:
        raise RecordError(f"key: expected text that can be written as UTF-8, got {key!r}") from None


class Sent(NamedTuple):
    """Where another process's states come from."""

    worker: str
    incarnation: str = ""
    number: int = 0


class _Elsewhere(NamedTuple):
    """The last value of another process's gauge."""

    sent: Sent
    state: State


class Entry:
    """One key's state, the numbers that wait to be folded into it, and its moments on devices."""

    __slots__ = ("elsewhere", "on_devices", "pending", "recorded", "state")

    def __init__(self, kind: Kind) -> None:
        self.state = State(kind)
        self.pending: list[float] = []
        self.on_devices: dict[Any, fold.DeviceMoments] = {}
        self.elsewhere: dict[str, _Elsewhere] = {}  # by worker: gauges of other processes, and what adds up there
        self.recorded = False

    def reset(self) -> None:
        """Forget what was recorded. The list of pending numbers stays the same one: others append to it."""
        self.pending.clear()
        self._clear()

    def _clear(self) -> None:
        self.state = empty_state(self.state.kind)
        self.recorded = False
        if self.on_devices or self.elsewhere:
            self.on_devices, self.elsewhere = {}, {}

    def add(self, moments: Moments, buckets: Mapping[int, float] | None = None) -> None:
        """Add what was recorded, or let it replace what was (gauges)."""
        if self.state.kind.replaces:
            self.on_devices = {}
            self.state.replace(moments)
        elif self.state.kind.adds_up:
            self.state.prolong(moments)
        else:
            self.state.add(moments, buckets)
        self.recorded = True

    def add_on_device(self, moments: fold.DeviceMoments) -> None:
        """As `add`, of moments that lie on a device."""
        device = moments.device
        if self.state.kind.replaces:
            self.on_devices = {device: moments}
        elif device in self.on_devices:
            self.on_devices[device].merge(moments)
        else:
            self.on_devices[device] = moments
        self.recorded = True

    def add_other(self, state: State, sent: Sent) -> None:
        """Add another process's state. Its gauge replaces what the same worker sent before, not what it sent after."""
        if state.kind.adds_up:
            self.elsewhere = _with_later(self.elsewhere, {sent.worker: _Elsewhere(sent, state)})
            return
        if not state.kind.replaces:
            self.add(Moments(*state.moments), state.buckets)
            return
        had = self.elsewhere.get(sent.worker)
        overtaken = had is not None and had.sent.incarnation == sent.incarnation and had.sent.number > sent.number
        if not overtaken:
            self.elsewhere[sent.worker] = _Elsewhere(sent, state)

    def fold(self) -> None:
        """Fold pending numbers. Others may append meanwhile: what is counted is cut off in two atomic steps."""
        count = len(self.pending)
        if not count:
            return
        numbers = self.pending[:count]
        del self.pending[:count]
        if not self.state.kind.bucketed:  # scalars: the only others that wait, and they need no extremes
            total = sum(numbers)
            if math.isfinite(total):  # then every number is
                moments = self.state.moments
                moments[0] += total
                moments[1] += count
                self.recorded = True
            else:
                self.add(fold.moments_of_numbers(numbers))
        elif count <= FEW:
            self.add(fold.moments_of_numbers(numbers, NANOSECOND), _count_few(numbers))
        else:
            seconds = np.asarray(numbers, np.float64) * NANOSECOND
            self.add(fold.moments_of_array(seconds), count_buckets(seconds))

    def cut(self) -> "State | Part | None":
        """Remove and return everything; None if there is nothing. A state, if that is all there is."""
        if self.pending:
            if not self.recorded and self.state.kind is SCALAR:  # the most common: nothing but numbers that wait
                numbers = self.pending[:]
                total = sum(numbers)
                if -math.inf < total < math.inf:
                    del self.pending[: len(numbers)]
                    return mean_state(SCALAR, total, float(len(numbers)))
            self.fold()
        if not (self.recorded or self.elsewhere):
            return None
        state, others = self.state, self.on_devices or self.elsewhere
        part = Part(state, self.recorded, self.on_devices, self.elsewhere) if others else state
        self._clear()
        return part

    def put_back(self, part: "Part") -> None:
        """Add what was cut to what was recorded since. A newer last value stays (gauges)."""
        if not (self.state.kind.replaces and self.recorded):
            for moments in part.on_devices.values():
                self.add_on_device(moments)
            if part.recorded:
                if self.state.kind.adds_up:
                    self.state.prolong(part.state.moments)
                else:
                    self.state.add(part.state.moments, part.state.buckets)
                self.recorded = True
        self.elsewhere = _with_later(part.elsewhere, self.elsewhere)


def _with_later(earlier: Mapping[str, _Elsewhere], later: Mapping[str, _Elsewhere]) -> dict[str, _Elsewhere]:
    """What other processes sent: a worker's later state takes the place of its earlier one, or adds to it."""
    both = {**earlier, **later}
    for worker in earlier.keys() & later.keys():
        sent, state = later[worker]
        if state.kind.adds_up:
            together = State(state.kind, state.moments)
            together.prolong(earlier[worker].state.moments)
            both[worker] = _Elsewhere(sent, together)
    return both


class Part(NamedTuple):
    """What was cut from one entry that holds more than a state."""

    state: State
    recorded: bool
    on_devices: dict[Any, fold.DeviceMoments]
    elsewhere: Mapping[str, _Elsewhere]

    def read(self, found: fold.Folded) -> None:
        """Take over what lay on a device."""
        if self.state.kind.replaces:
            self.state.replace(found.moments)
        else:
            self.state.add(found.moments, found.buckets)

    def merged(self) -> State:
        """This process's state with the others'. Where the writer's value counts, that is its own, if it has one."""
        kind = self.state.kind
        if not self.elsewhere or (kind is GAUGE_WRITER and self.recorded):
            return self.state
        state = State(kind, self.state.moments)
        for other in self.elsewhere.values():
            state.add(other.state.moments)
        return state


class Taken(dict[str, State]):
    """What a tracker's `cut` removed: states by key (whole once `read`), and what it takes to put it back."""

    def __init__(self) -> None:
        super().__init__()
        self.parts: dict[str, Part] = {}
        """Those that hold more than a state."""
        self.masks: tuple[Mask, ...] = ()
        self.extremes: Mapping[str, Running] = {}

    def cut(self, key: str, entry: Entry) -> None:
        """Take what an entry holds."""
        found = entry.cut()
        if isinstance(found, State):
            self[key] = found
        elif found is not None:
            self[key] = found.state
            self.parts[key] = found

    def put_back(self, key: str, entry: Entry) -> None:
        """Give it back."""
        entry.put_back(self.parts.get(key) or Part(self[key], True, {}, {}))


def read(taken: Iterable[Taken]) -> None:
    """Fill in the states, with what lies on devices: one packed copy per device for all of them.

    Raises what the device raises; everything can still be put back then.
    """
    each = list(taken)
    waiting: dict[Any, list[tuple[Part, Any]]] = {}
    for part in [part for one in each for part in one.parts.values() if part.on_devices]:
        for device, moments in part.on_devices.items():
            waiting.setdefault(device, []).extend((part, row) for row in moments.packed())
    copies = {device: fold.copy_to_host([row for _, row in rows]) for device, rows in waiting.items() if rows}
    for device, copied in copies.items():
        for (part, _), row in zip(waiting[device], copied, strict=True):
            part.read(fold.unpacked(row))
    for one in each:
        for key, part in one.parts.items():
            part.on_devices.clear()
            one[key] = part.merged()


def _count_few(durations_ns: Iterable[float]) -> dict[int, float]:
    counts: dict[int, float] = {}
    for duration in durations_ns:
        index = bucket_of(duration * NANOSECOND)
        counts[index] = counts.get(index, 0.0) + 1.0
    return counts
