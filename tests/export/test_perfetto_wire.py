"""Packets encoded by hand are what the official classes would have encoded."""

import math
import zlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import BuiltinClock, Trace, TracePacket, TrackEvent

from realparts.perfetto_reader import parse_packets
from rltel.core.clock import Anchor
from rltel.export import perfetto_wire as wire
from rltel.record.recorder import Begin, CounterSample, End, Instant, Record

SEQUENCE = 7
TIMES = st.integers(0, 2**63 - 1)
TEXTS = st.text(st.characters(), max_size=10)  # with half characters, as names of files may have
IDS = st.integers(0, 2**64 - 1)
FLOWS = st.none() | st.lists(IDS, max_size=3).map(tuple)
VALUES = st.none() | st.booleans() | st.integers() | st.floats() | TEXTS | st.lists(st.integers(), max_size=2)
ATTRIBUTES = st.none() | st.dictionaries(TEXTS, VALUES, max_size=4)
BEGINS = st.tuples(TIMES, TEXTS, TEXTS, FLOWS, ATTRIBUTES)
RECORDS: st.SearchStrategy[Record] = st.one_of(
    TIMES,
    BEGINS,
    BEGINS.map(lambda fields: Begin(*fields)),
    st.builds(End, TIMES, ATTRIBUTES.map(lambda found: found or {})),
    st.builds(Instant, TIMES, TEXTS, TEXTS, FLOWS, ATTRIBUTES),
    st.builds(CounterSample, TIMES, TEXTS, TEXTS, st.floats()),
)


def track_of(name: str, unit: str) -> int:
    return hash((name, unit)) & (1 << 64) - 1


def text(given: str) -> str:
    return given.encode(errors="replace").decode()


class Official:
    """The same encoding with Perfetto's own classes: slow, and right by construction."""

    def __init__(self) -> None:
        self.tables: dict[str, dict[str, int]] = {
            "event_names": {},
            "event_categories": {},
            "debug_annotation_names": {},
        }
        self.new: list[tuple[str, int, str]] = []

    def encode(self, records: Iterable[Record]) -> list[TracePacket]:
        packets = []
        for record in records:
            packet = self.packet()
            self.fill(packet, record)
            if self.new:
                interned = self.packet()
                for table, number, name in self.new:
                    getattr(interned.interned_data, table).add(iid=number, name=name)
                self.new.clear()
                packets.append(interned)
            packets.append(packet)
        return packets

    def packet(self) -> TracePacket:
        flags = TracePacket.SequenceFlags.SEQ_NEEDS_INCREMENTAL_STATE
        return TracePacket(trusted_packet_sequence_id=SEQUENCE, sequence_flags=flags)

    def fill(self, packet: TracePacket, record: Record) -> None:
        event = packet.track_event
        if isinstance(record, int):
            packet.timestamp, event.type = record, TrackEvent.TYPE_SLICE_END
            return
        packet.timestamp = record[0]
        if isinstance(record, End):
            event.type = TrackEvent.TYPE_SLICE_END
            self.annotate(event, record.attributes)
        elif isinstance(record, CounterSample):
            event.type, event.track_uuid = TrackEvent.TYPE_COUNTER, track_of(record.name, record.unit)
            event.double_counter_value = record.value
        else:
            kind = TrackEvent.TYPE_INSTANT if isinstance(record, Instant) else TrackEvent.TYPE_SLICE_BEGIN
            self.head(event, kind, *record[1:])

    def head(
        self, event: TrackEvent, kind: Any, name: str, category: str, flows: Sequence[int] | None, attributes: Any
    ) -> None:
        event.type = kind
        event.name_iid = self.number("event_names", name)
        if category:
            event.category_iids.append(self.number("event_categories", category))
        event.flow_ids.extend(flows or ())
        self.annotate(event, attributes or {})

    def annotate(self, event: TrackEvent, attributes: Mapping[str, Any]) -> None:
        for name, value in attributes.items():
            made = event.debug_annotations.add(name_iid=self.number("debug_annotation_names", name))
            if isinstance(value, bool):
                made.bool_value = value
            elif isinstance(value, int) and -(2**63) <= value < 2**63:
                made.int_value = value
            elif isinstance(value, float):
                made.double_value = value
            else:
                made.string_value = text(str(value))

    def number(self, table: str, name: str) -> int:
        known = self.tables[table]
        if name not in known:
            known[name] = len(known) + 1
            self.new.append((table, known[name], text(name)))
        return known[name]


def encoded(*batches: Sequence[Record]) -> bytes:
    encoder = wire.SequenceEncoder(SEQUENCE, track_of)
    return b"".join(encoder.encode(list(batch)) for batch in batches)


def as_bytes(packets: Iterable[TracePacket]) -> list[bytes]:
    """In one order of fields. (Messages themselves compare unequal where they hold NaN.)"""
    return [packet.SerializeToString(deterministic=True) for packet in packets]


class TestAgreement:
    @given(st.lists(RECORDS, max_size=8), st.lists(RECORDS, max_size=4))
    def test_with_the_official_classes_for_any_records(self, first: list[Record], second: list[Record]) -> None:
        """Over two drains: what the first one named, the second refers to."""
        assert as_bytes(parse_packets(encoded(first, second))) == as_bytes(Official().encode([*first, *second]))

    @given(st.lists(RECORDS, max_size=8))
    def test_nothing_is_unreadable(self, records: list[Record]) -> None:
        encoder = wire.SequenceEncoder(SEQUENCE, track_of)
        encoder.encode(records)
        assert encoder.unreadable == 0

    @pytest.mark.parametrize(
        "record",
        [
            5,
            (5, "phase", "exclusive", None, None),
            (5, "phase", "", (1, 2**64 - 1), {"a": 1}),
            Begin(5, "phase", "exclusive"),
            End(5, {"error": "ValueError"}),
            Instant(5, "checkpoint", "", None, {"step": 3}),
            CounterSample(5, "queue", "rows", 1.5),
        ],
        ids=lambda record: type(record).__name__,
    )
    def test_of_every_record_type(self, record: Record) -> None:
        assert as_bytes(parse_packets(encoded([record]))) == as_bytes(Official().encode([record]))

    @pytest.mark.parametrize(
        "value", [True, 0, -1, 2**63 - 1, -(2**63), 2**63, 0.5, math.nan, -math.inf, "x", "", None, [1]]
    )
    def test_of_every_type_of_attribute(self, value: Any) -> None:
        record = Instant(5, "i", "", None, {"a": value})
        assert as_bytes(parse_packets(encoded([record]))) == as_bytes(Official().encode([record]))

    @given(st.integers(0, 2**70))
    def test_of_numbers(self, number: int) -> None:
        written = wire.varint(number)
        value = sum((byte & 0x7F) << 7 * place for place, byte in enumerate(written))
        assert value == number
        assert all(byte >= 0x80 for byte in written[:-1])
        assert written[-1] < 0x80

    def test_numpy_s_numbers_are_numbers(self) -> None:
        """Trainers hang their own scalars on slices."""
        attributes = {"i": np.int64(-3), "f": np.float32(0.5), "d": np.float64(0.25), "b": np.bool_(True)}
        (_, packet) = parse_packets(encoded([Instant(5, "i", "", None, attributes)]))
        values = [annotation.WhichOneof("value") for annotation in packet.track_event.debug_annotations]
        assert values == ["int_value", "double_value", "double_value", "string_value"]


class Raises:
    def __str__(self) -> str:
        raise RuntimeError("no text")


class TestWhatCannotBeDrawn:
    """A program may hang anything on a slice: the others must not pay for it, and slices must still nest."""

    @pytest.mark.parametrize(
        ("flows", "attributes"),
        [
            (("not an id",), None),
            ((0.5,), None),
            (None, {"a": Raises()}),
            (None, {1: 2}),
            (None, ["no mapping"]),
            (7, None),
        ],
        ids=["text as flow", "float as flow", "raises", "number as name", "no mapping", "bare flow"],
    )
    def test_costs_its_attributes_only(self, flows: Any, attributes: Any) -> None:
        encoder = wire.SequenceEncoder(SEQUENCE, track_of)
        records: list[Record] = [(1, "outer", "", None, None), (2, "odd", "", flows, attributes), 3, 4]
        events = [
            packet.track_event for packet in parse_packets(encoder.encode(records)) if packet.HasField("track_event")
        ]
        begin, end = TrackEvent.TYPE_SLICE_BEGIN, TrackEvent.TYPE_SLICE_END
        assert [event.type for event in events] == [begin, begin, end, end]
        assert (events[1].name_iid, encoder.unreadable) == (2, 1)

    def test_of_an_end_and_an_instant(self) -> None:
        encoder = wire.SequenceEncoder(SEQUENCE, track_of)
        broken = {"a": Raises()}
        data = encoder.encode([End(1, broken), Instant(2, "i", "", None, broken)])
        events = [packet.track_event.type for packet in parse_packets(data) if packet.HasField("track_event")]
        assert events == [TrackEvent.TYPE_SLICE_END, TrackEvent.TYPE_INSTANT]
        assert encoder.unreadable == 2

    @pytest.mark.parametrize("flow", [-1, 2**64, -(2**63)])
    def test_any_whole_number_is_a_flow(self, flow: int) -> None:
        """`hash(x)` is at hand, and often negative."""
        *_, packet = parse_packets(encoded([(5, "s", "", (flow,), None)]))
        assert list(packet.track_event.flow_ids) == [flow % 2**64]


class TestDescriptors:
    def test_clock(self) -> None:
        (packet,) = parse_packets(wire.clock_packet(Anchor(11, 22, 33, 0)))
        found = {clock.clock_id: clock.timestamp for clock in packet.clock_snapshot.clocks}
        assert found == {
            BuiltinClock.BUILTIN_CLOCK_MONOTONIC: 11,
            BuiltinClock.BUILTIN_CLOCK_REALTIME: 22,
            BuiltinClock.BUILTIN_CLOCK_BOOTTIME: 33,
        }

    def test_thread_sets_the_defaults_of_its_sequence(self) -> None:
        (packet,) = parse_packets(wire.thread_packet(3, 2**64 - 1, 5, 100, 101, "main"))
        assert packet.trusted_packet_sequence_id == 3
        assert packet.sequence_flags == TracePacket.SequenceFlags.SEQ_INCREMENTAL_STATE_CLEARED
        assert packet.trace_packet_defaults.timestamp_clock_id == BuiltinClock.BUILTIN_CLOCK_MONOTONIC
        assert packet.trace_packet_defaults.track_event_defaults.track_uuid == 2**64 - 1
        thread = packet.track_descriptor.thread
        assert (thread.pid, thread.tid, thread.thread_name) == (100, 101, "main")


class TestCompressed:
    def test_a_block_holds_the_packets(self) -> None:
        packets = encoded([record for step in range(100) for record in ((step, "a", "", None, None), step)])
        block = wire.compressed(packets, zlib.compress(packets))
        assert len(block) < len(packets)
        (outer,) = Trace.FromString(block).packet
        assert zlib.decompress(outer.compressed_packets) == packets

    def test_what_does_not_get_shorter_stays_as_it_is(self) -> None:
        packets = encoded([5])
        assert wire.compressed(packets, zlib.compress(packets)) == packets


def test_a_slice_costs_few_bytes_once_its_name_is_known() -> None:
    """The hot route: 28.8 bytes a slice in 20,000 nested ones, as measured with interned names."""
    batch: list[Record] = [(10**12, "phase", "exclusive", None, None), 10**12 + 1]
    encoder = wire.SequenceEncoder(SEQUENCE, track_of)
    encoder.encode(batch)
    assert len(encoder.encode(batch)) <= 50
