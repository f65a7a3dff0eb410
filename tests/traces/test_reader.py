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
from rltel.export.perfetto_wire import compressed, packet
from rltel.traces.reader import read_packets


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


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.binary(max_size=50) | st.binary(max_size=20).map(lambda tail: event(1) + tail))
def test_any_bytes_are_read_or_refused(path: Path, data: bytes) -> None:
    path.write_bytes(data)
    with contextlib.suppress(TraceError):
        list(read_packets(path))


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
