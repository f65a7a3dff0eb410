"""Packets on their way into a merged file: rewritten as bytes, they say the same as through the official classes."""

from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import TracePacket, TrackEvent

from realparts.trace_making import BOOTTIME, MONOTONIC, REALTIME, TraceMaking, framed
from rltel.core.errors import TraceError
from rltel.traces.clocks import Placement
from rltel.traces.copying import FileCopy, Pids

NOW = 1_795_987_020_000_000_000
AHEAD = NOW - 1_000


class Slowly(FileCopy):
    """Everything through the official classes."""

    def _rewritten(self, time: int, tail: bytes) -> tuple[int, bytes] | None:
        return None


def placement(constant: int | None = AHEAD, convert: Callable[[int], int] = lambda time: time + AHEAD) -> Placement:
    return Placement({MONOTONIC: 0, BOOTTIME: -500, REALTIME: -AHEAD}, convert, constant)


def copied(kind: type[FileCopy], path: Path, placed: Placement) -> Iterator[TracePacket]:
    copy = kind(path, placed, Pids(), count(7))
    return (TracePacket.FromString(raw) for raw in copy.packets())


def everything() -> TraceMaking:
    made = TraceMaking(host="h")
    made.begin(1_001, "outer", "exclusive")
    for step in range(50):
        made.slice(1_002 + 10 * step, 1_007 + 10 * step, "step", "nested")
    rich = TrackEvent(type=TrackEvent.TYPE_SLICE_BEGIN, name="rich", flow_ids=[1, 2], extra_counter_values=[5])
    rich.debug_annotations.add(name="text", string_value="ü" * 300)
    made.event(1_600, rich)
    made.end(1_601)
    made.event(1_602, TrackEvent(type=TrackEvent.TYPE_COUNTER, double_counter_value=0.5), track=9)
    made.packets.append(made.thread_packet(3, 500, tid=11))
    made.slice(1_603, 1_604, "other thread", sequence=3)
    made.packets[-1].timestamp_clock_id = BOOTTIME
    made.packets.append(TracePacket(timestamp=NOW + 700, timestamp_clock_id=REALTIME, trusted_packet_sequence_id=9))
    made.end(1_800)
    return made


@pytest.mark.parametrize("blocks", [0, 30])
@pytest.mark.parametrize("constant", [AHEAD, None], ids=["constant", "drifting"])
def test_both_ways_say_the_same(tmp_path: Path, constant: int | None, blocks: int) -> None:
    path = everything().write(tmp_path / "t.pftrace", blocks)
    placed = placement(constant, lambda time: time + AHEAD + time // 100)
    if constant is not None:
        placed.convert = lambda time: time + constant
    fast, slow = list(copied(FileCopy, path, placed)), list(copied(Slowly, path, placed))
    assert fast == slow
    assert len(fast) > 100


EVENTS = st.builds(
    TrackEvent,
    type=st.sampled_from([TrackEvent.TYPE_SLICE_BEGIN, TrackEvent.TYPE_SLICE_END, TrackEvent.TYPE_INSTANT]),
    name=st.text(max_size=3),
    track_uuid=st.integers(0, 3),
    category_iids=st.lists(st.integers(1, 300), max_size=2),
)
PACKETS = st.builds(
    TracePacket,
    timestamp=st.integers(0, 1 << 60),
    timestamp_clock_id=st.sampled_from([None, MONOTONIC, BOOTTIME]),
    trusted_packet_sequence_id=st.integers(1, 3) | st.just(1 << 20),
    sequence_flags=st.sampled_from([None, 1, 2, 300]),
    track_event=st.none() | EVENTS,
    trusted_uid=st.sampled_from([None, 0, 1000]),
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(PACKETS, max_size=10))
def test_of_whatever_packets(tmp_path: Path, packets: list[TracePacket]) -> None:
    made = TraceMaking()
    made.packets += [*packets, *packets]
    path = made.write(tmp_path / "t.pftrace")
    assert list(copied(FileCopy, path, placement())) == list(copied(Slowly, path, placement()))


def test_fields_in_another_order_are_read_too(tmp_path: Path) -> None:
    """The order of fields is free."""
    made = TraceMaking()
    path = tmp_path / "t.pftrace"
    event = TracePacket(track_event=TrackEvent(type=TrackEvent.TYPE_SLICE_END)).SerializeToString()
    sequence, flags = b"\x50\x02", b"\x68\x02"
    bodies = [b"\x40\x85\x08" + first + event for first in (sequence + flags, flags + sequence, sequence)]
    bodies += [event + sequence + b"\x40\x85\x08", b"\x40\x85\x08" + sequence + event + b"\xd0\x03\x06"]
    path.write_bytes(made.data() + b"".join(b"\x0a" + bytes((len(body),)) + body for body in bodies))
    fast = list(copied(FileCopy, path, placement()))
    assert fast == list(copied(Slowly, path, placement()))
    assert [each.timestamp - AHEAD for each in fast[-5:]] == [1_029] * 4 + [529]


def test_defaults_that_change_change_what_follows(tmp_path: Path) -> None:
    made = TraceMaking()
    made.end(2_000)
    again = made.thread_packet(2, made.thread)
    again.trace_packet_defaults.timestamp_clock_id = BOOTTIME
    made.packets.append(again)
    made.end(2_000)
    path = made.write(tmp_path / "t.pftrace")
    times = [each.timestamp - AHEAD for each in copied(FileCopy, path, placement()) if each.HasField("track_event")]
    assert times == [2_000, 1_500]


def test_tells_its_last_time(tmp_path: Path) -> None:
    copy = FileCopy(everything().write(tmp_path / "t.pftrace"), placement(), Pids(), count(1))
    assert sum(1 for _ in copy.packets()) > 100
    assert copy.last_ns == 1_800


@pytest.mark.parametrize("kind", [FileCopy, Slowly])
@pytest.mark.parametrize("shift", [-5_000_000_000, 1 << 63], ids=["before 1970", "after 2262"])
def test_an_anchor_that_leads_out_of_all_times_is_named(tmp_path: Path, kind: type[FileCopy], shift: int) -> None:
    path = everything().write(tmp_path / "t.pftrace")
    with pytest.raises(TraceError, match=f"{path}: an event would be at .* its anchor cannot be right"):
        list(copied(kind, path, placement(shift, lambda time: time + shift)))


@pytest.mark.parametrize("kind", [FileCopy, Slowly])
def test_a_clock_without_an_anchor_is_named(tmp_path: Path, kind: type[FileCopy]) -> None:
    path = everything().write(tmp_path / "t.pftrace")
    with pytest.raises(TraceError, match=f"{path}: an event is on clock 3"):
        list(copied(kind, path, Placement({BOOTTIME: 0}, lambda time: time, 0)))


def test_pids_stay_unless_another_process_has_them() -> None:
    pids = Pids()
    assert [pids.of(5, 100), pids.of(6, 200), pids.of(5, 100)] == [5, 6, 5]
    renamed = pids.of(5, 300)
    assert renamed > 1 << 20
    assert (pids.of(5, 300), pids.of(5, 100)) == (renamed, 5)


def test_the_official_framing_is_read(tmp_path: Path) -> None:
    """What the tests' own framing rests on."""
    (tmp_path / "t").write_bytes(framed(TracePacket(timestamp=1, trusted_packet_sequence_id=300)))
    with pytest.raises(TraceError):
        list(copied(FileCopy, tmp_path / "t", Placement({}, lambda time: time, 0)))
