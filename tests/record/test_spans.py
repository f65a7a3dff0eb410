"""Spans have a real OpenTelemetry context: users' own nest in ours, ours in theirs, over processes too."""

from __future__ import annotations

import asyncio
import gc
import itertools
import logging
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
from opentelemetry import baggage, trace
from opentelemetry import context as otel_context
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode
from tests.realparts.lane_reading import read

import rltel
from rltel.core.context import current, remote_parent
from rltel.record.phase_sets import SAC_LEARNER
from rltel.record.phases import PhaseClock
from rltel.record.recorder import Recorder
from rltel.record.records import Ids, Site
from rltel.record.spans import Span, attached, cause
from rltel.record.tracker import Tracker

SITE = Site("rollout", "rollout", "rl.rollout")
HEADERS = {"traceparent": f"00-{0xABC:032x}-{0xDEF:016x}-01"}


@pytest.fixture
def on() -> Iterator[Recorder]:
    """The process's recorder, on, with a clock that never says the same twice."""
    recorder = rltel.process.recorder
    now, recorder.now = recorder.now, itertools.count(1_000_000_000).__next__
    recorder.start()
    yield recorder
    recorder.reset()
    recorder.now = now


@pytest.fixture
def spans() -> InMemorySpanExporter:
    return InMemorySpanExporter()


@pytest.fixture
def tracer(spans: InMemorySpanExporter) -> trace.Tracer:
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(spans))
    return provider.get_tracer("user")


def parents(spans: InMemorySpanExporter) -> dict[str, int | None]:
    return {span.name: span.parent.span_id if span.parent else None for span in spans.get_finished_spans()}


def span_id(span: Span) -> int:
    assert span.context is not None
    return span.context.span_id


class TestContext:
    def test_is_in_place_inside(self, on: Recorder) -> None:
        with rltel.rollout(3, flow=5, env="x") as rollout:
            here = trace.get_current_span().get_span_context()
            assert here == rollout.context
            assert here.is_valid
            assert here.trace_flags.sampled
            with rltel.slice("a"):
                assert trace.get_current_span().get_span_context() == here  # slices are too many
        assert current() is None
        reading = read(on)
        begin = reading.one("rollout").begin
        assert begin is not None
        assert (begin.ids, begin.parent, begin.span) == ((here.trace_id, here.span_id), None, "ours")
        assert (begin.flows, begin.attributes) == ((5,), {"rl.policy.version": 3, "env": "x"})
        assert reading.parent("a") == "rollout"

    def test_is_none_while_off(self) -> None:
        with rltel.rollout() as rollout:
            assert rollout.context is None
            assert current() is None
            rollout.set(k=1)

    def test_is_restored_after_an_exception(self, on: Recorder) -> None:
        with rltel.rollout() as outer:
            with pytest.raises(KeyError), rltel.rollout():
                raise KeyError
            assert current() == outer.context
        assert current() is None
        assert [drawn.error for drawn in read(on).slices] == [None, "KeyError"]

    def test_begun_while_on_is_restored_while_off(self, on: Recorder) -> None:
        with rltel.rollout():
            on.stop()
        assert current() is None
        assert not read(on).left_open

    def test_is_in_place_although_the_lane_is_full(self) -> None:
        recorder = Recorder(limit=0)
        recorder.start()
        with Span(recorder, SITE) as span:
            span.set(k=1)
            assert current() == span.context
        assert current() is None
        assert recorder.dropped == 1

    def test_of_two_differs(self, on: Recorder) -> None:
        with rltel.rollout() as first:
            pass
        with rltel.rollout() as second:
            pass
        assert first.context is not None
        assert second.context is not None
        assert first.context.trace_id != second.context.trace_id
        assert first.context.span_id != second.context.span_id

    def test_of_tasks_is_their_own(self, on: Recorder, tracer: trace.Tracer, spans: InMemorySpanExporter) -> None:
        ids: dict[str, int] = {}

        async def one(number: int) -> None:
            with rltel.rollout(session=number) as rollout:
                ids[f"inference {number}"] = span_id(rollout)
                await asyncio.sleep(0)
                assert current() == rollout.context
                with tracer.start_as_current_span(f"inference {number}"):
                    await asyncio.sleep(0)
            assert current() == outer.context

        async def main() -> None:
            await asyncio.gather(*(one(number) for number in range(10)))

        with rltel.rollout(session="outer") as outer:
            asyncio.run(main())
        assert parents(spans) == ids
        reading = read(on)
        outermost, *inner = reading.slices
        assert {drawn.parent_id for drawn in inner} == {span_id(outer)}
        assert len({drawn.lane for drawn in inner}) == 10
        assert {drawn.ids.trace_id for drawn in inner} == {outermost.ids.trace_id}

    def test_of_a_process_that_was_started_by_another_continues_its_trace(self, on: Recorder) -> None:
        on.root, on.adopted = Ids(0xA, 0xB), True
        with rltel.rollout() as rollout:
            assert rollout.context is not None
            assert rollout.context.trace_id == 0xA
        assert read(on).one("rollout").parent_id == 0xB

    def test_is_a_trace_of_its_own_in_a_process_that_stands_alone(self, on: Recorder) -> None:
        on.root = Ids(0xA, 0xB)
        with rltel.rollout() as rollout:
            assert rollout.context is not None
            assert rollout.context.trace_id != 0xA
        assert read(on).one("rollout").parent_id is None


class TestOrder:
    """Contexts that end in another order than they began, or elsewhere."""

    def session(self, number: int) -> Iterator[Span]:
        with rltel.rollout(session=number) as rollout:
            yield rollout

    def test_interleaved_generators_leave_nothing_in_place(self, on: Recorder) -> None:
        first, second = self.session(1), self.session(2)
        next(first)
        inner = next(second)
        next(first, None)
        assert current() == inner.context
        next(second, None)
        assert current() is None
        assert not read(on).left_open

    def test_an_abandoned_generator_is_no_error(self, on: Recorder, caplog: pytest.LogCaptureFixture) -> None:
        session = self.session(1)
        next(session)
        del session
        gc.collect()
        assert current() is None
        drawn = read(on).one("rollout")
        assert (drawn.error, drawn.attributes["abandoned"]) == (None, True)
        assert not caplog.records

    def test_one_closed_by_another_task_is_not_complained_about(
        self, on: Recorder, caplog: pytest.LogCaptureFixture
    ) -> None:
        """OpenTelemetry logs an error with a traceback when a context is detached in another task."""

        async def session() -> AsyncIterator[int]:
            with rltel.rollout(session="left"):
                yield 1
                yield 2

        async def main() -> None:
            async for _ in session():
                break
            gc.collect()
            for _ in range(5):
                await asyncio.sleep(0)
            with rltel.rollout(session="next") as rollout:
                assert current() == rollout.context
            assert current() is None

        with caplog.at_level(logging.WARNING):
            asyncio.run(main())
        assert not caplog.records
        reading = read(on)
        assert [drawn.attributes["session"] for drawn in reading.slices] == ["left", "next"]
        assert not reading.left_open

    def test_tasks_that_outlive_it_keep_it(self, on: Recorder) -> None:
        async def child() -> None:
            await asyncio.sleep(0.001)
            with rltel.rollout(session="child") as rollout:
                assert current() == rollout.context
            assert current() == outer.context
            with rltel.slice("slice"):
                pass

        async def main() -> asyncio.Task[None]:
            with rltel.rollout(session="parent") as parent, rltel.slice("inner"):
                nonlocal outer
                outer = parent
                return asyncio.create_task(child())

        async def all_of_it() -> None:
            await (await main())

        outer: Any = None
        asyncio.run(all_of_it())
        reading = read(on)
        parent, child_drawn = reading.all("rollout")
        assert reading.parent("inner") == "rollout"
        assert child_drawn.parent_id == reading.one("inner").ids.span_id
        assert reading.one("slice").parent_id == reading.one("inner").ids.span_id
        assert child_drawn.ids.trace_id == parent.ids.trace_id

    def test_a_chain_of_tasks_keeps_no_chain_of_contexts(self, on: Recorder) -> None:
        """Each task starts the next one inside its rollout: what it keeps must not grow with their number."""

        async def link(left: int, done: asyncio.Future[None]) -> None:
            with rltel.rollout():
                await asyncio.sleep(0)
                if left:
                    following.append(asyncio.create_task(link(left - 1, done)))
                else:
                    done.set_result(None)

        async def main() -> int:
            done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            following.append(asyncio.create_task(link(200, done)))
            await done
            await asyncio.gather(*following)
            following.clear()
            return there_are()

        def there_are() -> int:
            gc.collect()
            return sum(type(each) is Span for each in gc.get_objects())

        following: list[asyncio.Task[None]] = []
        before = there_are()  # what earlier tests left
        assert asyncio.run(main()) - before < 10


class TestUsers:
    def test_theirs_nest_in_ours(self, on: Recorder, tracer: trace.Tracer, spans: InMemorySpanExporter) -> None:
        with rltel.rollout() as rollout, tracer.start_as_current_span("theirs"):
            pass
        assert parents(spans) == {"theirs": span_id(rollout)}

    def test_ours_nest_in_theirs(self, on: Recorder, tracer: trace.Tracer) -> None:
        with tracer.start_as_current_span("theirs") as theirs, rltel.rollout() as rollout, rltel.slice("a"):
            assert rollout.context is not None
            assert rollout.context.trace_id == theirs.get_span_context().trace_id
            assert rollout.context.trace_flags == theirs.get_span_context().trace_flags
        assert current() is None
        reading = read(on)
        assert reading.one("rollout").parent_id == theirs.get_span_context().span_id
        assert reading.parent("a") == "rollout"

    def test_in_turn(self, on: Recorder, tracer: trace.Tracer, spans: InMemorySpanExporter) -> None:
        between, inside = (tracer.start_as_current_span(name) for name in ("between", "inside"))
        with rltel.rollout() as outer, between as theirs, rltel.rollout() as inner, inside:
            pass
        assert parents(spans) == {"inside": span_id(inner), "between": span_id(outer)}
        assert [drawn.parent_id for drawn in read(on).slices] == [None, theirs.get_span_context().span_id]

    def test_what_they_did_not_sample_stays_so(self, on: Recorder) -> None:
        with attached(on, {"traceparent": HEADERS["traceparent"][:-2] + "00", "tracestate": "vendor=x"}):
            with rltel.rollout() as rollout:
                assert rollout.context is not None
                assert not rollout.context.trace_flags.sampled
                assert rltel.inject()["tracestate"] == "vendor=x"
            assert rltel.inject()["traceparent"].endswith("-00")

    def test_other_values_of_their_context_stay(self, on: Recorder) -> None:
        token = otel_context.attach(baggage.set_baggage("run", "7"))
        try:
            with rltel.rollout():
                assert rltel.inject()["baggage"] == "run=7"
        finally:
            otel_context.detach(token)


class TestLive:
    """With a TracerProvider of the user's, they are started on it."""

    @pytest.fixture(autouse=True)
    def live(self, on: Recorder, tracer: trace.Tracer) -> None:
        on.tracer = tracer

    def test_are_the_users_spans(self, on: Recorder, tracer: trace.Tracer, spans: InMemorySpanExporter) -> None:
        with rltel.rollout(3, reward=0.5, shape=(1, 2)) as rollout:
            assert current() == rollout.context
            with tracer.start_as_current_span("theirs"):
                on.instant("not in it")
            on.instant("tool call", attributes={"tool": "x", "list": [1]})
            rollout.set(reward=1.0, tokens=7)
            with rltel.slice("a"):
                on.instant("in a")
        theirs, ours = spans.get_finished_spans()
        assert ours.name == "rl.rollout"
        assert ours.get_span_context() == rollout.context
        assert ours.parent is None
        assert ours.attributes == {"rl.policy.version": 3, "reward": 1.0, "shape": "(1, 2)", "tokens": 7}
        assert [event.name for event in ours.events] == ["not in it", "tool call"]
        assert ours.events[1].attributes == {"tool": "x", "list": "[1]"}
        assert theirs.parent is not None
        assert theirs.parent.span_id == span_id(rollout)
        drawn = read(on).one("rollout")
        assert drawn.begin is not None
        assert drawn.begin.span == "live"
        assert drawn.ids.span_id == span_id(rollout)

    def test_nest_in_theirs(self, tracer: trace.Tracer, spans: InMemorySpanExporter) -> None:
        with tracer.start_as_current_span("theirs") as theirs, rltel.rollout():
            pass
        assert parents(spans) == {"rl.rollout": theirs.get_span_context().span_id, "theirs": None}

    def test_nest_in_slices_that_are_open(self, on: Recorder, spans: InMemorySpanExporter) -> None:
        with rltel.slice("a"), rltel.rollout():
            pass
        assert parents(spans) == {"rl.rollout": read(on).one("a").ids.span_id}

    def test_end_with_the_error(self, spans: InMemorySpanExporter) -> None:
        with pytest.raises(KeyError), rltel.rollout():
            raise KeyError("x")
        (span,) = spans.get_finished_spans()
        assert (span.status.status_code, span.status.description) == (StatusCode.ERROR, "KeyError")
        assert [event.name for event in span.events] == ["exception"]
        assert current() is None

    def test_abandoned_ones_are_no_error(self, spans: InMemorySpanExporter) -> None:
        def session() -> Iterator[None]:
            with rltel.rollout():
                yield

        generator = session()
        next(generator)
        generator.close()  # type: ignore[attr-defined]
        (span,) = spans.get_finished_spans()
        assert span.status.status_code is StatusCode.UNSET
        assert span.attributes == {"abandoned": True}

    def test_begun_live_end_live_after_a_stop(self, on: Recorder, spans: InMemorySpanExporter) -> None:
        with rltel.rollout():
            on.stop()
        assert list(parents(spans)) == ["rl.rollout"]


class TestCause:
    def test_is_the_innermost_of_ours(self, on: Recorder) -> None:
        asked: dict[str, Ids | None] = {"": cause(on)}
        with rltel.rollout():
            asked["rollout"] = cause(on)
            with rltel.slice("a"):
                with rltel.slice("b", "cat"):
                    asked["b"] = cause(on)
                asked["a"] = cause(on)
        assert asked.pop("") is None
        assert {name: ids.span_id for name, ids in asked.items() if ids} == {
            drawn.name: drawn.ids.span_id for drawn in read(on).slices
        }
        assert len({ids.trace_id for ids in asked.values() if ids}) == 1

    def test_is_the_users_span_where_there_is_one(self, on: Recorder, tracer: trace.Tracer) -> None:
        with rltel.slice("a"), tracer.start_as_current_span("theirs") as theirs:
            context = theirs.get_span_context()
            assert cause(on) == (context.trace_id, context.span_id)

    def test_is_the_users_remote_context_where_they_put_one(self, on: Recorder) -> None:
        token = otel_context.attach(trace.set_span_in_context(trace.NonRecordingSpan(_remote())))
        try:
            with rltel.slice("a"):
                assert cause(on) == (0xABC, 0xDEF)
        finally:
            otel_context.detach(token)


class TestHeaders:
    def test_in_a_phase_are_the_phases(self, on: Recorder) -> None:
        clock = PhaseClock(SAC_LEARNER, Tracker(recorder=on), on)
        with clock.iteration(1), clock.phase("learning"):
            sent = remote_parent(rltel.inject())
        reading = read(on)
        assert sent is not None
        assert (sent.trace_id, sent.span_id) == (
            reading.one("iteration").ids.trace_id,
            reading.one("learning").ids.span_id,
        )

    def test_of_a_sender_make_what_begins_inside_its_child(self, on: Recorder) -> None:
        with rltel.slice("serves"), rltel.attached(HEADERS):
            with rltel.slice("a"), rltel.rollout() as rollout:
                assert rollout.context is not None
                assert rollout.context.trace_id == 0xABC
            with rltel.rollout():
                pass
            assert rltel.inject() == HEADERS
        with rltel.slice("after"):
            pass
        reading = read(on)
        first, second = reading.all("rollout")
        assert (reading.parent("a"), reading.parent(first), reading.parent(second)) == ("def", "a", "def")
        assert reading.parent("after") is None

    @pytest.mark.parametrize("headers", [{}, {"traceparent": "garbage"}])
    def test_that_are_none_change_nothing(self, on: Recorder, headers: dict[str, str]) -> None:
        """Least of all do they take what is begun here out of the slice that it lies in."""
        with rltel.attached(HEADERS), rltel.slice("a"), rltel.attached(headers), rltel.slice("b"):
            pass
        assert read(on).parents == {"a": "def", "b": "a"}

    def test_in_tasks_are_each_ones_own(self, on: Recorder) -> None:
        async def request(number: int) -> None:
            with rltel.attached({"traceparent": f"00-{number:032x}-{number:016x}-01"}):
                await asyncio.sleep(0)
                with rltel.slice(f"slice {number}"), rltel.rollout() as rollout:
                    await asyncio.sleep(0)
                    assert rollout.context is not None
                    assert rollout.context.trace_id == number

        async def main() -> None:
            await asyncio.gather(*(request(number) for number in range(1, 10)))

        asyncio.run(main())
        reading = read(on)
        assert [reading.parent(f"slice {number}") for number in range(1, 10)] == [f"{n:x}" for n in range(1, 10)]

    def test_travel_through_the_environment_to_a_child_process(self, on: Recorder, tmp_path: Any) -> None:
        code = (
            "import rltel\n"
            "rltel.init({'trace': {'enabled': True}}, role='learner', run_dir='.')\n"
            "with rltel.rollout() as rollout:\n"
            "    print(f'{rollout.context.trace_id:032x}', rltel.process.recorder.adopted)\n"
        )
        with rltel.rollout() as rollout, rltel.slice("starts it"):
            environ = {**os.environ, **rltel.inject(environ=True)}
            assert "TRACEPARENT" in environ
            done = subprocess.run(
                [sys.executable, "-c", code],
                env=environ,
                cwd=tmp_path,
                capture_output=True,
                text=True,
                check=False,
                timeout=240,
            )
        assert done.returncode == 0, done.stderr
        assert rollout.context is not None
        assert done.stdout.splitlines()[-1] == f"{rollout.context.trace_id:032x} True"


def _remote() -> trace.SpanContext:
    found = remote_parent(HEADERS)
    assert found is not None
    return found
