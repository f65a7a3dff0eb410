"""Turns OpenTelemetry's spans into packets: lanes, arrows, and what is written beside them."""

import os
import zlib
from collections.abc import Sequence
from typing import Any

from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.trace import SpanContext
from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import BuiltinClock

from rltel.core.clock import Anchor
from rltel.core.context import new_id
from rltel.export.otel.lanes import Lanes
from rltel.export.otel.span_arrows import SpanArrows
from rltel.export.otel.span_notes import span_notes
from rltel.export.otel.track_packets import TrackEncoder, lane_track, process_track
from rltel.export.perfetto.wire import clock_packet, compressed

_LEVEL = 4  # of zlib, as in `perfetto`


class SpanDrawing:
    """Turns spans into packets: lanes, arrows, and what is written beside them."""

    def __init__(self, anchor: Anchor) -> None:
        self.undrawable = 0
        """Spans that hold what cannot be drawn (no start time, a negative one)."""
        self._encoder = TrackEncoder(BuiltinClock.BUILTIN_CLOCK_REALTIME)
        self._head = clock_packet(anchor)
        self._process = new_id()
        self._described: set[int] = set()
        self._resources: list[Resource] = []
        self._lanes = Lanes()
        self._lane_tracks: dict[tuple[Any, int], int] = {}
        self._arrows = SpanArrows()

    def block(self, spans: Sequence[ReadableSpan], *, is_first: bool) -> bytes:
        """The packets of one export, compressed, as entries of a Trace; the first begins with the clocks."""
        drawable = [span for span in reversed(spans) if (span.start_time or -1) >= 0 and span.context is not None]
        drawable.sort(key=lambda span: (span.start_time or 0, -(span.end_time or 0)))  # parents before children
        self.undrawable += len(spans) - len(drawable)
        for span, flows in self._arrows.of(drawable):
            try:
                self._draw(span, flows)
            except Exception:  # what a program hangs on a span must not cost the other spans
                self.undrawable += 1
        packets = (self._head if is_first else b"") + self._encoder.take()
        return compressed(packets, zlib.compress(packets, _LEVEL))

    def lost(self) -> None:
        """The last block is not in the file: what it introduced has to be said again."""
        self._encoder.discard()
        self._described.clear()
        self._arrows = SpanArrows()

    def _draw(self, span: ReadableSpan, flows: list[int]) -> None:
        context, begin = span.context, span.start_time
        assert context is not None
        assert begin is not None
        ended = begin if span.end_time is None else span.end_time
        notes = _notes(span, context)
        if ended < begin:  # the wall clock stepped back meanwhile; the SDK has no other
            notes["otel.end_time_unix_nano"] = ended
        track = self._track(span, context, begin, max(begin, ended))
        category = span.instrumentation_scope.name if span.instrumentation_scope else ""
        self._encoder.slice(track, begin, max(begin, ended), span.name, category, flows, notes)
        for event in span.events:
            self._encoder.instant(track, event.timestamp, event.name, category, dict(event.attributes or {}))

    def _track(self, span: ReadableSpan, context: SpanContext, begin: int, end: int) -> int:
        """The track of the lane that this span gets, described if it is new to the file."""
        group = (self._number_of(span.resource), (span.attributes or {}).get("thread.id"))
        parent = span.parent
        is_here = parent is not None and not parent.is_remote  # then it will be exported, too
        lane = self._lanes.place(
            group,
            begin,
            end,
            context.span_id,
            None if parent is None else parent.span_id,
            context.trace_id if is_here else None,
        )
        track = self._lane_tracks.setdefault((group, lane), new_id())
        if track not in self._described:
            if not self._described:
                self._describe_process(self._resources[0])
            self._described.add(track)
            self._encoder.describe(lane_track(track, self._process, self._lane_name(span)))
        return track

    def _describe_process(self, resource: Resource) -> None:
        labels = [f"{key}={value!s}" for key, value in resource.attributes.items() if key != "service.name"]
        self._encoder.describe(process_track(self._process, os.getpid(), _service(resource), labels))

    def _lane_name(self, span: ReadableSpan) -> str:
        thread = (span.attributes or {}).get("thread.name") or (span.attributes or {}).get("thread.id")
        name = "spans" if thread is None else str(thread)
        return name if self._number_of(span.resource) == 0 else f"{_service(span.resource)} {name}"

    def _number_of(self, resource: Resource) -> int:
        """Most programs have one resource; it is the process. Those of other providers only name their lanes."""
        for number, known in enumerate(self._resources):
            if known is resource or known == resource:
                return number
        self._resources.append(resource)
        return len(self._resources) - 1


def _service(resource: Resource) -> str:
    return str(resource.attributes.get("service.name", "unknown_service"))


def _notes(span: ReadableSpan, context: SpanContext) -> dict[str, Any]:
    links = [
        {**_ids(link.context), **({"attributes": dict(link.attributes)} if link.attributes else {})}
        for link in span.links
    ]
    return span_notes(
        **_ids(context),
        parent_id="" if span.parent is None else f"{span.parent.span_id:016x}",
        kind=span.kind.name,
        status=span.status.status_code.name,
        description=span.status.description or "",
        links=links,
        dropped={
            "attributes": span.dropped_attributes,
            "events": span.dropped_events,
            "links": span.dropped_links,
        },
        trace_state=context.trace_state.to_header() if context.trace_state else "",
        attributes=span.attributes,
    )


def _ids(context: SpanContext) -> dict[str, str]:
    return {"trace_id": f"{context.trace_id:032x}", "span_id": f"{context.span_id:016x}"}
