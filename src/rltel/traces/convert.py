"""Traces of other programs, as native ones: OTLP as JSON, and Chrome's JSON in its dialects.

Events come in any order, and slices can only be nested in the order of time: so they are sorted first, outside of
memory, and drawn then.
"""

import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import BuiltinClock, TracePacket

from rltel.core.errors import TraceError
from rltel.export.otel.track_packets import TrackEncoder
from rltel.export.perfetto.wire import compressed, packet
from rltel.traces.chrome import ChromeReader
from rltel.traces.drawing import Drawing
from rltel.traces.foreign import Arrow, Event, Instant, Names, Sample, Skipped, Slice
from rltel.traces.json_stream import JsonStream
from rltel.traces.json_text import read_text
from rltel.traces.otlp_json import OtlpReader, is_otlp
from rltel.traces.progress import Meter, Progress
from rltel.traces.skim import skim
from rltel.traces.sorting import Sorter
from rltel.traces.writing import check_input, draft

_BLOCK_BYTES = 1 << 20
_LEVEL = 4  # of zlib, as in the files that we record
_BASE = "baseTimeNanoseconds"  # of Kineto: what its times count from, since the epoch
_KINDS: tuple[type[Event], ...] = (Slice, Instant, Sample, Arrow)
_EPOCH_NS = 10**18  # times after that (2001) are wall-clock times; no machine runs for that long
ACCEPTED = (
    "OTLP JSON ({'resourceSpans': ...}, also a line each) and Chrome JSON (traceEvents, an array, or a line each)"
)
WALL = "wall clock, as the input has it"
UNKNOWN = "times as given: the input does not say what they count from, so this file cannot be merged with others"


@dataclass
class Converted:
    """What a conversion did."""

    path: Path
    events: int = 0
    """What was drawn: slices, instants, samples of counters, points of arrows."""
    skipped: dict[str, int] = field(default_factory=dict)
    """What was not, by reason."""
    clock: str = ""
    """What the times are, in words."""


def convert(sources: Sequence[Path], output: Path, progress: Progress | None = None) -> Converted:
    """Turn traces (gzip or not) into one native file. What is broken in them is skipped and counted.

    Raises `TraceError` if nothing could be read, if a source is a native trace already, if some sources have the wall
    clock's time and some have not, if ``output`` is one of the sources, or if it cannot be written.
    """
    if any(source.resolve() == output.resolve() for source in sources):
        raise TraceError(f"{output}: is one of the inputs, and would be replaced; give another output")
    for source in sources:
        check_input(source, f"{ACCEPTED}, gzip or not")
        if _is_native(source):
            raise TraceError(f"{source}: is a native trace already: nothing to convert (rltel trace open takes it)")
    skipped = Skipped()
    with draft(output) as write:
        work = _Conversion(write, output.parent, skipped)
        meter = Meter(sources, progress)
        for source in sources:
            work.add(source, meter.begin(source))
        if not work.events:
            raise TraceError(_nothing(sources, skipped))
    return Converted(output, work.events, dict(skipped), WALL if work.is_wall else UNKNOWN)


def _is_native(source: Path) -> bool:
    """A new line begins a packet, too, so the first byte does not decide."""
    try:
        found = skim(source)
    except TraceError:
        return False
    return bool(found.process or found.snapshot)


def _nothing(sources: Sequence[Path], skipped: Skipped) -> str:
    found = ", ".join(f"{reason} ({count})" for reason, count in skipped.items()) or "no events"
    names = ", ".join(map(str, sources)) or "no files"
    return f"{names}: nothing to draw: {found}; expected {ACCEPTED}, gzip or not"


class _Conversion:
    """All sources into one file."""

    def __init__(self, write: Callable[[bytes], object], folder: Path, skipped: Skipped) -> None:
        self.is_wall: bool | None = None
        """Whether times are the wall clock's; None before the first event."""
        self._write = write
        self._folder = folder
        self._skipped = skipped
        self._drawing: Drawing | None = None
        self._numbers = count(1)

    @property
    def events(self) -> int:
        return self._drawing.drawn if self._drawing else 0

    def add(self, source: Path, passed: Callable[[int], None]) -> None:
        with Sorter(self._folder) as sorter:
            read = _Source(source, self._skipped, sorter)
            read.all(passed)
            if read.events:
                self._check_clock(read)
                self._draw(read, sorter)

    def _check_clock(self, read: "_Source") -> None:
        if self.is_wall not in (None, read.is_wall):
            with_time, without = ("those before", "it") if self.is_wall else ("it", "those before")
            raise TraceError(
                f"{read.path}: times of the wall clock: {with_time}; not: {without}, so they cannot be in one "
                "file; convert them one by one"
            )

    def _draw(self, read: "_Source", sorter: Sorter) -> None:
        if self._drawing is None:
            self.is_wall = read.is_wall
            self._write(_clock_packet(read.first_ns + read.offset_ns if read.is_wall else None))
            clock = BuiltinClock.BUILTIN_CLOCK_REALTIME if read.is_wall else BuiltinClock.BUILTIN_CLOCK_MONOTONIC
            self._drawing = Drawing(TrackEncoder(clock))
        drawing = self._drawing
        drawing.begin(0 if read.is_otlp else next(self._numbers), read.names, read.offset_ns, self._skipped)
        drawing.draw(self._flushed(_events(sorter), drawing.encoder))
        drawing.end()
        self._flush(drawing.encoder)

    def _flushed(self, events: Iterator[Event], encoder: TrackEncoder) -> Iterator[Event]:
        """The same events; in between, what is encoded goes to the file."""
        for event in events:
            yield event
            if len(encoder) > _BLOCK_BYTES:
                self._flush(encoder)

    def _flush(self, encoder: TrackEncoder) -> None:
        packets = encoder.take()
        if packets:
            self._write(compressed(packets, zlib.compress(packets, _LEVEL)))


class _Source:
    """One input, read into a sorter."""

    def __init__(self, path: Path, skipped: Skipped, sorter: Sorter) -> None:
        self.path = path
        self.names = Names()
        self.events = 0
        self.first_ns = 0
        self.offset_ns = 0
        self.is_otlp = False
        self._skipped = skipped
        self._sorter = sorter
        self._chrome = ChromeReader(self.names, skipped)
        self._otlp = OtlpReader(self.names, skipped)
        self._has_base = False

    @property
    def is_wall(self) -> bool:
        """Whether its times, with the offset, are wall-clock times."""
        return self.is_otlp or self._has_base or self.first_ns > _EPOCH_NS

    def all(self, passed: Callable[[int], None]) -> None:
        """Read all of it."""
        stream = JsonStream(read_text(self.path, self._skipped, passed), self._skipped)
        for value in stream.values():
            if is_otlp(value) and (self.is_otlp or not self.events):
                self.is_otlp = True
                self._keep(self._otlp.read(value))
            elif self.is_otlp:
                self._skipped["no export of spans"] += 1
            else:
                self._keep(self._chrome.read(value))
        self._keep(self._chrome.rest())
        base = _integer(stream.header.get(_BASE))
        if base and not self.is_otlp:
            self.offset_ns, self._has_base = base, True

    def _keep(self, events: Iterator[Event]) -> None:
        for event in events:
            self.first_ns = min(self.first_ns, event[0]) if self.events else event[0]
            self._sorter.add(_record(event, self.events))
            self.events += 1


def _record(event: Event, number: int) -> tuple[Any, ...]:
    """An event as a record that sorts: by time, outer slices before inner ones, and after them what refers to them."""
    if isinstance(event, Slice):
        length = 1 << 63 if event.end_ns is None else event.end_ns - event.begin_ns
        return (event.begin_ns, -length, number, 0, tuple(event))
    return (event[0], 2 if isinstance(event, Arrow) else 1, number, _KINDS.index(type(event)), tuple(event))


def _events(sorter: Sorter) -> Iterator[Event]:
    for *_, kind, values in sorter.sorted():
        yield _KINDS[kind](*values)


def _integer(value: Any) -> int | None:
    try:
        return None if value is None else int(value)
    except (TypeError, ValueError):
        return None


def _clock_packet(wall_ns: int | None) -> bytes:
    """The file's ClockSnapshot.

    Nobody knows what the monotonic clock of the recording host was. For wall-clock times, the boot clock (which the
    trace processor counts in) is set to the same; for others, it is the clock that the times are on, from 0.
    """
    if wall_ns is None:
        clocks = {BuiltinClock.BUILTIN_CLOCK_MONOTONIC: 0, BuiltinClock.BUILTIN_CLOCK_BOOTTIME: 0}
    else:
        clocks = {BuiltinClock.BUILTIN_CLOCK_REALTIME: wall_ns, BuiltinClock.BUILTIN_CLOCK_BOOTTIME: wall_ns}
    made = TracePacket(trusted_packet_sequence_id=1)
    for clock, at in clocks.items():
        made.clock_snapshot.clocks.add(clock_id=clock, timestamp=at)
    return packet(made.SerializeToString())
