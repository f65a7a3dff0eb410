"""The timeline on disk, read by Perfetto's own trace processor and by the official classes."""

import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import TracePacket, TrackEvent

from export.making import FakeClock, environment, identity, run_python, wait_until
from realparts.perfetto_reader import read_packets
from realparts.trace_processor import Row, query
from rltel.core.clock import SystemClock
from rltel.export.perfetto import PerfettoWriter
from rltel.export.sink import Destination
from rltel.record.recorder import Recorder, new_flow
from rltel.traces.reader import read_packets as tolerant

BEGIN, END = TrackEvent.TYPE_SLICE_BEGIN, TrackEvent.TYPE_SLICE_END
FAULTS = "select name, severity, value from stats where severity in ('error', 'data_loss') and value > 0"
SLICES = """
select slice.id, slice.name, slice.category, slice.dur, slice.depth, parent.name as parent, thread.name as thread,
       process.name as process
from slice left join slice parent on slice.parent_id = parent.id
join thread_track on slice.track_id = thread_track.id join thread using (utid) join process using (upid)
order by slice.id
"""


class Traced:
    """A writer with its recorder and its account."""

    def __init__(self, folder: Path, *, file_bytes: int = 10**9, total_bytes: int = 10**9, clock: Any = None) -> None:
        self.clock = clock or SystemClock()
        self.recorder = Recorder(now=self.clock.monotonic_ns)
        self.account = Destination("trace")
        self.writer = PerfettoWriter(
            folder, identity(), self.recorder, self.clock, self.account, file_bytes, total_bytes
        )
        self.recorder.start()

    def close(self) -> Path:
        path = self.writer.path
        self.writer.close()
        return path


def in_thread(name: str, run: Callable[[], object]) -> None:
    thread = threading.Thread(target=run, name=name)
    thread.start()
    thread.join()


def events(packets: Iterator[TracePacket]) -> list[int]:
    return [packet.track_event.type for packet in packets if packet.HasField("track_event")]


def record_everything(recorder: Recorder) -> None:
    flow = new_flow()
    with recorder.slice("outer", "loop", attributes={"rl.loop.iteration": 3, "ratio": 0.5, "on": True, "text": "ü"}):
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
    traced.writer.drain()
    with traced.recorder.slice("later"):  # in another block, with names that are known already
        pass
    with traced.recorder.slice("inner"):
        pass
    queries = {
        "faults": FAULTS,
        "slices": SLICES,
        "attributes": "select slice.name, key, display_value as value from args join slice using (arg_set_id)",
        "counters": """
            select track.name, unit, value from counter join counter_track track on counter.track_id = track.id
            order by counter.ts""",
        "instants": "select name, category, dur from slice where name = 'checkpoint'",
        "flows": """
            select sender.name as sender, receiver.name as receiver from flow
            join slice sender on flow.slice_out = sender.id join slice receiver on flow.slice_in = receiver.id""",
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

    def test_attributes_have_their_types(self, everything: dict[str, list[Row]]) -> None:
        found = {(row["name"], row["key"]): row["value"] for row in everything["attributes"]}
        assert found["outer", "debug.rl_loop_iteration"] == "3", "Perfetto turns dots into underscores"
        assert found["outer", "debug.ratio"] == "0.5"
        assert found["outer", "debug.on"] == "true"
        assert found["outer", "debug.text"] == "ü"
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
        assert now - 600 * 10**9 < times["first"] < times["last"] < now


class TestCut:
    """google/perfetto#926: a trace that was not ended does not load. A file cut anywhere must."""

    @pytest.fixture(scope="class")
    @classmethod
    def whole(cls, tmp_path_factory: pytest.TempPathFactory) -> bytes:
        traced = Traced(tmp_path_factory.mktemp("trace"))
        for step in range(40):
            with traced.recorder.slice(f"step {step % 7}", attributes={"step": step}):
                traced.recorder.counter("x", step)
                traced.writer.drain()
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
        faults, slices = query(cut, FAULTS, "select name, dur from slice order by ts")
        begins = [kind for kind in events(tolerant(cut)) if kind == BEGIN]
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


class TestKill:
    def test_google_perfetto_926_killed_the_open_slices_are_there_and_a_second_at_most_is_not(
        self, tmp_path: Path
    ) -> None:
        with subprocess.Popen(
            [sys.executable, "-c", LOOP, tmp_path], stdout=subprocess.PIPE, text=True, env=environment()
        ) as process:
            assert process.stdout is not None
            printed = [int(process.stdout.readline()) for _ in range(150)]
            process.kill()
            printed.extend(int(line) for line in process.stdout if line.endswith("\n"))
        assert process.returncode == -signal.SIGKILL
        (path,) = (tmp_path / "trace").glob("*.pftrace")
        faults, open_slices, alive = query(
            path,
            FAULTS,
            "select name, dur from slice where dur != 0 order by depth",
            "select count(*) as n from slice where name = 'alive'",
        )
        assert faults == []
        assert open_slices == [{"name": "whole run", "dur": -1}, {"name": "iteration", "dur": -1}]
        old_enough = [at for at in printed if at < printed[-1] - 1_000_000_000]
        assert alive[0]["n"] >= len(old_enough) > 0


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
            traced.writer.drain()
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

    def test_a_slice_goes_on_in_the_next_file_on_the_same_track(self, tmp_path: Path) -> None:
        traced = Traced(tmp_path, file_bytes=1)
        with traced.recorder.slice("long"):
            traced.writer.drain()
        traced.close()
        parts = in_order(tmp_path)[:2]
        tracks = [
            {p.track_descriptor.uuid for p in tolerant(path) if p.track_descriptor.HasField("thread")} for path in parts
        ]
        assert tracks[0] == tracks[1] != set()
        assert [events(tolerant(path)) for path in parts] == [[BEGIN], [END]]

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
            traced.writer.drain()
        traced.close()
        copy = write(tmp_path / "copy", os.read(kept, 1 << 20))
        os.close(kept)
        assert len(events(tolerant(copy))) == 3
        assert traced.account.dropped_totals == {"disk": 0}


class TestBound:
    def test_tracing_stops_and_what_is_not_recorded_is_counted(
        self, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        traced = Traced(tmp_path, total_bytes=1500)
        recorder = traced.recorder
        with recorder.slice("open when it was reached"):
            while not traced.writer._full:
                recorder.instant("filler", attributes={"random": os.urandom(50).hex()})
                traced.writer.drain()
            size = traced.writer.path.stat().st_size
            with recorder.slice("not recorded"):
                recorder.instant("nor this")
                recorder.counter("nor that", 1)
                traced.writer.drain()
        traced.writer.drain()
        path = traced.close()
        assert path.stat().st_size < size + 200, "the end of what was open, and nothing else"
        assert traced.account.dropped_totals == {"max_total_mb": 4}
        assert [record.message for record in caplog.records if "max_total_mb reached" in record.message]
        kinds = events(tolerant(path))
        assert (kinds[0], kinds[-1], kinds.count(BEGIN), kinds.count(END)) == (BEGIN, END, 1, 1)

    def test_what_did_not_fit_into_a_buffer_is_counted(self, tmp_path: Path) -> None:
        clock = FakeClock()
        traced = Traced(tmp_path, clock=clock)
        traced.recorder._limit = 3
        for _ in range(5):
            with traced.recorder.slice("s"):
                pass
        traced.close()
        assert traced.account.dropped_totals == {"buffer_full": 6}

    def test_what_cannot_be_drawn_is_counted_once_and_said(
        self, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        traced = Traced(tmp_path)
        for _ in range(2):
            with traced.recorder.slice("s", flow=["no id"]):  # type: ignore[list-item]
                pass
            traced.writer.drain()
        assert events(tolerant(traced.close())) == [BEGIN, END] * 2
        assert traced.account.dropped_totals == {"unreadable": 2}
        assert len(caplog.records) == 1


class TestFullDisk:
    def test_nothing_is_lost_if_it_comes_back(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """Names that a lost block defines would be missing from all later ones: a block is written whole, or again."""
        traced = Traced(tmp_path)
        recorder, real = traced.recorder, os.write
        with recorder.slice("before"):
            pass
        traced.writer.drain()

        def half(descriptor: int, data: bytes) -> int:
            return real(descriptor, data[: len(data) // 2])

        def none(descriptor: int, data: bytes) -> int:
            raise OSError(28, "No space left on device")

        with recorder.slice("outer"):
            for failing in (half, none):
                with monkeypatch.context() as patched:
                    patched.setattr(os, "write", failing)
                    with recorder.slice(f"while {failing.__name__}"):
                        pass
                    traced.writer.drain()
                assert events(tolerant(traced.writer.path)) == [BEGIN, END]
        faults, slices = query(traced.close(), FAULTS, SLICES)
        assert faults == []
        assert [(row["name"], row["parent"]) for row in slices] == [
            ("before", None),
            ("outer", None),
            ("while half", "outer"),
            ("while none", "outer"),
        ]
        assert traced.account.dropped_totals == {"disk": 0}

    def test_what_never_reached_it_is_counted(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        traced = Traced(tmp_path)
        traced.recorder.instant("lost")

        def none(descriptor: int, data: bytes) -> int:
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(os, "write", none)
        traced.writer.drain()
        traced.close()
        assert traced.account.dropped_totals == {"disk": 1}


class TestClose:
    def test_writes_the_rest(self, tmp_path: Path) -> None:
        traced = Traced(tmp_path)
        traced.recorder.instant("last")
        assert events(tolerant(traced.close())) == [TrackEvent.TYPE_INSTANT]

    def test_does_not_wait_for_a_drain_that_hangs(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        traced = Traced(tmp_path)
        traced.recorder.instant("x")
        entered, go_on = threading.Event(), threading.Event()

        def hang(descriptor: int, data: bytes) -> int:
            entered.set()
            go_on.wait(30)
            return len(data)

        monkeypatch.setattr(os, "write", hang)
        draining = threading.Thread(target=traced.writer.drain, daemon=True)
        draining.start()
        assert entered.wait(30)
        traced.writer.close()
        assert draining.is_alive(), "it came back before the drain did"
        go_on.set()
        draining.join(30)
        assert not draining.is_alive()


def test_equal_times_nest_as_they_were_recorded(tmp_path: Path) -> None:
    """A clock that stands still: parents come before their children in the file, and that decides."""
    traced = Traced(tmp_path, clock=FakeClock(monotonic_ns=10**9))
    with traced.recorder.slice("a"), traced.recorder.slice("b"), traced.recorder.slice("c"):
        pass
    faults, slices = query(traced.close(), FAULTS, SLICES)
    assert faults == []
    assert [(row["name"], row["parent"]) for row in slices] == [("a", None), ("b", "a"), ("c", "b")]


def test_threads_that_record_while_it_drains_lose_nothing(tmp_path: Path) -> None:
    traced = Traced(tmp_path)
    threads = [threading.Thread(target=lambda: [traced.recorder.instant("i") for _ in range(3000)]) for _ in range(4)]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        traced.writer.drain()
    found = events(tolerant(traced.close()))
    assert len(found) == 12_000


def test_a_program_that_ends_writes_everything(tmp_path: Path) -> None:
    code = (
        "import sys, rltel\n"
        "rltel.init({'trace': {'enabled': True, 'flush_interval_s': 60}, 'run': {'dir': sys.argv[1]}})\n"
        "with rltel.slice('s'):\n    rltel.instant('i')\n"
    )
    ran = run_python(code, tmp_path)
    assert ran.returncode == 0, ran.stderr
    (path,) = (tmp_path / "trace").iterdir()
    wait_until(path.exists, "the file")
    assert events(tolerant(path)) == [BEGIN, TrackEvent.TYPE_INSTANT, END]
