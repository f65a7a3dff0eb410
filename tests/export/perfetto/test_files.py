"""The timeline on disk, read by Perfetto's own trace processor and by the official classes."""

import asyncio
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import TracePacket, TrackEvent

from export.making import PATIENT, FakeClock, environment, identity, run_python, wait_until
from realparts.lane_making import drawn
from realparts.perfetto_reader import read_packets
from realparts.trace_processor import Row, query
from rltel.core.clock import SystemClock
from rltel.core.context import new_flow
from rltel.export.perfetto import files as perfetto
from rltel.export.perfetto.files import PerfettoWriter
from rltel.export.sink import Destination
from rltel.export.timeline import TimelineDrain
from rltel.record.recorder import Recorder
from rltel.record.records import Site
from rltel.record.spans import Span
from rltel.reduce.clock_offsets import ClockOffset
from rltel.traces.merge import merge
from rltel.traces.reader import read_packets as tolerant

BEGIN, END, INSTANT = TrackEvent.TYPE_SLICE_BEGIN, TrackEvent.TYPE_SLICE_END, TrackEvent.TYPE_INSTANT
S = 10**9
FAULTS = "select name, severity, value from stats where severity in ('error', 'data_loss') and value > 0"
SLICES = """
select slice.id, slice.name, slice.category, slice.dur, slice.depth, parent.name as parent, thread.name as thread,
       process.name as process
from slice left join slice parent on slice.parent_id = parent.id
join thread_track on slice.track_id = thread_track.id join thread using (utid) join process using (upid)
order by slice.id
"""
TRACKS = """
select slice.name, slice.dur, slice.depth, parent.name as parent, track.name as track, track.id as track_id
from slice left join slice parent on slice.parent_id = parent.id join track on slice.track_id = track.id
order by slice.ts, slice.id
"""
NOTES = "select slice.name, key, display_value as value from args join slice using (arg_set_id)"
FLOWS = """
select sender.name as sender, receiver.name as receiver from flow
join slice sender on flow.slice_out = sender.id join slice receiver on flow.slice_in = receiver.id
"""


class Traced:
    """A writer with its recorder and its account."""

    def __init__(
        self,
        folder: Path,
        *,
        file_bytes: int = 10**9,
        total_bytes: int = 10**9,
        clock: Any = None,
        thread_time: bool = False,
        limit: int = 10**6,
    ) -> None:
        self.clock = clock or SystemClock()
        self.recorder = Recorder(now=self.clock.monotonic_ns, limit=limit)
        self.account = Destination("trace")
        self.writer = PerfettoWriter(folder, identity(), self.clock, self.account, file_bytes, total_bytes, 77)
        self.timeline = TimelineDrain(self.recorder, [(self.writer, self.account)])
        self.recorder.start(thread_time=thread_time)

    def drain(self) -> None:
        self.timeline.drain()

    def close(self) -> Path:
        path = self.writer.path
        self.timeline.close()
        return path


def in_thread(name: str, run: Callable[[], object]) -> None:
    thread = threading.Thread(target=run, name=name)
    thread.start()
    thread.join()


def events(packets: Iterator[TracePacket]) -> list[int]:
    """Without the notes on clocks, which have their names with them: one comes in every minute that a test takes."""
    drawn_ones = (packet.track_event for packet in packets if packet.HasField("track_event"))
    return [event.type for event in drawn_ones if not event.name]


def record_everything(recorder: Recorder) -> None:
    flow = new_flow()
    attributes = {"rl.loop.iteration": 3, "ratio": 0.5, "on": True, "text": "ü", "shape": [2, 3], "of": {"a": 1}}
    with recorder.slice("outer", "loop", attributes=attributes):
        with recorder.slice("inner"), recorder.slice("innermost"):
            pass
        with recorder.slice("send", flow=flow):
            pass
        recorder.instant("checkpoint", "io", attributes={"step": 7})
        recorder.counter("replay size", 1000, unit="rows")
        recorder.counter("replay size", 1500.5, unit="rows")
        recorder.counter("loss", float("nan"))
    with pytest.raises(ValueError, match="no"), recorder.slice("failing"):
        raise ValueError("no")

    def worker() -> None:
        with recorder.slice("receive", flow=flow), recorder.slice("inner"):
            recorder.counter("replay size", 7, unit="rows")

    in_thread("worker thread", worker)


@pytest.fixture(scope="module")
def everything(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[Row]]:
    """One trace with everything in it, as the trace processor sees it."""
    traced = Traced(tmp_path_factory.mktemp("trace"))
    record_everything(traced.recorder)
    traced.drain()
    with traced.recorder.slice("later"):  # in another block, with names that are known already
        pass
    with traced.recorder.slice("inner"):
        pass
    queries = {
        "faults": FAULTS,
        "slices": SLICES,
        "all": "select name from slice",
        "attributes": NOTES,
        "counters": """
            select track.name, unit, value from counter join counter_track track on counter.track_id = track.id
            order by counter.ts, counter.id""",
        "instants": "select name, category, dur from slice where name = 'checkpoint'",
        "flows": FLOWS,
        "process": "select pid, name from process where name is not null",
        "clock": "select clock_name, clock_value from clock_snapshot where clock_name = 'REALTIME'",
        "times": "select to_realtime(min(ts)) as first, to_realtime(max(ts + dur)) as last from slice",
    }
    return dict(zip(queries, query(traced.close(), *queries.values()), strict=True))


class TestTraceProcessor:
    def test_finds_no_fault(self, everything: dict[str, list[Row]]) -> None:
        assert everything["faults"] == []

    def test_slices_nest_on_their_threads(self, everything: dict[str, list[Row]]) -> None:
        found = [(row["name"], row["parent"], row["depth"], row["thread"]) for row in everything["slices"]]
        here = threading.current_thread().name
        assert found == [
            ("outer", None, 0, here),
            ("inner", "outer", 1, here),
            ("innermost", "inner", 2, here),
            ("send", "outer", 1, here),
            ("checkpoint", "outer", 1, here),
            ("failing", None, 0, here),
            ("receive", None, 0, "worker thread"),
            ("inner", "receive", 1, "worker thread"),
            ("later", None, 0, here),
            ("inner", None, 0, here),
        ]
        assert {row["process"] for row in everything["slices"]} == {"learner 0"}
        assert all(row["dur"] >= 0 for row in everything["slices"])

    def test_there_is_nothing_else_in_the_table(self, everything: dict[str, list[Row]]) -> None:
        """No notes of our own: the first anchor is the file's clock snapshot."""
        assert len(everything["all"]) == len(everything["slices"])

    def test_attributes_have_their_types(self, everything: dict[str, list[Row]]) -> None:
        found = {(row["name"], row["key"]): row["value"] for row in everything["attributes"]}
        assert found["outer", "debug.rl_loop_iteration"] == "3", "Perfetto turns dots into underscores"
        assert found["outer", "debug.ratio"] == "0.5"
        assert found["outer", "debug.on"] == "true"
        assert found["outer", "debug.text"] == "ü"
        assert [found["outer", f"debug.shape[{place}]"] for place in (0, 1)] == ["2", "3"]
        assert found["outer", "debug.of.a"] == "1"
        assert found["checkpoint", "debug.step"] == "7"

    def test_an_exception_is_noted_on_its_slice(self, everything: dict[str, list[Row]]) -> None:
        noted = {row["name"]: row["value"] for row in everything["attributes"] if row["key"] == "debug.error"}
        assert noted == {"failing": "ValueError"}

    def test_counters_have_their_unit_and_one_track_for_all_threads(self, everything: dict[str, list[Row]]) -> None:
        found = [(row["name"], row["unit"], row["value"]) for row in everything["counters"]]
        replay = [row for row in found if row[0] == "replay size"]
        assert replay == [("replay size", "rows", value) for value in (1000, 1500.5, 7)]
        assert [row[2] for row in found if row[0] == "loss"] == [None], "Perfetto shows NaN as NULL"

    def test_instants(self, everything: dict[str, list[Row]]) -> None:
        assert everything["instants"] == [{"name": "checkpoint", "category": "io", "dur": 0}]

    def test_categories(self, everything: dict[str, list[Row]]) -> None:
        assert [row["category"] for row in everything["slices"] if row["name"] == "outer"] == ["loop"]

    def test_flows_join_threads(self, everything: dict[str, list[Row]]) -> None:
        assert everything["flows"] == [{"sender": "send", "receiver": "receive"}]

    def test_the_process_has_its_pid(self, everything: dict[str, list[Row]]) -> None:
        assert {"pid": os.getpid(), "name": "learner 0"} in everything["process"]

    def test_times_are_on_the_wall_clock_by_the_one_anchor(self, everything: dict[str, list[Row]]) -> None:
        assert len(everything["clock"]) == 1
        (times,) = everything["times"]
        now = time.time_ns()
        assert now - 600 * S < times["first"] < times["last"] < now


def looked_at(path: Path, *queries: str) -> list[list[Row]]:
    """Results of queries on a trace in which the trace processor finds no fault."""
    faults, *found = query(path, FAULTS, *queries)
    assert faults == []
    return found


class TestTracks:
    def test_asyncio_tasks_that_interleave_are_whole_on_lanes_of_their_own(self, tmp_path: Path) -> None:
        traced = Traced(tmp_path)

        async def rollout(number: int, first: asyncio.Event, then: asyncio.Event) -> None:
            with traced.recorder.slice(f"rollout {number}"):
                first.set()
                await then.wait()
                with traced.recorder.slice("step"):
                    pass

        async def both() -> None:
            one, two = asyncio.Event(), asyncio.Event()
            await asyncio.gather(rollout(1, one, two), rollout(2, two, one))

        with traced.recorder.slice("loop"):
            asyncio.run(both())
        (rows,) = looked_at(traced.close(), TRACKS)
        assert sorted((row["name"], row["parent"]) for row in rows) == [
            ("loop", None),
            ("rollout 1", None),
            ("rollout 2", None),
            ("step", "rollout 1"),
            ("step", "rollout 2"),
        ]
        assert len({row["track_id"] for row in rows}) == 3
        assert all(row["dur"] >= 0 for row in rows)

    def test_slices_that_end_anywhere_overlap_on_tracks_of_one_name(self, tmp_path: Path) -> None:
        traced = Traced(tmp_path, clock=FakeClock(10**9))
        handles = []
        for number in range(3):
            handles.append(traced.recorder.begin("request", attributes={"number": number}))
            traced.clock.now += 10
        for handle in handles:
            handle.end(status="done")
            traced.clock.now += 10
        rows, notes = looked_at(traced.close(), TRACKS, NOTES)
        assert [(row["dur"], row["depth"], row["track"]) for row in rows] == [(30, 0, "request")] * 3
        assert sum((row["key"], row["value"]) == ("debug.status", "done") for row in notes) == 3

    def test_placed_slices_are_where_they_were(self, tmp_path: Path) -> None:
        traced = Traced(tmp_path, clock=FakeClock(10**9))
        flow = new_flow()
        with traced.recorder.slice("submit", flow=flow):
            traced.clock.now += 5
        for begin in (20, 30, 35):  # back to back, and one that overlaps
            traced.recorder.place(
                "cuda:0", "kernel", 10**9 + begin, 10**9 + begin + 10, flow=flow if begin == 20 else None
            )
        rows, flows = looked_at(traced.close(), TRACKS, FLOWS)
        kernels = [row for row in rows if row["name"] == "kernel"]
        assert [(row["dur"], row["depth"], row["track"]) for row in kernels] == [(10, 0, "cuda:0")] * 3
        assert flows == [{"sender": "submit", "receiver": "kernel"}]

    def test_thread_time_is_the_cpu_time_of_each_slice(self, tmp_path: Path) -> None:
        traced = Traced(tmp_path, thread_time=True)
        with traced.recorder.slice("outer"):
            with traced.recorder.slice("sleeps"):
                time.sleep(0.2)
            with traced.recorder.slice("works"):
                until = time.thread_time_ns() + 20_000_000
                while time.thread_time_ns() < until:
                    pass
        (rows,) = looked_at(traced.close(), "select name, dur, thread_dur from slice order by ts")
        cpu = {row["name"]: row["thread_dur"] for row in rows}
        assert cpu["works"] >= 20_000_000
        assert 0 <= cpu["sleeps"] < 200_000_000
        assert cpu["outer"] >= cpu["works"] + cpu["sleeps"]

    @pytest.mark.parametrize("thread_time", [False, True])
    @pytest.mark.parametrize("drains", [False, True])
    def test_generators_that_cross_keep_their_times(self, tmp_path: Path, drains: bool, thread_time: bool) -> None:
        """Within one drain all are whole; over several, in pieces that say so."""
        traced = Traced(tmp_path, clock=FakeClock(10**9), thread_time=thread_time)

        def generator() -> Iterator[int]:
            with traced.recorder.slice("generator"):
                yield 1

        def tick() -> None:
            traced.clock.now += 10
            if drains:
                traced.drain()

        with traced.recorder.slice("outermost"):
            tick()
            running = generator()
            next(running)
            tick()
            with traced.recorder.slice("caller"):
                tick()
                next(running, None)
                tick()
        rows, notes = looked_at(traced.close(), TRACKS, NOTES)
        spent: dict[str, list[int]] = {}
        for row in rows:
            spent.setdefault(row["name"], []).append(row["dur"])
        pieces = [10, 10] if drains else [20]
        assert spent == {"outermost": [40], "generator": [20], "caller": pieces}
        continued = [row["name"] for row in notes if row["key"] == "debug.continued"]
        assert continued == (["caller"] if drains else [])

    def test_what_is_open_at_the_end_is_ended_and_says_so(self, tmp_path: Path) -> None:
        traced = Traced(tmp_path, clock=FakeClock(10**9))
        traced.recorder.slice("outer").__enter__()
        traced.recorder.slice("inner", attributes={"a": 1}).__enter__()
        traced.recorder.begin("handle")
        traced.clock.now += 10
        rows, notes = looked_at(traced.close(), TRACKS, NOTES)
        assert sorted((row["name"], row["dur"], row["parent"]) for row in rows) == [
            ("handle", 10, None),
            ("inner", 10, "outer"),
            ("outer", 10, None),
        ]
        assert sorted(row["name"] for row in notes if row["key"] == "debug.open_at_end") == ["handle", "inner", "outer"]

    def test_iterations_show_their_ids(self, tmp_path: Path) -> None:
        traced = Traced(tmp_path)
        with Span(traced.recorder, Site("iteration", "rl.loop")) as span:
            assert span.context is not None
            ids = f"{span.context.trace_id:032x}", f"{span.context.span_id:016x}"
        (notes,) = looked_at(traced.close(), NOTES)
        found = {row["key"]: row["value"] for row in notes}
        assert (found["debug.trace_id"], found["debug.span_id"]) == ids

    def test_equal_times_nest_as_they_were_recorded(self, tmp_path: Path) -> None:
        """A clock that stands still: parents come before their children in the file, and that decides."""
        traced = Traced(tmp_path, clock=FakeClock(monotonic_ns=10**9))
        with traced.recorder.slice("a"), traced.recorder.slice("b", attributes={"x": 1}), traced.recorder.slice("c"):
            pass
        (slices,) = looked_at(traced.close(), SLICES)
        assert [(row["name"], row["parent"]) for row in slices] == [("a", None), ("b", "a"), ("c", "b")]


class TestClocks:
    def note(self, path: Path) -> list[tuple[str, dict[str, int | str], int]]:
        """The notes on clocks: as the official classes read them from what is in no compressed block."""
        found = []
        for packet in read_packets(path):
            if packet.track_event.name.startswith("rltel."):
                values = {e.name: e.int_value or e.string_value for e in packet.track_event.debug_annotations}
                found.append((packet.track_event.name, values, packet.timestamp))
        return found

    def test_the_clocks_are_read_again_every_minute(self, tmp_path: Path) -> None:
        clock = FakeClock(10 * S, realtime_ns=1000 * S, boottime_ns=20 * S)
        traced = Traced(tmp_path, clock=clock)
        for _ in range(6):
            clock.now += 30 * S
            traced.drain()
        found = self.note(traced.close())
        times = [
            {"monotonic_ns": at * S, "realtime_ns": (at + 990) * S, "boottime_ns": (at + 10) * S}
            for at in (70, 130, 190)
        ]
        assert [(name, {k: v for k, v in values.items() if k != "width_ns"}) for name, values, _ in found] == [
            ("rltel.clock_anchor", each) for each in times
        ]
        assert [at for _, _, at in found] == [each["monotonic_ns"] for each in times]
        assert all("width_ns" in values for _, values, _ in found)

    def test_notes_stand_in_no_compressed_block(self, tmp_path: Path) -> None:
        """A merge finds them without unpacking the file."""
        clock = FakeClock(10 * S)
        traced = Traced(tmp_path, clock=clock)
        traced.recorder.instant("x")
        clock.now += 61 * S
        traced.drain()
        assert b"rltel.clock_anchor" in traced.close().read_bytes()

    def test_a_wall_clock_stepped_back_changes_no_duration_and_loses_nothing(self, tmp_path: Path) -> None:
        clock = FakeClock(10 * S, realtime_ns=1000 * S)
        traced = Traced(tmp_path, clock=clock)
        with traced.recorder.slice("whole"):
            for step in range(4):
                with traced.recorder.slice(f"step {step}"):
                    clock.now += 50 * S
                if step == 1:
                    clock._realtime_offset -= 5 * S
                traced.drain()
        path = traced.close()
        rows, wall = looked_at(
            path, TRACKS, "select to_realtime(min(ts)) as first, to_realtime(max(ts)) as last from slice"
        )
        slices = [(row["name"], row["dur"]) for row in rows if not row["name"].startswith("rltel.")]
        assert slices == [("whole", 200 * S), *((f"step {step}", 50 * S) for step in range(4))]
        assert wall[0]["first"] == 1000 * S, "one clock model for the whole file"
        assert [values["realtime_ns"] - values["monotonic_ns"] for _, values, _ in self.note(path)] == [
            985 * S,
            985 * S,
        ]  # type: ignore[operator]  # integers

    def test_a_measured_offset_is_noted_in_every_part(self, tmp_path: Path) -> None:
        clock = FakeClock(10 * S)
        traced = Traced(tmp_path, clock=clock, file_bytes=1)
        traced.writer.note_offset(2**64 - 1, ClockOffset(0, 3 * S, 500, 10 * S, 1000))
        for _ in range(2):
            traced.recorder.instant("x")
            traced.drain()
        traced.close()
        expected = ("rltel.clock_offset", {"reference": str(2**64 - 1), "offset_ns": 3 * S, "error_ns": 500}, 10 * S)
        assert [self.note(path) for path in in_order(tmp_path)] == [[expected]] * 3

    def test_the_process_is_labelled_with_its_host(self, tmp_path: Path) -> None:
        clock = FakeClock(10 * S)
        packets = list(tolerant(Traced(tmp_path, clock=clock).close()))
        labels = [
            list(each.track_descriptor.process.process_labels) for each in packets if each.track_descriptor.uuid == 77
        ]
        assert labels == [[f"host {clock.host()}"]]


class TestCut:
    """google/perfetto#926: a trace that was not ended does not load. A file cut anywhere must."""

    @pytest.fixture(scope="class")
    @classmethod
    def whole(cls, tmp_path_factory: pytest.TempPathFactory) -> bytes:
        traced = Traced(tmp_path_factory.mktemp("trace"))
        for step in range(40):
            with traced.recorder.slice(f"step {step % 7}", attributes={"step": step}):
                traced.recorder.counter("x", step)
                traced.recorder.begin("request")
                traced.drain()
        return traced.close().read_bytes()

    def test_anywhere_it_loads(self, whole: bytes, tmp_path: Path) -> None:
        chosen = random.Random(926)  # no secret
        offsets = {0, 1, 2, len(whole) - 1, *(chosen.randrange(len(whole)) for _ in range(50))}
        complete = events(tolerant(write(tmp_path / "whole", whole)))
        for offset in offsets:
            cut = write(tmp_path / "cut", whole[:offset])
            found = events(tolerant(cut))
            assert found == complete[: len(found)]
            assert found == events(read_packets(cut)), "as Perfetto's own classes read it"
        assert events(tolerant(write(tmp_path / "cut", whole[:-1])))[-3:] != complete[-3:]

    @pytest.mark.parametrize("share", [0.3, 0.8])
    def test_anywhere_the_trace_processor_loads_it(self, whole: bytes, tmp_path: Path, share: float) -> None:
        cut = write(tmp_path / "cut.pftrace", whole[: int(len(whole) * share)])
        faults, slices = query(cut, FAULTS, "select name, dur from slice where name like 'step%' order by ts")
        begins = [each for each in drawn(tolerant(cut)) if each.name.startswith("step")]
        assert faults == []
        assert len(slices) == len(begins) >= 5
        assert all(row["dur"] >= 0 for row in slices[:-1])


def write(path: Path, data: bytes) -> Path:
    path.write_bytes(data)
    return path


LOOP = """
import sys, time
import rltel
rltel.init({"trace": {"enabled": True, "flush_interval_s": 0.1}, "run": {"dir": sys.argv[1]}})
with rltel.slice("whole run"), rltel.slice("iteration"):
    while True:
        rltel.instant("alive")
        print(time.perf_counter_ns(), flush=True)
        time.sleep(0.01)
"""


class Killed(NamedTuple):
    """What the trace of a killed program shows."""

    open_slices: list[Row]
    alive: int
    old_enough: int
    """How many instants were more than a second old."""

    @property
    def is_whole(self) -> bool:
        names = [(row["name"], row["dur"]) for row in self.open_slices]
        return names == [("whole run", -1), ("iteration", -1)] and self.alive >= self.old_enough > 0


class TestKill:
    def test_google_perfetto_926_killed_the_open_slices_are_there_and_a_second_at_most_is_not(
        self, tmp_path: Path
    ) -> None:
        """Where a thread can write ten times in that second: three tries, as a busy machine may not let it."""
        tries: list[Killed] = []
        while len(tries) < 3 and not any(each.is_whole for each in tries):
            tries.append(self.killed(tmp_path / str(len(tries))))
        assert tries[-1].is_whole, tries

    def killed(self, folder: Path) -> Killed:
        with subprocess.Popen(
            [sys.executable, "-c", LOOP, folder], stdout=subprocess.PIPE, text=True, env=environment()
        ) as process:
            assert process.stdout is not None
            printed = [int(process.stdout.readline()) for _ in range(150)]
            process.kill()
            printed.extend(int(line) for line in process.stdout if line.endswith("\n"))
        assert process.returncode == -signal.SIGKILL
        (path,) = (folder / "trace").glob("*.pftrace")
        faults, open_slices, alive = query(
            path,
            FAULTS,
            "select name, dur from slice where dur != 0 order by depth",
            "select count(*) as n from slice where name = 'alive'",
        )
        assert faults == []
        old_enough = [at for at in printed if at < printed[-1] - 1_000_000_000]
        return Killed(open_slices, alive[0]["n"], len(old_enough))


def in_order(folder: Path) -> list[Path]:
    """The files of one process, oldest first."""
    return sorted(folder.iterdir(), key=lambda path: (len(path.name), path.name))


class TestRotation:
    def test_pytorch_kineto_595_a_long_trace_is_several_files_each_complete(self, tmp_path: Path) -> None:
        traced = Traced(tmp_path, file_bytes=2000)
        names = []
        while traced.writer._parts < 4:
            names.append(f"step {len(names)}")
            with traced.recorder.slice(names[-1], attributes={"random": os.urandom(50).hex()}):
                traced.recorder.counter("x", len(names), unit="u")
            traced.drain()
        traced.close()
        files = in_order(tmp_path)
        assert [path.name for path in files] == [
            "learner-0.1.pftrace",
            *(f"learner-0.1.part{part}.pftrace" for part in (2, 3, 4)),
        ]
        assert all(path.stat().st_size < 4000 for path in files)
        faults, rows = query(files[1], FAULTS, "select slice.name, dur from slice order by ts")
        assert faults == []
        first = events(tolerant(files[0])).count(BEGIN)
        assert [row["name"] for row in rows] == names[first : first + len(rows)] != []
        assert sum(events(tolerant(path)).count(END) for path in files) == len(names)

    def test_slices_go_on_in_the_next_file_and_merged_they_are_whole(self, tmp_path: Path) -> None:
        clock = FakeClock(10 * S)
        traced = Traced(tmp_path / "trace", file_bytes=1, clock=clock)
        handle = traced.recorder.begin("handle")
        with traced.recorder.slice("long"):
            for _ in range(3):
                clock.now += S
                with traced.recorder.slice("short"):
                    clock.now += S
                traced.drain()
        handle.end()
        traced.close()
        assert len(in_order(tmp_path / "trace")) >= 4
        for part in in_order(tmp_path / "trace"):
            looked_at(part, "select 1")  # each loads alone
        merge(tmp_path / "trace", tmp_path / "merged.pftrace")
        (rows,) = looked_at(tmp_path / "merged.pftrace", TRACKS)
        assert sorted((row["name"], row["dur"], row["parent"]) for row in rows) == [
            ("handle", 6 * S, None),
            ("long", 6 * S, None),
            *[("short", S, "long")] * 3,
        ]

    def test_another_run_s_file_in_the_same_folder_is_left_alone(self, tmp_path: Path) -> None:
        """`trace.output_dir` may be one folder for many runs; a file has one clock anchor and one process."""
        first, second = Traced(tmp_path), Traced(tmp_path)
        assert first.writer.path != second.writer.path
        for traced in (first, second):
            path = traced.close()
            assert len([packet for packet in tolerant(path) if packet.HasField("clock_snapshot")]) == 1

    def test_a_folder_that_is_gone_costs_no_record(self, tmp_path: Path) -> None:
        """The next file cannot be made: the one that is open grows on."""
        folder = tmp_path / "trace"
        traced = Traced(folder, file_bytes=1)
        kept = os.open(traced.writer.path, os.O_RDONLY)
        for path in folder.iterdir():
            path.unlink()
        folder.rmdir()
        for step in range(3):
            traced.recorder.instant(f"step {step}")
            traced.drain()
        traced.close()
        copy = write(tmp_path / "copy", os.read(kept, 1 << 20))
        os.close(kept)
        assert len(events(tolerant(copy))) == 3
        assert traced.account.dropped_totals == {"disk": 0}


class TestMemory:
    def test_too_many_names_begin_a_new_sequence(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """Names made up on the way, of slices, annotations and tracks, must not fill the memory."""
        monkeypatch.setattr(perfetto, "_MAX_NAMES", 10)
        traced = Traced(tmp_path)
        recorder = traced.recorder
        with recorder.slice("open all the time"):
            for step in range(30):
                with recorder.slice(f"step {step}", attributes={f"of {step}": step}):
                    recorder.begin(f"request {step}").end()
                traced.drain()
        path = traced.close()
        (encoder,) = traced.writer._encoders.values()
        assert encoder.names <= 10 + 3
        assert traced.writer._free.names <= 10 + 1
        assert len({each.trusted_packet_sequence_id for each in tolerant(path)}) > 5
        rows, notes = looked_at(path, SLICES, NOTES)
        assert [row["name"] for row in rows] == ["open all the time", *(f"step {step}" for step in range(30))]
        assert {row["parent"] for row in rows[1:]} == {"open all the time"}
        assert sum(row["key"].startswith("debug.of ") for row in notes) == 30

    def test_ten_thousand_short_threads_are_forgotten(self, tmp_path: Path) -> None:
        traced = Traced(tmp_path)
        for number in range(10_000):
            thread = threading.Thread(target=lambda: traced.recorder.instant("alive"))
            thread.start()
            thread.join()
            if number % 1000 == 999:
                traced.drain()
        traced.drain()
        writer = traced.writer
        assert len(traced.recorder.lanes()) <= 2
        assert max(len(kept) for kept in (writer._encoders, writer._tracks, writer._in_part, writer._sieves)) <= 2
        assert events(tolerant(traced.close())).count(INSTANT) == 10_000

    def test_a_thread_that_ended_within_a_slice_is_kept_until_the_end(self, tmp_path: Path) -> None:
        traced = Traced(tmp_path)
        in_thread("gone", lambda: traced.recorder.slice("open").__enter__())
        for _ in range(3):
            traced.drain()
        (rows,) = looked_at(traced.close(), SLICES)
        assert [(row["name"], row["thread"]) for row in rows] == [("open", "gone")]
        assert rows[0]["dur"] >= 0


class TestBound:
    def test_tracing_stops_and_what_is_not_recorded_is_counted(
        self, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        traced = Traced(tmp_path, total_bytes=1500)
        recorder = traced.recorder
        with recorder.slice("open when it was reached"):
            handle = recorder.begin("and this")
            while not traced.writer._full:
                recorder.instant("filler", attributes={"random": os.urandom(50).hex()})
                traced.drain()
            size = traced.writer.path.stat().st_size
            with recorder.slice("not recorded"):
                recorder.instant("nor this")
                recorder.counter("nor that", 1)
                recorder.begin("nor a handle").end()
                traced.drain()
            handle.end()
        traced.drain()
        path = traced.close()
        assert path.stat().st_size < size + 200, "the ends of what was open, and nothing else"
        assert traced.account.dropped_totals == {"max_total_mb": 5 - 1}
        assert [record.message for record in caplog.records if "max_total_mb reached" in record.message]
        kinds = events(tolerant(path))
        assert (kinds.count(BEGIN), kinds.count(END)) == (2, 2)

    def test_it_bounds_all_parts_together(self, tmp_path: Path) -> None:
        traced = Traced(tmp_path, file_bytes=1500, total_bytes=6000)
        for step in range(200):
            traced.recorder.instant(f"step {step}", attributes={"random": os.urandom(50).hex()})
            traced.drain()
        traced.close()
        assert 6000 <= sum(path.stat().st_size for path in tmp_path.iterdir()) < 7000

    @pytest.mark.parametrize("shared", [False, True])
    def test_a_burst_within_one_round_does_not_pass_it(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shared: bool
    ) -> None:
        monkeypatch.setattr(perfetto, "_CHUNK", 200)
        traced = Traced(tmp_path, file_bytes=10_000, total_bytes=30_000)
        for number in range(5_000):
            if shared:
                traced.recorder.place("device", f"kernel {number}", number, number + 1)
            else:
                with traced.recorder.slice(f"slice {number}"):
                    pass
        path = traced.close()
        files = list(path.parent.iterdir())
        assert all(file.stat().st_size < 20_000 for file in files)
        assert 30_000 <= sum(file.stat().st_size for file in files) < 40_000
        began = [events(tolerant(file)).count(BEGIN) for file in files]
        assert sum(began) + traced.account.dropped_totals["max_total_mb"] == 5_000
        assert sum(events(tolerant(file)).count(END) for file in files) == sum(began)

    def test_what_did_not_fit_into_a_buffer_is_counted(self, tmp_path: Path) -> None:
        traced = Traced(tmp_path, clock=FakeClock(), limit=3)
        for _ in range(5):
            with traced.recorder.slice("s"):
                pass
        path = traced.close()
        drawn_here = events(tolerant(path)).count(BEGIN)
        assert traced.account.dropped_totals == {"buffer_full": 5 - drawn_here}
        assert 0 < drawn_here < 5

    def test_what_cannot_be_drawn_is_counted_once_and_said(
        self, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        class Raises:
            def __str__(self) -> str:
                raise RuntimeError("no text")

        traced = Traced(tmp_path)
        for _ in range(2):
            with traced.recorder.slice("s", flow=["no id"], attributes={"a": Raises(), "b": 1}):  # type: ignore[list-item]
                pass
            traced.drain()
        path = traced.close()
        assert events(tolerant(path)) == [BEGIN, END] * 2
        assert [row["key"] for row in looked_at(path, NOTES)[0]] == ["debug.b", "debug.b"]
        assert traced.account.dropped_totals == {"unreadable": 4}
        assert len(caplog.records) == 1


def full_disk(descriptor: int, data: bytes) -> int:
    raise OSError(28, "No space left on device")


class TestFullDisk:
    def test_nothing_is_lost_if_it_comes_back(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """Names that a lost block defines would be missing from all later ones: a block is written whole, or again."""
        traced = Traced(tmp_path)
        recorder, real = traced.recorder, os.write
        with recorder.slice("before"):
            pass
        traced.drain()

        def half(descriptor: int, data: bytes) -> int:
            return real(descriptor, data[: len(data) // 2])

        with recorder.slice("outer"):
            for number, failing in enumerate((half, full_disk)):
                with monkeypatch.context() as patched:
                    patched.setattr(os, "write", failing)
                    with recorder.slice(f"while {number}"):
                        pass
                    traced.drain()
                assert events(tolerant(traced.writer.path)) == [BEGIN, END]
        (slices,) = looked_at(traced.close(), SLICES)
        assert [(row["name"], row["parent"]) for row in slices] == [
            ("before", None),
            ("outer", None),
            ("while 0", "outer"),
            ("while 1", "outer"),
        ]
        assert traced.account.dropped_totals == {"disk": 0}

    def test_half_a_block_that_cannot_be_cut_off_at_once_is_cut_off_later(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        traced = Traced(tmp_path)
        real = os.write
        with monkeypatch.context() as patched:
            patched.setattr(os, "write", lambda descriptor, data: real(descriptor, data[:5]))
            patched.setattr(os, "ftruncate", full_disk)
            traced.recorder.instant("one")
            traced.drain()
        traced.recorder.instant("two")
        traced.drain()
        (rows,) = looked_at(traced.close(), "select name from slice order by ts")
        assert [row["name"] for row in rows] == ["one", "two"]

    def test_what_waits_for_it_is_bounded_and_what_does_not_fit_is_counted(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Slices are kept or left out whole, and it goes on once the disk takes something again."""
        monkeypatch.setattr(perfetto, "_MAX_WAITING", 400)
        traced = Traced(tmp_path)
        recorder = traced.recorder
        with monkeypatch.context() as patched:
            patched.setattr(os, "write", full_disk)
            with recorder.slice("outer"):
                for step in range(20):
                    with recorder.slice(f"step {step}", attributes={"random": os.urandom(20).hex()}):
                        traced.drain()
                recorder.slice("open, left out").__enter__()
                traced.drain()
        waiting = sum(len(block) for block, _ in traced.writer._waiting)
        assert 400 <= waiting < 1200
        traced.drain()
        with recorder.slice("after"):
            traced.drain()
        (slices,) = looked_at(traced.close(), SLICES)
        names = [row["name"] for row in slices]
        kept = len(names) - 2
        assert names == ["outer", *(f"step {step}" for step in range(kept)), "after"]
        assert 0 < kept < 20
        assert traced.account.dropped_totals == {"disk": 21 - kept}
        assert all(row["dur"] >= 0 for row in slices)

    def test_what_never_reached_it_is_counted(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        traced = Traced(tmp_path)
        monkeypatch.setattr(os, "write", full_disk)
        for name in ("one", "two"):
            with traced.recorder.slice(name):
                traced.recorder.instant("lost")
            traced.drain()
        traced.recorder.counter("and the last", 1)
        traced.close()
        assert traced.account.dropped_totals == {"disk": 5}


class TestClose:
    def test_writes_the_rest(self, tmp_path: Path) -> None:
        traced = Traced(tmp_path)
        traced.recorder.instant("last")
        assert events(tolerant(traced.close())) == [INSTANT]


def test_threads_that_record_while_it_drains_lose_nothing(tmp_path: Path) -> None:
    traced = Traced(tmp_path)

    def record() -> None:
        for _ in range(1500):
            with traced.recorder.slice("s"):
                traced.recorder.instant("i")

    threads = [threading.Thread(target=record) for _ in range(4)]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        traced.drain()
    found = events(tolerant(traced.close()))
    assert [found.count(kind) for kind in (BEGIN, END, INSTANT)] == [6000] * 3


def test_a_program_that_ends_writes_everything(tmp_path: Path) -> None:
    code = (
        "import sys, rltel\n"
        "rltel.init({'trace': {'enabled': True, 'flush_interval_s': 60}, 'run': {'dir': sys.argv[1]}})\n"
        "with rltel.slice('s'):\n    rltel.instant('i')\n"
    )
    ran = run_python(code, tmp_path, **PATIENT)
    assert ran.returncode == 0, ran.stderr
    (path,) = (tmp_path / "trace").iterdir()
    wait_until(path.exists, "the file")
    assert events(tolerant(path)) == [BEGIN, INSTANT, END]
