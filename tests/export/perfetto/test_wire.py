"""Packets encoded by hand are what the official classes would have encoded."""

import enum
import math
import zlib
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import (
    BuiltinClock,
    CounterDescriptor,
    Trace,
    TracePacket,
    TrackEvent,
)

from realparts.official_events import OfficialEvents, as_bytes, set_value, track_of
from realparts.perfetto_reader import parse_packets
from rltel.core.clock import Anchor
from rltel.export.perfetto import wire
from rltel.record.records import Begin, CounterSample, End, Ids, Instant, Record, Site

SEQUENCE = 7
TIMES = st.integers(0, 2**62)
TEXTS = st.text(st.characters(), max_size=10)  # with half characters, as names of files may have
IDS = st.integers(0, 2**64 - 1)
FLOWS = st.none() | st.lists(IDS, max_size=3).map(tuple)
PLAIN = st.none() | st.booleans() | st.integers() | st.floats() | TEXTS
VALUES = st.recursive(PLAIN, lambda inner: st.lists(inner, max_size=2) | st.dictionaries(TEXTS, inner, max_size=2))
ATTRIBUTES = st.none() | st.dictionaries(TEXTS, VALUES, max_size=4)
SPAN_IDS = st.builds(Ids, st.integers(1, 2**128 - 1), st.integers(1, 2**64 - 1))
CPU = st.none() | TIMES
BEGINS = st.builds(
    Begin,
    TIMES,
    st.builds(Site, TEXTS, TEXTS),
    FLOWS,
    ATTRIBUTES,
    CPU,
    st.none() | SPAN_IDS,
    st.none() | SPAN_IDS,
    st.sampled_from(["", "ours", "live"]),
)
ENDS = st.builds(End, TIMES, ATTRIBUTES, st.none() | TEXTS, CPU)
RECORDS: st.SearchStrategy[Record] = st.one_of(
    BEGINS,
    ENDS,
    st.builds(Instant, TIMES, TEXTS, TEXTS, FLOWS, ATTRIBUTES),
    st.builds(CounterSample, TIMES, TEXTS, TEXTS, st.floats()),
)


def encoded(*records: Record, encoder: wire.EventEncoder | None = None) -> bytes:
    encoder = encoder or wire.EventEncoder(SEQUENCE)
    out = []
    for record in records:
        made = _encoded(encoder, record)
        out += [encoder.new_names(), made]
    return b"".join(out)


def _encoded(encoder: wire.EventEncoder, record: Record) -> bytes:
    if isinstance(record, Begin):
        return encoder.begin(record)
    if isinstance(record, End):
        return encoder.end(record)
    if isinstance(record, Instant):
        return encoder.instant(record)
    assert isinstance(record, CounterSample)
    return encoder.counter(record, track_of(record.name, record.unit))


def only(data: bytes) -> TracePacket:
    (*_, packet) = parse_packets(data)
    return packet


class TestAgreement:
    @given(st.lists(RECORDS, max_size=8))
    def test_with_the_official_classes_for_any_records(self, records: list[Record]) -> None:
        assert as_bytes(parse_packets(encoded(*records))) == as_bytes(OfficialEvents(SEQUENCE).encode(records))

    @given(st.lists(RECORDS, max_size=8))
    def test_nothing_is_unreadable(self, records: list[Record]) -> None:
        encoder = wire.EventEncoder(SEQUENCE)
        encoded(*records, encoder=encoder)
        assert encoder.take_unreadable() == 0

    @pytest.mark.parametrize(
        "record",
        [
            Begin(5, Site("phase", "exclusive")),
            Begin(5, Site("phase", ""), (1, 2**64 - 1), {"a": 1}, 17),
            Begin(5, Site("iteration", "rl.loop"), ids=Ids(1, 2), span="ours"),
            End(5, {"rows": 3}, "ValueError", 18),
            Instant(5, "checkpoint", "", None, {"step": 3}),
            CounterSample(5, "queue", "rows", 1.5),
        ],
        ids=lambda record: type(record).__name__,
    )
    def test_of_every_record_type(self, record: Record) -> None:
        assert as_bytes(parse_packets(encoded(record))) == as_bytes(OfficialEvents(SEQUENCE).encode([record]))

    @given(TIMES, st.builds(Site, TEXTS, TEXTS))
    @example(2**62, Site("a", ""))
    @example(2**63 - 1, Site("a", ""))
    @example(0, Site("a" * 300, "b" * 300))
    def test_of_bare_slices(self, time_ns: int, site: Site) -> None:
        encoder, times = wire.EventEncoder(SEQUENCE), wire.TimeEncoder()
        begin = encoder.bare_begin(site)
        names = encoder.new_names()
        end = encoder.around_time(wire.EventEncoder.END)
        data = names + b"".join(head + times.varint(time_ns) + tail for head, tail in (begin, end))
        official = OfficialEvents(SEQUENCE).encode([Begin(time_ns, site), time_ns])
        assert as_bytes(parse_packets(data)) == as_bytes(official)

    @pytest.mark.parametrize(
        "value",
        [
            *(True, 0, -1, 2**63 - 1, -(2**63), 2**63, 0.5, math.nan, -math.inf, "x", "", None),
            *([1, "a"], (), {}, {"a": {"b": [1.5, None]}}, [[1], [2]]),
        ],
    )
    def test_of_every_type_of_attribute(self, value: Any) -> None:
        record = Instant(5, "i", "", None, {"a": value})
        assert as_bytes(parse_packets(encoded(record))) == as_bytes(OfficialEvents(SEQUENCE).encode([record]))

    @given(st.lists(TIMES, max_size=5))
    def test_of_times_that_go_on_and_back(self, times: list[int]) -> None:
        encoder = wire.TimeEncoder()
        for time_ns in times:
            written = encoder.varint(time_ns)
            assert len(written) == wire.TIME_BYTES
            assert sum((byte & 0x7F) << 7 * place for place, byte in enumerate(written)) == time_ns


class Colour(enum.Enum):
    RED = 1


class Raises:
    def __str__(self) -> str:
        raise RuntimeError("no text")


class TestWhatProgramsHangOnSlices:
    def test_numpy_s_scalars_are_what_they_are(self) -> None:
        attributes = {"i": np.int64(-3), "f": np.float32(0.5), "d": np.float64(0.25), "b": np.bool_(True)}
        annotations = only(encoded(Instant(5, "i", "", None, attributes))).track_event.debug_annotations
        assert [annotation.WhichOneof("value") for annotation in annotations] == [
            "int_value",
            "double_value",
            "double_value",
            "bool_value",
        ]

    @pytest.mark.parametrize(
        ("flows", "attributes", "unreadable", "left"),
        [
            (("not an id", 8), None, 1, ([8], [])),
            ((0.5,), {"a": 1}, 1, ([], [1])),
            ((8,), {"a": Raises(), "b": 2}, 1, ([8], [2])),
            (None, {"a": [1, Raises()], "b": 2}, 1, ([], [2])),
            (None, {1: 2}, 0, ([], [2])),
            (None, {Raises(): 2, "b": 3}, 1, ([], [2, 3])),  # its name is "?"
        ],
        ids=["text as flow", "float as flow", "raises", "raises inside", "number as name", "name that raises"],
    )
    def test_what_cannot_be_drawn_costs_itself_only_and_is_counted(
        self, flows: Any, attributes: Any, unreadable: int, left: tuple[list[int], list[int]]
    ) -> None:
        encoder = wire.EventEncoder(SEQUENCE)
        event = only(encoded(Begin(2, Site("odd", ""), flows, attributes), encoder=encoder)).track_event
        assert (list(event.flow_ids), [each.int_value for each in event.debug_annotations]) == left
        assert encoder.take_unreadable() == unreadable
        assert encoder.take_unreadable() == 0

    @pytest.mark.parametrize(
        ("name", "shown"),
        [(5, "5"), (Colour.RED, "Colour.RED"), (["a"], "['a']"), (Raises(), "?"), ("\ud800", "?")],
    )
    def test_a_name_may_be_anything(self, name: Any, shown: str) -> None:
        interned, packet = parse_packets(encoded(Begin(1, Site(name, name))))
        assert [each.name for each in interned.interned_data.event_names] == [shown]
        assert [each.name for each in interned.interned_data.event_categories] == [shown]
        assert packet.track_event.name_iid == 1

    @pytest.mark.parametrize("flow", [-1, 2**64, -(2**63), np.int64(-5)])
    def test_any_whole_number_is_a_flow(self, flow: int) -> None:
        """`hash(x)` is at hand, and often negative."""
        packet = only(encoded(Begin(5, Site("s", ""), (flow,))))
        assert list(packet.track_event.flow_ids) == [int(flow) % 2**64]

    def test_a_list_that_holds_itself_ends(self) -> None:
        endless: list[Any] = [1]
        endless.append(endless)
        assert only(encoded(Instant(5, "i", "", None, {"a": endless}))).track_event.debug_annotations

    def test_the_fields_of_a_mapping_keep_their_names(self) -> None:
        value = {"a": 1, "b": {"c": "x"}}
        (found,) = only(encoded(Instant(5, "i", "", None, {"v": value}))).track_event.debug_annotations
        expected = type(found)(name_iid=1)
        set_value(expected, value)
        assert found == expected


class TestNames:
    def test_are_sent_once_and_before_what_refers_to_them(self) -> None:
        encoder = wire.EventEncoder(SEQUENCE)
        begin = Begin(1, Site("a", "c"), None, {"k": 1})
        first, second = (list(parse_packets(encoded(begin, encoder=encoder))) for _ in range(2))
        assert [packet.HasField("interned_data") for packet in first] == [True, False]
        assert [packet.HasField("interned_data") for packet in second] == [False]
        assert encoder.names == 3

    def test_a_successor_knows_none_and_goes_on_counting(self) -> None:
        encoder = wire.EventEncoder(SEQUENCE)
        encoded(Begin(1, Site("a", ""), ("no id",)), encoder=encoder)  # type: ignore[arg-type]  # as a program may
        successor = encoder.successor(8)
        assert (successor.names, successor.take_unreadable()) == (0, 1)

    def test_sites_made_on_the_way_are_not_remembered_for_ever(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(wire, "_MAX_HEADS", 5)
        encoder = wire.EventEncoder(SEQUENCE)
        data = encoded(*(Begin(1, Site("a", ""), None, {"k": 1}) for _ in range(20)), encoder=encoder)
        assert len(encoder._heads) <= 5
        assert {packet.track_event.name_iid for packet in parse_packets(data)} == {0, 1}


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
        (packet,) = parse_packets(wire.thread_packet(3, 2**64 - 1, 5, 100, 101, "main", 77))
        assert packet.trusted_packet_sequence_id == 3
        assert packet.sequence_flags == TracePacket.SequenceFlags.SEQ_INCREMENTAL_STATE_CLEARED
        defaults = packet.trace_packet_defaults
        assert defaults.timestamp_clock_id == BuiltinClock.BUILTIN_CLOCK_MONOTONIC
        assert defaults.track_event_defaults.track_uuid == 2**64 - 1
        assert list(defaults.track_event_defaults.extra_counter_track_uuids) == [77]
        thread = packet.track_descriptor.thread
        assert (thread.pid, thread.tid, thread.thread_name) == (100, 101, "main")

    def test_a_thread_s_cpu_time_is_a_counter_of_nanoseconds(self) -> None:
        (packet,) = parse_packets(wire.cpu_time_packet(77, 5))
        counter = packet.track_descriptor.counter
        assert counter.type == CounterDescriptor.COUNTER_THREAD_TIME_NS
        assert (counter.unit_multiplier, counter.is_incremental) == (1, False)

    def test_a_process_names_its_host_and_boot(self) -> None:
        (packet,) = parse_packets(wire.process_packet(5, 100, "learner 0", "a1b2"))
        process = packet.track_descriptor.process
        assert (process.pid, process.process_name, list(process.process_labels)) == (100, "learner 0", ["host a1b2"])

    def test_a_note_stands_for_itself(self) -> None:
        notes: dict[str, int | str] = {"monotonic_ns": 5, "reference": str(2**64 - 1)}
        (packet,) = parse_packets(wire.note_packet(9, 5, "rltel.clock_anchor", notes))
        assert packet.trusted_packet_sequence_id == 1
        assert packet.timestamp_clock_id == BuiltinClock.BUILTIN_CLOCK_MONOTONIC
        event = packet.track_event
        assert (event.type, event.track_uuid, event.name) == (TrackEvent.TYPE_INSTANT, 9, "rltel.clock_anchor")
        found = {each.name: each.int_value or each.string_value for each in event.debug_annotations}
        assert found == notes

    @pytest.mark.parametrize(
        "made",
        [
            wire.process_packet(1, 2, "a\udcff"),
            wire.thread_packet(2, 1, 1, 2, 3, "a\udcff"),
            wire.lane_packet(2, 1, 1, "a\udcff"),
            wire.track_packet(2, 1, "a\udcff"),
            wire.counter_packet(2, 1, "a\udcff", "\udcff"),
        ],
        ids=["process", "thread", "lane", "track", "counter"],
    )
    def test_names_may_be_those_of_files(self, made: bytes) -> None:
        assert "a?" in str(next(parse_packets(made)))


def slices(count: int) -> Sequence[Record]:
    return [record for step in range(count) for record in (Begin(step, Site("a", "")), End(step))]


class TestCompressed:
    def test_a_block_holds_the_packets(self) -> None:
        packets = encoded(*slices(100))
        block = wire.compressed(packets, zlib.compress(packets))
        assert len(block) < len(packets)
        (outer,) = Trace.FromString(block).packet
        assert zlib.decompress(outer.compressed_packets) == packets

    def test_what_does_not_get_shorter_stays_as_it_is(self) -> None:
        packets = encoded(End(5))
        assert wire.compressed(packets, zlib.compress(packets)) == packets


def test_a_slice_costs_few_bytes_once_its_name_is_known() -> None:
    encoder = wire.EventEncoder(SEQUENCE)
    records = Begin(10**12, Site("phase", "exclusive")), End(10**12 + 1)
    encoded(*records, encoder=encoder)
    assert len(encoded(*records, encoder=encoder)) <= 50
