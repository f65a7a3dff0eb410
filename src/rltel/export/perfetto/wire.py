"""Perfetto packets, encoded directly: the hot route from records to bytes.

Slices are encoded by hand (three times cheaper than through protobuf classes; tests prove that the official classes
read the same), everything rare through the classes of the ``perfetto`` package.
"""

import struct
from collections.abc import Mapping
from functools import cache
from numbers import Integral, Real
from operator import index
from typing import Any

import numpy as np
from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import (
    BuiltinClock,
    ClockSnapshot,
    CounterDescriptor,
    TracePacket,
    TrackEvent,
)

from rltel.core.clock import Anchor
from rltel.export.protobuf import block, uint, varint
from rltel.record.records import Attributes, Begin, CounterSample, End, Flows, Ids, Instant, Site

_SEQUENCE, _TRACK_EVENT, _INTERNED, _FLAGS, _COMPRESSED = 10, 11, 12, 13, 50  # of TracePacket
_TYPE, _NAME_IID, _TRACK_UUID, _CATEGORY_IID = 9, 10, 11, 3  # of TrackEvent
_NAME_OF_NOTE, _BOOL, _FLOAT, _STRING, _KEY, _DICT, _ARRAY = 1, 2, 5, 6, 10, 11, 12  # of DebugAnnotation
_FLOW_TAG, _ANNOTATION_TAG, _DOUBLE_TAG, _EXTRA_TAG = b"\xf9\x02", b"\x22", b"\xe1\x02", b"\x60"
_INT_TAG, _STRING_TAG = b"\x20", b"\x32"  # of DebugAnnotation
_pack_flow = struct.Struct("<Q").pack
_pack_sample = struct.Struct("<d").pack
_pack_double = struct.Struct("<Bd").pack
_MAX_HEADS = 20_000
HOST_LABEL = "host "
TIME_BYTES = 9
"""How many bytes a bare slice's time takes: room for 63 bits."""
_MASK_64 = (1 << 64) - 1
_MAX_DEPTH = 8  # of values in values: what is deeper becomes text
_NEEDS_STATE = TracePacket.SequenceFlags.SEQ_NEEDS_INCREMENTAL_STATE


def packet(body: bytes) -> bytes:
    """One TracePacket as an entry of a Trace."""
    return b"\x0a" + varint(len(body)) + body


def compressed(packets: bytes, deflated: bytes) -> bytes:
    """A block of packets as one packet, if that is shorter. Cut anywhere, all blocks before the cut load."""
    return packet(block(_COMPRESSED, deflated)) if len(deflated) < len(packets) else packets


class EventEncoder:
    """Track events of one sequence, with names sent once and referred to by number."""

    END = uint(_TYPE, TrackEvent.TYPE_SLICE_END)
    """A bare slice's end."""

    def __init__(self, sequence: int, *, show_ids: bool = True) -> None:
        """``show_ids``: whether spans carry their trace and span ids, for those who look for them elsewhere."""
        self._show_ids = show_ids
        self._unreadable = 0  # names, attributes and flows that cannot be drawn: no id, a value with a wild str()
        self.tail = uint(_SEQUENCE, sequence) + uint(_FLAGS, _NEEDS_STATE)
        self._time = TimeEncoder()
        self._heads: dict[Site, bytes] = {}
        self._labels: dict[str, bytes] = {}
        self._counters: dict[int, bytes] = {}
        self._names: dict[str, int] = {}
        self._categories: dict[str, int] = {}
        self._annotations: dict[str, int] = {}
        self._new: list[bytes] = []

    def begin(self, begin: Begin, track: int = 0) -> bytes:
        """A slice begins, on the sequence's own track or another one."""
        time_ns, site, flows, attributes, cpu_ns, ids, _, span = begin
        if span and self._show_ids and ids is not None:
            attributes = {**_ids_shown(ids), **(attributes or {})}
        event = self._heads.get(site) or self._new_head(site)
        if track:
            event += uint(_TRACK_UUID, track)
        if cpu_ns is not None:
            event += _EXTRA_TAG + varint(cpu_ns)
        if flows or attributes:
            event += self._extras(flows, attributes)
        return self._packet(time_ns, event)

    def end(self, end: End, track: int = 0) -> bytes:
        """A slice ends, and how."""
        time_ns, attributes, error, cpu_ns, _ = end
        if error is not None:
            attributes = {"error": error, **(attributes or {})}
        event = EventEncoder.END
        if track:
            event += uint(_TRACK_UUID, track)
        if cpu_ns is not None:
            event += _EXTRA_TAG + varint(cpu_ns)
        if attributes:
            event += self._extras(None, attributes)
        return self._packet(time_ns, event)

    def instant(self, instant: Instant) -> bytes:
        """One moment."""
        event = self._head(TrackEvent.TYPE_INSTANT, instant.name, instant.category)
        return self._packet(instant.time_ns, event + self._extras(instant.flows, instant.attributes))

    def counter(self, sample: CounterSample, track: int) -> bytes:
        """One sample of a counter's track."""
        head = self._counters.get(track)
        if head is None:
            head = uint(_TYPE, TrackEvent.TYPE_COUNTER) + uint(_TRACK_UUID, track) + _DOUBLE_TAG
            self._counters[track] = head
        return self._packet(sample.time_ns, head + _pack_sample(sample.value))

    def bare_begin(self, site: Site) -> tuple[bytes, bytes]:
        """What comes before and after the time (of `TIME_BYTES`) in the packet of a bare slice's begin."""
        event = self._head(TrackEvent.TYPE_SLICE_BEGIN, site.name, site.category)
        return self.around_time(event)

    def around_time(self, event: bytes) -> tuple[bytes, bytes]:
        """A packet of this event, to be completed by the time in the middle."""
        tail = self.tail + block(_TRACK_EVENT, event)
        return b"\x0a" + varint(1 + TIME_BYTES + len(tail)) + b"\x40", tail

    def new_names(self) -> bytes:
        """A packet with the names that are new since the last time: it goes out before what refers to them."""
        if not self._new:
            return b""
        interned = packet(self.tail + block(_INTERNED, b"".join(self._new)))
        self._new.clear()
        return interned

    def successor(self, sequence: int) -> "EventEncoder":
        """An encoder for another sequence, which knows no names yet and goes on counting."""
        made = EventEncoder(sequence, show_ids=self._show_ids)
        made._unreadable = self._unreadable
        return made

    def take_unreadable(self) -> int:
        """How many names, attributes and flows could not be drawn, since the last time."""
        unreadable, self._unreadable = self._unreadable, 0
        return unreadable

    @property
    def names(self) -> int:
        """How many names this sequence has sent, of slices, categories and annotations."""
        return len(self._names) + len(self._categories) + len(self._annotations)

    def spelled(self, given: Any) -> str:
        """A name as text: programs give numbers, enums, or what cannot even be spelled out."""
        if type(given) is str:
            return given
        try:
            return str(given)
        except Exception:  # whatever the program's own object raises
            self._unreadable += 1
            return "?"

    def _packet(self, time_ns: int, event: bytes) -> bytes:
        time, tail = self._time.varint(max(time_ns, 0)), self.tail
        length = varint(len(event))
        whole = varint(1 + TIME_BYTES + len(tail) + 1 + len(length) + len(event))
        return b"".join((b"\x0a", whole, b"\x40", time, tail, b"\x5a", length, event))

    def _new_head(self, site: Site) -> bytes:
        if len(self._heads) >= _MAX_HEADS:
            self._heads.clear()
        made = self._heads[site] = self._head(TrackEvent.TYPE_SLICE_BEGIN, site.name, site.category)
        return made

    def _head(self, kind: int, name: str, category: str) -> bytes:
        head = uint(_TYPE, kind) + uint(_NAME_IID, self._interned(2, self._names, name))
        if category:
            head += uint(_CATEGORY_IID, self._interned(1, self._categories, category))
        return head

    def _extras(self, flows: Flows | None, attributes: Attributes | None) -> bytes:
        """Flows and annotations. What a program hangs on a slice may raise when it is read: it costs only itself."""
        parts: list[bytes] = []
        for flow in flows or ():
            try:
                parts += _FLOW_TAG, _pack_flow(index(flow) & _MASK_64)
            except TypeError:
                self._unreadable += 1
        for name, value in (attributes or {}).items():
            try:
                data = _value(value)
                label = self._labels.get(name) or self._new_label(name)
            except Exception:  # whatever the program's own objects raise
                self._unreadable += 1
                continue
            parts += _ANNOTATION_TAG, varint(len(label) + len(data)), label, data
        return b"".join(parts)

    def _new_label(self, name: Any) -> bytes:
        """The name of an annotation, by number."""
        label = uint(_NAME_OF_NOTE, self._interned(3, self._annotations, name))
        if type(name) is str:  # True, 1 and 1.0 are one key of a table, and three names
            self._labels[name] = label
        return label

    def _interned(self, field: int, table: dict[str, int], given: Any) -> int:
        """The number of a string; the first time, the string goes out before it is referred to."""
        text = given if type(given) is str else self.spelled(given)
        number = table.get(text)
        if number is None:
            number = table[text] = len(table) + 1
            self._new.append(block(field, uint(1, number) + block(2, text.encode(errors="replace"))))
        return number


def _value(value: Any, depth: int = 0) -> bytes:
    """The value of a debug annotation, by its type; mappings and sequences keep their structure."""
    kind = type(value)
    if kind is str:
        data: bytes = value.encode(errors="replace")
        return _STRING_TAG + varint(len(data)) + data
    if kind is float:
        return _pack_double(_FLOAT << 3 | 1, value)
    if kind is bool or isinstance(value, np.bool_):
        return uint(_BOOL, bool(value))
    if kind is int or isinstance(value, Integral):  # NumPy's scalars are numbers, too
        number = int(value)
        if -(1 << 63) <= number < 1 << 63:
            return _INT_TAG + varint(number & _MASK_64)
    elif isinstance(value, Real):
        return _pack_double(_FLOAT << 3 | 1, float(value))
    elif value is not None and depth < _MAX_DEPTH and isinstance(value, (dict, list, tuple)) and value:
        return _structure(value, depth + 1)
    return block(_STRING, str(value).encode(errors="replace"))


def _structure(value: dict[Any, Any] | list[Any] | tuple[Any, ...], depth: int) -> bytes:
    if isinstance(value, dict):
        pairs = ((str(key).encode(errors="replace"), inner) for key, inner in value.items())
        return b"".join(block(_DICT, block(_KEY, key) + _value(inner, depth)) for key, inner in pairs)
    return b"".join(block(_ARRAY, _value(inner, depth)) for inner in value)


class TimeEncoder:
    """Times as varints of a fixed length: a table for the low bits, and the high ones remembered while they last."""

    def __init__(self) -> None:
        self.low = _low_bits()
        self._high = -1
        self._high_bytes = b""

    def varint(self, time_ns: int) -> bytes:
        """The whole time."""
        return self.low[time_ns & 0x3FFF] + self.low[time_ns >> 14 & 0x3FFF] + self.high(time_ns)

    def high(self, time_ns: int) -> bytes:
        """The varint of all but the low 28 bits."""
        high = time_ns >> 28
        if high != self._high:
            self._high = high
            self._high_bytes = _padded(high, TIME_BYTES - 4)
        return self._high_bytes


@cache
def _low_bits() -> list[bytes]:
    """Two bytes of a varint that goes on, for every 14 bits."""
    return [bytes((low & 0x7F | 0x80, low >> 7 | 0x80)) for low in range(1 << 14)]


def _padded(value: int, length: int) -> bytes:
    """A varint of exactly this many bytes."""
    return bytes((value >> 7 * i & 0x7F) | (0x80 if i < length - 1 else 0) for i in range(length))


def _ids_shown(ids: Ids) -> dict[str, str]:
    return {"trace_id": f"{ids.trace_id:032x}", "span_id": f"{ids.span_id:016x}"}


def _clean(name: str) -> str:
    """What protobuf takes as text: half characters, as names of files may have, become question marks."""
    return name.encode(errors="replace").decode()


def clock_packet(anchor: Anchor) -> bytes:
    """The file's only ClockSnapshot: a second one, after the wall clock stepped, would break Perfetto's clock model."""
    clocks = (
        (BuiltinClock.BUILTIN_CLOCK_MONOTONIC, anchor.monotonic_ns),
        (BuiltinClock.BUILTIN_CLOCK_BOOTTIME, anchor.boottime_ns),
        (BuiltinClock.BUILTIN_CLOCK_REALTIME, anchor.realtime_ns),
    )
    snapshot = ClockSnapshot(clocks=[ClockSnapshot.Clock(clock_id=id, timestamp=time) for id, time in clocks])
    made = TracePacket(clock_snapshot=snapshot, trusted_packet_sequence_id=1)
    return packet(made.SerializeToString())


def process_packet(track: int, pid: int, name: str, host: str | None = None) -> bytes:
    """Names a process. ``host``: an opaque id of the host and its boot, for those that merge traces (a label)."""
    made = TracePacket(trusted_packet_sequence_id=1)
    made.track_descriptor.uuid = track
    made.track_descriptor.process.pid = pid
    made.track_descriptor.process.process_name = _clean(name)
    if host is not None:
        made.track_descriptor.process.process_labels.append(f"{HOST_LABEL}{host}")
    return packet(made.SerializeToString())


def thread_packet(
    sequence: int, track: int, parent: int, pid: int, tid: int, name: str, cpu_track: int | None = None
) -> bytes:
    """Names a thread, and makes its track and the monotonic clock the defaults of its sequence.

    ``cpu_track``: of the counter of the thread's CPU time, whose values its events carry.
    """
    made = _sequence_packet(sequence, track)
    if cpu_track is not None:
        made.trace_packet_defaults.track_event_defaults.extra_counter_track_uuids.append(cpu_track)
    made.track_descriptor.uuid = track
    made.track_descriptor.parent_uuid = parent
    made.track_descriptor.thread.pid = pid
    made.track_descriptor.thread.tid = tid
    made.track_descriptor.thread.thread_name = _clean(name)
    return packet(made.SerializeToString())


def lane_packet(sequence: int, track: int, parent: int, name: str) -> bytes:
    """Names a lane of an asyncio task, and makes it and the monotonic clock the defaults of its sequence."""
    made = _sequence_packet(sequence, track)
    made.track_descriptor.uuid = track
    made.track_descriptor.parent_uuid = parent
    made.track_descriptor.name = _clean(name)
    return packet(made.SerializeToString())


def sequence_packet(sequence: int, track: int) -> bytes:
    """Begins a sequence whose events name their tracks themselves, or lie on this one."""
    return packet(_sequence_packet(sequence, track).SerializeToString())


def _sequence_packet(sequence: int, track: int) -> TracePacket:
    made = TracePacket(trusted_packet_sequence_id=sequence)
    made.sequence_flags = TracePacket.SequenceFlags.SEQ_INCREMENTAL_STATE_CLEARED
    made.trace_packet_defaults.timestamp_clock_id = BuiltinClock.BUILTIN_CLOCK_MONOTONIC
    made.trace_packet_defaults.track_event_defaults.track_uuid = track
    return made


def track_packet(track: int, parent: int, name: str) -> bytes:
    """Names a track that is no thread's."""
    made = TracePacket(trusted_packet_sequence_id=1)
    made.track_descriptor.uuid = track
    made.track_descriptor.parent_uuid = parent
    made.track_descriptor.name = _clean(name)
    return packet(made.SerializeToString())


def cpu_time_packet(track: int, parent: int) -> bytes:
    """Describes the counter of a thread's CPU time, which the trace processor shows per slice."""
    made = TracePacket(trusted_packet_sequence_id=1)
    made.track_descriptor.uuid = track
    made.track_descriptor.parent_uuid = parent
    made.track_descriptor.counter.type = CounterDescriptor.COUNTER_THREAD_TIME_NS
    made.track_descriptor.counter.unit_multiplier = 1
    made.track_descriptor.counter.is_incremental = False
    return packet(made.SerializeToString())


def note_packet(track: int, time_ns: int, name: str, notes: Mapping[str, int | str]) -> bytes:
    """An instant on the monotonic clock that stands for itself: no names by number, no defaults."""
    made = TracePacket(trusted_packet_sequence_id=1, timestamp=time_ns)
    made.timestamp_clock_id = BuiltinClock.BUILTIN_CLOCK_MONOTONIC
    made.track_event.type = TrackEvent.TYPE_INSTANT
    made.track_event.track_uuid = track
    made.track_event.name = name
    for key, value in notes.items():
        if isinstance(value, str):
            made.track_event.debug_annotations.add(name=key, string_value=value)
        else:
            made.track_event.debug_annotations.add(name=key, int_value=value)
    return packet(made.SerializeToString())


def counter_packet(track: int, parent: int, name: str, unit: str) -> bytes:
    """Names a counter track."""
    made = TracePacket(trusted_packet_sequence_id=1)
    made.track_descriptor.uuid = track
    made.track_descriptor.parent_uuid = parent
    made.track_descriptor.name = _clean(name)
    made.track_descriptor.counter.unit_name = _clean(unit)
    return packet(made.SerializeToString())
