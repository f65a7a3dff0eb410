"""The streaming reader of native Perfetto files."""

import contextlib
import os
import tracemalloc
import zlib
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import TracePacket

from realparts.perfetto_reader import parse_packets
from rltel.core.errors import TraceError
from rltel.export.perfetto.wire import compressed, packet
from rltel.traces.reader import FileFrames, raw_packets, read_packets


def event(timestamp: int) -> bytes:
    return packet(TracePacket(timestamp=timestamp).SerializeToString())


def block(*timestamps: int) -> bytes:
    packets = b"".join(map(event, timestamps))
    return packet(TracePacket(compressed_packets=zlib.compress(packets)).SerializeToString())


def times(path: Path) -> list[int]:
    return [made.timestamp for made in read_packets(path)]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "t.pftrace"


def test_takes_blocks_apart_in_their_place(path: Path) -> None:
    path.write_bytes(event(1) + block(2, 3) + event(4) + block(5))
    assert times(path) == [1, 2, 3, 4, 5]


def test_an_empty_file_has_no_packets(path: Path) -> None:
    path.write_bytes(b"")
    assert times(path) == []


def test_a_cut_anywhere_is_no_error(path: Path) -> None:
    whole = event(1) + block(2, 3) + event(4)
    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        found = times(path)
        assert found == [1, 2, 3, 4][: len(found)]
        assert found == [made.timestamp for made in parse_packets(whole[:length])]


@pytest.mark.parametrize(
    "data",
    [
        b'{"traceEvents": []}',
        b"\x1f\x8b\x08\x00",
        event(1) + b"\x00" * 100,
        b"\x0a" + b"\xff" * 12,
        b"\x0a\xff\xff\xff\xff\x7f",
        b"\x0a\x02\xff\xff",
        packet(TracePacket(compressed_packets=b"not zlib").SerializeToString()),
        packet(TracePacket(compressed_packets=zlib.compress(b"no packets")).SerializeToString()),
    ],
    ids=["json", "gzip", "zeros", "endless length", "huge length", "no packet", "damaged block", "no packets in block"],
)
def test_what_is_no_trace_or_damaged_is_refused_by_name(path: Path, data: bytes) -> None:
    path.write_bytes(data)
    with pytest.raises(TraceError, match=str(path)):
        times(path)


@pytest.mark.parametrize("data", [b'{"traceEvents": []}', b"[]", b"\x1f\x8b\x08\x00"])
def test_other_formats_are_pointed_to_the_converter(path: Path, data: bytes) -> None:
    path.write_bytes(data)
    with pytest.raises(TraceError, match=f"{path}: not a native Perfetto trace; rltel trace convert makes one"):
        times(path)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.binary(max_size=50) | st.binary(max_size=20).map(lambda tail: event(1) + tail))
def test_any_bytes_are_read_or_refused(path: Path, data: bytes) -> None:
    path.write_bytes(data)
    with contextlib.suppress(TraceError):
        list(read_packets(path))


@pytest.mark.parametrize("length", [1, 127, 128, 300, 1 << 14, 1 << 18, (1 << 18) + 1, 3 << 18])
def test_packets_of_any_length_in_and_outside_of_blocks(path: Path, length: int) -> None:
    """Longer ones than are read at once, too."""
    inner = packet(TracePacket(timestamp=1, synchronization_marker=os.urandom(length)).SerializeToString())
    path.write_bytes(inner + compressed(inner * 3, zlib.compress(inner * 3)) + inner)
    assert list(read_packets(path)) == list(parse_packets(path.read_bytes()))
    assert [packet(raw) for raw in raw_packets(path)] == [inner] * 5


def test_a_packet_that_holds_more_beside_a_block_is_taken_apart(path: Path) -> None:
    made = TracePacket(trusted_packet_sequence_id=3, compressed_packets=zlib.compress(event(1) + event(2)))
    path.write_bytes(packet(made.SerializeToString()))
    assert times(path) == [1, 2]


def test_bytes_that_look_like_a_block_are_none(path: Path) -> None:
    """The tag of a block within a packet's own data."""
    marker = b"\x92\x03\x01\x00"
    path.write_bytes(packet(TracePacket(timestamp=5, synchronization_marker=marker).SerializeToString()))
    assert times(path) == [5]


def test_a_length_beyond_the_file_is_not_read(path: Path) -> None:
    """Of a damaged one, which may name two gigabytes."""
    path.write_bytes(event(1) + b"\x0a\xff\xff\xff\xff\x06" + b"x" * 1_000)
    tracemalloc.start()
    assert times(path) == [1]
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 2_000_000


def test_a_block_is_inflated_piece_by_piece(path: Path) -> None:
    """A thousand times its size: a damaged or hostile file must not fill the memory."""
    inner = packet(TracePacket(synchronization_marker=bytes(50_000)).SerializeToString()) * 1_000
    path.write_bytes(packet(TracePacket(compressed_packets=zlib.compress(inner)).SerializeToString()))
    del inner
    tracemalloc.start()
    assert sum(1 for _ in read_packets(path)) == 1_000
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 3_000_000


def test_a_block_that_ends_within_a_packet_or_too_early_is_damaged(path: Path) -> None:
    for block_of in (zlib.compress(event(1) + event(1 << 40)[:-2]), zlib.compress(event(1) * 100)[:-6]):
        path.write_bytes(packet(TracePacket(compressed_packets=block_of).SerializeToString()))
        with pytest.raises(TraceError, match=f"{path}: a damaged block"):
            times(path)


def test_says_how_far_it_is(path: Path) -> None:
    inner = packet(TracePacket(synchronization_marker=os.urandom(100_000)).SerializeToString())
    path.write_bytes(inner * 30)
    told: list[int] = []
    assert sum(1 for _ in raw_packets(path, told.append)) == 30
    assert told == sorted(told)
    assert 5 < len(told) < 30
    assert told[-1] <= path.stat().st_size


def test_where_packets_are(path: Path) -> None:
    path.write_bytes(event(1) + block(2, 3) + event(4)[:-1])
    frames = FileFrames(path)
    assert [frames.offset for _ in frames] == [0, len(event(1))]
    assert (frames.end, frames.cut, frames.size) == (len(event(1) + block(2, 3)), True, path.stat().st_size)


def test_memory_does_not_grow_with_the_file(path: Path) -> None:
    """Blocks of random bytes, so that they are as long in the file as in memory."""
    with path.open("wb") as file:
        for _ in range(200):
            inner = packet(TracePacket(trusted_packet_sequence_id=1).SerializeToString()) + packet(
                TracePacket(synchronization_marker=os.urandom(50_000)).SerializeToString()
            )
            file.write(compressed(inner, zlib.compress(inner)))
    tracemalloc.start()
    assert sum(1 for _ in read_packets(path)) == 400
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < path.stat().st_size / 5
