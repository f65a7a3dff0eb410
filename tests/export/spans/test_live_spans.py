"""A user's own TracerProvider gets it all: what is open now as live spans, the rest afterwards, in one tree."""

import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import Decision as Decide
from opentelemetry.sdk.trace.sampling import ParentBased, Sampler, SamplingResult
from opentelemetry.trace import StatusCode, format_span_id, format_trace_id

from export.making import PATIENT
from realparts.otlp_receiver import otlp_sink
from rltel.core.context import inject
from rltel.export.spans.live_tracer import Contexts
from rltel.process import Process
from rltel.record.lane import Lane
from rltel.record.phase_sets import phase_set
from rltel.record.phases import PhaseClock
from rltel.record.recorder import Recorder
from rltel.record.records import Ids, Site
from rltel.record.spans import Span
from rltel.telemetry import Telemetry

NAMES = {"iteration": "rl.loop", "rollout": "rl.rollout"}


class OwnProvider:
    """A program with a TracerProvider of its own."""

    def __init__(self, tmp_path: Path, sampler: Sampler | None = None, **environ: str) -> None:
        self.exporter = InMemorySpanExporter()
        self.provider = TracerProvider(sampler=sampler, shutdown_on_exit=False)
        self.provider.add_span_processor(SimpleSpanProcessor(self.exporter))
        self.recorder = Recorder()
        settings = {
            "RLTEL_RUN_LOG_ROOT": str(tmp_path / "logs"),
            "RLTEL_TRACE_FLUSH_INTERVAL_S": "3600",  # all comes at the end, and whole, however long the machine takes
            **PATIENT,
        }
        self.process = Process(self.recorder, {**settings, **environ})
        self.tracer = self.provider.get_tracer("user")

    def init(self, config: Any = None) -> Telemetry:
        return self.process.init(config, tracer_provider=self.provider)

    def clock(self) -> PhaseClock:
        return PhaseClock(phase_set("llm", "learner"), self.process.trackers.default, self.recorder)

    def rollout(self, flow: int | None = None, **attributes: Any) -> Span:
        return Span(
            self.recorder, Site("rollout", "rollout", "rl.rollout"), None if flow is None else (flow,), attributes
        )

    def close(self) -> "OwnProvider":
        self.process.shutdown()
        return self

    @property
    def spans(self) -> list[ReadableSpan]:
        return list(self.exporter.get_finished_spans())

    def span(self, name: str) -> ReadableSpan:
        (found,) = [span for span in self.spans if span.name in (name, NAMES.get(name))]
        return found


@pytest.fixture
def own(tmp_path: Path) -> Iterator[OwnProvider]:
    made = OwnProvider(tmp_path)
    yield made
    made.process.shutdown()


def parent(span: ReadableSpan) -> int | None:
    return None if span.parent is None else span.parent.span_id


def id_of(span: ReadableSpan) -> int:
    assert span.context is not None
    return span.context.span_id


def whole(spans: list[ReadableSpan], *known: int) -> bool:
    """Whether every parent is there, in the same trace."""
    traces = {id_of(span): span.context.trace_id for span in spans if span.context}
    return all(
        span.parent is None
        or span.parent.span_id in known
        or traces.get(span.parent.span_id) == (span.context and span.context.trace_id)
        for span in spans
    )


class TestTree:
    def test_iterations_and_rollouts_are_live_and_the_rest_comes_afterwards(self, own: OwnProvider) -> None:
        own.init()
        clock = own.clock()
        with clock.iteration(step=3) as iteration:
            assert iteration._live is not None
            with clock.phase("train", batch=256), own.recorder.slice("inner"):
                pass
            with own.rollout(policy=1):
                pass
        assert own.span("iteration")
        assert own.span("rollout"), "already, before any drain"
        assert len(own.spans) == 2
        own.close()
        loop, train, inner, rollout = (own.span(name) for name in ("iteration", "rl.train", "inner", "rollout"))
        assert [parent(span) for span in (train, inner, rollout)] == [id_of(loop), id_of(train), id_of(loop)]
        assert (parent(loop), loop.attributes and loop.attributes["rl.loop.iteration"]) == (None, 3)
        assert train.attributes is not None
        assert (train.attributes["rl.phase"], train.attributes["batch"]) == ("train", 256)
        assert loop.start_time <= train.start_time <= inner.start_time <= inner.end_time <= train.end_time  # type: ignore[operator]  # ended
        assert whole(own.spans)

    def test_a_user_s_spans_nest_under_ours_and_ours_under_theirs(self, own: OwnProvider) -> None:
        own.init()
        clock = own.clock()
        with own.tracer.start_as_current_span("request"), own.recorder.slice("handling"):
            inference = own.tracer.start_as_current_span("inference")
            with clock.iteration(step=1), clock.phase("sample"), own.rollout(), inference:
                pass
        own.close()
        request, loop, rollout, theirs = (own.span(n) for n in ("request", "iteration", "rollout", "inference"))
        assert [parent(span) for span in (loop, rollout, theirs)] == [id_of(request), id_of(loop), id_of(rollout)]
        assert whole(own.spans)

    def test_what_lies_in_nothing_lies_in_the_process_s_own_span(self, own: OwnProvider) -> None:
        telemetry = own.init()
        with own.recorder.slice("alone"):
            pass
        own.recorder.instant("moment", attributes={"a": 1})
        own.close()
        process = own.span("learner 0")
        assert process.context is not None
        assert (telemetry.root.trace_id, telemetry.root.span_id) == (process.context.trace_id, process.context.span_id)
        assert [parent(own.span(name)) for name in ("alone", "moment")] == [id_of(process)] * 2
        assert own.span("moment").start_time == own.span("moment").end_time
        assert (parent(process), whole(own.spans)) == (None, True)

    def test_an_iteration_in_a_slice_of_no_span_lies_in_the_process(self, own: OwnProvider) -> None:
        """The slice's span does not exist yet."""
        own.init()
        with own.recorder.slice("epoch"), own.clock().iteration(step=1):
            pass
        own.close()
        assert parent(own.span("iteration")) == id_of(own.span("learner 0"))
        assert whole(own.spans)

    def test_the_process_continues_the_trace_of_its_parent(self, tmp_path: Path) -> None:
        own = OwnProvider(tmp_path, TRACEPARENT=f"00-{format_trace_id(5)}-{format_span_id(6)}-01")
        own.init()
        with own.clock().iteration(step=1):
            pass
        own.close()
        process, loop = own.span("learner 0"), own.span("iteration")
        assert (parent(process), parent(loop)) == (6, id_of(process))
        assert {span.context.trace_id for span in own.spans if span.context} == {5}

    def test_threads_tasks_and_slices_begun_explicitly_find_their_parents(self, own: OwnProvider) -> None:
        """Also those whose lanes are read before their parents' are."""
        own.init()
        recorder = own.recorder
        ready, go_on = threading.Event(), threading.Event()
        carried: list[Ids] = []

        def worker() -> None:
            recorder.instant("early")
            ready.set()
            assert go_on.wait(30)
            with recorder.attached(carried[0]), recorder.slice("carried"):
                pass

        thread = threading.Thread(target=worker)
        thread.start()
        assert ready.wait(30)

        async def child(name: str) -> None:
            with recorder.slice(name):
                await asyncio.sleep(0)

        async def main() -> None:
            with recorder.slice("gather"):
                await asyncio.gather(child("one"), child("two"))

        with recorder.slice("outer"):
            here = recorder.origin()
            assert here is not None
            carried.append(here)
            go_on.set()
            thread.join()
            handle = recorder.begin("handle")
            asyncio.run(main())
        handle.end()
        own.close()
        outer, gather = id_of(own.span("outer")), id_of(own.span("gather"))
        parents = {name: parent(own.span(name)) for name in ("carried", "handle", "gather", "one", "two")}
        assert parents == {"carried": outer, "handle": outer, "gather": outer, "one": gather, "two": gather}
        assert whole(own.spans)

    def test_what_is_sent_out_names_a_span_that_exists(self, own: OwnProvider) -> None:
        own.init()
        with own.clock().iteration(step=1):
            sent = inject()["traceparent"]
        own.close()
        assert sent.split("-")[2] == format_span_id(id_of(own.span("iteration")))

    def test_what_begins_while_lanes_are_read_finds_its_parent(self, own: OwnProvider) -> None:
        """The parent's lane has been read before it began, the child's is read when both are there."""
        telemetry = own.init()
        recorder = own.recorder
        recorder.instant("this lane is the first")
        carried: list[Any] = []
        ready, begin, done = threading.Event(), threading.Event(), threading.Event()

        def child() -> None:
            recorder.instant("this lane is the second")
            ready.set()
            begin.wait(60)
            with recorder.attached(carried[0]), recorder.slice("child", flow=7):
                pass
            done.set()

        thread = threading.Thread(target=child)
        thread.start()
        assert ready.wait(60)
        outer = recorder.slice("outer", flow=7)
        lanes = recorder.lanes

        def read_slowly() -> Iterator[Lane]:
            for lane in lanes():
                if lane.thread is thread:
                    outer.__enter__()
                    carried.append(recorder.origin())
                    begin.set()
                    assert done.wait(60)
                yield lane

        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(recorder, "lanes", read_slowly)
            assert telemetry.flush(60)
        outer.__exit__(None, None, None)
        thread.join()
        own.close()
        assert parent(own.span("child")) == id_of(own.span("outer"))
        assert [link.context.span_id for link in own.span("child").links] == [id_of(own.span("outer"))]


class TestWhatSpansHold:
    def test_events_errors_and_what_was_said_at_the_end(self, own: OwnProvider) -> None:
        own.init()
        recorder = own.recorder

        def fails() -> None:
            with own.rollout() as rollout:
                recorder.instant("tool call", attributes={"tool": "python"})
                rollout.set(reward=0.5)
                with recorder.slice("slice", attributes={"shape": (2, 3)}) as opened:
                    recorder.instant("in the slice")
                    opened.set(rows=7)
                    raise ValueError("no")

        with pytest.raises(ValueError, match="no"):
            fails()
        own.close()
        rollout, inner = own.span("rollout"), own.span("slice")
        assert [event.name for event in rollout.events] == ["tool call", "exception"]
        assert [event.name for event in inner.events] == ["in the slice"]
        assert dict(inner.attributes or {}) == {"shape": "(2, 3)", "rows": 7}
        assert (rollout.attributes or {})["reward"] == 0.5
        assert [span.status.status_code for span in (rollout, inner)] == [StatusCode.ERROR] * 2
        assert inner.status.description == "ValueError"

    def test_flows_are_links_to_what_came_before(self, own: OwnProvider) -> None:
        own.init()
        with own.rollout(flow=7):
            pass
        with own.recorder.slice("update", flow=7):
            pass
        own.recorder.place("cuda:0", "kernel", 1, 2, flow=8)
        own.close()
        links = own.span("update").links
        assert [link.context.span_id for link in links] == [id_of(own.span("rollout"))]
        assert (own.span("update").attributes or {})["rl.flow.ids"] == (f"{7:016x}",)
        assert (own.span("kernel").attributes or {})["rl.track"] == "cuda:0"

    def test_what_is_open_at_the_end_is_ended_and_says_so(self, own: OwnProvider) -> None:
        own.init()
        own.recorder.slice("open").__enter__()
        own.recorder.begin("handle")
        own.close()
        assert all((own.span(name).attributes or {})["rltel.open_at_end"] for name in ("open", "handle"))

    def test_cpu_time(self, own: OwnProvider) -> None:
        own.init({"trace": {"thread_time": True}})
        with own.recorder.slice("s"):
            pass
        own.close()
        assert (own.span("s").attributes or {})["rl.thread.cpu_time"] >= 0  # type: ignore[operator]  # a float


class TestSampling:
    def test_what_lies_in_what_is_not_sampled_is_not(self, tmp_path: Path) -> None:
        class NoIterations(Sampler):
            def should_sample(self, *args: Any, **kwargs: Any) -> SamplingResult:
                name = args[2] if len(args) > 2 else kwargs["name"]
                return SamplingResult(Decide.DROP if name in ("iteration", "rl.loop") else Decide.RECORD_AND_SAMPLE)

            def get_description(self) -> str:
                return "no iterations"

        own = OwnProvider(tmp_path, ParentBased(NoIterations()))
        own.init()
        clock = own.clock()
        with clock.iteration(step=1), clock.phase("train"), own.tracer.start_as_current_span("theirs"):
            pass
        with own.recorder.slice("other"):
            pass
        own.close()
        assert sorted(span.name for span in own.spans) == ["learner 0", "other"]

    def test_contexts_are_remembered_within_bounds(self) -> None:
        contexts = Contexts(remembered=3)
        for number in range(1, 10):
            contexts.remember(number, contexts.of(Ids(1, number)))
        assert len(contexts._by_id) == 3


class Broken(SpanProcessor):
    """Of a user: raises for spans of one name."""

    def on_start(self, span: Any, parent_context: Any = None) -> None:
        if span.name == "broken":
            raise RuntimeError("a processor")


class Raises:
    def __str__(self) -> str:
        raise RuntimeError("no text")


class TestFailures:
    def test_a_provider_that_raises_costs_that_span_and_its_children_go_to_its_parent(self, own: OwnProvider) -> None:
        own.provider.add_span_processor(Broken())
        telemetry = own.init()
        with own.recorder.slice("outer"), own.recorder.slice("broken"), own.recorder.slice("inner"):
            pass
        own.close()
        assert parent(own.span("inner")) == id_of(own.span("outer"))
        (account,) = [each for each in telemetry._destinations if each.name == "spans"]
        assert account.dropped_totals == {"unreadable": 1}

    def test_what_cannot_be_read_is_counted(self, own: OwnProvider) -> None:
        telemetry = own.init()
        with own.recorder.slice("s", flow=["no id"], attributes={"a": Raises(), "b": 2}):  # type: ignore[list-item]  # as a program may
            pass
        own.close()
        assert dict(own.span("s").attributes or {}) == {"b": 2}
        (account,) = [each for each in telemetry._destinations if each.name == "spans"]
        assert (account.dropped_totals, account.exported_total) == ({"unreadable": 2}, 2)


def test_nothing_is_sent_to_the_otlp_endpoint_as_spans(own: OwnProvider) -> None:
    with otlp_sink() as receiver:
        telemetry = own.init({"otlp": {"enabled": True, "endpoint": receiver.endpoint}})
        with own.clock().iteration(step=1):
            pass
        telemetry.commit({"x": 1.0}, step=1)
        own.close()
        receiver.wait_for_metric("rl.stats.x")
        assert receiver.spans() == []
    assert "spans of the given TracerProvider" in telemetry.describe()
    assert own.span("iteration")


def test_the_next_telemetry_without_a_provider_starts_nothing_live(own: OwnProvider, tmp_path: Path) -> None:
    own.init()
    own.close()
    before = len(own.spans)
    own.process.init({"trace": {"enabled": True}}, run_dir=tmp_path / "second")
    with own.clock().iteration(step=1) as iteration:
        assert iteration._live is None
    own.close()
    assert len(own.spans) == before
