"""Spans: slices that put a real OpenTelemetry context in place. Few: iterations and rollouts.

A user's own spans nest under them, ``inject`` carries them to other processes, and with a user's TracerProvider they
are started live on it.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Literal, Self

from opentelemetry.context import Context
from opentelemetry.trace import Span as OtelSpan
from opentelemetry.trace import SpanContext, StatusCode, set_span_in_context

from rltel.core.context import attached as context_attached
from rltel.core.context import current, new_id, new_trace_id, remote_parent, span_context, with_span
from rltel.core.in_place import InPlace, is_ours
from rltel.record.lane import Open
from rltel.record.recorder import Recorder
from rltel.record.records import Begin, Flows, Ids, Site
from rltel.record.slices import Raised, as_attributes


class Span(Open):
    """One span, from ``with`` to its end; for one use."""

    __slots__ = ("_attributes", "_flows", "_live", "_place", "_recorder", "_site", "context")

    def __init__(
        self,
        recorder: Recorder,
        site: Site,
        flows: Flows | None = None,
        attributes: Mapping[str, Any] | None = None,
    ) -> None:
        self._recorder = recorder
        self._site = site
        self._flows = flows
        self._attributes = as_attributes(attributes)
        self._live: OtelSpan | None = None
        self._place: InPlace | None = None
        self.context: SpanContext | None = None
        """Its OpenTelemetry identity; None while the timeline is off."""
        self.begin_ns = 0
        self.lane = None

    def __enter__(self) -> Self:
        self.begin_ns = self._recorder.now()
        if self._recorder.on:
            self._open()
        return self

    def _open(self) -> None:
        recorder = self._recorder
        parent = cause(recorder) or (recorder.root if recorder.adopted else None)
        context = self._start_ours(parent) if recorder.tracer is None else self._start_live(parent)
        assert self.context is not None
        self._place = InPlace(context, self.context)
        ids = Ids(self.context.trace_id, self.context.span_id)
        span: Literal["ours", "live"] = "ours" if self._live is None else "live"
        recorder.enter_with(
            self, Begin(self.begin_ns, self._site, self._flows, self._attributes, None, ids, parent, span)
        )

    def _start_ours(self, parent: Ids | None) -> Context:
        self.context = span_context(parent.trace_id if parent else new_trace_id(), new_id(), current())
        return with_span(self.context)

    def _start_live(self, parent: Ids | None) -> Context:
        tracer = self._recorder.tracer
        assert tracer is not None
        around = None if parent is None else with_span(span_context(*parent, current()))
        attributes = {**(self._site.span_attributes or {}), **(otel_attributes(self._attributes) or {})}
        self._live = tracer.start_span(self._site.span_name, context=around, attributes=attributes)
        self.context = self._live.get_span_context()
        return set_span_in_context(self._live)

    def __exit__(self, kind: Raised, error: BaseException | None, trace: object) -> None:
        end = self._recorder.now()
        said = self.said if self.lane is not None else None
        self._recorder.leave(self, end, kind)
        place, self._place = self._place, None
        if place is not None:
            place.remove()
        self._ended(end - self.begin_ns)
        live, self._live = self._live, None
        if live is not None:
            _end_live(live, error, said)

    def happened(self, name: str, attributes: Mapping[str, Any] | None) -> None:
        """A live span takes its events while it is open."""
        if self._live is not None:
            self._live.add_event(name, otel_attributes(attributes))

    def _ended(self, duration_ns: int) -> None:
        """For those who want to know how long it took."""


def _end_live(live: OtelSpan, error: BaseException | None, said: dict[str, Any] | None) -> None:
    live.set_attributes(otel_attributes(said) or {})
    if isinstance(error, GeneratorExit):
        live.set_attribute("abandoned", True)  # that is no error
    elif error is not None:
        live.record_exception(error)
        live.set_status(StatusCode.ERROR, type(error).__name__)
    live.end()


def cause(recorder: Recorder) -> Ids | None:
    """The innermost of what is open here, ours or the user's own: what is begun elsewhere from here lies in it."""
    theirs = current()
    ours = recorder.origin() if recorder.on else None
    if theirs is None or (ours is not None and is_ours(theirs)):
        return ours
    return Ids(theirs.trace_id, theirs.span_id)


def otel_attributes(attributes: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """Attributes as OpenTelemetry takes them: what is no number, string or bool is spelled out."""
    if attributes is None:
        return None
    return {spelled(name): _otel_value(value) for name, value in attributes.items()}


def _otel_value(value: Any) -> Any:
    return value if isinstance(value, (bool, int, float, str)) else spelled(value)


def spelled(given: Any) -> str:
    """Anything as text. What a program hangs on a span must not raise into the program."""
    try:
        return str(given)
    except Exception:  # whatever the program's own object raises
        return "?"


@contextmanager
def attached(recorder: Recorder, headers: Mapping[str, str]) -> Iterator[None]:
    """Put the context of these headers in place: what starts inside continues the sender's trace.

    Takes HTTP headers in any case, or an environment that holds ``TRACEPARENT``. Without a valid one nothing changes.
    Raises `RecordError` for what is no mapping of names to strings.
    """
    sender = remote_parent(headers)
    with context_attached(headers):
        if sender is None:
            yield
            return
        with recorder.attached(Ids(sender.trace_id, sender.span_id)):
            yield
