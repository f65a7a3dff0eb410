"""What was recorded leaves as OTLP spans: the same tree, with the same times, as the official classes read it."""

import asyncio
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span as OtlpSpan
from opentelemetry.proto.trace.v1.trace_pb2 import Status
from opentelemetry.sdk.resources import Resource

from export.making import FakeClock
from realparts.lane_making import STEPS, cut, made
from rltel.export.sink import Destination
from rltel.export.spans import spans as spans_module
from rltel.export.spans.spans import RootSpan, SpanWriter
from rltel.export.timeline import TimelineDrain
from rltel.record.lane import Lane
from rltel.record.phase import PhaseSet
from rltel.record.phase_sets import phase_set
from rltel.record.phases import PhaseClock
from rltel.record.recorder import Recorder
from rltel.record.records import Begin, End, Ids, Placed, Record, Site
from rltel.record.spans import Span
from rltel.reduce.trackers import StatsTracker

ROOT = Ids(0xABC, 0xDEF)
TO_UNIX = 10**18
T = 1000


class Sent:
    """A writer, and what it sent, read with the official classes."""

    def __init__(self, parent: Ids | None = None, to_unix_ns: int = TO_UNIX) -> None:
        self.account = Destination("spans")
        self.requests: list[tuple[bytes, int]] = []
        root = RootSpan(ROOT, "learner 0", T, parent)
        resource = Resource({"service.name": "s"})
        self.writer = SpanWriter(root, resource, to_unix_ns, self._send, self.account)

    def _send(self, body: bytes, spans: int) -> None:
        self.requests.append((body, spans))

    def take(self, lane: Lane, *pieces: list[Record]) -> "Sent":
        for piece in pieces:
            self.writer.begin_round()
            self.writer.take(lane, piece)
            self.writer.end_round()
        return self

    @property
    def spans(self) -> list[OtlpSpan]:
        parsed = [ExportTraceServiceRequest.FromString(body) for body, _ in self.requests]
        return [span for each in parsed for of in each.resource_spans for s in of.scope_spans for span in s.spans]

    def span(self, name: str) -> OtlpSpan:
        (found,) = [span for span in self.spans if span.name == name]
        return found


class Recorded(Sent):
    """The same, with a recorder that fills it."""

    def __init__(self, *, adopted: bool = False, thread_time: bool = False) -> None:
        super().__init__()
        self.clock = FakeClock(T)
        self.recorder = Recorder(now=self._tick)
        self.timeline = TimelineDrain(self.recorder, [(self.writer, self.account)])
        self.recorder.start(thread_time=thread_time)
        self.recorder.root, self.recorder.adopted = ROOT, adopted

    def _tick(self) -> int:
        self.clock.now += 10
        return self.clock.now

    def close(self) -> "Recorded":
        self.timeline.close()
        return self


def lane(kind: Any = "thread") -> Lane:
    return Lane(kind, "x", 10**6)


def id_of(span: OtlpSpan) -> Ids:
    return Ids(int.from_bytes(span.trace_id, "big"), int.from_bytes(span.span_id, "big"))


def parent_of(span: OtlpSpan) -> int:
    return int.from_bytes(span.parent_span_id, "big")


def notes(span: OtlpSpan) -> dict[str, Any]:
    return {each.key: getattr(each.value, str(each.value.WhichOneof("value"))) for each in span.attributes}


def in_thread(run: Callable[[], object]) -> None:
    thread = threading.Thread(target=run)
    thread.start()
    thread.join()


class TestTree:
    @given(st.lists(st.tuples(STEPS, st.lists(st.integers(0, 200), max_size=3)), max_size=3))
    def test_random_trees_over_lanes_arrive_as_they_were(self, programs: list[Any]) -> None:
        """Also where slices cross, and wherever the drains cut. (Something takes time between two begins.)"""
        sent = Sent()
        expected: set[Any] = set()
        for number, (steps, places) in enumerate(programs):
            making = made([(what, choice, pause + 1) for what, choice, pause in steps])
            sent.take(lane(), *cut([_renamed(record, number) for record in making.records], places))
            for each in making.slices:
                parent = each.parent if each.parent in ("", "attached") else f"{number} {each.parent}"
                assert each.end_ns is not None
                expected.add((f"{number} {each.name}", parent, each.begin_ns + TO_UNIX, each.end_ns + TO_UNIX))
        spans = [span for span in sent.spans if span.name != "i"]
        names = {id_of(span).span_id: span.name for span in spans}
        assert len(names) == len(spans), "every span has an id of its own"
        names |= {ROOT.span_id: "", 2: "attached"}
        found = {
            (span.name, names[parent_of(span)], span.start_time_unix_nano, span.end_time_unix_nano) for span in spans
        }
        assert found == expected
        traces = {id_of(span).span_id: id_of(span).trace_id for span in spans} | {ROOT.span_id: ROOT.trace_id, 2: 1}
        assert all(id_of(span).trace_id == traces[parent_of(span)] for span in spans)

    @given(STEPS)
    def test_bare_slices_and_rich_ones_make_equal_spans(self, steps: list[Any]) -> None:
        records = made([step for step in steps if step[0] in ("bare", "end")]).records
        here = lane()
        bare = Sent().take(here, records).spans
        assert Sent().take(here, _spelled_out(records)).spans == bare

    def test_what_is_open_at_the_end_is_ended_and_says_so(self) -> None:
        recorded = Recorded()
        recorder = recorded.recorder
        recorder.slice("outer").__enter__()
        recorder.slice("inner", attributes={"a": 1}).__enter__()
        recorder.begin("handle")
        recorded.close()
        ended = [recorded.span(name) for name in ("outer", "inner", "handle")]
        assert all(notes(span)["rltel.open_at_end"] for span in ended)
        assert parent_of(ended[1]) == id_of(ended[0]).span_id
        assert len({span.end_time_unix_nano for span in ended}) == 1

    @pytest.mark.parametrize("parent", [None, Ids(ROOT.trace_id, 5)])
    def test_the_process_is_a_span_from_its_beginning_to_its_end(self, parent: Ids | None) -> None:
        sent = Sent(parent)
        sent.writer.close(5000)
        (root,) = sent.spans
        assert (root.name, id_of(root), parent_of(root)) == ("learner 0", ROOT, parent.span_id if parent else 0)
        assert (root.start_time_unix_nano, root.end_time_unix_nano) == (TO_UNIX + T, TO_UNIX + 5000)
        assert root.kind == OtlpSpan.SPAN_KIND_INTERNAL


def _renamed(record: Record, number: int) -> Record:
    if isinstance(record, Site):
        return Site(f"{number} {record.name}", "")
    if isinstance(record, Begin):
        return record._replace(site=Site(f"{number} {record.site.name}", ""))
    return record


def _spelled_out(records: list[Record]) -> list[Record]:
    out: list[Record] = []
    site: Site | None = None
    for record in records:
        if isinstance(record, Site):
            site = record
        elif isinstance(record, int):
            out.append(End(record) if site is None else Begin(record, site))
            site = None
        else:
            out.append(record)
    return out


class TestIds:
    """By rule: whoever refers to a slice while it is open names the id that its span has."""

    def test_slices_of_two_lanes_that_begin_within_nanoseconds_have_ids_of_their_own(self) -> None:
        """Where seeds of lanes and ids of slices were counted alike, one nanosecond made up for one lane."""
        sent = Sent()
        for _ in range(20):
            sent.take(lane(), [record for at in range(20) for record in (Site("s", ""), at, at)])
        assert len({span.span_id for span in sent.spans}) == 400

    def test_what_is_carried_to_a_thread_lies_in_its_slice(self) -> None:
        recorded = Recorded()
        recorder = recorded.recorder
        with recorder.slice("outer"), recorder.slice("caller"):
            here = recorder.origin()
            assert here is not None

            def work() -> None:
                with recorder.attached(here), recorder.slice("worker"), recorder.slice("deeper"):
                    pass

            in_thread(work)
        recorded.close()
        assert id_of(recorded.span("caller")) == here
        assert parent_of(recorded.span("worker")) == here.span_id
        assert {id_of(span).trace_id for span in recorded.spans} == {ROOT.trace_id}

    def test_what_is_sent_from_a_callers_slice_after_a_generator_s_ended(self) -> None:
        recorded = Recorded()
        recorder = recorded.recorder

        def generator() -> Iterator[int]:
            with recorder.slice("generator"):
                yield 1

        running = generator()
        next(running)
        with recorder.slice("caller"):
            next(running, None)
            here = recorder.origin()
        recorded.close()
        assert id_of(recorded.span("caller")) == here

    def test_child_tasks_lie_in_the_slice_that_they_were_created_in(self) -> None:
        recorded = Recorded()
        recorder = recorded.recorder

        async def child(name: str) -> None:
            with recorder.slice(name):
                await asyncio.sleep(0)
                with recorder.slice(f"in {name}"):
                    await asyncio.sleep(0)

        async def main() -> None:
            with recorder.slice("gather"):
                await asyncio.gather(child("one"), child("two"))

        with recorder.slice("whole"):
            asyncio.run(main())
        recorded.close()
        parents = {name: id_of(recorded.span(name)).span_id for name in ("whole", "gather", "one", "two")}
        for name, parent in (
            ("gather", "whole"),
            ("one", "gather"),
            ("two", "gather"),
            ("in one", "one"),
            ("in two", "two"),
        ):
            assert parent_of(recorded.span(name)) == parents[parent], name

    def test_a_slice_begun_explicitly_lies_in_what_was_open(self) -> None:
        recorded = Recorded()
        with recorded.recorder.slice("outer"):
            handle = recorded.recorder.begin("request", attributes={"a": 1})
        in_thread(lambda: handle.end(error="too late", b=2))
        recorded.close()
        request = recorded.span("request")
        assert parent_of(request) == id_of(recorded.span("outer")).span_id
        assert request.end_time_unix_nano > recorded.span("outer").end_time_unix_nano
        assert (notes(request), request.status.message) == ({"a": 1, "b": 2}, "too late")


class TestIterations:
    def clock(self, recorded: Recorded, phases: Any = "llm") -> PhaseClock:
        found = phases if isinstance(phases, PhaseSet) else phase_set(phases, "learner")
        return PhaseClock(found, StatsTracker("t", recorded.recorder), recorded.recorder)

    def test_are_traces_of_their_own_named_by_convention(self) -> None:
        recorded = Recorded()
        clock = self.clock(recorded)
        with recorded.recorder.slice("setting up"):
            pass
        for step in (1, 2):
            with clock.iteration(step=step) as iteration, clock.phase("train"), clock.phase("forward"):
                assert iteration.context is not None
        recorded.close()
        loops = [span for span in recorded.spans if span.name == "rl.loop"]
        assert [notes(span)["rl.loop.iteration"] for span in loops] == [1, 2]
        assert [parent_of(span) for span in loops] == [0, 0]
        assert len({*(span.trace_id for span in loops), ROOT.trace_id.to_bytes(16, "big")}) == 3
        assert parent_of(recorded.span("setting up")) == ROOT.span_id
        trains = [span for span in recorded.spans if span.name == "rl.train"]
        assert [parent_of(span) for span in trains] == [id_of(span).span_id for span in loops]
        assert [notes(span)["rl.phase"] for span in trains] == ["train", "train"]
        forwards = [span for span in recorded.spans if span.name == "forward"]
        assert [parent_of(span) for span in forwards] == [id_of(span).span_id for span in trains]
        assert {notes(span)["rl.phase.kind"] for span in forwards} == {"nested"}

    def test_lie_in_the_process_if_that_lies_in_another_one_s_trace(self) -> None:
        recorded = Recorded(adopted=True)
        with self.clock(recorded).iteration(step=1):
            pass
        recorded.close()
        loop = recorded.span("rl.loop")
        assert (parent_of(loop), id_of(loop).trace_id) == (ROOT.span_id, ROOT.trace_id)

    def test_lie_in_the_slice_around_them(self) -> None:
        recorded = Recorded()
        with recorded.recorder.slice("epoch"), self.clock(recorded, ["update"]).iteration(step=1):
            pass
        recorded.close()
        assert parent_of(recorded.span("rl.loop")) == id_of(recorded.span("epoch")).span_id

    def test_a_span_has_the_id_of_the_context_that_was_in_place(self) -> None:
        recorded = Recorded()
        with Span(recorded.recorder, Site("rollout", "rollout", "rl.rollout"), None, {"rl.policy.version": 3}) as span:
            assert span.context is not None
            span.set(reward=0.5)
        recorded.close()
        found = recorded.span("rl.rollout")
        assert id_of(found) == (span.context.trace_id, span.context.span_id)
        assert notes(found) == {"rl.policy.version": 3, "reward": 0.5}


class TestWhatSpansHold:
    def test_attributes_from_begin_and_end_and_an_error(self) -> None:
        recorded = Recorded()

        def fails() -> None:
            with recorded.recorder.slice("s", attributes={"a": 1, "b": "x"}) as opened:
                opened.set(b="y", c=0.5)
                raise ValueError("no")

        with pytest.raises(ValueError, match="no"):
            fails()
        span = recorded.close().span("s")
        assert notes(span) == {"a": 1, "b": "y", "c": 0.5}
        assert (span.status.code, span.status.message) == (Status.STATUS_CODE_ERROR, "ValueError")

    def test_instants_are_events_of_the_slice_they_lie_in(self) -> None:
        recorded = Recorded()
        recorder = recorded.recorder
        with recorder.slice("outer"):
            with recorder.slice("bare"):
                recorder.instant("checkpoint", attributes={"step": 7})
            recorder.instant("later")
        recorded.close()
        (event,) = recorded.span("bare").events
        assert (event.name, event.attributes[0].key, event.attributes[0].value.int_value) == ("checkpoint", "step", 7)
        assert (
            recorded.span("bare").start_time_unix_nano < event.time_unix_nano < recorded.span("bare").end_time_unix_nano
        )
        assert [each.name for each in recorded.span("outer").events] == ["later"]

    def test_instants_outside_of_slices_are_spans_of_no_length(self) -> None:
        recorded = Recorded()
        recorded.recorder.instant("started", attributes={"a": 1})
        with recorded.recorder.attached(Ids(5, 6)):
            recorded.recorder.instant("received")
        recorded.close()
        started, received = recorded.span("started"), recorded.span("received")
        assert started.start_time_unix_nano == started.end_time_unix_nano
        assert (notes(started), parent_of(started)) == ({"a": 1}, ROOT.span_id)
        assert (id_of(received).trace_id, parent_of(received)) == (5, 6)

    def test_flows_are_links_to_what_came_before(self) -> None:
        recorded = Recorded()
        recorder = recorded.recorder
        ready, done = threading.Event(), threading.Event()

        def worker() -> None:  # its lane is read first, and it receives last
            recorder.instant("hello")
            ready.set()
            done.wait(30)
            with recorder.slice("receive", flow=(7, 8)):
                pass

        thread = threading.Thread(target=worker)
        thread.start()
        assert ready.wait(30)
        with recorder.slice("send", flow=7):
            recorder.instant("and this", flow=8)
        done.set()
        thread.join()
        recorded.close()
        send, receive = recorded.span("send"), recorded.span("receive")
        assert [(link.trace_id, link.span_id) for link in receive.links] == [(send.trace_id, send.span_id)]
        assert list(send.links) == []
        flows = next(each.value.array_value for each in receive.attributes if each.key == "rl.flow.ids")
        assert [each.string_value for each in flows.values] == [f"{7:016x}", f"{8:016x}"]

    def test_what_was_placed_says_on_which_track(self) -> None:
        recorded = Recorded()
        recorder = recorded.recorder
        with recorder.slice("submit", flow=7):
            pass
        recorder.place("cuda:0", "kernel", 2000, 3000, flow=7, attributes={"a": 1})
        recorded.close()
        kernel = recorded.span("kernel")
        assert (kernel.start_time_unix_nano, kernel.end_time_unix_nano) == (TO_UNIX + 2000, TO_UNIX + 3000)
        assert notes(kernel)["rl.track"] == "cuda:0"
        assert [link.span_id for link in kernel.links] == [recorded.span("submit").span_id]

    def test_cpu_time_in_seconds(self) -> None:
        here = lane()
        sent = Sent().take(here, [Begin(1, Site("s", ""), cpu_ns=10**9), End(2, cpu_ns=3 * 10**9)])
        assert notes(sent.span("s")) == {"rl.thread.cpu_time": 2.0}

    def test_resource_and_scope(self) -> None:
        (request,) = Sent().take(lane(), [Site("s", ""), 1, 2]).requests
        (of,) = ExportTraceServiceRequest.FromString(request[0]).resource_spans
        assert [(each.key, each.value.string_value) for each in of.resource.attributes] == [("service.name", "s")]
        assert [(each.scope.name, len(each.spans)) for each in of.scope_spans] == [("rltel", 1)]


class Raises:
    def __str__(self) -> str:
        raise RuntimeError("no text")


class TestWhatCannotBeWritten:
    @pytest.mark.parametrize("flow", [["no id"], [1.5], [None]])
    def test_a_flow_that_is_no_id(self, flow: Any) -> None:
        recorded = Recorded()
        with recorded.recorder.slice("s", flow=flow, attributes={"a": 1}):
            pass
        recorded.close()
        assert notes(recorded.span("s")) == {"a": 1}
        assert recorded.account.dropped_totals == {"unreadable": 1}

    def test_an_attribute_that_raises(self, caplog: pytest.LogCaptureFixture) -> None:
        recorded = Recorded()
        for _ in range(2):
            with recorded.recorder.slice("s", "c", attributes={"a": Raises(), "b": 2}):
                pass
        recorded.close()
        assert [(span.name, notes(span)) for span in recorded.spans[:2]] == [("s", {"b": 2})] * 2
        assert recorded.account.dropped_totals == {"unreadable": 2}
        assert len(caplog.records) == 1

    @pytest.mark.parametrize("rich", [False, True])
    def test_times_before_1970_cost_only_their_spans(self, rich: bool) -> None:
        """A machine whose clock was never set."""
        sent = Sent(to_unix_ns=-100)
        records: list[Record] = [Site("s", ""), 1, 2, Site("ok", ""), 200, 300]
        sent.take(lane(), _spelled_out(records) if rich else records)
        assert [span.name for span in sent.spans] == ["ok"]
        assert sent.account.dropped_totals == {"unreadable": 1}

    @pytest.mark.parametrize("times", [(1.5, 2), (1, None), ("a", "b")])
    def test_placed_times_that_are_none(self, times: Any) -> None:
        site = Site("s", "")
        records: list[Record] = [Placed("t", Begin(times[0], site), times[1]), Placed("t", Begin(1, Site("ok", "")), 2)]
        sent = Sent().take(lane("shared"), records)
        assert [span.name for span in sent.spans] == ["ok"]
        assert sum(sent.account.dropped_totals.values()) == 1


class TestRequests:
    def test_hold_at_most_2000_spans(self) -> None:
        sent = Sent().take(lane(), [record for at in range(4500) for record in (Site("s", ""), at, at)])
        assert [spans for _, spans in sent.requests] == [2000, 2000, 500]
        assert len(sent.spans) == 4500

    def test_stay_below_what_receivers_take(self) -> None:
        """gRPC's default is 4 MB."""
        large = {"prompt": "x" * 10_000}
        records: list[Record] = [r for at in range(1000) for r in (Begin(at, Site("s", ""), None, large), End(at))]
        sent = Sent().take(lane(), records)
        assert len(sent.requests) >= 3
        assert max(len(body) for body, _ in sent.requests) < 4_000_000
        assert sum(spans for _, spans in sent.requests) == len(sent.spans) == 1000

    def test_one_span_that_is_larger_goes_alone(self) -> None:
        sizes = [10, 5_000_000, 10]
        records: list[Record] = [r for n in sizes for r in (Begin(1, Site("s", ""), None, {"p": "x" * n}), End(2))]
        assert [spans for _, spans in Sent().take(lane(), records).requests] == [1, 1, 1]

    def test_nothing_recorded_is_nothing_sent(self) -> None:
        assert Sent().take(lane(), []).requests == []


class TestMemory:
    def test_names_made_up_on_the_way_do_not_fill_it(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(spans_module, "_MAX_TEMPLATES", 10)
        sent = Sent().take(lane(), [record for at in range(100) for record in (Site(f"s{at}", ""), at, at)])
        assert len(sent.writer._templates) <= 10
        assert len(sent.spans) == 100

    def test_lanes_of_threads_that_ended_are_forgotten(self) -> None:
        recorded = Recorded()
        for _ in range(50):
            in_thread(lambda: recorded.recorder.instant("x"))
        in_thread(lambda: recorded.recorder.slice("open").__enter__())
        for _ in range(3):
            recorded.timeline.drain()
        assert len(recorded.writer._stacks) == 1
        assert notes(recorded.close().span("open")) == {"rltel.open_at_end": True}
