"""Times taken off packets, against the official classes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import TracePacket, TrackEvent

from rltel.traces.stamps import NO_TIME, stamp, stamped, unstamped

TIMES = st.integers(0, (1 << 64) - 1) | st.integers(0, 1 << 50) | st.integers(0, 300)
NOW = 1_795_987_020_123_456_789


def message(time: int, sequence: int = 2, name: str = "") -> bytes:
    made = TracePacket(timestamp=time, trusted_packet_sequence_id=sequence)
    made.track_event.type = TrackEvent.TYPE_SLICE_BEGIN
    made.track_event.name = name
    return made.SerializeToString()


@given(st.lists(st.tuples(TIMES, st.integers(1, 3), st.sampled_from(["", "a", "b" * 100])), max_size=20))
def test_every_time_is_the_official_one(packets: list[tuple[int, int, str]]) -> None:
    """Packets that differ in their time only are the rule: what is remembered of one must not leak into another."""
    raw = [message(*each) for each in packets for _ in (0, 1)]
    found = list(stamped(raw))
    assert [time for time, _ in found] == [TracePacket.FromString(each).timestamp for each in raw]
    assert [unstamped(*each) for each in found] == raw


@given(st.lists(st.integers(0, 1 << 62), min_size=2, max_size=30))
def test_what_is_left_of_equal_events_is_equal(times: list[int]) -> None:
    assert len({tail for _, tail in stamped(message(time) for time in times)}) == 1


@given(st.lists(st.binary(max_size=14), max_size=10))
def test_any_bytes_come_back(packets: list[bytes]) -> None:
    found = list(stamped(packets))
    for raw, (time, tail) in zip(packets, found, strict=True):
        assert time == NO_TIME or 0 <= time < 1 << 64
        if time == NO_TIME:
            assert tail == raw
        else:
            assert raw.endswith(tail)


@given(st.lists(st.binary(min_size=6, max_size=12).map(lambda tail: b"\x40" + tail), max_size=10))
def test_a_time_is_read_as_protobuf_reads_it(packets: list[bytes]) -> None:
    for time, tail in stamped(packets):
        if time != NO_TIME:
            assert TracePacket.FromString(unstamped(time, b"")).timestamp == time
            assert len(tail) < 12


def test_a_time_that_stands_elsewhere_is_left_to_others() -> None:
    late = b"\x50\x02" + TracePacket(timestamp=NOW).SerializeToString()
    assert TracePacket.FromString(late).timestamp == NOW
    assert list(stamped([late])) == [(NO_TIME, late)]


@given(TIMES)
def test_a_stamp_is_the_official_one(time: int) -> None:
    assert TracePacket.FromString(stamp(time)) == TracePacket(timestamp=time)


@pytest.mark.parametrize("time", [(1 << 35) - 1, 1 << 35, (1 << 42) - 1, 1 << 42, (1 << 49) - 1, NOW, (1 << 63) - 1])
def test_and_its_very_bytes(time: int) -> None:
    assert stamp(time) == TracePacket(timestamp=time).SerializeToString()
