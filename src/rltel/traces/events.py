"""The events of a file, one after the other: what happened, when, and on which track.

What repeats (the end of a slice, the begin of one without attributes) is decoded once; see `stamps`.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import TracePacket, TrackDescriptor, TrackEvent

from rltel.traces.event_heads import event_head
from rltel.traces.reader import parsed, raw_packets, text
from rltel.traces.skim import BOOTTIME, REALTIME
from rltel.traces.stamps import NO_TIME, stamped, unstamped

BEGIN, END = TrackEvent.TYPE_SLICE_BEGIN, TrackEvent.TYPE_SLICE_END
_MOST_KEPT = 1 << 14
_LONGEST_KEPT = 64
_CLEARED = TracePacket.SequenceFlags.SEQ_INCREMENTAL_STATE_CLEARED
_NEEDS_STATE = TracePacket.SequenceFlags.SEQ_NEEDS_INCREMENTAL_STATE


class Event(NamedTuple):
    """What an event says but for its time. Equal ones may be one object."""

    kind: int
    """`BEGIN`, `END`, or another type of TrackEvent."""
    track: int
    """Its track; where nothing names one, a negative number of its own for each sequence."""
    name: str
    category: str
    clock: int
    """The number of the clock that its time is on."""
    sequence: int
    faults: tuple[str, ...] = ()
    """What it refers to that the file has not said before."""


class Track(NamedTuple):
    """A row of the timeline: a process, a thread of one, a lane or a counter."""

    uuid: int
    parent: int
    name: str
    pid: int
    tid: int
    process_name: str

    @property
    def is_process(self) -> bool:
        """Whether it is that of a process as a whole."""
        return bool(self.pid) and not self.tid


@dataclass
class _Sequence:
    """What a sequence has said that its later packets refer to."""

    default_clock: int = 0
    default_track: int = 0
    is_begun: bool = False
    names: dict[int, str] = field(default_factory=dict)
    categories: dict[int, str] = field(default_factory=dict)


class EventReader:
    """Reads one file. What it says of tracks goes into ``tracks``, which the parts of a process may share."""

    def __init__(self, path: Path, tracks: dict[int, Track] | None = None) -> None:
        self.path = path
        self.tracks: dict[int, Track] = {} if tracks is None else tracks
        self.described: Callable[[Track], object] | None = None
        """Told of every description of a track."""
        self.packets = 0
        """How many packets have been read."""
        self._sequences: dict[int, _Sequence] = {}
        self._known: dict[bytes, Event] = {}  # by all of a packet but its time
        self._heads: dict[bytes, Event] = {}  # by what is left of that without what hangs on the event
        self._default_clock: int = BOOTTIME

    def events(self, passed: Callable[[int], None] | None = None) -> Iterator[tuple[int, Event]]:
        """Each event with its time, in ns of its clock, in the file's order.

        Raises `TraceError` if the file is damaged.
        """
        return self.events_of(raw_packets(self.path, passed))

    def events_of(self, packets: Iterator[bytes]) -> Iterator[tuple[int, Event]]:
        """Like `events`, of packets that were read by the caller."""
        known = self._known
        for time, tail in stamped(packets):
            self.packets += 1
            event = known.get(tail)
            if event is None:
                time, event = self._read(time, tail)  # noqa: PLW2901  # a timestamp may stand elsewhere in the packet
                if event is None:
                    continue
            yield time, event

    def _read(self, time: int, tail: bytes) -> tuple[int, Event | None]:
        head = event_head(tail) if time != NO_TIME else None
        if head is not None and head in self._heads:
            return time, self._heads[head]
        at, event = self._parse(time, tail)
        if event is not None and time != NO_TIME and not event.faults:
            self._keep(tail, head, event)
        return at, event

    def _keep(self, tail: bytes, head: bytes | None, event: Event) -> None:
        if len(self._known) + len(self._heads) >= _MOST_KEPT:
            self._forget()
        if head is not None:
            self._heads[head] = event
        if len(tail) <= _LONGEST_KEPT:
            self._known[tail] = event

    def _forget(self) -> None:
        self._known.clear()
        self._heads.clear()

    def _parse(self, time: int, tail: bytes) -> tuple[int, Event | None]:
        packet = parsed(unstamped(time, tail), self.path)
        if packet.HasField("clock_snapshot") and packet.clock_snapshot.primary_trace_clock == REALTIME:
            self._default_clock = REALTIME
        sequence = self._sequences.setdefault(packet.trusted_packet_sequence_id, _Sequence())
        if self._learn(packet, sequence):
            self._forget()
        if not packet.HasField("track_event"):
            return 0, None
        return packet.timestamp, self._event(packet, sequence)

    def _learn(self, packet: TracePacket, sequence: _Sequence) -> bool:
        """Take what later packets refer to; whether something that was said before now means something else."""
        changed = bool(packet.sequence_flags & _CLEARED)
        if changed:
            sequence.names.clear()
            sequence.categories.clear()
            sequence.is_begun = True
        if packet.HasField("trace_packet_defaults"):
            changed = True
            sequence.default_clock = packet.trace_packet_defaults.timestamp_clock_id
            sequence.default_track = packet.trace_packet_defaults.track_event_defaults.track_uuid
        if packet.HasField("interned_data"):
            sequence.names.update((each.iid, text(each.name)) for each in packet.interned_data.event_names)
            sequence.categories.update((each.iid, text(each.name)) for each in packet.interned_data.event_categories)
        if packet.HasField("track_descriptor"):
            self._describe(packet.track_descriptor)
        return changed

    def _describe(self, described: TrackDescriptor) -> None:
        process, thread = described.process, described.thread
        pid = process.pid or thread.pid
        name = text(described.name or thread.thread_name or process.process_name)
        track = Track(described.uuid, described.parent_uuid, name, pid, thread.tid, text(process.process_name))
        self.tracks[described.uuid] = track
        if self.described is not None:
            self.described(track)

    def _event(self, packet: TracePacket, sequence: _Sequence) -> Event:
        event, number = packet.track_event, packet.trusted_packet_sequence_id
        faults = []
        name = text(event.name)
        if event.name_iid:
            name = sequence.names.get(event.name_iid, "")
            if event.name_iid not in sequence.names:
                faults.append(f"name {event.name_iid} of sequence {number} is not defined")
        category = text(event.categories[0]) if event.categories else ""
        for iid in event.category_iids[:1]:
            category = sequence.categories.get(iid, "")
            if iid not in sequence.categories:
                faults.append(f"category {iid} of sequence {number} is not defined")
        if packet.sequence_flags & _NEEDS_STATE and not sequence.is_begun:
            faults.append(f"sequence {number} was not begun (no packet that clears its state before)")
        track = event.track_uuid or sequence.default_track or -1 - number
        clock = packet.timestamp_clock_id or sequence.default_clock or self._default_clock
        return Event(event.type, track, name, category, clock, number, tuple(faults))


def process_of(tracks: dict[int, Track], uuid: int) -> Track | None:
    """The process that a track belongs to, or the topmost track above it; None if it was never described."""
    seen: set[int] = set()
    track = tracks.get(uuid)
    while track is not None and not track.is_process and track.parent in tracks and uuid not in seen:
        seen.add(uuid)
        uuid = track.parent
        track = tracks[uuid]
    if track is not None and not track.is_process and track.pid:  # a thread that is below no process's track
        return next((each for each in tracks.values() if each.is_process and each.pid == track.pid), track)
    return track
