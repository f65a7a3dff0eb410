"""Traces of other programs as native ones, read back with the real trace processor."""

import asyncio
import gzip
import json
import random
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from export.making import TIME_NS, run_python
from realparts import requirements
from realparts.areal import real_modules
from realparts.trace_processor import Row, query
from rltel.core.errors import TraceError
from rltel.traces import convert as module
from rltel.traces.convert import UNKNOWN, WALL, Converted, convert
from rltel.traces.merge import merge
from rltel.traces.reader import read_packets
from rltel.traces.sorting import Sorter

FAULTS = "select name, value from stats where severity in ('error', 'data_loss') and value > 0"
SLICES = """
select slice.name, slice.ts, slice.dur, slice.depth, slice.category, slice.track_id as track, parent.name as parent,
  thread.name as thread, thread.tid, coalesce(of_thread.name, of_process.name) as process,
  coalesce(of_thread.pid, of_process.pid) as pid
from slice left join slice parent on slice.parent_id = parent.id
left join thread_track on slice.track_id = thread_track.id left join thread using (utid)
left join process of_thread on thread.upid = of_thread.upid
left join process_track on slice.track_id = process_track.id
left join process of_process on process_track.upid = of_process.upid
order by slice.ts, slice.depth, slice.name
"""
ARGS = "select slice.name as slice, key, display_value as value from slice join args using (arg_set_id)"
FLOWS = """
select sender.name as sender, receiver.name as receiver from flow
join slice sender on flow.slice_out = sender.id join slice receiver on flow.slice_in = receiver.id order by 1, 2
"""
COUNTERS = """
select track.name, counter.ts, counter.value, process.name as process from counter
join process_counter_track track on counter.track_id = track.id join process using (upid)
order by track.name, counter.ts
"""


class Made:
    """One conversion, and what the trace processor says of it."""

    def __init__(self, folder: Path, *contents: Any) -> None:
        self.output = folder / "out.pftrace"
        sources = []
        for number, content in enumerate(contents):
            source = folder / f"in{number}.json"
            data = content if isinstance(content, (bytes, str)) else json.dumps(content)
            source.write_bytes(data if isinstance(data, bytes) else data.encode())
            sources.append(source)
        self.result: Converted = convert(sources, self.output)
        assert {path.name for path in folder.iterdir()} == {path.name for path in [*sources, self.output]}

    def read(self, *sql: str) -> list[list[Row]]:
        faults, *found = query(self.output, FAULTS, *sql)
        assert faults == []
        return found

    def slices(self, *columns: str) -> list[tuple[Any, ...]]:
        (rows,) = self.read(SLICES)
        return [tuple(row[column] for column in columns) for row in rows]


def x(name: str, ts: float, dur: float, pid: Any = 1, tid: Any = 1, **more: Any) -> dict[str, Any]:
    return {"ph": "X", "name": name, "ts": ts, "dur": dur, "pid": pid, "tid": tid, **more}


def at(ph: str, ts: float, name: str = "", pid: Any = 1, tid: Any = 1, **more: Any) -> dict[str, Any]:
    return {"ph": ph, "name": name, "ts": ts, "pid": pid, "tid": tid, **more}


class TestChromeSlices:
    def test_google_perfetto_4280_an_overlap_makes_two_tracks_and_both_stay_whole(self, tmp_path: Path) -> None:
        made = Made(tmp_path, [x("A", 3, 3.776), x("B", 5, 2)])
        rows = made.slices("name", "ts", "dur", "track", "thread")
        assert [row[:3] for row in rows] == [("A", 3000, 3776), ("B", 5000, 2000)]
        assert rows[0][3] != rows[1][3]
        assert made.result.skipped == {}

    def test_in_any_order_they_nest_by_time(self, tmp_path: Path) -> None:
        events = [x("loop", 0, 100), *(x(f"step {n}", n * 10, 10) for n in range(10))]
        events += [x(f"inner {n}", n * 10, 5) for n in range(10)]
        random.Random(3).shuffle(events)
        rows = Made(tmp_path, events).slices("name", "parent", "dur")
        assert ("loop", None, 100_000) in rows
        for n in range(10):
            assert {(f"step {n}", "loop", 10_000), (f"inner {n}", f"step {n}", 5000)} <= set(rows)

    def test_zero_length_ones_survive(self, tmp_path: Path) -> None:
        rows = Made(tmp_path, [x("a", 1, 0), x("b", 1, 0), x("c", 1, 5), x("d", 6, 0)]).slices("name", "dur")
        assert sorted(rows) == [("a", 0), ("b", 0), ("c", 5000), ("d", 0)]

    def test_touching_ones_touch_however_their_times_are_written(self, tmp_path: Path) -> None:
        """As floats, begin plus duration is off by a nanosecond now and then."""
        text = "".join(
            f'{{"ph":"X","name":"s","pid":1,"tid":1,"ts":{5141159272194000 + n}.{n:03},"dur":1.001}}\n'
            for n in range(300)
        )
        rows = Made(tmp_path, text).slices("dur", "track")
        assert rows == [(1001, rows[0][1])] * 300

    def test_begins_and_ends_are_paired_on_their_thread(self, tmp_path: Path) -> None:
        events = [
            *(at("B", 1, "outer", args={"a": 1}), at("B", 2, "other", tid=2), at("B", 3, "inner"), at("E", 4)),
            *(at("E", 5, tid=2), at("E", 6, args={"b": 2}), at("E", 7), at("B", 8, "open")),
        ]
        made = Made(tmp_path, events)
        rows, args = made.read(SLICES, ARGS)
        assert [(row["name"], row["dur"], row["parent"]) for row in rows] == [
            ("outer", 5000, None),
            ("other", 3000, None),
            ("inner", 1000, "outer"),
            ("open", -1, None),
        ]
        assert {(row["key"], row["value"]) for row in args if row["slice"] == "outer"} == {
            ("debug.a", "1"),
            ("debug.b", "2"),
        }
        assert made.result.skipped == {"end without a begin": 1}

    def test_instants(self, tmp_path: Path) -> None:
        made = Made(tmp_path, [x("s", 0, 9), at("i", 1, "t", s="t"), at("I", 2, "p", s="p"), at("i", 3, "none")])
        assert made.slices("name", "dur", "parent") == [
            ("s", 9000, None),
            ("t", 0, "s"),
            ("p", 0, None),
            ("none", 0, "s"),
        ]

    def test_async_work_is_beside_each_other_and_its_parts_within(self, tmp_path: Path) -> None:
        events = [
            *(at("b", 0, "request", cat="net", id=1), at("b", 1, "request", cat="net", id="0x2")),
            *(at("b", 2, "wait", cat="net", id=1), at("n", 3, "sent", cat="net", id="0x2")),
            *(at("e", 4, "wait", cat="net", id=1), at("e", 5, "request", cat="net", id=1)),
            *(at("e", 6, "request", cat="net", id="0x2"), at("e", 7, "request", cat="net", id=9)),
            at("b", 8, "lost", cat="net", id=7),
        ]
        made = Made(tmp_path, events)
        rows = made.slices("name", "dur", "parent", "process")
        assert rows == [
            ("request", 5000, None, "process 1"),
            ("request", 5000, None, "process 1"),
            ("wait", 2000, "request", "process 1"),
            ("sent", 0, "request", "process 1"),
            ("lost", -1, None, "process 1"),
        ]
        assert made.result.skipped == {"end without a begin": 1}

    def test_arguments_keep_their_structure(self, tmp_path: Path) -> None:
        said = {"n": 2**70, "x": 0.25, "list": [1, [2.5]], "map": {"deep": True}, "none": None}
        (args,) = Made(tmp_path, [x("s", 0, 1, cat="c", args=said)]).read(ARGS)
        assert {row["key"].removeprefix("debug."): row["value"] for row in args} == {
            "n": str(2**70),
            "x": "0.25",
            "list[0]": "1",
            "list[1][0]": "2.5",
            "map.deep": "true",
            "none": "None",
        }


class TestChromeNames:
    def test_they_may_come_last(self, tmp_path: Path) -> None:
        events = [
            *(x("s", 0, 1, 7, 8), at("C", 0, "c", 7, args={"value": 1})),
            at("M", 0, "process_name", 7, args={"name": "learner"}),
            at("M", 0, "thread_name", 7, 8, args={"name": "main"}),
            at("M", 0, "process_sort_index", 7, args={"sort_index": 1}),
        ]
        made = Made(tmp_path, events)
        assert made.slices("process", "pid", "thread", "tid") == [("learner", 7, "main", 8)]
        assert made.result.skipped == {}

    def test_pids_that_are_none_get_one(self, tmp_path: Path) -> None:
        """torch.profiler's: a GPU is process 0, and some have names for numbers."""
        events = [
            x("kernel", 0, 9, 0, 7),
            x("span", 1, 9, "Spans", "PyTorch Profiler"),
            x("host", 2, 9, 0x7F0000000000),
        ]
        rows = Made(tmp_path, events).slices("name", "process", "thread", "dur")
        assert rows == [
            ("kernel", "process 0", "thread 7", 9000),
            ("span", "Spans", "PyTorch Profiler", 9000),
            ("host", f"process {0x7F0000000000}", "thread 1", 9000),
        ]

    def test_processes_of_two_files_are_two_even_with_one_pid(self, tmp_path: Path) -> None:
        made = Made(tmp_path, [x("a", 0, 10)], [x("b", 5, 10)])
        rows = made.slices("name", "dur", "pid")
        assert [row[:2] for row in rows] == [("a", 10_000), ("b", 10_000)]
        assert rows[0][2] == 1
        assert rows[1][2] != 1


class TestChromeCounters:
    def test_each_series_is_a_track(self, tmp_path: Path) -> None:
        events = [
            at("C", 1, "replay_size", args={"value": 3}),
            at("C", 2, "replay_size", args={"value": 4.5}),
            at("C", 3, "memory", args={"used": 1, "free": 2, "unit": "MB"}),
        ]
        made = Made(tmp_path, [*events, at("M", 0, "process_name", args={"name": "p"})])
        (rows,) = made.read(COUNTERS)
        assert [(row["name"], row["ts"], row["value"], row["process"]) for row in rows] == [
            ("memory free", 3000, 2, "p"),
            ("memory used", 3000, 1, "p"),
            ("replay_size", 1000, 3, "p"),
            ("replay_size", 2000, 4.5, "p"),
        ]
        assert made.result.skipped == {"counter's value that is no number": 1}


class TestChromeArrows:
    def flows(self, tmp_path: Path, events: list[dict[str, Any]]) -> tuple[list[tuple[str, str]], dict[str, int]]:
        made = Made(tmp_path, events)
        (rows,) = made.read(FLOWS)
        return [(row["sender"], row["receiver"]) for row in rows], made.result.skipped

    def test_they_lead_from_the_slice_around_one_point_to_that_around_the_other(self, tmp_path: Path) -> None:
        """The trace processor then has them lead from the slice that began first."""
        events = [
            *(x("consumer", 6.5, 20, tid=2), x("producer", 5, 10), x("inner", 6, 2)),
            *(at("s", 7, "a", id=1, cat="c"), at("f", 18, "a", tid=2, id=1, cat="c", bp="e")),
        ]
        assert self.flows(tmp_path, events) == ([("inner", "consumer")], {})

    def test_steps_and_the_next_slice(self, tmp_path: Path) -> None:
        events = [
            *(x("a", 0, 2), x("b", 4, 2, tid=2), x("around", 5, 20, tid=3), x("c", 9, 2, tid=3)),
            *(at("s", 1, id=1), at("t", 5, tid=2, id=1), at("f", 8, tid=3, id=1)),
        ]
        assert self.flows(tmp_path, events) == ([("a", "b"), ("b", "c")], {})

    def test_on_lanes_too(self, tmp_path: Path) -> None:
        events = [x("A", 3, 3.776), x("B", 5, 2), x("C", 9, 1, tid=2)]
        events += [at("s", 6.9, id=1), at("f", 9, tid=2, id=1, bp="e")]
        assert self.flows(tmp_path, events) == ([("B", "C")], {})

    def test_ids_come_again_and_in_other_files(self, tmp_path: Path) -> None:
        events = []
        for n in range(3):
            events += [x(f"a{n}", 10 * n, 2), x(f"b{n}", 10 * n + 5, 2, tid=2)]
            events += [at("s", 10 * n, id=4), at("f", 10 * n + 5, tid=2, id=4, bp="e")]
        assert self.flows(tmp_path, events) == ([(f"a{n}", f"b{n}") for n in range(3)], {})

    def test_those_without_an_end_are_counted(self, tmp_path: Path) -> None:
        events = [
            *(x("a", 0, 2), at("s", 5, id=1), at("f", 1, id=2, bp="e"), at("s", 1), at("s", 1, id=3)),
            at("f", 9, id=3),
        ]
        flows, skipped = self.flows(tmp_path, events)
        assert flows == []
        assert skipped == {
            "arrow outside of any slice": 1,
            "arrow that began nowhere": 1,
            "arrow or async event without an id": 1,
            "arrow to a slice that never began": 1,
        }


class TestBroken:
    def test_an_input_is_not_replaced_by_the_output(self, tmp_path: Path) -> None:
        path = tmp_path / "trace.json"
        path.write_text('[{"ph": "X", "name": "a", "ts": 1, "dur": 2, "pid": 1, "tid": 1}]')
        before = path.read_text()
        with pytest.raises(TraceError, match="is one of the inputs"):
            convert([path], tmp_path / "." / "trace.json")
        assert path.read_text() == before

    def test_one_bad_event_costs_no_other(self, tmp_path: Path) -> None:
        bad = [
            *({"ph": "X"}, {"name": "no phase"}, 5, x("negative", 1, -1), x("no number", "soon", 1), {"ph": 3}),
            *(at("v", 1, "dump"), at("E", 1), x("nan", float("nan"), 1), x("early", -5, 1), at("M", 1, "unheard of")),
        ]
        lines = [json.dumps(event) for event in [x("first", 0, 1), *bad, x("last", 9, 1)]]
        made = Made(tmp_path, "\n".join([*lines, '{"ph": "X", "name": broken}', lines[-1][:20]]))
        assert made.slices("name") == [("first",), ("last",)]
        assert made.result.events == 2
        assert sum(made.result.skipped.values()) == len(bad) + 2
        assert made.result.skipped["'ts' that is no time"] == 2

    @pytest.mark.parametrize("content", ["", "no JSON", "{}", "[]", '{"traceEvents": []}', "\x0a\x03abc", '{"a": 1}'])
    def test_where_nothing_is_it_says_what_was_found_and_what_is_needed(self, tmp_path: Path, content: str) -> None:
        with pytest.raises(TraceError, match=r"in0.json: nothing to draw: .*expected OTLP JSON .* and Chrome JSON"):
            Made(tmp_path, content)
        assert [path.name for path in tmp_path.iterdir()] == ["in0.json"]

    def test_what_was_there_stays_if_it_fails(self, tmp_path: Path) -> None:
        (tmp_path / "out.pftrace").write_bytes(b"of yesterday")
        with pytest.raises(TraceError):
            Made(tmp_path, "nothing")
        assert (tmp_path / "out.pftrace").read_bytes() == b"of yesterday"

    def test_a_cut_gzip_gives_what_it_holds(self, tmp_path: Path) -> None:
        lines = "".join(json.dumps(x(f"s{n}", n, 1)) + "\n" for n in range(5000))
        packed = gzip.compress(lines.encode())
        made = Made(tmp_path, packed[: len(packed) // 2])
        assert made.result.events > 1000
        assert made.result.skipped.pop("gzip cut off") == 1
        assert sum(made.result.skipped.values()) <= 1
        made.read("select 1")


class TestClocks:
    def test_torch_profiler_s_times_are_the_wall_clock_s(self, tmp_path: Path) -> None:
        base = TIME_NS // 10**9 * 10**9
        made = Made(tmp_path, {"baseTimeNanoseconds": base, "traceEvents": [x("s", 5141159272194.658, 1.5)]})
        assert made.result.clock == WALL
        (rows,) = made.read("select to_realtime(ts) as at, dur from slice")
        assert rows == [{"at": base + 5141159272194658, "dur": 1500}]

    def test_the_base_may_come_behind_the_events(self, tmp_path: Path) -> None:
        made = Made(tmp_path, {"traceEvents": [x("s", 1, 1)], "baseTimeNanoseconds": TIME_NS})
        assert made.read("select to_realtime(ts) as at from slice") == [[{"at": TIME_NS + 1000}]]

    def test_times_since_the_epoch_are_known_by_their_size(self, tmp_path: Path) -> None:
        made = Made(tmp_path, [x("s", TIME_NS // 1000, 1)])
        assert made.result.clock == WALL

    def test_others_stay_as_they_are_and_merge_refuses_them(self, tmp_path: Path) -> None:
        made = Made(tmp_path, [x("s", 12.5, 1)])
        assert made.result.clock == UNKNOWN
        assert made.slices("ts") == [(12_500,)]
        with pytest.raises(TraceError, match=r"out.pftrace: has no clock anchor"):
            merge(tmp_path, tmp_path / "merged")

    def test_the_two_do_not_go_into_one_file(self, tmp_path: Path) -> None:
        with pytest.raises(TraceError, match=r"in1.json: .*cannot be in one file; convert them one by one"):
            Made(tmp_path, [x("s", 12.5, 1)], [x("s", TIME_NS // 1000, 1)])

    def test_what_has_the_wall_clock_merges(self, tmp_path: Path) -> None:
        Made(tmp_path, [x("s", TIME_NS // 1000, 1)])
        merge(tmp_path, tmp_path / "merged")
        faults, rows = query(tmp_path / "merged", FAULTS, "select ts, dur from slice")
        assert faults == []
        assert rows == [{"ts": TIME_NS // 1000 * 1000, "dur": 1000}]


class TestDialects:
    def test_areal_s_lines(self, tmp_path: Path) -> None:
        """Times count from the tracer's start; concurrent asyncio scopes overlap on one thread."""
        args = {"rank": 0, "role": "actor"}
        lines = [
            at("M", 0, "process_name", 100, 100, args={"name": "[actor] Rank 0, Process"}),
            at("M", 0, "process_sort_index", 100, 100, args={"sort_index": 0}),
            *(x(f"rollout {n}", 10 + n, 100, 100, 200, cat="compute", args=args) for n in range(3)),
            at("i", 50, "checkpoint", 100, 200, cat="io", s="t", args=args),
        ]
        made = Made(tmp_path, "".join(json.dumps(line) + "\n" for line in lines))
        rows = made.slices("name", "dur", "depth", "process", "category")
        assert [row for row in rows if row[0] != "checkpoint"] == [
            (f"rollout {n}", 100_000, 0, "[actor] Rank 0, Process", "compute") for n in range(3)
        ]
        assert made.result == Converted(made.output, 4, {}, UNKNOWN)

    def test_unilab_s_object(self, tmp_path: Path) -> None:
        unilab = {
            "traceEvents": [
                {"name": "process_name", "ph": "M", "pid": 10, "tid": 0, "args": {"name": "learner"}},
                {"name": "thread_name", "ph": "M", "pid": 10, "tid": 1, "args": {"name": "learner"}},
                x("learner/update_actor", 1000.125, 50.5, 10, 1, cat="learner", args={"iteration": 3}),
                x("gpu/replay_pipeline_batch_gather", 1000, 4, 10, 9001, cat="gpu"),
                x("gpu/replay_pipeline_storage_h2d", 1001, 4, 10, 9001, cat="gpu"),
                at("C", 1000, "replay_size", 10, 1, cat="replay", args={"value": 128}),
            ],
            "displayTimeUnit": "ms",
        }
        made = Made(tmp_path, unilab)
        rows, counters = made.read(SLICES, COUNTERS)
        assert [(row["name"], row["ts"], row["dur"]) for row in rows] == [
            ("gpu/replay_pipeline_batch_gather", 1_000_000, 4000),
            ("learner/update_actor", 1_000_125, 50_500),
            ("gpu/replay_pipeline_storage_h2d", 1_001_000, 4000),
        ]
        assert [(row["name"], row["value"], row["process"]) for row in counters] == [("replay_size", 128, "learner")]
        assert made.result.skipped == {}

    def test_unilab_s_own_recorder(self, tmp_path: Path) -> None:
        package = requirements.tools_dir() / "unilab"
        package = requirements.require(
            "unilab-rl", package if package.is_dir() else None, "run tests/tools/get_unilab.sh"
        )
        path = tmp_path / "unilab.json"
        ran = run_python(UNILAB, path, PYTHONPATH=str(package))
        assert ran.returncode == 0, ran.stderr
        result = convert([path], tmp_path / "out.pftrace")
        faults, rows, counters = query(tmp_path / "out.pftrace", FAULTS, SLICES, COUNTERS)
        assert faults == []
        assert [(row["name"], row["dur"], row["process"]) for row in rows] == [
            ("update", 3_000_001, "learner"),
            ("add", 2_000_000, "learner"),
        ]
        assert [(row["name"], row["value"]) for row in counters] == [("replay_size", 7)]
        assert result == Converted(tmp_path / "out.pftrace", 3, {}, UNKNOWN)

    def test_areal_s_own_tracer(self, tmp_path: Path) -> None:
        def begin(module: Any) -> None:
            config = SimpleNamespace(
                experiment_name="e",
                trial_name="t",
                fileroot=str(tmp_path),
                enabled=True,
                save_interval=1,
                profile_steps=None,
                session_tracer=None,
            )
            module.configure(config, rank=0)

        configs = ModuleType("areal.api.cli_args")
        configs.PerfTracerConfig = configs.SessionTracerConfig = SimpleNamespace  # type: ignore[attr-defined]
        with real_modules("areal.utils.perf_tracer") as (module,):
            sys.modules["areal.api.cli_args"] = configs
            begin(module)

            async def rollout(number: int) -> None:
                async with module.atrace_scope(f"rollout {number}", category="compute", args={"number": number}):
                    await asyncio.sleep(0.002 * (3 - number))

            async def main() -> None:
                await asyncio.gather(*map(rollout, range(3)))

            asyncio.run(main())
            module.instant("checkpoint", category="io")
            module.save(force=True)
            module.reset()
        (path,) = tmp_path.rglob("*.jsonl")
        result = convert([path], tmp_path / "out.pftrace")
        faults, rows, args = query(tmp_path / "out.pftrace", FAULTS, SLICES, ARGS)
        assert faults == []
        written = [json.loads(line) for line in path.read_text().splitlines()]
        truth = {each["name"]: round(each["dur"] * 1000) for each in written if each["ph"] == "X"}
        assert len(truth) == 3
        assert {row["name"]: row["dur"] for row in rows} == {**truth, "checkpoint": 0}
        assert {"slice": "rollout 2", "key": "debug.number", "value": "2"} in args
        assert result.skipped == {}

    def test_torch_profiler_s_own_export(self, tmp_path: Path) -> None:
        path = tmp_path / "kineto.json.gz"
        ran = run_python(PROFILED, path, timeout=240)
        assert ran.returncode == 0, ran.stderr
        written = json.loads(gzip.decompress(path.read_bytes()))["traceEvents"]
        result = convert([path], tmp_path / "out.pftrace")
        faults, rows, flows, args = query(tmp_path / "out.pftrace", FAULTS, SLICES, FLOWS, ARGS)
        assert faults == []
        truth = sorted((each["name"], round(each["dur"] * 1000)) for each in written if each["ph"] == "X")
        instants = sorted((each["name"], 0) for each in written if each["ph"] == "i")
        assert sorted((row["name"], row["dur"]) for row in rows) == sorted(truth + instants)
        parents = {row["name"]: row["parent"] for row in rows}
        assert parents["aten::mm"] == "aten::matmul"
        assert parents["aten::matmul"] == "my step"
        assert {"sender": "aten::mul", "receiver": "MulBackward0"} in flows
        assert any(row["key"].startswith("debug.Input Dims") for row in args)
        assert result.clock == WALL
        assert result.skipped == {}


UNILAB = """
import sys
from uni_rl.logging.trace_event import TraceRecorder
recorder = TraceRecorder("learner")
recorder.add_slice("update", category="learner", start_ns=1_000_000_123, end_ns=1_003_000_124)
recorder.add_slice("add", category="replay", start_ns=1_001_000_000, end_ns=1_003_000_000)
recorder.add_counter("replay_size", 7, category="replay", timestamp_ns=1_002_000_000)
recorder.write_json(sys.argv[1])
"""
PROFILED = """
import sys, torch
from torch.profiler import ProfilerActivity, profile, record_function
with profile(activities=[ProfilerActivity.CPU], record_shapes=True) as profiled, record_function("my step"):
    x = torch.randn(8, 8)
    (x @ x).sum()
    x.requires_grad_()
    (x * x).sum().backward()
profiled.export_chrome_trace(sys.argv[1])
"""


def attribute(key: str, **value: Any) -> dict[str, Any]:
    return {"key": key, "value": value}


TRACE, ROOT, CHILD, OTHER = (
    "5b8efff798038103d269b633813fc60c",
    "eee19b7ec3c1b174",
    "eee19b7ec3c1b173",
    "00000000000000ff",
)
OTLP = {
    "resourceSpans": [
        {
            "resource": {
                "attributes": [
                    attribute("service.name", stringValue="trainer"),
                    attribute("process.pid", intValue="4242"),
                    attribute("host.name", stringValue="h1"),
                ]
            },
            "scopeSpans": [
                {
                    "scope": {"name": "my.scope", "version": "1"},
                    "spans": [
                        {
                            "traceId": TRACE,
                            "spanId": CHILD,
                            "parentSpanId": ROOT,
                            "name": "sample",
                            "kind": 3,
                            "startTimeUnixNano": str(TIME_NS),
                            "endTimeUnixNano": str(TIME_NS + 40),
                            "attributes": [
                                attribute("n", intValue="7"),
                                attribute("x", doubleValue=0.5),
                                attribute("b", boolValue=True),
                                attribute("a", arrayValue={"values": [{"intValue": 1}, {"stringValue": "s"}]}),
                                attribute("m", kvlistValue={"values": [attribute("k", stringValue="v")]}),
                            ],
                            "events": [{"timeUnixNano": str(TIME_NS + 20), "name": "token"}],
                            "status": {"code": 2, "message": "broken"},
                        },
                        {
                            "traceId": TRACE,
                            "spanId": OTHER,
                            "parentSpanId": ROOT,
                            "name": "reward",
                            "kind": "SPAN_KIND_INTERNAL",
                            "startTimeUnixNano": TIME_NS + 30,
                            "endTimeUnixNano": TIME_NS + 80,
                            "links": [{"traceId": TRACE, "spanId": CHILD}],
                        },
                        {
                            "traceId": TRACE,
                            "spanId": ROOT,
                            "name": "loop",
                            "startTimeUnixNano": str(TIME_NS),
                            "endTimeUnixNano": str(TIME_NS + 100),
                        },
                    ],
                }
            ],
        }
    ]
}


def snake(value: Any) -> Any:
    """The same, as writers write it that keep the schema's names."""
    if isinstance(value, dict):
        return {
            "".join(f"_{c.lower()}" if c.isupper() else c for c in key): snake(inner) for key, inner in value.items()
        }
    return [snake(inner) for inner in value] if isinstance(value, list) else value


def in_base64(text: str) -> str:
    for id, coded in ((TRACE, "W47/95gDgQPSabYzgT/GDA=="), (ROOT, "7uGbfsPBsXQ="), (CHILD, "7uGbfsPBsXM=")):
        text = text.replace(id, coded)
    return text


class TestOtlp:
    @pytest.mark.parametrize(
        "content",
        [
            json.dumps(OTLP) + "\n",
            json.dumps(OTLP, indent=2),
            json.dumps(snake(OTLP)),
            in_base64(json.dumps(OTLP)),
            gzip.compress(json.dumps(OTLP).encode()),
            json.dumps(OTLP)
            .replace("scopeSpans", "instrumentationLibrarySpans")
            .replace('"scope"', '"instrumentationLibrary"'),
        ],
        ids=["a line", "pretty", "names of the schema", "ids in base64", "gzip", "before 2022"],
    )
    def test_all_that_a_span_can_say(self, tmp_path: Path, content: str | bytes) -> None:
        made = Made(tmp_path, content)
        rows, flows, args, at = made.read(
            SLICES, FLOWS, ARGS, "select name, to_realtime(ts) as at from slice order by id"
        )
        assert [(row["name"], row["dur"], row["parent"], row["process"], row["category"]) for row in rows] == [
            ("loop", 100, None, "trainer", "my.scope"),
            ("sample", 40, "loop", "trainer", "my.scope"),
            ("token", 0, "sample", "trainer", "my.scope"),
            ("reward", 50, None, "trainer", "my.scope"),
        ]
        assert {row["pid"] for row in rows} == {4242}
        assert {row["name"]: row["at"] - TIME_NS for row in at} == {"loop": 0, "sample": 0, "token": 20, "reward": 30}
        assert flows == [{"sender": "sample", "receiver": "reward"}]
        said = {row["key"]: row["value"] for row in args if row["slice"] == "sample"}
        assert said == {
            "debug.n": "7",
            "debug.x": "0.5",
            "debug.b": "true",
            "debug.a[0]": "1",
            "debug.a[1]": "s",
            "debug.m.k": "v",
            "debug.trace_id": TRACE,
            "debug.span_id": CHILD,
            "debug.parent_span_id": ROOT,
            "debug.otel_kind": "CLIENT",
            "debug.otel_status_code": "ERROR",
            "debug.otel_status_description": "broken",
        }
        assert made.result == Converted(made.output, 4, {}, WALL)

    def test_a_resource_is_a_process_in_all_files(self, tmp_path: Path) -> None:
        later = json.loads(json.dumps(OTLP).replace(CHILD, "1" * 16).replace('"trainer"', '"rollout"'))
        made = Made(tmp_path, json.dumps(OTLP) + "\n" + json.dumps(OTLP).replace(TRACE, "2" * 32), later)
        (rows,) = made.read("select name, pid from process where name is not null order by pid")
        assert [row["name"] for row in rows] == ["trainer", "rollout"]
        assert rows[0]["pid"] == 4242
        assert made.result.events == 12

    def test_a_link_leads_to_all_that_link(self, tmp_path: Path) -> None:
        spans = OTLP["resourceSpans"][0]["scopeSpans"][0]["spans"]
        again = {**spans[1], "spanId": "00000000000000fe", "name": "again"}
        changed = json.loads(json.dumps(OTLP))
        changed["resourceSpans"][0]["scopeSpans"][0]["spans"].append(again)
        (flows,) = Made(tmp_path, changed).read(FLOWS)
        assert flows == [{"sender": "sample", "receiver": name} for name in ("again", "reward")]

    def test_what_has_no_time_or_no_sense_is_counted(self, tmp_path: Path) -> None:
        good = json.dumps(OTLP)
        bad = [
            {"resourceSpans": [{"scopeSpans": [{"spans": [{"name": "no id"}, 5]}]}]},
            {"resourceMetrics": []},
            [1],
        ]
        made = Made(tmp_path, "\n".join([good, *map(json.dumps, bad), good[:500]]))
        assert made.result.events == 4
        assert made.result.skipped["span without a start time or an id"] == 1
        assert made.result.skipped["spans: not an object"] == 1
        assert sum(made.result.skipped.values()) >= 4

    def test_one_that_has_not_ended_is_open(self, tmp_path: Path) -> None:
        span = {"traceId": TRACE, "spanId": ROOT, "name": "s", "startTimeUnixNano": TIME_NS}
        made = Made(tmp_path, {"resourceSpans": [{"scopeSpans": [{"spans": [span]}]}]})
        assert made.slices("name", "dur", "process") == [("s", -1, "unknown_service")]


def test_more_than_fits_into_memory_goes_through_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "Sorter", lambda folder: Sorter(folder, run=50))
    monkeypatch.setattr(module, "_BLOCK_BYTES", 1000)
    events = [x("loop", 0, 10_000, args={"a": [1, 2.5, None]}), *(x(f"s{n % 7}", n * 10, 9) for n in range(1000))]
    random.Random(5).shuffle(events)
    made = Made(tmp_path, events)
    assert made.result.events == 1001
    rows = made.slices("depth", "dur")
    assert sorted(rows) == [(0, 10_000_000), *[(1, 9000)] * 1000]


def test_our_own_reader_reads_it_and_names_do_not_pile_up(tmp_path: Path) -> None:
    """Every slice has a name of its own: after 16,384 the table begins anew."""
    made = Made(tmp_path, "".join(json.dumps(x(f"name {n}", n, 1)) + "\n" for n in range(40_000)))
    packets = list(read_packets(made.output))
    assert sum(packet.HasField("track_event") for packet in packets) == 80_000
    (rows,) = made.read("select count(distinct name) as names from slice")
    assert rows == [{"names": 40_000}]


def test_progress_is_told_by_bytes(tmp_path: Path) -> None:
    source = tmp_path / "in.json"
    source.write_text("".join(json.dumps(x("s", n, 1)) + "\n" for n in range(50_000)))
    seen: list[tuple[Path, int, int]] = []
    convert([source], tmp_path / "out.pftrace", lambda *said: seen.append(said))
    size = source.stat().st_size
    assert seen[0] == (source, 0, size)
    assert seen[-1] == (source, size, size)
    assert len(seen) > 3


def test_what_is_native_already_is_said_to_be(tmp_path: Path) -> None:
    """Also behind a new line, a byte that begins a packet, JSON is JSON."""
    source = tmp_path / "a.json"
    source.write_text("\n" + json.dumps([x("a", 1, 2)]))
    native = convert([source], tmp_path / "a.pftrace").path
    with pytest.raises(TraceError, match=f"{native}: is a native trace already: nothing to convert"):
        convert([source, native], tmp_path / "b.pftrace")


def test_a_folder_is_no_input(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match=f"{tmp_path}: is a folder; expected OTLP JSON"):
        convert([tmp_path], tmp_path / "b.pftrace")
