"""Many processes' traces as one file, on one clock."""

import subprocess
import sys
import tracemalloc
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import BuiltinClock, TracePacket, TrackEvent

from export.making import TIME_NS, FakeClock, environment, identity
from realparts.trace_making import TraceMaking, block, framed
from realparts.trace_processor import Row, query
from rltel.core.context import new_flow
from rltel.core.errors import TraceError
from rltel.export.perfetto.files import PerfettoWriter
from rltel.export.perfetto.wire import packet
from rltel.export.sink import Destination
from rltel.export.timeline import TimelineDrain
from rltel.record.recorder import Recorder
from rltel.reduce.clock_offsets import ClockOffset
from rltel.traces.merge import Merged, merge
from rltel.traces.reader import read_packets
from rltel.traces.validate import validate

MS = 1_000_000
S = 1_000 * MS
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


class HostClock(FakeClock):
    """Of a host that has a name, or none."""

    name = ""

    def host(self) -> str:
        return self.name


class Host:
    """A process on a host whose monotonic clock has an origin of its own."""

    def __init__(self, folder: Path, index: int, clock: HostClock, file_bytes: int = 10**9) -> None:
        self.clock = clock
        self.recorder = Recorder(now=clock.monotonic_ns)
        destination = Destination("trace")
        self.writer = PerfettoWriter(folder, identity(index=index), clock, destination, file_bytes, 10**9)
        self.drain = TimelineDrain(self.recorder, [(self.writer, destination)])
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


def query_of(folder: Path, sql: str) -> list[list[Row]]:
    """Of what is merged."""
    merge(folder / "trace", folder / "merged.pftrace")
    return query(folder / "merged.pftrace", sql)


WORKER = """
import sys, rltel
pipeline = {"shutdown_timeout_s": 60}  # a busy machine takes more than 2 s
rltel.init({"trace": {"enabled": True}, "pipeline": pipeline}, role=sys.argv[2], run_dir=sys.argv[1])
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
    assert [process.wait(240) for process in running] == [0, 0]
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
        result = merge(two_processes, tmp_path / "merged.pftrace", lambda path, *_: seen.append(path))
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
        first = Host(tmp_path / "trace", 0, HostClock(monotonic_ns=5_000_000_000))
        second = Host(tmp_path / "trace", 1, HostClock(monotonic_ns=16_560_000_000, boottime_ns=900_000_000_000))
        first.slice("request", TIME_NS + MS, TIME_NS + 2 * MS, flow)
        second.slice("response", TIME_NS + MS + 1_600_000, TIME_NS + 5 * MS, flow)
        for host in (first, second):
            host.drain.close()
        result, slices, flows = merged(tmp_path / "trace")
        at = {row["slice"]: row["at"] for row in slices}
        assert at == {"request": TIME_NS + MS, "response": TIME_NS + MS + 1_600_000}
        assert flows == [{"sender": "request", "receiver": "response"}]
        assert result.uncertainty.startswith("2 hosts: as good as their clocks agree (NTP)")

    def test_one_host_is_one_host_whatever_its_clock_was_set_by(self, tmp_path: Path) -> None:
        """Boots that lie on both sides of a full second, and an adjustment of 10 ms, are still one boot."""
        boot = TIME_NS // 10**9 * 10**9 + 500_000_000
        for index, realtime in enumerate((boot - 1, boot + 1, boot + 10 * MS)):
            Host(tmp_path / "trace", index, HostClock(monotonic_ns=10**9, realtime_ns=realtime)).drain.close()
        assert merge(tmp_path / "trace", tmp_path / "m").uncertainty.startswith("one host")

    def test_durations_stay_exact(self, tmp_path: Path) -> None:
        host = Host(tmp_path / "trace", 0, HostClock(monotonic_ns=123_456_789))
        host.slice("s", TIME_NS + 1, TIME_NS + 8)
        host.drain.close()
        _, slices, _ = merged(tmp_path / "trace")
        assert [(row["at"], row["dur"]) for row in slices] == [(TIME_NS + 1, 7)]


class TestMeasuredHosts:
    """Two hosts, 3 s apart by their wall clocks and drifting against each other."""

    def write(self, folder: Path, error_ns: int = 20_000) -> None:
        """A ping-pong: the k-th ball is hit by host k % 2 at 10 ms times k, by a true clock that nobody has."""
        ppm, apart, origin = 30, 3_000 * MS, 77_000_000_000_000
        first = TraceMaking(process=100, pid=1, name="learner 0", host="a", monotonic=10**12, realtime=TIME_NS)
        second = TraceMaking(process=200, pid=1, name="learner 1", host="b", monotonic=origin, realtime=TIME_NS + apart)
        for hit in range(0, 40_000, 100):
            true = hit * 10 * MS
            if hit % 4_000 == 0:
                here = origin + true + true * ppm // 10**6
                off = error_ns if hit % 8_000 else -error_ns
                second.offset(here, 100, here - (10**12 + true) + off, error_ns)
            first.slice(10**12 + true, 10**12 + true + MS, f"hit {2 * hit}")
            there = true + MS + 100_000  # 100 us after the other's end
            here = origin + there + there * ppm // 10**6
            second.slice(here, here + MS, f"hit {2 * hit + 1}")
        first.write(folder / "first.pftrace")
        second.write(folder / "second.pftrace")

    def test_events_are_in_order_within_the_stated_uncertainty(self, tmp_path: Path) -> None:
        self.write(tmp_path / "trace")
        result, slices, _ = merged(tmp_path / "trace")
        assert result.uncertainty_ns is not None
        assert result.uncertainty_ns < 100_000, "the slices are 100 us apart"
        assert result.uncertainty.startswith("2 hosts: offsets between them were measured")
        numbers = [int(row["slice"].split()[1]) for row in slices]
        assert numbers == sorted(numbers)
        assert len(numbers) == 800

    def test_offsets_that_our_own_writer_notes_count(self, tmp_path: Path) -> None:
        """A wall clock that is 3 s ahead, and one measurement."""
        hosts = []
        for index, (name, origin, ahead) in enumerate((("a", 1_000 * S, 0), ("b", 77 * S, 3 * S))):
            clock = HostClock(monotonic_ns=origin, realtime_ns=TIME_NS + ahead)
            clock.name = name
            hosts.append(Host(tmp_path / "trace", index, clock))
        reference, other = hosts
        reference.writer.note_offset(reference.writer._process_track, ClockOffset(0, 0, 0, 1_000 * S, 0))
        other.writer.note_offset(reference.writer._process_track, ClockOffset(0, -923 * S, 1_000, 77 * S, 2_000))
        for host in hosts:
            host.clock.now += S
            host.recorder.instant("both")
            host.drain.close()
        (instants,) = query_of(tmp_path, "select ts from slice where name = 'both'")
        assert {row["ts"] for row in instants} == {TIME_NS + S}

    def test_by_their_wall_clocks_they_would_not_be(self, tmp_path: Path) -> None:
        """What the measurements are for."""
        self.write(tmp_path / "trace")
        for path in (tmp_path / "trace").iterdir():
            raw = path.read_bytes().replace(b"rltel.clock_offset", b"rltel.other_offset")
            path.write_bytes(raw)
        _, slices, _ = merged(tmp_path / "trace")
        numbers = [int(row["slice"].split()[1]) for row in slices]
        assert numbers != sorted(numbers)


class TestSteppedWallClock:
    def test_minus_5_s_in_mid_run_changes_no_duration_and_loses_nothing(self, tmp_path: Path) -> None:
        """With our own writer, which anchors anew every minute and rotates its files."""
        clock = HostClock(monotonic_ns=10 * S)
        clock.name = "h"
        host = Host(tmp_path / "trace", 0, clock, file_bytes=1)
        with host.recorder.slice("long"):
            for minute in range(4):
                with host.recorder.slice(f"minute {minute}"):
                    clock.now += 61 * S
                host.drain.drain()
                if minute == 1:
                    clock._realtime_offset -= 5 * S
        host.drain.close()
        _, slices, _ = merged(tmp_path / "trace")
        assert [(row["slice"], row["at"] - TIME_NS, row["dur"]) for row in slices] == [
            ("long", 0, 244 * S),
            *((f"minute {minute}", minute * 61 * S, 61 * S) for minute in range(4)),
        ]
        notes = [str(each) for each in validate(tmp_path / "trace")]
        assert len(notes) == 1
        assert "the wall clock stepped by -5 s" in notes[0]

    def test_minus_5_s_between_the_starts_of_two_processes_changes_no_order(self, tmp_path: Path) -> None:
        early = TraceMaking(process=100, pid=1, name="a", host="h", monotonic=10 * S, realtime=TIME_NS)
        late = TraceMaking(process=200, pid=2, name="b", host="h", monotonic=70 * S, realtime=TIME_NS + 55 * S)
        early.slice(80 * S, 81 * S, "first")
        late.slice(81 * S, 82 * S, "second")
        for number, made in enumerate((late, early)):
            made.write(tmp_path / "trace" / f"{number}.pftrace")
        _, slices, _ = merged(tmp_path / "trace")
        assert [(row["slice"], row["at"], row["dur"]) for row in slices] == [
            ("first", TIME_NS + 70 * S, S),
            ("second", TIME_NS + 71 * S, S),
        ]

    def test_minus_5_s_between_the_parts_of_one_process_neither(self, tmp_path: Path) -> None:
        """A slice that is open at the rotation has its begin in one part and its end in the next."""
        first = TraceMaking(host="h", monotonic=10 * S, realtime=TIME_NS)
        second = TraceMaking(host="h", monotonic=70 * S, realtime=TIME_NS + 55 * S)
        first.begin(11 * S, "long")
        second.end(71 * S)
        first.write(tmp_path / "trace" / "a.1.pftrace")
        second.write(tmp_path / "trace" / "a.1.part2.pftrace")
        _, slices, _ = merged(tmp_path / "trace")
        assert [(row["slice"], row["dur"]) for row in slices] == [("long", 60 * S)]


def test_pytorch_kineto_595_a_long_run_is_rotated_and_merged_as_a_stream(tmp_path: Path) -> None:
    """A trace of 2.2 GB could not be viewed. 64 MB of packets pass through here, in blocks and parts."""
    big = TrackEvent(type=TrackEvent.TYPE_INSTANT, name="x" * 1_000)
    for part in range(8):
        made = TraceMaking(host="h", monotonic=1_000 + part)
        for at in range(1_000):
            made.event(2_000 + at, big)
        name = "a.1.pftrace" if not part else f"a.1.part{part + 1}.pftrace"
        data = made.data(blocks=10_000)
        (tmp_path / "trace").mkdir(exist_ok=True)
        (tmp_path / "trace" / name).write_bytes(
            data + b"".join(framed(block(*made.packets[-1_000:])) for _ in range(7))
        )
    tracemalloc.start()
    result = merge(tmp_path / "trace", tmp_path / "m.pftrace")
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert result.packets > 64_000
    assert peak < 16_000_000


class TestPids:
    def test_equal_pids_and_threads_of_two_hosts_stay_apart(self, tmp_path: Path) -> None:
        """Both processes are this one, to their files: the same pid, and the same thread's id."""
        hosts = [Host(tmp_path / "trace", index, HostClock()) for index in (0, 1)]
        for index, host in enumerate(hosts):
            host.slice(f"of {index}", TIME_NS + 10 * index, TIME_NS + 10 * index + 100)  # they overlap in time
            host.drain.close()
        _, slices, _ = merged(tmp_path / "trace")
        assert [(row["slice"], row["process"], row["dur"]) for row in slices] == [
            ("of 0", "learner 0", 100),
            ("of 1", "learner 1", 100),
        ]
        assert len({row["pid"] for row in slices}) == 2
        assert len({row["tid"] for row in slices}) == 1

    def test_parts_of_one_process_stay_one(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        host = Host(tmp_path / "trace", 0, HostClock(), file_bytes=1)
        with host.recorder.slice("long"):
            for step in range(3):
                host.slice(f"step {step}", TIME_NS + 10 * step, TIME_NS + 10 * step + 5)
                host.drain.drain()
        host.drain.close()
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
    def test_a_recorded_trace_is_not_replaced_by_the_merged_one(self, tmp_path: Path) -> None:
        host = Host(tmp_path / "trace", 0, HostClock())
        host.slice("recorded", TIME_NS, TIME_NS + 10)
        host.drain.close()
        path = host.writer.path
        before = path.read_bytes()
        for source in (tmp_path, path):
            with pytest.raises(TraceError, match="is one of the files to merge"):
                merge(source, path)
        assert path.read_bytes() == before

    def test_a_profile_is_not_replaced_by_the_merged_trace(self, tmp_path: Path) -> None:
        host = Host(tmp_path / "trace", 0, HostClock())
        host.drain.close()
        profile = tmp_path / "profile.json"
        profile.write_text("[]")
        with pytest.raises(TraceError, match="is one of the files to merge"):
            merge(tmp_path, profile, kineto=[profile])
        assert profile.read_text() == "[]"

    def test_a_file_without_an_anchor_is_named(self, tmp_path: Path) -> None:
        """google/perfetto#568: aligned by anchors, else refused."""
        path = tmp_path / "trace" / "lost.pftrace"
        without_anchor(path, EVENT)
        with pytest.raises(TraceError, match=f"{path}: .*no clock anchor"):
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
        host = Host(tmp_path / "trace", 0, HostClock())
        host.slice("s", TIME_NS + 1, TIME_NS + 2)
        host.drain.close()
        (tmp_path / "trace" / "empty.pftrace").touch()
        (tmp_path / "trace" / "cut.pftrace").write_bytes(host.writer.path.read_bytes()[:5])
        result = merge(tmp_path / "trace", tmp_path / "merged.pftrace")
        alone = merge(tmp_path / "trace", tmp_path / "again.pftrace")
        assert result.packets == alone.packets > 0

    def test_a_trace_that_is_merged_already_is_left_out(self, tmp_path: Path) -> None:
        """Taken again, every slice would be drawn twice over itself."""
        Host(tmp_path / "trace", 0, HostClock()).drain.close()
        first = tmp_path / "trace" / "merged.pftrace"
        packets = merge(tmp_path / "trace", first).packets
        other = merge(tmp_path / "trace", tmp_path / "trace" / "other.pftrace")
        assert (other.packets, other.left_out) == (packets, [first])
        again = merge(tmp_path / "trace", first)
        assert (again.packets, len(again.files)) == (packets, 1)
        assert again.left_out == [tmp_path / "trace" / "other.pftrace"], "its own output goes without saying"

    def test_one_that_was_asked_for_is_named(self, tmp_path: Path) -> None:
        Host(tmp_path / "trace", 0, HostClock()).drain.close()
        first = merge(tmp_path / "trace", tmp_path / "merged.pftrace").path
        with pytest.raises(TraceError, match=f"{first}: is a merged trace already"):
            merge(first, tmp_path / "other.pftrace")

    def test_nothing_but_empty_files_is_said(self, tmp_path: Path) -> None:
        """All processes were killed at their start: an empty picture would hide that."""
        (tmp_path / "trace").mkdir()
        for name in ("a", "b"):
            (tmp_path / "trace" / f"{name}.pftrace").touch()
        with pytest.raises(TraceError, match="nothing to merge: 2 files below it, without a packet"):
            merge(tmp_path / "trace", tmp_path / "merged.pftrace")
        assert not (tmp_path / "merged.pftrace").exists()

    def test_a_copy_is_named(self, tmp_path: Path) -> None:
        """Taken twice, every slice would be drawn over itself."""
        host = Host(tmp_path / "trace", 0, HostClock())
        host.drain.close()
        copy = tmp_path / "trace" / "z" / host.writer.path.name
        copy.parent.mkdir()
        copy.write_bytes(host.writer.path.read_bytes())
        with pytest.raises(TraceError, match=f"{copy}: is a copy of {host.writer.path}"):
            merge(tmp_path / "trace", tmp_path / "merged.pftrace")

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
        Host(tmp_path / folder, 0, HostClock()).drain.close()
    assert len(merge(tmp_path / "run", tmp_path / "m").files) == 1
    assert len(merge(tmp_path, tmp_path / "m").files) == 2
