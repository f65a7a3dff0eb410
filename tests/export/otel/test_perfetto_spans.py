"""An OpenTelemetry program's spans as a Perfetto file: the real SDK in, the real trace processor out."""

import asyncio
import logging
import os
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SimpleSpanProcessor, SpanExportResult
from opentelemetry.trace import Link, SpanKind, Status, StatusCode

from export.making import TIME_NS, FakeClock, run_python
from realparts.perfetto_reader import read_packets
from realparts.trace_processor import Row, query
from rltel.export.otel.perfetto_spans import PerfettoSpanExporter
from rltel.traces.merge import merge

FAULTS = "select name, value from stats where severity in ('error', 'data_loss') and value > 0"
SLICES = """
select slice.id, slice.name, slice.ts, slice.ts + offset.ns as at, slice.dur, slice.depth, slice.category,
  slice.track_id as track, parent.name as parent, process.name as process
from slice left join slice parent on slice.parent_id = parent.id
join process_track on slice.track_id = process_track.id join process using (upid)
join (select clock_value - ts as ns from clock_snapshot where clock_name = 'REALTIME') offset
order by slice.ts, slice.depth
"""
ARGS = "select slice.name as slice, key, display_value as value from slice join args using (arg_set_id)"
FLOWS = """
select sender.name as sender, receiver.name as receiver from flow
join slice sender on flow.slice_out = sender.id join slice receiver on flow.slice_in = receiver.id order by 1, 2
"""


class Program:
    """A program with the SDK set up, and what its file holds."""

    def __init__(self, path: Path, *, batched: bool = True) -> None:
        self.path = path
        self.exporter = PerfettoSpanExporter(path)
        resource = Resource({"service.name": "trainer", "host.name": "h", "rank": 3})
        self.provider = TracerProvider(resource=resource, shutdown_on_exit=False)
        processor = BatchSpanProcessor if batched else SimpleSpanProcessor
        self.provider.add_span_processor(processor(self.exporter))
        self.tracer = self.provider.get_tracer("my.scope")

    def read(self, *sql: str) -> list[list[Row]]:
        self.provider.shutdown()
        faults, *found = query(self.path, FAULTS, *sql)
        assert faults == []
        return found


@pytest.fixture(params=[True, False], ids=["batched", "one by one"])
def program(tmp_path: Path, request: pytest.FixtureRequest) -> Program:
    return Program(tmp_path / "spans.pftrace", batched=request.param)


@pytest.fixture
def away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory of its own, and nothing said about files."""
    for name in ("OTEL_EXPORTER_PERFETTO_FILE", "RLTEL_RUN_DIR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def span(name: str, begin: int, end: int, program: Program, **more: Any) -> ReadableSpan:
    """A finished span at times that are given."""
    made = program.tracer.start_span(name, start_time=TIME_NS + begin, **more)
    made.end(TIME_NS + end)
    assert isinstance(made, ReadableSpan)
    return made


class TestOneSpan:
    def test_its_times_scope_and_process(self, program: Program) -> None:
        span("s", 0, 7, program)
        ((row,), processes, labels) = program.read(
            SLICES,
            "select name, pid from process where name is not null",
            "select display_value as label from args where key like 'chrome.process_label%'",
        )
        assert (row["at"], row["dur"], row["category"], row["process"]) == (TIME_NS, 7, "my.scope", "trainer")
        assert processes == [{"name": "trainer", "pid": os.getpid()}]
        assert {"host.name=h", "rank=3"} <= {row["label"] for row in labels}

    def test_all_that_a_span_can_say(self, program: Program) -> None:
        made = program.tracer.start_span(
            "s", kind=SpanKind.CLIENT, attributes={"n": 1, "x": 0.5, "b": True, "t": "text", "list": [1, 2]}
        )
        made.add_event("half time", {"score": 2})
        made.set_status(Status(StatusCode.ERROR, "broken"))
        made.end()
        slices, args = program.read("select name, category from slice", ARGS)
        assert [row["name"] for row in slices] == ["s", "half time"]
        said = {(row["slice"], row["key"].removeprefix("debug.")): row["value"] for row in args}
        context = made.get_span_context()
        expected = {
            ("s", "n"): "1",
            ("s", "x"): "0.5",
            ("s", "b"): "true",
            ("s", "t"): "text",
            ("s", "list[1]"): "2",
            ("s", "otel_kind"): "CLIENT",
            ("s", "otel_status_code"): "ERROR",
            ("s", "otel_status_description"): "broken",
            ("s", "trace_id"): f"{context.trace_id:032x}",
            ("s", "span_id"): f"{context.span_id:016x}",
            ("half time", "score"): "2",
        }
        assert expected.items() <= said.items()

    def test_an_exception_is_an_event(self, program: Program) -> None:
        with pytest.raises(KeyError), program.tracer.start_as_current_span("s"):
            raise KeyError("gone")
        (args,) = program.read(ARGS)
        said = {(row["slice"], row["key"]): row["value"] for row in args}
        assert said["exception", "debug.exception_type"] == "KeyError"
        assert said["s", "debug.otel_status_code"] == "ERROR"

    def test_one_that_ends_before_it_begins_is_kept(self, program: Program) -> None:
        """The wall clock stepped back meanwhile."""
        span("s", 10, 3, program)
        rows, args = program.read(SLICES, ARGS)
        assert [(row["at"], row["dur"]) for row in rows] == [(TIME_NS + 10, 0)]
        assert str(TIME_NS + 3) in {row["value"] for row in args}


class TestParents:
    def test_nested_spans_nest(self, program: Program) -> None:
        with program.tracer.start_as_current_span("loop"):
            for _ in range(50):
                with program.tracer.start_as_current_span("step"), program.tracer.start_as_current_span("inner"):
                    pass
        (rows,) = program.read(SLICES)
        assert {(row["name"], row["parent"]) for row in rows} == {("loop", None), ("step", "loop"), ("inner", "step")}
        assert len({row["track"] for row in rows}) == 1

    def test_overlapping_tasks_stay_whole_and_beside_each_other(self, program: Program) -> None:
        """google/perfetto#4280's kind: on one track, each would end the other."""

        async def rollout(number: int) -> None:
            with program.tracer.start_as_current_span("rollout", attributes={"number": number}):
                with program.tracer.start_as_current_span("generate"):
                    await asyncio.sleep(0.001 * (number % 3))
                with program.tracer.start_as_current_span("reward"):
                    await asyncio.sleep(0.001)

        async def main() -> None:
            await asyncio.gather(*(rollout(number) for number in range(40)))

        truth: dict[tuple[str, int], int] = {}
        export = program.exporter.export

        def spying(spans: Any) -> SpanExportResult:
            truth.update({(each.name, each.start_time): each.end_time - each.start_time for each in spans})
            return export(spans)

        program.exporter.export = spying  # type: ignore[method-assign]
        asyncio.run(main())
        (rows,) = program.read(SLICES)
        assert {(row["name"], row["at"]): row["dur"] for row in rows} == truth
        assert {row["parent"] for row in rows if row["name"] == "rollout"} == {None}
        assert {row["parent"] for row in rows if row["name"] != "rollout"} <= {"rollout", None}
        whole = [row for row in rows if row["name"] == "generate" and row["parent"] == "rollout"]
        assert len(whole) == 40, "each is drawn in its own rollout"

    def test_threads(self, program: Program) -> None:
        barrier = threading.Barrier(8)

        def work(number: int) -> None:
            with program.tracer.start_as_current_span(f"work {number}"):
                barrier.wait(60)
                with program.tracer.start_as_current_span(f"inner {number}"):
                    barrier.wait(60)

        with ThreadPoolExecutor(8) as pool:
            list(pool.map(work, range(8)))
        (rows,) = program.read(SLICES)
        parents = {row["name"]: row["parent"] for row in rows}
        assert {f"inner {number}": f"work {number}" for number in range(8)}.items() <= parents.items()
        assert len({row["track"] for row in rows}) == 8

    def test_threads_that_are_named_have_lanes_of_their_own(self, program: Program) -> None:
        span("s", 0, 10, program, attributes={"thread.id": 5, "thread.name": "loader"})
        (rows,) = program.read("select track.name from slice join track on slice.track_id = track.id")
        assert rows == [{"name": "loader"}]


def test_a_second_provider_s_service_names_its_lanes(tmp_path: Path) -> None:
    program = Program(tmp_path / "t.pftrace")
    span("first", 0, 10, program)
    program.provider.force_flush()
    other = TracerProvider(resource=Resource({"service.name": "collector"}), shutdown_on_exit=False)
    other.add_span_processor(SimpleSpanProcessor(program.exporter))
    other.get_tracer("t").start_span("second", start_time=TIME_NS + 5).end(TIME_NS + 15)
    tracks, processes = program.read(
        "select slice.name, track.name as track from slice join track on slice.track_id = track.id order by slice.ts",
        "select name from process where name is not null",
    )
    assert tracks == [{"name": "first", "track": "spans"}, {"name": "second", "track": "collector spans"}]
    assert processes == [{"name": "trainer"}]


class TestLinks:
    def test_arrows_lead_from_what_is_linked_to(self, program: Program) -> None:
        rollouts = [span(f"rollout {n}", n, n + 5, program) for n in range(3)]
        links = [Link(each.get_span_context(), {"version": n}) for n, each in enumerate(rollouts)]
        span("update", 20, 30, program, links=links)
        flows, args = program.read(FLOWS, ARGS)
        assert flows == [{"sender": f"rollout {n}", "receiver": "update"} for n in range(3)]
        said = {row["key"]: row["value"] for row in args if row["slice"] == "update"}
        assert said["debug.otel_links[2].span_id"] == f"{rollouts[2].get_span_context().span_id:016x}"
        assert said["debug.otel_links[2].attributes.version"] == "2"

    def test_one_that_comes_later_gets_its_arrows_too(self, program: Program) -> None:
        linked = program.tracer.start_span("rollout", start_time=TIME_NS)
        for n in range(2):
            span(f"update {n}", 10 + n, 12 + n, program, links=[Link(linked.get_span_context())])
        linked.end(TIME_NS + 50)
        (flows,) = program.read(FLOWS)
        assert flows == [{"sender": "rollout", "receiver": f"update {n}"} for n in range(2)]

    def test_nothing_is_made_up_where_one_end_is_missing_or_has_an_arrow_already(self, tmp_path: Path) -> None:
        """A flow joins all that have it: a second receiver would look as if it followed from the first."""
        program = Program(tmp_path / "spans.pftrace", batched=False)
        linked = span("rollout", 0, 5, program)
        for n in range(2):
            span(f"update {n}", 10 + n, 12 + n, program, links=[Link(linked.get_span_context())])
        (flows,) = program.read(FLOWS)
        assert flows == [{"sender": "rollout", "receiver": "update 0"}]


class TestFile:
    def test_made_without_arguments_it_goes_where_the_environment_says(
        self, away: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("RLTEL_RUN_DIR", str(away / "run"))
        assert one_file().parent == away / "run" / "trace"
        monkeypatch.setenv("OTEL_EXPORTER_PERFETTO_FILE", str(away / "elsewhere" / "mine.pftrace"))
        assert one_file() == away / "elsewhere" / "mine.pftrace"
        second = one_file()
        assert second.parent == away / "elsewhere", "another process has that name"
        assert second.name.startswith(f"mine.{os.getpid()}-")

    def test_else_into_the_working_directory(self, away: Path) -> None:
        made = {one_file(), one_file()}
        assert len(made) == 2
        assert {path.name for path in made} == {path.name for path in away.glob("spans-*.pftrace")}

    def test_there_is_no_file_before_there_is_a_span(self, away: Path) -> None:
        exporter = PerfettoSpanExporter()
        assert exporter.export([]) is SpanExportResult.SUCCESS
        assert exporter.force_flush()
        exporter.shutdown()
        assert exporter.path is None
        assert list(away.iterdir()) == []

    def test_cut_anywhere_it_loads(self, tmp_path: Path) -> None:
        program = Program(tmp_path / "spans.pftrace", batched=False)
        for n in range(30):
            span(f"s{n}", n, n + 5, program)
        program.provider.shutdown()
        whole = program.path.read_bytes()
        counts = []
        for cut in range(0, len(whole), len(whole) // 40):
            program.path.write_bytes(whole[:cut])
            counts.append(sum(packet.HasField("track_event") for packet in read_packets(program.path)))
        assert counts == sorted(counts)
        assert counts[-1] > 50
        program.path.write_bytes(whole[: len(whole) * 2 // 3])
        faults, slices = query(program.path, FAULTS, "select count() as n from slice where dur = 5")
        assert faults == []
        assert slices[0]["n"] > 10

    def test_merge_takes_it(self, tmp_path: Path) -> None:
        (tmp_path / "run" / "trace").mkdir(parents=True)
        program = Program(tmp_path / "run" / "trace" / "spans.pftrace")
        span("s", 0, 7, program)
        program.provider.shutdown()
        merge(tmp_path / "run", tmp_path / "merged.pftrace")
        faults, rows = query(tmp_path / "merged.pftrace", FAULTS, SLICES)
        assert faults == []
        assert [(row["ts"], row["dur"]) for row in rows] == [(TIME_NS, 7)]

    def test_a_forked_child_has_a_file_of_its_own(self, tmp_path: Path) -> None:
        ran = run_python(FORKING, tmp_path / "spans.pftrace")
        assert ran.returncode == 0, ran.stderr
        found = {path: [row["name"] for row in query(path, "select name from slice")[0]] for path in tmp_path.iterdir()}
        assert sorted(found.values()) == [["child"], ["parent", "parent again"]]
        assert found[tmp_path / "spans.pftrace"] == ["parent", "parent again"]


FORKING = """
import os, sys
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from rltel.export.otel.perfetto_spans import PerfettoSpanExporter
provider = TracerProvider()
provider.add_span_processor(BatchSpanProcessor(PerfettoSpanExporter(sys.argv[1])))
tracer = provider.get_tracer("t")
tracer.start_span("parent").end()
provider.force_flush()
if os.fork() == 0:
    tracer.start_span("child").end()
    provider.force_flush()
    os._exit(0)
assert os.wait()[1] == 0
tracer.start_span("parent again").end()
provider.shutdown()
"""


def one_file() -> Path:
    """Where an exporter that was made as the entry point makes it writes to."""
    exporter = PerfettoSpanExporter()
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    provider.get_tracer("t").start_span("s").end()
    provider.shutdown()
    assert exporter.path is not None
    assert exporter.path.stat().st_size > 0
    return exporter.path.absolute()


class TestFailures:
    @pytest.fixture
    def spans(self, tmp_path: Path) -> Iterator[list[ReadableSpan]]:
        program = Program(tmp_path / "other.pftrace")
        yield [span("s", 0, 5, program)]
        program.provider.shutdown()

    def test_a_disk_error_is_a_failure_said_once(
        self, tmp_path: Path, spans: list[ReadableSpan], caplog: pytest.LogCaptureFixture
    ) -> None:
        (tmp_path / "file").touch()
        exporter = PerfettoSpanExporter(tmp_path / "file" / "below.pftrace")
        with caplog.at_level(logging.WARNING, "rltel"):
            assert {exporter.export(spans) for _ in range(3)} == {SpanExportResult.FAILURE}
        assert len(caplog.records) == 1
        assert "below.pftrace" in caplog.text

    def test_after_a_full_disk_the_file_is_whole(
        self, tmp_path: Path, spans: list[ReadableSpan], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        exporter = PerfettoSpanExporter(tmp_path / "t.pftrace", FakeClock())
        real = os.write
        with monkeypatch.context() as full:
            full.setattr(os, "write", lambda descriptor, data: real(descriptor, data[:20]))
            assert exporter.export(spans) is SpanExportResult.FAILURE
        assert exporter.export(spans) is SpanExportResult.SUCCESS
        with monkeypatch.context() as full:
            full.setattr(os, "write", lambda descriptor, data: real(descriptor, data[:20]))
            assert exporter.export(spans) is SpanExportResult.FAILURE
        assert exporter.export(spans) is SpanExportResult.SUCCESS
        exporter.shutdown()
        faults, rows = query(tmp_path / "t.pftrace", FAULTS, SLICES)
        assert faults == []
        assert [(row["name"], row["process"], row["dur"]) for row in rows] == [("s", "trainer", 5)] * 2

    def test_a_span_that_cannot_be_drawn_costs_no_other(
        self, tmp_path: Path, spans: list[ReadableSpan], caplog: pytest.LogCaptureFixture
    ) -> None:
        program = Program(tmp_path / "unused.pftrace")
        early = span("before 1970", -2 * TIME_NS, 5, program)
        late = program.tracer.start_span("bad event")
        late.add_event("e", timestamp=-5)
        late.end()
        exporter = PerfettoSpanExporter(tmp_path / "t.pftrace")
        assert isinstance(late, ReadableSpan)
        assert exporter.export([early, late, *spans]) is SpanExportResult.SUCCESS
        assert "2 spans hold what cannot be drawn" in caplog.text
        faults, rows = query(tmp_path / "t.pftrace", FAULTS, "select name, dur from slice where dur = 5")
        assert faults == []
        assert rows == [{"name": "s", "dur": 5}]
        program.provider.shutdown()

    def test_after_shutdown_it_takes_nothing(self, tmp_path: Path, spans: list[ReadableSpan]) -> None:
        exporter = PerfettoSpanExporter(tmp_path / "t.pftrace")
        exporter.shutdown()
        assert exporter.export(spans) is SpanExportResult.FAILURE
        assert not (tmp_path / "t.pftrace").exists()
