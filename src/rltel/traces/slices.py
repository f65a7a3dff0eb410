"""Collects the slices of many files by process and name: 16 bytes for each, whatever the files weigh."""

from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import numpy as np

from rltel.core.errors import TraceError
from rltel.traces.clocks import Alignment, Convert, host_key
from rltel.traces.events import BEGIN, END, Event, EventReader, Track, process_of
from rltel.traces.overlap import Times
from rltel.traces.progress import Meter
from rltel.traces.skim import Skimmed

LOOP = "rl.loop"
PHASE_KINDS = ("exclusive", "nested", "background")
WORK = (*PHASE_KINDS, "rollout", "timing")
"""Categories of what a process does, for others to have waited for."""
_MOST_KEPT = 1 << 14


class Key(NamedTuple):
    """What slices are summed up under."""

    process: str
    loop: str
    """The name of the iteration around them on their track; empty outside of any."""
    category: str
    name: str


@dataclass
class Group:
    """The slices of one key."""

    starts: "array[int]" = field(default_factory=lambda: array("q"))
    ends: "array[int]" = field(default_factory=lambda: array("q"))
    in_iterations: int = 0
    """How long they lasted within iterations that have ended (ns)."""
    still_open: int = 0

    def times(self) -> tuple[Times, Times]:
        """Begins and ends, in the order of the ends on each track."""
        return np.frombuffer(self.starts, np.int64), np.frombuffer(self.ends, np.int64)


@dataclass(slots=True)
class _Open:
    event: Event
    start: int
    exclusive: int = 0
    spent: dict[Key, int] | None = None  # by phase, of an iteration


class Slices:
    """All slices of some files, on one clock.

    Attributes:
        groups: The slices by what they are.
        other: By process and name of the iteration: what no exclusive phase covered (ns).
        names: The processes' names by their keys.
        unmatched: Ends without a begin.
    """

    def __init__(self) -> None:
        self.groups: dict[Key, Group] = {}
        self.other: dict[tuple[str, str], int] = {}
        self.names: dict[str, str] = {}
        self.unmatched = 0
        self.last_ns: dict[str, int] = {}
        self._tracks: dict[int, Track] = {}
        self._stacks: dict[int, list[_Open]] = {}
        self._processes: dict[int, str] = {}
        self._kept: dict[int, tuple[Event, int, Key, Group]] = {}

    def read(self, files: Sequence[Skimmed], alignment: Alignment | None, meter: Meter) -> None:
        """Take the slices of files, of which the parts of a process follow each other.

        Without an alignment times stay as they are. Raises `TraceError` for a file that is damaged, or an event that
        cannot be placed in time.
        """
        for number, file in enumerate(files):
            place = _placing(file, alignment)
            passed = meter.begin(file.path)
            self._unnamed = -(number << 40)  # tracks that the files do not name are no track of two files
            last = self._take(EventReader(file.path, self._tracks).events(passed), place, file.path)
            self.last_ns[host_key(file)] = max(self.last_ns.get(host_key(file), 0), last)
        self._count_open()

    def _take(self, events: Iterator[tuple[int, Event]], place: "_Place", path: Path) -> int:
        stacks, last = self._stacks, 0
        shifts, convert, unnamed = place.shifts, place.convert, self._unnamed
        for time, event in events:
            kind, track = event.kind, event.track
            if kind not in (BEGIN, END):
                continue
            at = time + shifts[event.clock]
            if at > last:  # noqa: PLR1730  # half the cost of max(), for each event
                last = at
            if convert is not None:
                at = convert(at)
            if track < 0:
                track += unnamed
            stack = stacks.get(track)
            if kind == BEGIN:
                if stack is None:
                    stack = self._new_track(track, path)
                stack.append(_Open(event, at))
            elif stack:
                self._close(track, stack, at)
            else:
                self.unmatched += 1
        return last - place.included

    def _new_track(self, track: int, path: Path) -> list[_Open]:
        process = process_of(self._tracks, track)
        key, name = str(path), path.name
        if process is not None:
            key, name = str(process.uuid), process.process_name or process.name or f"pid {process.pid}"
        self._processes[track] = key
        self.names.setdefault(key, name)
        return self._stacks.setdefault(track, [])

    def _close(self, track: int, stack: list[_Open], end: int) -> None:
        closed = stack.pop()
        event = closed.event
        loop = _loop_around(stack) if event.category in PHASE_KINDS else None
        key, group = self._group(track, event, loop.event.name if loop else "")
        group.starts.append(closed.start)
        group.ends.append(end)
        if event.category == LOOP:
            self._end_iteration(key, closed, end)
        elif loop is not None:
            loop.spent = loop.spent or {}
            loop.spent[key] = loop.spent.get(key, 0) + end - closed.start
            if event.category == "exclusive":
                loop.exclusive += end - closed.start

    def _group(self, track: int, event: Event, loop: str) -> tuple[Key, Group]:
        kept = self._kept.get(id(event))  # equal events mostly are one object
        if kept is not None and kept[0] is event and kept[1] == track and kept[2].loop == loop:
            return kept[2], kept[3]
        key = Key(self._processes[track], loop, event.category, event.name)
        group = self.groups.setdefault(key, Group())
        if len(self._kept) >= _MOST_KEPT:
            self._kept.clear()
        self._kept[id(event)] = event, track, key, group
        return key, group

    def _end_iteration(self, key: Key, closed: _Open, end: int) -> None:
        other = max(end - closed.start - closed.exclusive, 0)
        self.other[key.process, key.name] = self.other.get((key.process, key.name), 0) + other
        for phase, spent in (closed.spent or {}).items():
            self.groups[phase].in_iterations += spent

    def _count_open(self) -> None:
        for track, stack in self._stacks.items():
            loop = ""
            for each in stack:
                is_phase = each.event.category in PHASE_KINDS
                key = Key(self._processes[track], loop if is_phase else "", each.event.category, each.event.name)
                self.groups.setdefault(key, Group()).still_open += 1
                if each.event.category == LOOP:
                    loop = each.event.name


def _loop_around(stack: list[_Open]) -> _Open | None:
    for each in reversed(stack):
        if each.event.category == LOOP:
            return each
    return None


class _Shifts(dict[int, int]):
    """What to add to a time, by the number of its clock."""

    def __init__(self, path: Path, known: dict[int, int]) -> None:
        super().__init__(known)
        self._path = path

    def __missing__(self, clock: int) -> int:
        raise TraceError(f"{self._path}: an event is on clock {clock}, for which the file has no anchor")


class _AsTheyAre(dict[int, int]):
    def __missing__(self, clock: int) -> int:
        return 0


class _Place(NamedTuple):
    """How the times of a file become those of all."""

    shifts: dict[int, int]
    convert: Convert | None
    """None if the shifts are all there is to it."""
    included: int
    """What the shifts add beyond the file's base clock."""


def _placing(file: Skimmed, alignment: Alignment | None) -> _Place:
    if alignment is None or not file.has_packets:
        return _Place(_AsTheyAre(), None, 0)
    placement = alignment.of(file)
    if placement.constant is None:
        return _Place(_Shifts(file.path, placement.clocks), placement.convert, 0)
    at_once = {clock: shift + placement.constant for clock, shift in placement.clocks.items()}
    return _Place(_Shifts(file.path, at_once), None, placement.constant)
