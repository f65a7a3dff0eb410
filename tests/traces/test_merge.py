"""Many processes' traces as one file, on one clock."""

import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import BuiltinClock, TracePacket, TrackEvent

from export.making import TIME_NS, FakeClock, environment, identity
from realparts.trace_processor import Row, query
from rltel.core.errors import TraceError
from rltel.export.perfetto import PerfettoWriter
from rltel.export.perfetto_wire import packet
from rltel.export.sink import Destination
from rltel.record.recorder import Recorder, new_flow
from rltel.traces.merge import Merged, merge
from rltel.traces.reader import read_packets

MS = 1_000_000
FAULTS = "select name, severity, value from stats where severity in ('error', 'data_loss') and value > 0"
SLICES = """
select slice.name as slice, to_realtime(slice.ts) as at, slice.dur, process.pid, process.name as process, tid
from slice join thread_track on slice.track_id = thread_track.id join thread using (utid) join process using (upid)
order by slice.ts
"""
FLOWS = """
select sender.name as sender, receiver.name as receiver from flow
join slice sender on flow.slice_out = sender.id join slice receiver on flow.slice_in = receiver.id
"""


class Host:
    """A process on a host whose monotonic clock has an origin of its own."""

    def __init__(self, folder: Path, index: int, clock: FakeClock, file_bytes: int = 10**9) -> None:
        self.clock = clock
        self.recorder = Recorder(now=clock.monotonic_ns)
        who = identity(index=index)
        destination = Destination("trace")
        self.writer = PerfettoWriter(folder, who, self.recorder, clock, destination, file_bytes, 10**9)
        self.recorder.start()

    def slice(self, name: str, begin_ns: int, end_ns: int, flow: int | None = None) -> None:
        """Draw a slice between two wall-clock times."""
        offset = self.clock.realtime_ns() - self.clock.monotonic_ns()
        self.clock.now = begin_ns - offset
        with self.recorder.slice(name, flow=flow):
            self.clock.now = end_ns - offset


def merged(folder: Path, output: Path | None = None) -> tuple[Merged, list[Row], list[Row]]:
    """Merge, and look at it with the trace processor, which must find no fault."""
    output = output or folder.parent / "merged.pftrace"
    result = merge(folder, output)
    faults, slices, flows = query(output, FAULTS, SLICES, FLOWS)
    assert faults == []
    return result, slices, flows


WORKER = """
import sys, rltel
rltel.init({"trace": {"enabled": True}}, role=sys.argv[2], run_dir=sys.argv[1])
with rltel.slice("whole"), rltel.slice(sys.argv[2], flow=42):
    rltel.counter("queue", 3, unit="rows")
"""


@pytest.fixture(scope="module")
def two_processes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run directory of two real processes."""
    run_dir = tmp_path_factory.mktemp("run")
    running = [
        subprocess.Popen([sys.executable, "-c", WORKER, run_dir, role], env=environment())
        for role in ("learner", "collector")
    ]
    assert [process.wait(60) for process in running] == [0, 0]
    return run_dir


class TestTwoProcesses:
    def test_both_are_in_one_file(self, two_processes: Path, tmp_path: Path) -> None:
        result, slices, flows = merged(two_processes, tmp_path / "merged.pftrace")
        assert Counter(row["slice"] for row in slices) == {"whole": 2, "learner": 1, "collector": 1}
        assert {row["process"] for row in slices} == {"learner 0", "collector 0"}
        assert len({row["pid"] for row in slices}) == 2
        assert len(flows) == 1
        assert [path.stem for path in result.files] == ["collector-0.1", "learner-0.1"]
        assert result.uncertainty == "one host: all processes read the same clock"

    def test_counts_what_it_copied(self, two_processes: Path, tmp_path: Path) -> None:
        seen: list[Path] = []
        result = merge(two_processes, tmp_path / "merged.pftrace", seen.append)
        packets = list(read_packets(tmp_path / "merged.pftrace"))
        assert result.packets == len(packets) - 1
        assert seen == result.files

    def test_track_ids_are_unique_and_names_keep_their_numbers(self, two_processes: Path, tmp_path: Path) -> None:
        merge(two_processes, tmp_path / "merged.pftrace")
        packets = list(read_packets(tmp_path / "merged.pftrace"))
        tracks = [made.track_descriptor.uuid for made in packets if made.HasField("track_descriptor")]
        assert len(tracks) == len(set(tracks))
        cleared = TracePacket.SequenceFlags.SEQ_INCREMENTAL_STATE_CLEARED
        begun = [made.trusted_packet_sequence_id for made in packets if made.sequence_flags & cleared]
        assert len(begun) == len(set(begun)), "a sequence of two files would mix up their names"

    def test_merging_again_into_the_run_directory_takes_nothing_twice(self, two_processes: Path) -> None:
        first = merge(two_processes, two_processes / "merged.pftrace")
        second = merge(two_processes, two_processes / "other.pftrace")
        assert (first.packets, first.files) == (second.packets, second.files)
        (two_processes / "merged.pftrace").unlink()
        (two_processes / "other.pftrace").unlink()


class TestClocks:
    def test_google_perfetto_568_two_origins_are_aligned_by_their_anchors(self, tmp_path: Path) -> None:
        """hw-native-sys/simpler#2099: a naive merge showed 11.56 s for a true 1.60 ms."""
        flow = new_flow()
        first = Host(tmp_path / "trace", 0, FakeClock(monotonic_ns=5_000_000_000))
        second = Host(tmp_path / "trace", 1, FakeClock(monotonic_ns=16_560_000_000, boottime_ns=900_000_000_000))
        first.slice("request", TIME_NS + MS, TIME_NS + 2 * MS, flow)
        second.slice("response", TIME_NS + MS + 1_600_000, TIME_NS + 5 * MS, flow)
        for host in (first, second):
            host.writer.close()
        result, slices, flows = merged(tmp_path / "trace")
        at = {row["slice"]: row["at"] for row in slices}
        assert at == {"request": TIME_NS + MS, "response": TIME_NS + MS + 1_600_000}
        assert flows == [{"sender": "request", "receiver": "response"}]
        assert result.uncertainty.startswith("2 hosts: as good as their clocks agree (NTP)")

    def test_one_host_is_one_host_whatever_its_clock_was_set_by(self, tmp_path: Path) -> None:
        """Boots that lie on both sides of a full second, and an adjustment of 10 ms, are still one boot."""
        boot = TIME_NS // 10**9 * 10**9 + 500_000_000
        for index, realtime in enumerate((boot - 1, boot + 1, boot + 10 * MS)):
            Host(tmp_path / "trace", index, FakeClock(monotonic_ns=10**9, realtime_ns=realtime)).writer.close()
        assert merge(tmp_path / "trace", tmp_path / "m").uncertainty.startswith("one host")

    def test_durations_stay_exact(self, tmp_path: Path) -> None:
        host = Host(tmp_path / "trace", 0, FakeClock(monotonic_ns=123_456_789))
        host.slice("s", TIME_NS + 1, TIME_NS + 8)
        host.writer.close()
        _, slices, _ = merged(tmp_path / "trace")
        assert [(row["at"], row["dur"]) for row in slices] == [(TIME_NS + 1, 7)]


class TestPids:
    def test_equal_pids_and_threads_of_two_hosts_stay_apart(self, tmp_path: Path) -> None:
        """Both processes are this one, to their files: the same pid, and the same thread's id."""
        hosts = [Host(tmp_path / "trace", index, FakeClock()) for index in (0, 1)]
        for index, host in enumerate(hosts):
            host.slice(f"of {index}", TIME_NS + 10 * index, TIME_NS + 10 * index + 100)  # they overlap in time
            host.writer.close()
        _, slices, _ = merged(tmp_path / "trace")
        assert [(row["slice"], row["process"], row["dur"]) for row in slices] == [
            ("of 0", "learner 0", 100),
            ("of 1", "learner 1", 100),
        ]
        assert len({row["pid"] for row in slices}) == 2
        assert len({row["tid"] for row in slices}) == 1

    def test_parts_of_one_process_stay_one(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        host = Host(tmp_path / "trace", 0, FakeClock(), file_bytes=1)
        with host.recorder.slice("long"):
            for step in range(3):
                host.slice(f"step {step}", TIME_NS + 10 * step, TIME_NS + 10 * step + 5)
                host.writer.drain()
        host.writer.close()
        assert len(list((tmp_path / "trace").iterdir())) > 3
        result, slices, _ = merged(tmp_path / "trace")
        assert [row["slice"] for row in slices] == ["long", "step 0", "step 1", "step 2"]
        assert all(row["dur"] > 0 for row in slices), "a slice that goes on in the next file ends there"
        assert {row["pid"] for row in slices} == {slices[0]["pid"]}
        assert result.uncertainty.startswith("one host")


def without_anchor(path: Path, *packets: TracePacket) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"".join(packet(made.SerializeToString()) for made in packets))


EVENT = TracePacket(
    timestamp=5,
    timestamp_clock_id=BuiltinClock.BUILTIN_CLOCK_MONOTONIC,
    trusted_packet_sequence_id=2,
    track_event=TrackEvent(type=TrackEvent.TYPE_INSTANT, name="x"),
)


class TestRefusals:
    def test_a_file_without_an_anchor_is_named(self, tmp_path: Path) -> None:
        """google/perfetto#568: aligned by anchors, else refused."""
        path = tmp_path / "trace" / "lost.pftrace"
        without_anchor(path, EVENT)
        with pytest.raises(TraceError, match=f"{path}: .*no anchor"):
            merge(tmp_path / "trace", tmp_path / "merged.pftrace")

    def test_one_that_has_none_of_the_wall_clock_too(self, tmp_path: Path) -> None:
        path = tmp_path / "trace" / "lost.pftrace"
        snapshot = TracePacket()
        snapshot.clock_snapshot.clocks.add(clock_id=BuiltinClock.BUILTIN_CLOCK_MONOTONIC, timestamp=1)
        without_anchor(path, snapshot, EVENT)
        with pytest.raises(TraceError, match=str(path)):
            merge(tmp_path / "trace", tmp_path / "merged.pftrace")

    def test_and_one_that_only_describes_its_tracks(self, tmp_path: Path) -> None:
        path = tmp_path / "trace" / "lost.pftrace"
        described = TracePacket()
        described.track_descriptor.uuid = 1
        without_anchor(path, described)
        with pytest.raises(TraceError, match=f"{path}: has no clock anchor"):
            merge(tmp_path / "trace", tmp_path / "merged.pftrace")

    def test_nothing_half_done_is_left(self, tmp_path: Path) -> None:
        without_anchor(tmp_path / "trace" / "lost.pftrace", EVENT)
        (tmp_path / "merged.pftrace").write_bytes(b"of yesterday")
        with pytest.raises(TraceError):
            merge(tmp_path / "trace", tmp_path / "merged.pftrace")
        assert {path.name for path in tmp_path.iterdir()} == {"trace", "merged.pftrace"}
        assert (tmp_path / "merged.pftrace").read_bytes() == b"of yesterday"

    def test_a_process_that_was_killed_at_its_start_does_not_cost_the_others(self, tmp_path: Path) -> None:
        """Its file is empty, or cut within the anchor."""
        host = Host(tmp_path / "trace", 0, FakeClock())
        host.slice("s", TIME_NS + 1, TIME_NS + 2)
        host.writer.close()
        (tmp_path / "trace" / "empty.pftrace").touch()
        (tmp_path / "trace" / "cut.pftrace").write_bytes(host.writer.path.read_bytes()[:5])
        result = merge(tmp_path / "trace", tmp_path / "merged.pftrace")
        alone = merge(tmp_path / "trace", tmp_path / "again.pftrace")
        assert result.packets == alone.packets > 0

    def test_a_trace_that_is_merged_already_is_named(self, tmp_path: Path) -> None:
        """Taken again, every slice would be drawn twice over itself."""
        Host(tmp_path / "trace", 0, FakeClock()).writer.close()
        first = tmp_path / "trace" / "merged.pftrace"
        merge(tmp_path / "trace", first)
        with pytest.raises(TraceError, match=f"{first}: is a merged trace already"):
            merge(tmp_path / "trace", tmp_path / "trace" / "other.pftrace")
        assert merge(tmp_path / "trace", first).packets == 1, "its own output is left out"

    def test_a_folder_without_traces_is_named(self, tmp_path: Path) -> None:
        with pytest.raises(TraceError, match=f"{tmp_path}: no trace files"):
            merge(tmp_path, tmp_path / "merged.pftrace")

    def test_a_damaged_file_is_named(self, tmp_path: Path) -> None:
        path = tmp_path / "trace" / "damaged.pftrace"
        path.parent.mkdir()
        path.write_bytes(b"no trace")
        with pytest.raises(TraceError, match=str(path)):
            merge(tmp_path / "trace", tmp_path / "merged.pftrace")


def test_a_trace_of_another_producer_keeps_its_own_defaults(tmp_path: Path) -> None:
    """Events without a clock of their own are on the boot clock, as Perfetto has it."""
    path = tmp_path / "trace" / "other.pftrace"
    snapshot = TracePacket(trusted_packet_sequence_id=1)
    for clock, at in ((BuiltinClock.BUILTIN_CLOCK_BOOTTIME, 100), (BuiltinClock.BUILTIN_CLOCK_REALTIME, TIME_NS)):
        snapshot.clock_snapshot.clocks.add(clock_id=clock, timestamp=at)
    event: Any = TracePacket()
    event.CopyFrom(EVENT)
    event.ClearField("timestamp_clock_id")
    without_anchor(path, snapshot, event)
    merge(tmp_path / "trace", tmp_path / "merged.pftrace")
    (_, moved) = read_packets(tmp_path / "merged.pftrace")
    assert moved.timestamp == TIME_NS - 95


def test_a_run_directory_or_any_folder(tmp_path: Path) -> None:
    """A run directory's traces are in its `trace`; of any other folder all below it are taken."""
    for folder in ("run/trace", "run/elsewhere"):
        Host(tmp_path / folder, 0, FakeClock()).writer.close()
    assert len(merge(tmp_path / "run", tmp_path / "m").files) == 1
    assert len(merge(tmp_path, tmp_path / "m").files) == 2
