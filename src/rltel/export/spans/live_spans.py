"""Slices as spans of a user's own TracerProvider, made afterwards, with their real times.

Iterations and rollouts are there already: they were started live (`rltel.record.spans`). The provider chooses the ids,
so a span is started as soon as its slice's begin is seen, for its children to lie in: records of all lanes are taken in
the order of time. Links are added before a span ends; live spans, which have ended by then, have none.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from opentelemetry.trace import Span, SpanContext, StatusCode, Tracer

from rltel.core.context import with_span
from rltel.export.sink import Destination
from rltel.export.spans.flow_links import FlowLinks, Passed
from rltel.export.spans.live_tracer import Contexts
from rltel.export.spans.round_order import RoundOrder
from rltel.export.spans.spans import CPU_TIME, OPEN_AT_END
from rltel.record.lane import Lane, slice_id
from rltel.record.records import (
    Attached,
    Begin,
    End,
    Flows,
    FreeBegin,
    FreeEnd,
    Ids,
    Instant,
    Placed,
    Record,
    Site,
)


@dataclass
class _Opened:
    """What is open on a lane: its context, and the span, unless it is nobody's to end here."""

    context: SpanContext
    span: Span | None = None
    is_live: bool = False
    """Whether it is a span that was started live, and has had its events."""
    cpu_ns: int | None = None
    passed: list[Passed] = field(default_factory=list)
    """Flows through it."""

    def add_link(self, to: SpanContext) -> None:
        """It comes after this one."""
        if self.span is not None:
            self.span.add_link(to)


_Stack = list[_Opened]


class LiveSpans:
    """Starts and ends spans on a tracer as records tell of them."""

    name = "spans"

    def __init__(
        self, tracer: Tracer, process: Span, to_unix_ns: int, destination: Destination, contexts: Contexts
    ) -> None:
        """``process``: the process's own span, in which everything lies that lies in nothing else."""
        self._tracer = tracer
        self._process = process
        self._to_unix = to_unix_ns
        self._destination = destination
        self._contexts = contexts
        self._round = RoundOrder()
        self._stacks: dict[Lane, list[_Opened]] = {}
        self._free: dict[int, _Opened] = {}
        self._links = FlowLinks()
        self._ending: list[tuple[_Opened, int]] = []  # what has flows, until all of the round was seen
        self._ended = 0
        self._unreadable = 0
        contexts.remember(process.get_span_context().span_id, process.get_span_context())

    def begin_round(self) -> None:
        """Nothing to prepare: the provider has a queue of its own."""

    def take(self, lane: Lane, records: list[Record]) -> None:
        """Keep them until all lanes' are there."""
        self._round.take(lane, records)

    def _take(self, lane: Lane, record: Record) -> None:
        stack = self._stacks.setdefault(lane, [])
        if isinstance(record, Begin):
            self._begin(lane, stack, record)
        elif isinstance(record, End):
            self._end(stack, record)
        elif isinstance(record, Attached):
            stack.append(_Opened(self._contexts.of(record.parent)))
        elif isinstance(record, Instant):
            self._instant(stack, record)
        else:
            self._take_free(record)

    def _take_free(self, record: Record) -> None:
        if isinstance(record, FreeBegin):
            self._free[record.number] = self._start(record.begin, self._parent_of(record.begin), record.number)
        elif isinstance(record, FreeEnd):
            opened = self._free.pop(record.number, None)
            if opened is not None:
                self._finish(opened, record.end)
        elif isinstance(record, Placed):
            opened = self._start(record.begin, self._parent_of(record.begin), None)
            self._finish(opened, End(record.end_ns, {"rl.track": record.track}))

    def end_round(self) -> None:
        """Start and end spans, last those with flows, and tell how many have ended."""
        for lane, record in self._round.in_order():
            self._take(lane, record)
        ending, self._ending = self._ending, []
        for opened, end_ns in ending:
            for ids in self._links.of(opened.passed, _ids(opened.context)):
                opened.add_link(self._contexts.of(ids))
            self._end_span(opened.span, end_ns)
        if self._ended:
            self._destination.exported(self._ended)
            self._ended = 0
        if self._unreadable:
            error = TypeError("a span holds a name, times, attributes or flows that its provider does not take")
            self._destination.failed(error, "unreadable", self._unreadable)
            self._unreadable = 0

    def forget(self, lane: Lane) -> bool:
        """A lane's thread has ended."""
        stack = self._stacks.get(lane)
        if stack:
            return False
        self._stacks.pop(lane, None)
        return True

    def close(self, now_ns: int) -> None:
        """End what is open, marked as such, and last the process's own span."""
        end = End(now_ns, {OPEN_AT_END: True})
        for stack in self._stacks.values():
            while stack:
                self._end(stack, end)
        for number in list(self._free):
            self._finish(self._free.pop(number), end)
        self._end_span(self._process, now_ns)
        self.end_round()

    # --- begins -------------------------------------------------------------------------------------------------------

    def _begin(self, lane: Lane, stack: _Stack, begin: Begin) -> None:
        number = begin.ids.span_id if begin.ids else slice_id(lane.seed, begin.time_ns, len(stack))
        if begin.span == "live" and begin.ids is not None:
            self._saw(begin.flows, begin.ids, begin.time_ns)
            stack.append(_Opened(self._contexts.of(begin.ids), is_live=True))
            return
        stack.append(self._start(begin, self._parent_of(begin, stack), number))

    def _start(self, begin: Begin, parent: SpanContext, number: int | None) -> _Opened:
        try:
            span = self._tracer.start_span(
                self._text(begin.site.span_name),
                context=with_span(parent),
                attributes=self._attributes({**(begin.site.span_attributes or {}), **(begin.attributes or {})}),
                start_time=begin.time_ns + self._to_unix,
            )
            context = span.get_span_context()
        except Exception:  # whatever the user's provider does: what lies in this goes to its parent
            self._unreadable += 1
            return _Opened(parent)
        if number is not None:
            self._contexts.remember(number, context)
        passed = self._saw(begin.flows, _ids(context), begin.time_ns)
        return _Opened(context, span, cpu_ns=begin.cpu_ns, passed=passed)

    def _parent_of(self, begin: Begin, stack: _Stack | None = None) -> SpanContext:
        if begin.parent is not None:
            return self._contexts.of(begin.parent)
        return self._innermost(stack)

    def _innermost(self, stack: _Stack | None) -> SpanContext:
        return stack[-1].context if stack else self._process.get_span_context()

    def _instant(self, stack: _Stack, instant: Instant) -> None:
        """An event of the slice that it lies in; else a span of no length. (Live spans have had theirs.)"""
        top = stack[-1] if stack else None
        if top is None or (top.span is None and not top.is_live):
            begin = Begin(instant.time_ns, Site(instant.name, instant.category), instant.flows, instant.attributes)
            self._finish(self._start(begin, self._innermost(stack), None), End(instant.time_ns))
            return
        top.passed += self._saw(instant.flows, _ids(top.context), instant.time_ns)
        if top.span is not None:
            attributes = self._attributes(instant.attributes)
            top.span.add_event(self._text(instant.name), attributes, instant.time_ns + self._to_unix)

    # --- ends ---------------------------------------------------------------------------------------------------------

    def _end(self, stack: _Stack, end: End) -> None:
        if end.depth < len(stack):
            self._finish(stack.pop(len(stack) - 1 - end.depth), end)

    def _finish(self, opened: _Opened, end: End) -> None:
        span = opened.span
        if span is None:
            return
        said = self._attributes(end.attributes)
        if opened.cpu_ns is not None and end.cpu_ns is not None:
            said[CPU_TIME] = (end.cpu_ns - opened.cpu_ns) / 1e9
        span.set_attributes(said)
        if end.error is not None:
            span.set_status(StatusCode.ERROR, self._text(end.error))
        if opened.passed:
            span.set_attribute("rl.flow.ids", list(dict.fromkeys(f"{flow:016x}" for flow, _ in opened.passed)))
            self._ending.append((opened, end.time_ns))
        else:
            self._end_span(span, end.time_ns)

    def _end_span(self, span: Span | None, end_ns: int) -> None:
        if span is None:
            return
        try:
            span.end(end_ns + self._to_unix)
            self._ended += 1
        except Exception:  # a processor of the user's
            self._unreadable += 1

    # --- what it takes ------------------------------------------------------------------------------------------------

    def _saw(self, flows: Flows | None, span: Ids, time_ns: int) -> list[Passed]:
        """Flows through a span. What is no id is counted."""
        passed = self._links.saw(flows, span, time_ns)
        self._unreadable += len(flows or ()) - len(passed)
        return passed

    def _attributes(self, given: Mapping[Any, Any] | None) -> dict[str, Any]:
        """As OpenTelemetry takes them: what is no number, string or bool is spelled out."""
        made: dict[str, Any] = {}
        for name, value in (given or {}).items():
            try:
                made[str(name)] = value if isinstance(value, (bool, int, float, str)) else str(value)
            except Exception:  # a value with a wild str()
                self._unreadable += 1
        return made

    def _text(self, given: Any) -> str:
        if isinstance(given, str):
            return given
        try:
            return str(given)
        except Exception:  # an object in the place of a name
            self._unreadable += 1
            return "?"


def _ids(context: SpanContext) -> Ids:
    return Ids(context.trace_id, context.span_id)
