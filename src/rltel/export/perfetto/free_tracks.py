"""Slices that nest in nothing, and the tracks that they lie on: as many of one name as it takes."""

from collections.abc import Callable
from heapq import heapify, heappop, heappush
from operator import index
from typing import Any

from rltel.core.context import new_id
from rltel.export.perfetto.wire import EventEncoder
from rltel.record.records import End, FreeBegin, FreeEnd, Placed, Record

OPEN_AT_END = {"open_at_end": True}
_MAX_NAMES = 10_000  # names of tracks that are remembered while nothing is open there


class _Track:
    """One track. ``until_ns``: the end of the last slice on it."""

    __slots__ = ("name", "number", "until_ns", "uuid")

    def __init__(self, name: str, number: int) -> None:
        self.uuid = new_id()
        self.name = name
        self.number = number
        self.until_ns = 0


class _Tracks:
    """All tracks of one name. The lowest one that is free is used first, so that there is least to look at."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._made = 0
        self._busy: list[tuple[int, int, _Track]] = []  # a heap: free from this time on
        self._free: list[tuple[int, _Track]] = []  # a heap, by number

    @property
    def is_idle(self) -> bool:
        """Whether nothing is open on any."""
        return self._made == len(self._busy) + len(self._free)

    def take(self, time_ns: int) -> _Track:
        """A track with nothing on it from this time on. Nobody else gets it until `give_back`."""
        busy, free = self._busy, self._free
        while busy and busy[0][0] <= time_ns:
            _, number, track = heappop(busy)
            heappush(free, (number, track))
        if free and free[0][1].until_ns <= time_ns:
            return heappop(free)[1]
        for place, (_, track) in enumerate(free):  # times that go back
            if track.until_ns <= time_ns:
                del free[place]
                heapify(free)
                return track
        self._made += 1
        return _Track(self._name, self._made)

    def give_back(self, track: _Track, until_ns: int) -> None:
        """The slice on it has ended."""
        track.until_ns = until_ns
        heappush(self._busy, (until_ns, track.number, track))


class FreeTracks:
    """Packets of slices that may end anywhere, and of those known only afterwards."""

    def __init__(self, describe: Callable[[int, str], bytes]) -> None:
        self._describe = describe
        self._events = EventEncoder(0)
        self._tracks: dict[str, _Tracks] = {}
        self._open: dict[int, _Track] = {}
        self._described: set[int] = set()
        self._out: list[bytes] = []
        self._unreadable = 0

    def begin_sequence(self, sequence: int) -> None:
        """From here on packets belong to this sequence, in a file that need not know any track yet."""
        self._events = self._events.successor(sequence)
        self._described.clear()

    @property
    def names(self) -> int:
        """How many names this sequence has sent."""
        return self._events.names

    def take_unreadable(self) -> int:
        """How much of the records could not be drawn, since the last time."""
        unreadable, self._unreadable = self._unreadable, 0
        return unreadable + self._events.take_unreadable()

    def add(self, record: Record) -> None:
        """Take one record; `take_packets` gives what it became."""
        try:
            self._add(record)
        except Exception:  # times that are no integers, say: others' slices must not pay for it
            self._unreadable += 1

    def _add(self, record: Record) -> None:
        if isinstance(record, FreeBegin):
            begin = record.begin
            track = self._take(begin.site.name, begin.time_ns)
            self._open[record.number] = track
            self._write(track, self._events.begin(begin, track.uuid))
        elif isinstance(record, FreeEnd):
            self._end(record.number, record.end)
        elif isinstance(record, Placed):
            begin = record.begin
            until_ns = max(index(record.end_ns), index(begin.time_ns))
            track = self._take(record.track, begin.time_ns)
            self._write(track, self._events.begin(begin, track.uuid))
            self._write(track, self._events.end(End(until_ns), track.uuid))
            self._tracks[track.name].give_back(track, until_ns)

    def close_open(self, now_ns: int) -> None:
        """End what is still open, marked as such."""
        for number in list(self._open):
            self._end(number, End(now_ns, OPEN_AT_END))

    def take_packets(self) -> bytes:
        """The packets so far."""
        packets = b"".join(self._out)
        self._out.clear()
        return packets

    def _end(self, number: int, end: End) -> None:
        track = self._open.pop(number, None)
        if track is not None:
            self._write(track, self._events.end(end, track.uuid))
            self._tracks[track.name].give_back(track, end.time_ns)

    def _take(self, name: Any, time_ns: int) -> _Track:
        text = self._events.spelled(name)
        tracks = self._tracks.get(text)
        if tracks is None:
            if len(self._tracks) >= _MAX_NAMES:
                self._forget_idle()
            tracks = self._tracks[text] = _Tracks(text)
        return tracks.take(time_ns)

    def _forget_idle(self) -> None:
        """Names made up on the way must not fill the memory: one that comes again gets a track anew."""
        self._tracks = {name: tracks for name, tracks in self._tracks.items() if not tracks.is_idle}
        self._described.clear()

    def _write(self, track: _Track, made: bytes) -> None:
        if track.uuid not in self._described:
            self._described.add(track.uuid)
            self._out.append(self._describe(track.uuid, track.name))
        self._out.extend((self._events.new_names(), made))
