"""Draws sorted events of other programs: their processes and threads, a lane for what overlaps, and arrows."""

from collections.abc import Iterable, Mapping
from itertools import count
from typing import Any

from rltel.core.context import new_id
from rltel.export.otel import track_packets as make
from rltel.export.otel.lanes import OPEN, Lanes
from rltel.export.otel.track_packets import TrackEncoder
from rltel.traces.foreign import Arrow, Event, Instant, Names, Place, Sample, Skipped, Slice

_FIRST_SPARE = 1 << 23  # pids and tids for what has none that Perfetto takes; merging takes its own from 1 << 22
_SPARE = range(1, 1 << 22)
_MOST_ARROWS = 1 << 19


class Drawing:
    """One file's processes, threads and lanes, and the encoder that their events go to."""

    def __init__(self, encoder: TrackEncoder) -> None:
        self.encoder = encoder
        self.drawn = 0
        self._names = Names()
        self._source = 0
        self._offset = 0
        self._skipped = Skipped()
        self._lanes = Lanes()
        self._spare = count(_FIRST_SPARE)
        self._pids: dict[tuple[int, str], int] = {}
        self._taken_pids: set[int] = set()
        self._tracks: dict[tuple[Any, ...], int] = {}
        self._on: dict[tuple[int, Place], list[list[tuple[int, int]]]] = {}  # lanes' slices that may still be open
        self._arrows: dict[tuple[int, str], int] = {}
        self._waiting: dict[tuple[int, Place], list[Arrow]] = {}

    def begin(self, source: int, names: Names, offset_ns: int, skipped: Skipped) -> None:
        """What comes next is of this source; its pids mean other processes than those of another source."""
        self._source, self._names, self._offset, self._skipped = source, names, offset_ns, skipped

    def draw(self, events: Iterable[Event]) -> None:
        """Draw events in the order of their times."""
        for event in events:
            time = event[0] + self._offset
            if time < 0:
                self._skipped["time before the clock's begin"] += 1
            elif isinstance(event, Slice):
                self._slice(event, time)
            elif isinstance(event, Arrow):
                self._arrow(event, time)
            elif isinstance(event, Instant):
                self.encoder.instant(self._track_of(event), time, event.name, event.category, _plain_args(event.notes))
                self.drawn += 1
            else:
                self._sample(event, time)

    def end(self) -> None:
        """The source ends."""
        left = sum(map(len, self._waiting.values()))
        if left:
            self._skipped["arrow to a slice that never began"] += left
        self._waiting.clear()

    def _slice(self, event: Slice, begin: int) -> None:
        end = None if event.end_ns is None else event.end_ns + self._offset
        group = (self._source, event.place)
        lane = self._lanes.place(group, begin, OPEN if end is None else end, event.id, event.parent)
        track = self._track(event.place, lane)
        flows = (*event.flows, *self._names.links.get(event.id or "", ()))
        self.encoder.slice(track, begin, end, event.name, event.category, flows, _plain_args(event.notes))
        self.drawn += 1
        self._note(group, lane, begin, OPEN if end is None else end)
        for arrow in self._waiting.pop(group, ()):
            self._point(arrow, begin, track, is_bound=begin != end)

    def _note(self, group: tuple[int, Place], lane: int, begin: int, end: int) -> None:
        stacks = self._on.setdefault(group, [])
        while len(stacks) <= lane:
            stacks.append([])
        stack = stacks[lane]
        while stack and stack[-1][1] <= begin:
            stack.pop()
        stack.append((begin, end))

    def _arrow(self, event: Arrow, time: int) -> None:
        group = (self._source, event.place)
        if event.is_next:
            self._waiting.setdefault(group, []).append(event)
            return
        lane = self._innermost(group, time)
        self._point(event, time, self._track(event.place, max(lane, 0)), is_bound=lane >= 0)

    def _innermost(self, group: tuple[int, Place], time: int) -> int:
        """The lane of the slice that began last of those that are open at that time, or -1."""
        best, found = -1, -1
        for lane, stack in enumerate(self._on.get(group, ())):
            while stack and stack[-1][1] <= time:
                stack.pop()
            if stack and stack[-1][0] >= best:
                best, found = stack[-1][0], lane
        return found

    def _point(self, event: Arrow, time: int, track: int, *, is_bound: bool) -> None:
        key = (self._source, event.flow)
        if not is_bound:
            self._skipped["arrow outside of any slice"] += 1
            return
        if event.phase == "s":
            self._arrows[key] = new_id()  # ids in a file come again; joined arrows would lead from one to the next
            if len(self._arrows) > _MOST_ARROWS:
                del self._arrows[next(iter(self._arrows))]
        flow = self._arrows.get(key)
        if flow is None:
            self._skipped["arrow that began nowhere"] += 1
            return
        self.encoder.arrow(track, time, event.phase, flow, event.name, event.category)
        self.drawn += 1

    def _sample(self, event: Sample, time: int) -> None:
        process = self._process(event.place[0])
        key = ("counter", process, event.name)
        track = self._tracks.get(key)
        if track is None:
            track = self._tracks[key] = new_id()
            self.encoder.describe(make.counter_track(track, process, event.name))
        self.encoder.counter(track, time, event.value)
        self.drawn += 1

    def _track_of(self, event: Instant) -> int:
        if len(event.place) == 1:
            return self._process(event.place[0])
        lane = self._lanes.lane_of((self._source, event.place), event.parent) if event.parent else None
        return self._track(event.place, lane or 0)

    def _track(self, place: Place, lane: int) -> int:
        """The track of a lane, described when it is first asked for."""
        key = (self._source, place, lane)
        track = self._tracks.get(key)
        if track is None:
            process = self._process(place[0])
            track = self._tracks[key] = new_id()
            if len(place) > 2:
                described = make.lane_track(track, process, place[2], takes_arrows=True)
            elif lane == 0:
                pid, tid = self._pid(place[0]), self._own_number(place[1])
                described = make.thread_track(track, process, pid, tid, self._thread_name(place))
            else:
                described = make.lane_track(track, self._track(place, 0), self._thread_name(place), takes_arrows=True)
            self.encoder.describe(described)
        return track

    def _process(self, pid: str) -> int:
        key = (self._source, pid)
        track = self._tracks.get(key)
        if track is None:
            track = self._tracks[key] = new_id()
            name = self._names.processes.get(pid) or (f"process {pid}" if pid.isdigit() else pid or "process")
            labels = self._names.labels.get(pid, ())
            self.encoder.describe(make.process_track(track, self._pid(pid), name, labels))
        return track

    def _pid(self, pid: str) -> int:
        """Its own, unless that is no pid to Perfetto, or another source's process has it."""
        key = (self._source, pid)
        if key not in self._pids:
            number = self._own_number(pid.partition("\0")[0])
            while number in self._taken_pids:
                number = next(self._spare)
            self._taken_pids.add(number)
            self._pids[key] = number
        return self._pids[key]

    def _own_number(self, text: str) -> int:
        """A pid or tid as it was, if it is one (0 is the idle process)."""
        number = int(text) if text.isascii() and text.isdigit() and len(text) < 10 else 0
        return number if number in _SPARE else next(self._spare)

    def _thread_name(self, place: Place) -> str:
        name = self._names.threads.get(place)
        return name or (f"thread {place[1]}" if place[1].isdigit() else place[1] or "thread")


def _plain_args(notes: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
    """Notes with their floats as floats: the JSON reader leaves them as text, for the sake of times."""
    return None if notes is None else {str(name): _plain(value) for name, value in notes.items()}


def _plain(value: Any) -> Any:
    kind = type(value)
    if kind is bytes:
        return float(value)
    if kind is str or kind is int:
        return value
    if kind is dict:
        return {name: _plain(inner) for name, inner in value.items()}
    if kind is list:
        return [_plain(inner) for inner in value]
    return value
