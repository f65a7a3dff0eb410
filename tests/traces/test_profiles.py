"""Profiles of torch.profiler, laid on the clock of the run."""

import gzip
import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from export.making import run_python
from realparts.trace_making import TraceMaking
from realparts.trace_processor import query
from rltel.core.errors import TraceError
from rltel.traces.merge import merge
from rltel.traces.profiles import converted

NOW = 1_795_987_020_000_000_000
S = 10**9
FAULTS = "select name, severity, value from stats where severity in ('error', 'data_loss') and value > 0"
SLICES = """
select slice.name as slice, slice.category, slice.ts, slice.dur, process.name as process, process.pid
from slice join thread_track on slice.track_id = thread_track.id join thread using (utid) join process using (upid)
order by slice.ts
"""
TRAINING = """
import sys, rltel, torch
from torch.profiler import ProfilerActivity, profile
pipeline = {"shutdown_timeout_s": 60}  # a busy machine takes more than 2 s
rltel.init({"trace": {"enabled": True}, "pipeline": pipeline}, role="learner", run_dir=sys.argv[1])
clock = rltel.learner(phases=["forward", "backward"])
x = torch.randn(1000, 1000, requires_grad=True)  # operations that take long beside what two clocks differ by
with profile(activities=[ProfilerActivity.CPU]) as profiled:
    for step in range(3):
        with clock.iteration(step=step):
            with clock.phase("forward"):
                y = (x @ x).relu()
            with clock.phase("backward"):
                y.sum().backward()
profiled.export_chrome_trace(sys.argv[2])
"""


def profile(path: Path, *events: dict[str, Any], base: int | None = NOW) -> Path:
    header = {} if base is None else {"baseTimeNanoseconds": base}
    data = json.dumps({**header, "traceEvents": list(events)}).encode()
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
    return path


def op(name: str, ts_us: float, dur_us: float, pid: int | str = 10, tid: int | str = 10) -> dict[str, Any]:
    return {"ph": "X", "cat": "cpu_op", "name": name, "pid": pid, "tid": tid, "ts": ts_us, "dur": dur_us}


def placed(folder: Path, *profiles: Path) -> dict[str, int]:
    merge(folder, folder.parent / "m.pftrace", kineto=profiles)
    faults, slices = query(folder.parent / "m.pftrace", FAULTS, SLICES)
    assert faults == []
    return {row["slice"]: row["ts"] for row in slices}


def test_operations_lie_inside_the_phases_that_ran_them(tmp_path: Path) -> None:
    """A real training, with a real profiler around it."""
    ran = run_python(TRAINING, tmp_path / "run", tmp_path / "k.json.gz", timeout=240)
    assert ran.returncode == 0, ran.stderr
    result = merge(tmp_path / "run", tmp_path / "m.pftrace", kineto=[tmp_path / "k.json.gz"])
    faults, rows = query(tmp_path / "m.pftrace", FAULTS, SLICES)
    assert faults == []
    assert result.uncertainty == "one host: all processes read the same clock"
    pid = next(row["pid"] for row in rows if row["process"] == "learner 0")
    profiled = [row for row in rows if row["process"] == f"torch.profiler ({pid})"]
    for name, phase in (("aten::matmul", "forward"), ("aten::relu", "forward"), ("aten::sum", "backward")):
        spans = [(row["ts"], row["ts"] + row["dur"]) for row in rows if row["slice"] == phase]
        middles = [row["ts"] + row["dur"] // 2 for row in profiled if row["slice"] == name]
        assert len(spans) == 3
        assert len(middles) >= 3
        for middle in middles:
            assert sum(start < middle < end for start, end in spans) == 1, f"{name} at {middle} is in none of {spans}"


@pytest.mark.parametrize("name", ["k.json", "k.json.gz"])
def test_times_are_those_of_the_wall_clock(tmp_path: Path, name: str) -> None:
    made = TraceMaking(host="h", monotonic=10 * S, realtime=NOW)
    made.slice(11 * S, 12 * S, "phase")
    made.write(tmp_path / "trace" / "a.pftrace")
    at = placed(tmp_path / "trace", profile(tmp_path / name, op("mm", 1_500_000.25, 10)))
    assert at == {"phase": NOW + S, "mm": NOW + 1_500_000_250}


def test_after_a_step_of_the_wall_clock_too(tmp_path: Path) -> None:
    """The profile was taken after the wall clock had been stepped by -5 s; the trace goes by its first anchor."""
    made = TraceMaking(host="h", monotonic=10 * S, realtime=NOW)
    made.anchor(70 * S, NOW + 55 * S)
    made.slice(71 * S, 72 * S, "phase")
    made.write(tmp_path / "trace" / "a.pftrace")
    at = placed(tmp_path / "trace", profile(tmp_path / "k.json", op("mm", 56_500_000, 10)))
    assert at == {"phase": NOW + 61 * S, "mm": NOW + 61 * S + S // 2}


def test_of_several_hosts_the_one_of_its_process(tmp_path: Path) -> None:
    here = TraceMaking(process=100, pid=10, host="a", monotonic=10 * S, realtime=NOW)
    there = TraceMaking(process=200, pid=20, host="b", monotonic=500 * S, realtime=NOW + 3 * S)
    there.offset(500 * S, 100, 490 * S, 1_000)
    for number, made in enumerate((here, there)):
        made.write(tmp_path / "trace" / f"{number}.pftrace")
    profiles = [profile(tmp_path / "there.json", op("mm", 4_000_000, 10, pid=20))]
    profiles.append(profile(tmp_path / "here.json", op("relu", 1_000_000, 10, pid=10)))
    assert placed(tmp_path / "trace", *profiles) == {"relu": NOW + S, "mm": NOW + S}
    result = merge(tmp_path / "trace", tmp_path / "m", kineto=[profile(tmp_path / "k.json", op("x", 1, 1, pid=99))])
    assert result.uncertainty.endswith("k.json: of no process here, placed by its wall clock")
    assert result.uncertainty_ns is None


def test_devices_are_processes_of_their_own(tmp_path: Path) -> None:
    """Kernels on streams, under the labels that the profiler gives."""
    TraceMaking(host="h", monotonic=10 * S, realtime=NOW).write(tmp_path / "trace" / "a.pftrace")
    names = [
        {"ph": "M", "name": "process_name", "pid": 0, "tid": 0, "ts": 0, "args": {"name": "python"}},
        {"ph": "M", "name": "process_labels", "pid": 0, "tid": 0, "ts": 0, "args": {"labels": "GPU 0"}},
        {"ph": "M", "name": "thread_name", "pid": 0, "tid": 7, "ts": 0, "args": {"name": "stream 7"}},
    ]
    path = profile(tmp_path / "k.json", *names, op("kernel", 5, 1, pid=0, tid=7), op("mm", 1, 9))
    merge(tmp_path / "trace", tmp_path / "m.pftrace", kineto=[path])
    threads = (
        "select distinct process.name as p, thread.name as t from slice join thread_track on track_id = thread_track.id"
    )
    (rows,) = query(tmp_path / "m.pftrace", f"{threads} join thread using (utid) join process using (upid)")
    assert {(row["p"], row["t"]) for row in rows} >= {("torch.profiler (GPU 0)", "stream 7")}
    assert "torch.profiler (10)" in {row["p"] for row in rows}


def test_what_is_skipped_is_counted(tmp_path: Path) -> None:
    skipped: Counter[str] = Counter()
    with converted([profile(tmp_path / "k.json", op("mm", 1, 1), {"ph": "X", "name": "no time"})], skipped) as made:
        assert [each.original.name for each in made] == ["k.json"]
        assert made[0].pids == {10}
    assert sum(skipped.values()) == 1
    assert next(iter(skipped)).startswith("k.json: ")
    assert not made[0].native.path.exists()


def test_one_that_does_not_say_when_it_was_is_refused(tmp_path: Path) -> None:
    TraceMaking(host="h").write(tmp_path / "trace" / "a.pftrace")
    path = profile(tmp_path / "k.json", op("mm", 1, 1), base=None)
    with pytest.raises(TraceError, match=f"{path}: its times count from nothing that is known"):
        merge(tmp_path / "trace", tmp_path / "m.pftrace", kineto=[path])
    assert not (tmp_path / "m.pftrace").exists()


def test_one_that_is_no_profile_is_refused(tmp_path: Path) -> None:
    TraceMaking(host="h").write(tmp_path / "trace" / "a.pftrace")
    (tmp_path / "k.json").write_text("no json")
    with pytest.raises(TraceError, match=str(tmp_path / "k.json")):
        merge(tmp_path / "trace", tmp_path / "m.pftrace", kineto=[tmp_path / "k.json"])


def test_one_that_is_not_there_is_said(tmp_path: Path) -> None:
    TraceMaking(host="h").write(tmp_path / "trace" / "a.pftrace")
    with pytest.raises(TraceError, match=f"{tmp_path}/no.json: no such file; expected an export of torch.profiler"):
        merge(tmp_path / "trace", tmp_path / "m.pftrace", kineto=[tmp_path / "no.json"])
    assert not (tmp_path / "m.pftrace").exists()
