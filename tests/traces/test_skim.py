"""The first look at a file."""

import zlib
from pathlib import Path

import pytest
from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import TracePacket

from realparts.trace_making import BOOTTIME, MONOTONIC, REALTIME, TraceMaking, block, framed
from rltel.core.clock import Anchor
from rltel.core.errors import TraceError
from rltel.traces.skim import Measured, skim, trace_files

NOW = 1_795_987_020_000_000_000


def test_finds_process_host_anchors_and_offsets(tmp_path: Path) -> None:
    made = TraceMaking(process=77, pid=5, host="h", monotonic=1_000, realtime=NOW, boottime=3_000)
    made.slice(1_001, 1_002, "s")
    made.offset(1_500, 42, -9, 3)
    made.anchor(2_000, NOW + 1_001, boottime=4_000, width=60)
    found = skim(made.write(tmp_path / "t.pftrace"))
    assert (found.process, found.pid, found.host, found.has_packets, found.is_merged) == (77, 5, "h", True, False)
    assert found.snapshot == {MONOTONIC: 1_000, BOOTTIME: 3_000, REALTIME: NOW}
    assert found.anchors == [Anchor(2_000, NOW + 1_001, 4_000, 60)]
    assert found.joint_readings == [Anchor(1_000, NOW, 3_000, 0), *found.anchors]
    assert found.measured == [Measured(1_500, 42, -9, 3)]


def test_does_not_inflate_what_follows_the_head(tmp_path: Path) -> None:
    """A block that cannot be inflated goes unnoticed, and the clock packets behind it are found."""
    made = TraceMaking(host="h")
    broken = framed(TracePacket(compressed_packets=b"not zlib"))
    head = made.data(blocks=0)
    made.anchor(2_000, NOW)
    path = tmp_path / "t.pftrace"
    path.write_bytes(head + broken + made.data(blocks=0)[len(head) :])
    assert len(skim(path).anchors) == 1


def test_a_head_within_a_block_is_found_too(tmp_path: Path) -> None:
    """A small head may come out compressed."""
    made = TraceMaking(process=77)
    path = tmp_path / "t.pftrace"
    path.write_bytes(framed(block(*made.packets)) + framed(TracePacket(compressed_packets=b"not zlib")))
    found = skim(path)
    assert found.process == 77
    assert found.first_anchor == Anchor(1_000, made.realtime, 1_000, 0)


def test_a_cut_is_no_error(tmp_path: Path) -> None:
    data = TraceMaking(host="h").data()
    for length in range(0, len(data), 7):
        (tmp_path / "t.pftrace").write_bytes(data[:length])
        assert skim(tmp_path / "t.pftrace").has_packets in (True, False)


@pytest.mark.parametrize(
    "spoil", [{"monotonic_ns": None}, {"name": "rltel.clock_else"}], ids=["a number is missing", "another name"]
)
def test_a_clock_packet_that_says_something_else_is_left(tmp_path: Path, spoil: dict[str, str | None]) -> None:
    made = TraceMaking(host="h")
    made.anchor(2_000, NOW)
    (packet,) = [each for each in made.packets if each.track_event.name == "rltel.clock_anchor"]
    if "name" in spoil:
        packet.track_event.name = "rltel.clock_else"
    else:
        del packet.track_event.debug_annotations[0]
    assert skim(made.write(tmp_path / "t.pftrace")).anchors == []


def test_a_reference_that_is_no_number_is_none(tmp_path: Path) -> None:
    made = TraceMaking()
    made.offset(1_500, 42, 1, 1)
    made.packets[-1].track_event.debug_annotations[0].string_value = "rank 0"
    assert skim(made.write(tmp_path / "t.pftrace")).measured == [Measured(1_500, 0, 1, 1)]


def test_what_is_no_trace_is_refused(tmp_path: Path) -> None:
    (tmp_path / "t.pftrace").write_bytes(zlib.compress(b"no trace"))
    with pytest.raises(TraceError, match=str(tmp_path)):
        skim(tmp_path / "t.pftrace")


def test_parts_of_a_process_follow_each_other(tmp_path: Path) -> None:
    names = [
        "a.1.pftrace",
        *(f"a.1.part{part}.pftrace" for part in range(2, 12)),
        "a.10.pftrace",
        "a.1.partial.pftrace",
    ]
    for name in names:
        (tmp_path / name).touch()
    found = [path.name for path in trace_files(tmp_path)]
    first = found.index("a.1.pftrace")
    assert found[first : first + 11] == names[:11]
    assert sorted(found) == sorted(names)


def test_what_is_not_there_is_said(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match=r"no\.pftrace: no such file or folder"):
        trace_files(tmp_path / "no.pftrace")


def test_a_file_is_itself(tmp_path: Path) -> None:
    (tmp_path / "any.name").touch()
    assert trace_files(tmp_path / "any.name") == [tmp_path / "any.name"]
