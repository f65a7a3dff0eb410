"""Packets of one sequence that draws on many tracks: complete slices, instants, counters and Chrome's arrows.

For what arrives after the fact, from other programs. Where a recording thread's packets have one track each
(`perfetto_wire`), here every event names its track. Memory is bounded: tables of names are forgotten when they have
grown large, and begun anew.
"""

import struct
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import BuiltinClock, TracePacket, TrackDescriptor, TrackEvent

from rltel.export.protobuf import block, uint, varint

_TIMESTAMP, _SEQUENCE, _TRACK_EVENT, _INTERNED, _FLAGS = 8, 10, 11, 12, 13  # of TracePacket
_CATEGORY_IID, _ANNOTATION, _LEGACY, _TYPE, _NAME_IID, _TRACK_UUID, _DOUBLE, _FLOW = 3, 4, 6, 9, 10, 11, 44, 47
_CATEGORIES, _NAMES, _ANNOTATION_NAMES = 1, 2, 3  # of InternedData
_BOOL, _INT, _FLOAT, _STRING, _NAME, _DICT, _ARRAY = 2, 4, 5, 6, 10, 11, 12  # of DebugAnnotation
_DESCRIPTORS, _EVENTS = 1, 2  # the sequences of a file
_TIME_TAG, _EVENT_TAG, _ANNOTATION_TAG, _STRING_TAG, _INT_TAG, _FLOAT_TAG, _FLOW_TAG, _DOUBLE_TAG = (
    varint(field << 3 | wire_type)
    for field, wire_type in (
        (_TIMESTAMP, 0),
        (_TRACK_EVENT, 2),
        (_ANNOTATION, 2),
        (_STRING, 2),
        (_INT, 0),
        (_FLOAT, 1),
        (_FLOW, 1),
        (_DOUBLE, 1),
    )
)
_SMALL = [varint(number) for number in range(1 << 10)]  # most lengths and ids
_PAIRS = [bytes((x & 0x7F | 0x80, x >> 7 | 0x80)) for x in range(1 << 14)]  # two bytes of a varint that goes on
_double = struct.Struct("<d").pack
_MASK_64 = (1 << 64) - 1
_MAX_NAMES = 1 << 14
_MAX_DEPTH = 16  # of nested annotations: deeper ones become text


def _sized(data: bytes) -> bytes:
    length = len(data)
    return (_SMALL[length] if length < len(_SMALL) else varint(length)) + data


class TrackEncoder:
    """Encodes events in the order in which they are given; `take` hands out what is there.

    Times are nanoseconds, not negative, on ``clock`` (a number of `BuiltinClock`). On a track, slices have to nest
    (`lanes.Lanes` sees to that), and of two that begin together the outer one has to come first.
    """

    def __init__(self, clock: int = BuiltinClock.BUILTIN_CLOCK_MONOTONIC) -> None:
        self._clock = clock
        self._tail = uint(_SEQUENCE, _EVENTS) + uint(_FLAGS, TracePacket.SequenceFlags.SEQ_NEEDS_INCREMENTAL_STATE)
        self._out: list[bytes] = []
        self._size = 0
        self._high_time, self._high_bytes = 0, _SMALL[0]
        self._begin_anew()

    def __len__(self) -> int:
        """Bytes that `take` would hand out."""
        return self._size

    def take(self) -> bytes:
        """The packets since the last time, as entries of a Trace."""
        taken, self._out, self._size = b"".join(self._out), [], 0
        return taken

    def discard(self) -> None:
        """Forget what was not taken, and every name that it may have introduced."""
        self._out, self._size = [], 0
        self._begin_anew()

    def describe(self, track: TrackDescriptor) -> None:
        """Introduce a track. It has to come before the track's events."""
        self._add(TracePacket(trusted_packet_sequence_id=_DESCRIPTORS, track_descriptor=track).SerializeToString())

    def slice(
        self,
        track: int,
        begin_ns: int,
        end_ns: int | None,
        name: str,
        category: str = "",
        flows: Iterable[int] = (),
        annotations: Mapping[str, Any] | None = None,
    ) -> None:
        """A complete slice; without an end, one that is still open."""
        event = self._head(TrackEvent.TYPE_SLICE_BEGIN, track, name, category)
        self._event(begin_ns, event + self._extras(flows, annotations))
        if end_ns is not None:
            end = self._ends.get(track)
            if end is None:
                event = uint(_TYPE, TrackEvent.TYPE_SLICE_END) + uint(_TRACK_UUID, track)
                end = self._ends[track] = self._tail + block(_TRACK_EVENT, event)
            self._add(self._time(end_ns) + end)

    def instant(
        self, track: int, time_ns: int, name: str, category: str = "", annotations: Mapping[str, Any] | None = None
    ) -> None:
        """Something that happened at one moment."""
        head = self._head(TrackEvent.TYPE_INSTANT, track, name, category)
        self._event(time_ns, head + self._extras((), annotations))

    def counter(self, track: int, time_ns: int, value: float) -> None:
        """One sample of a counter track."""
        event = uint(_TYPE, TrackEvent.TYPE_COUNTER) + uint(_TRACK_UUID, track)
        self._event(time_ns, event + _DOUBLE_TAG + _double(value))

    def arrow(self, track: int, time_ns: int, phase: str, flow: int, name: str, category: str) -> None:
        """One point (``s``, ``t`` or ``f``) of an arrow, bound to the slice that is open on the track at that time.

        For arrows whose points are known only after the begins of their slices were written, which hold flow ids.
        """
        legacy = uint(2, ord(phase)) + uint(6, flow & _MASK_64) + uint(12, 1)  # phase, unscoped_id, bind_to_enclosing
        head = self._head(TrackEvent.TYPE_UNSPECIFIED, track, name, category)
        self._event(time_ns, head + block(_LEGACY, legacy))

    def _begin_anew(self) -> None:
        self._is_begun = False
        self._tables: dict[int, dict[str, int]] = {_CATEGORIES: {}, _NAMES: {}, _ANNOTATION_NAMES: {}}
        self._named = 0
        self._new: list[bytes] = []
        self._heads: dict[tuple[int, str, str], bytes] = {}
        self._ends: dict[int, bytes] = {}
        self._on_track: dict[int, bytes] = {}

    def _time(self, time_ns: int) -> bytes:
        """The field with a time, whose high bits change seldom."""
        high = time_ns >> 28
        if high != self._high_time:
            if high < 0:
                raise ValueError(f"a time before its clock's begin: {time_ns}")
            self._high_time, self._high_bytes = high, varint(high)
        return _TIME_TAG + _PAIRS[time_ns & 0x3FFF] + _PAIRS[time_ns >> 14 & 0x3FFF] + self._high_bytes

    def _add(self, body: bytes) -> None:
        raw = b"\x0a" + _sized(body)  # one entry of a Trace
        self._out.append(raw)
        self._size += len(raw)

    def _event(self, time_ns: int, event: bytes) -> None:
        if not self._is_begun:
            self._is_begun = True
            made = TracePacket(trusted_packet_sequence_id=_EVENTS)
            made.sequence_flags = TracePacket.SequenceFlags.SEQ_INCREMENTAL_STATE_CLEARED
            made.trace_packet_defaults.timestamp_clock_id = self._clock
            self._add(made.SerializeToString())
        if self._new:
            self._add(self._tail + block(_INTERNED, b"".join(self._new)))
            self._new.clear()
        self._add(self._time(time_ns) + self._tail + _EVENT_TAG + _sized(event))
        if self._named > _MAX_NAMES or len(self._on_track) > _MAX_NAMES:
            self._begin_anew()

    def _head(self, kind: int, track: int, name: str, category: str) -> bytes:
        head = self._heads.get((kind, name, category))
        if head is None:
            head = uint(_TYPE, kind) + uint(_NAME_IID, self._interned(_NAMES, name))
            if category:
                head += uint(_CATEGORY_IID, self._interned(_CATEGORIES, category))
            self._heads[kind, name, category] = head
        on_track = self._on_track.get(track)
        if on_track is None:
            on_track = self._on_track[track] = uint(_TRACK_UUID, track)
        return head + on_track

    def _extras(self, flows: Iterable[int], annotations: Mapping[str, Any] | None) -> bytes:
        parts = [_FLOW_TAG + struct.pack("<Q", flow & _MASK_64) for flow in flows]
        if annotations:
            numbers = self._tables[_ANNOTATION_NAMES]
            for name, value in annotations.items():
                number = numbers.get(name) or self._interned(_ANNOTATION_NAMES, name)
                head = b"\x08" + (_SMALL[number] if number < len(_SMALL) else varint(number))  # name_iid
                parts.append(_ANNOTATION_TAG + _sized(head + _annotation_value(value)))
        return b"".join(parts)

    def _interned(self, field: int, text: str) -> int:
        """The number of a string; the first time, the string goes out before it is referred to."""
        table = self._tables[field]
        number = table.get(text)
        if number is None:
            written = block(2, text.encode(errors="replace"))
            number = table[text] = len(table) + 1
            self._named += 1
            self._new.append(block(field, uint(1, number) + written))
        return number


def _annotation_value(value: Any, depth: int = 0) -> bytes:
    """The value of a debug annotation, by its type; mappings and sequences keep their structure."""
    if isinstance(value, str):
        return _STRING_TAG + _sized(value.encode(errors="replace"))
    if isinstance(value, bool):
        return uint(_BOOL, value)
    if isinstance(value, int) and -(1 << 63) <= value < 1 << 63:
        return _INT_TAG + (_SMALL[value] if 0 <= value < len(_SMALL) else varint(value & _MASK_64))
    if isinstance(value, float):
        return _FLOAT_TAG + _double(value)
    if depth < _MAX_DEPTH and isinstance(value, Mapping):
        entries = ((str(name).encode(errors="replace"), inner) for name, inner in value.items())
        parts = (block(_DICT, block(_NAME, name) + _annotation_value(inner, depth + 1)) for name, inner in entries)
        return b"".join(parts)
    if depth < _MAX_DEPTH and isinstance(value, Sequence) and not isinstance(value, (bytes, bytearray)):
        return b"".join(block(_ARRAY, _annotation_value(inner, depth + 1)) for inner in value)
    return block(_STRING, str(value).encode(errors="replace"))


def process_track(track: int, pid: int, name: str, labels: Iterable[str] = ()) -> TrackDescriptor:
    """The track of a process."""
    made = TrackDescriptor(uuid=track)
    made.process.pid = pid
    made.process.process_name = name
    made.process.process_labels.extend(labels)
    return made


def thread_track(track: int, parent: int, pid: int, tid: int, name: str) -> TrackDescriptor:
    """The track of a thread, in a process's."""
    made = TrackDescriptor(uuid=track, parent_uuid=parent)
    made.thread.pid = pid
    made.thread.tid = tid
    made.thread.thread_name = name
    return made


def lane_track(track: int, parent: int, name: str, *, takes_arrows: bool = False) -> TrackDescriptor:
    """A track in another one. The viewer draws such tracks of one name and one parent together.

    One that `TrackEncoder.arrow` may be called for has to stay by itself: the trace processor finds no slices of a
    joined track.
    """
    made = TrackDescriptor(uuid=track, parent_uuid=parent, name=name)
    if takes_arrows:
        made.sibling_merge_behavior = TrackDescriptor.SiblingMergeBehavior.SIBLING_MERGE_BEHAVIOR_NONE
    return made


def counter_track(track: int, parent: int, name: str) -> TrackDescriptor:
    """The track of a counter."""
    made = TrackDescriptor(uuid=track, parent_uuid=parent, name=name)
    made.counter.SetInParent()
    return made
