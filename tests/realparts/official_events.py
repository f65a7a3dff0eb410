"""Encodes records with Perfetto's own classes: slow, and right by construction."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import DebugAnnotation, TracePacket, TrackEvent

from rltel.record.records import Begin, CounterSample, End, Instant, Record

_KINDS = {Begin: TrackEvent.TYPE_SLICE_BEGIN, End: TrackEvent.TYPE_SLICE_END, Instant: TrackEvent.TYPE_INSTANT}


class OfficialEvents:
    """One sequence's events. Names are sent once, before what refers to them."""

    def __init__(self, sequence: int) -> None:
        self._sequence = sequence
        self._tables: dict[str, dict[str, int]] = {
            "event_names": {},
            "event_categories": {},
            "debug_annotation_names": {},
        }
        self._new: list[tuple[str, int, str]] = []

    def encode(self, records: Iterable[Record]) -> list[TracePacket]:
        """The packets. A time alone is an end; begins are spelled out. A counter's track is `track_of` its name."""
        packets = []
        for record in records:
            packet = self._packet()
            self._fill(packet, End(record) if isinstance(record, int) else record)
            if self._new:
                interned = self._packet()
                for table, number, name in self._new:
                    getattr(interned.interned_data, table).add(iid=number, name=name)
                self._new.clear()
                packets.append(interned)
            packets.append(packet)
        return packets

    def _packet(self) -> TracePacket:
        flags = TracePacket.SequenceFlags.SEQ_NEEDS_INCREMENTAL_STATE
        return TracePacket(trusted_packet_sequence_id=self._sequence, sequence_flags=flags)

    def _fill(self, packet: TracePacket, record: Record) -> None:
        event = packet.track_event
        assert isinstance(record, (Begin, End, Instant, CounterSample))
        packet.timestamp = record.time_ns
        if isinstance(record, CounterSample):
            event.type, event.track_uuid = TrackEvent.TYPE_COUNTER, track_of(record.name, record.unit)
            event.double_counter_value = record.value
            return
        event.type = _KINDS[type(record)]
        if isinstance(record, Begin):
            self._head(event, record.site.name, record.site.category)
        elif isinstance(record, Instant):
            self._head(event, record.name, record.category)
        if isinstance(record, (Begin, End)) and record.cpu_ns is not None:
            event.extra_counter_values.append(record.cpu_ns)
        if isinstance(record, (Begin, Instant)):
            event.flow_ids.extend(record.flows or ())
        self._annotate(event, _noted(record))

    def _head(self, event: TrackEvent, name: str, category: str) -> None:
        event.name_iid = self._number("event_names", name)
        if category:
            event.category_iids.append(self._number("event_categories", category))

    def _annotate(self, event: TrackEvent, attributes: Mapping[Any, Any]) -> None:
        for name, value in attributes.items():
            made = event.debug_annotations.add(name_iid=self._number("debug_annotation_names", str(name)))
            set_value(made, value)

    def _number(self, table: str, name: str) -> int:
        known = self._tables[table]
        if name not in known:
            known[name] = len(known) + 1
            self._new.append((table, known[name], text(name)))
        return known[name]


def _noted(record: Record) -> dict[str, Any]:
    if isinstance(record, End):
        return {**({} if record.error is None else {"error": record.error}), **(record.attributes or {})}
    assert isinstance(record, (Begin, Instant))
    ids = record.ids if isinstance(record, Begin) and record.span else None
    shown = {} if ids is None else {"trace_id": f"{ids.trace_id:032x}", "span_id": f"{ids.span_id:016x}"}
    return {**shown, **(record.attributes or {})}


def set_value(annotation: DebugAnnotation, value: Any) -> None:
    """A value by its type; what has none is text."""
    if isinstance(value, bool):
        annotation.bool_value = value
    elif isinstance(value, int) and -(2**63) <= value < 2**63:
        annotation.int_value = value
    elif isinstance(value, float):
        annotation.double_value = value
    elif isinstance(value, Mapping) and value:
        for key, inner in value.items():
            set_value(annotation.dict_entries.add(name=text(str(key))), inner)
    elif isinstance(value, Sequence) and value and not isinstance(value, str):
        for inner in value:
            set_value(annotation.array_values.add(), inner)
    else:
        annotation.string_value = text(str(value))


def track_of(name: str, unit: str) -> int:
    """A counter's track."""
    return hash((name, unit)) & (1 << 64) - 1


def text(given: str) -> str:
    """As protobuf takes it: half characters become question marks."""
    return given.encode(errors="replace").decode()


def as_bytes(packets: Iterable[TracePacket]) -> list[bytes]:
    """In one order of fields. (Messages themselves compare unequal where they hold NaN.)"""
    return [packet.SerializeToString(deterministic=True) for packet in packets]
