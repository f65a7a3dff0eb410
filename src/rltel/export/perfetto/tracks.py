"""From the records of one lane to packets. Over calls and files it is remembered what is open there."""

from collections.abc import Callable, Sequence

from rltel.export.perfetto.free_tracks import OPEN_AT_END, FreeTracks
from rltel.export.perfetto.uncross import crosses, uncrossed
from rltel.export.perfetto.wire import EventEncoder, TimeEncoder
from rltel.record.records import (
    Attached,
    Begin,
    CounterSample,
    End,
    FreeBegin,
    FreeEnd,
    Instant,
    Record,
    Site,
)

CounterTrack = Callable[[str, str], int]
Opened = Site | Begin | Attached
_CONTINUED = {"continued": True}
_MAX_SITES = 10_000  # whose bare begins are remembered, encoded: a program may make a site for every slice


class LaneEncoder:
    """Packets of one lane, in the order of its records."""

    def __init__(self, counter_track: CounterTrack, free: FreeTracks, *, show_ids: bool = True) -> None:
        self.open: list[Opened] = []
        """What is open, the innermost last."""
        self._counter_track = counter_track
        self._free = free
        self._time = TimeEncoder()
        self._events = EventEncoder(0, show_ids=show_ids)
        self._site: Site | None = None
        self._last_ns = 0
        """The time of the last record."""

    def begin_sequence(self, sequence: int) -> None:
        """From here on packets belong to this sequence, which knows no names yet."""
        self._events = self._events.successor(sequence)
        self._bare: dict[Site, tuple[bytes, bytes]] = {}
        self._bare_end = self._events.around_time(EventEncoder.END)

    @property
    def awaits_time(self) -> bool:
        """Whether a bare begin has come without its time yet: the lane was emptied between the two."""
        return self._site is not None

    @property
    def names(self) -> int:
        """How many names this sequence has sent."""
        return self._events.names

    def take_unreadable(self) -> int:
        """How much of the records could not be drawn, since the last time."""
        return self._events.take_unreadable()

    def encode(self, records: Sequence[Record]) -> bytes:
        """These records as packets.

        On a lane, the order of records counts more than what a clock said: between a reading and its record, garbage
        collection may have ended slices around it. The trace processor goes by times, so these never go back.
        """
        if crosses(records):
            records, self._site = uncrossed(records, self._site), None
        out: list[bytes] = []
        add, opened = out.extend, self.open
        time, low = self._time, self._time.low
        end_head, end_tail = self._bare_end
        site, last = self._site, self._last_ns
        for record in records:
            if type(record) is int:
                if record > last:  # noqa: PLR1730  # half the cost of max(), for each record
                    last = record
                if site is None:
                    if opened and type(opened.pop()) is not Attached:
                        add((end_head, low[last & 0x3FFF], low[last >> 14 & 0x3FFF], time.high(last), end_tail))
                    continue
                opened.append(site)
                head, tail = self._bare.get(site) or self._new_bare(site, out)
                add((head, low[last & 0x3FFF], low[last >> 14 & 0x3FFF], time.high(last), tail))
                site = None
            elif isinstance(record, Site):
                site = record
            else:
                self._last_ns = last
                self._add(record, out)
                last = self._last_ns
        self._site, self._last_ns = site, last
        return b"".join(out)

    def close_open(self, now_ns: int) -> bytes:
        """End what is still open, marked as such."""
        out: list[bytes] = []
        while self.open:
            self._add(End(now_ns, OPEN_AT_END), out)
        return b"".join(out)

    def _new_bare(self, site: Site, out: list[bytes]) -> tuple[bytes, bytes]:
        if len(self._bare) >= _MAX_SITES:
            self._bare.clear()
        made = self._bare[site] = self._events.bare_begin(site)
        out.append(self._events.new_names())
        return made

    def _add(self, record: Record, out: list[bytes]) -> None:
        events = self._events
        if isinstance(record, Begin):
            begin = record if record.time_ns >= self._last_ns else record._replace(time_ns=self._last_ns)
            self._last_ns = begin.time_ns
            self.open.append(begin)
            made = events.begin(begin)
        elif isinstance(record, End):
            end = record if record.time_ns >= self._last_ns else record._replace(time_ns=self._last_ns)
            self._last_ns = end.time_ns
            made = self._end(end)
        elif isinstance(record, Instant):
            self._last_ns = max(self._last_ns, record.time_ns)
            made = events.instant(record._replace(time_ns=self._last_ns))
        elif isinstance(record, CounterSample):
            track = self._counter_track(events.spelled(record.name), events.spelled(record.unit))
            made = events.counter(record, track)  # on a track of its own
        elif isinstance(record, Attached):
            self.open.append(record)
            return
        elif isinstance(record, (FreeBegin, FreeEnd)):
            self._free.add(record)
            return
        else:
            raise TypeError(f"not a record of a lane: {record!r}")
        out.extend((events.new_names(), made))

    def _end(self, end: End) -> bytes:
        """The end of the slice that is this deep. Those above it end with it, and go on right after it."""
        if end.depth >= len(self.open):
            return b""  # its begin was not kept
        above = [self.open.pop() for _ in range(end.depth)]
        drawn = [each for each in above if not isinstance(each, Attached)]
        closed = self.open.pop()
        out = [self._events.end(End(end.time_ns)) for _ in drawn]
        if not isinstance(closed, Attached):
            out.append(self._events.end(end))
        for each in reversed(above):
            self.open.append(each)
            if not isinstance(each, Attached):
                site = each if isinstance(each, Site) else each.site
                out.append(self._events.begin(Begin(end.time_ns, site, None, _CONTINUED)))
        return b"".join(out)
