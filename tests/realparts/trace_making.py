"""Makes native trace files with the official classes, packet by packet, as rltel's writer lays them out."""

from __future__ import annotations

import zlib
from dataclasses import dataclass, field
from pathlib import Path

from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import BuiltinClock, TracePacket, TrackEvent

MONOTONIC = BuiltinClock.BUILTIN_CLOCK_MONOTONIC
BOOTTIME = BuiltinClock.BUILTIN_CLOCK_BOOTTIME
REALTIME = BuiltinClock.BUILTIN_CLOCK_REALTIME
CLEARED = TracePacket.SequenceFlags.SEQ_INCREMENTAL_STATE_CLEARED
NEEDS_STATE = TracePacket.SequenceFlags.SEQ_NEEDS_INCREMENTAL_STATE
CLOCKS_TRACK = 1 << 40


def framed(message: TracePacket) -> bytes:
    """A packet as it stands in a file."""
    body = message.SerializeToString()
    length, head = len(body), bytearray(b"\x0a")
    while length >= 0x80:
        head.append(length & 0x7F | 0x80)
        length >>= 7
    head.append(length)
    return bytes(head) + body


def block(*packets: TracePacket) -> TracePacket:
    """Packets as a compressed one."""
    return TracePacket(compressed_packets=zlib.compress(b"".join(map(framed, packets))))


@dataclass
class TraceMaking:
    """The file of one process with one thread. Times are of its monotonic clock unless said otherwise (ns).

    Args:
        process: The uuid of the process's track; its thread's is one more.
        monotonic, realtime: A reading of the clocks for the snapshot at the head; None leaves it out.
    """

    process: int = 100
    pid: int = 10
    name: str = "learner 0"
    host: str = ""
    monotonic: int | None = 1_000
    realtime: int = 1_795_987_020_000_000_000
    boottime: int | None = None
    packets: list[TracePacket] = field(default_factory=list)
    _names: dict[str, int] = field(default_factory=dict)
    _categories: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.monotonic is not None:
            self.packets.append(self._snapshot(self.monotonic))
        described = TracePacket(trusted_packet_sequence_id=1)
        described.track_descriptor.uuid = self.process
        described.track_descriptor.process.pid = self.pid
        described.track_descriptor.process.process_name = self.name
        if self.host:
            described.track_descriptor.process.process_labels.append(f"host {self.host}")
        self.packets.append(described)
        self.packets.append(self.thread_packet(2, self.thread))

    @property
    def thread(self) -> int:
        """The uuid of the thread's track."""
        return self.process + 1

    def _snapshot(self, monotonic: int) -> TracePacket:
        made = TracePacket(trusted_packet_sequence_id=1)
        boot = monotonic if self.boottime is None else self.boottime
        for clock, time in ((MONOTONIC, monotonic), (BOOTTIME, boot), (REALTIME, self.realtime)):
            made.clock_snapshot.clocks.add(clock_id=clock, timestamp=time)
        return made

    def thread_packet(self, sequence: int, track: int, tid: int | None = None) -> TracePacket:
        """Begins a sequence on a thread's track."""
        made = TracePacket(trusted_packet_sequence_id=sequence, sequence_flags=CLEARED)
        made.trace_packet_defaults.timestamp_clock_id = MONOTONIC
        made.trace_packet_defaults.track_event_defaults.track_uuid = track
        made.track_descriptor.uuid = track
        made.track_descriptor.parent_uuid = self.process
        made.track_descriptor.thread.pid = self.pid
        made.track_descriptor.thread.tid = self.pid if tid is None else tid
        made.track_descriptor.thread.thread_name = "MainThread"
        return made

    def anchor(self, monotonic: int, realtime: int, boottime: int | None = None, width: int = 50) -> None:
        """A clock anchor, as the writer renews it."""
        event = TrackEvent(
            type=TrackEvent.TYPE_INSTANT, name="rltel.clock_anchor", track_uuid=CLOCKS_TRACK + self.process
        )
        boot = monotonic if boottime is None else boottime
        numbers = {"monotonic_ns": monotonic, "realtime_ns": realtime, "boottime_ns": boot, "width_ns": width}
        for key, value in numbers.items():
            event.debug_annotations.add(name=key, int_value=value)
        self._clock_packet(monotonic, event)

    def offset(self, at: int, reference: int, offset: int, error: int) -> None:
        """A measured offset to the reference process's monotonic clock."""
        event = TrackEvent(
            type=TrackEvent.TYPE_INSTANT, name="rltel.clock_offset", track_uuid=CLOCKS_TRACK + self.process
        )
        event.debug_annotations.add(name="reference", string_value=str(reference))
        event.debug_annotations.add(name="offset_ns", int_value=offset)
        event.debug_annotations.add(name="error_ns", int_value=error)
        self._clock_packet(at, event)

    def _clock_packet(self, at: int, event: TrackEvent) -> None:
        if not any(made.track_descriptor.uuid == event.track_uuid for made in self.packets):
            described = TracePacket(trusted_packet_sequence_id=1)
            described.track_descriptor.uuid = event.track_uuid
            described.track_descriptor.parent_uuid = self.process
            described.track_descriptor.name = "clocks"
            self.packets.append(described)
        made = TracePacket(timestamp=at, timestamp_clock_id=MONOTONIC, trusted_packet_sequence_id=1)
        made.track_event.CopyFrom(event)
        self.packets.append(made)

    def begin(self, at: int, name: str, category: str = "", sequence: int = 2, track: int = 0) -> None:
        """A slice begins (on the sequence's own track, unless told otherwise)."""
        event = TrackEvent(type=TrackEvent.TYPE_SLICE_BEGIN, name_iid=self._interned(sequence, "event_names", name))
        if category:
            event.category_iids.append(self._interned(sequence, "event_categories", category))
        self.event(at, event, sequence, track)

    def end(self, at: int, sequence: int = 2, track: int = 0) -> None:
        """The innermost slice ends."""
        self.event(at, TrackEvent(type=TrackEvent.TYPE_SLICE_END), sequence, track)

    def slice(self, begin: int, end: int, name: str, category: str = "", sequence: int = 2, track: int = 0) -> None:
        """A slice without others inside it."""
        self.begin(begin, name, category, sequence, track)
        self.end(end, sequence, track)

    def event(self, at: int, event: TrackEvent, sequence: int = 2, track: int = 0) -> None:
        """Any event."""
        if track:
            event.track_uuid = track
        made = TracePacket(timestamp=at, trusted_packet_sequence_id=sequence, sequence_flags=NEEDS_STATE)
        made.track_event.CopyFrom(event)
        self.packets.append(made)

    def _interned(self, sequence: int, kind: str, text: str) -> int:
        known = self._names if kind == "event_names" else self._categories
        key = f"{sequence} {text}"
        if key not in known:
            known[key] = len(known) + 1
            made = TracePacket(trusted_packet_sequence_id=sequence, sequence_flags=NEEDS_STATE)
            getattr(made.interned_data, kind).add(iid=known[key], name=text)
            self.packets.append(made)
        return known[key]

    def write(self, path: Path, blocks: int = 50) -> Path:
        """The file. Clock packets stand between the blocks, uncompressed."""
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(self.data(blocks))
        return path

    def data(self, blocks: int = 50) -> bytes:
        """The file's bytes, with up to so many packets in a block (0: no blocks)."""
        out, waiting = [], list[TracePacket]()
        for made in self.packets:
            if made.track_event.name.startswith("rltel.clock") or not blocks:
                out += [framed(block(*waiting))] if waiting else []
                out.append(framed(made))
                waiting = []
                continue
            waiting.append(made)
            if len(waiting) >= blocks:
                out.append(framed(block(*waiting)))
                waiting = []
        return b"".join([*out, framed(block(*waiting))] if waiting else out)
