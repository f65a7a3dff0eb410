"""From a lane's records to OTLP spans: parents by the order of begins and ends, ids by rule, bytes by hand.

Spans are made when slices end. What a slice causes on other lanes and in other processes refers to its id while it is
still open; `slice_id` is the rule by which both sides come to the same one.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from opentelemetry.sdk.resources import Resource

from rltel.core.context import new_id
from rltel.export.sink import Destination
from rltel.export.spans.flow_links import FlowLinks, Passed
from rltel.export.spans.wire import SpanData, SpanEncoder, Template, bare, request, resource_bytes
from rltel.record.lane import Lane, slice_id
from rltel.record.records import (
    Attached,
    Attributes,
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

SCOPE = "rltel"
OPEN_AT_END = "rltel.open_at_end"
CPU_TIME = "rl.thread.cpu_time"
_BODY_SPANS = 2000  # in one request: about 200 kB
_BODY_BYTES = 3_500_000  # gRPC's receivers refuse more than 4 MB
_MAX_TEMPLATES = 10_000


class RootSpan(NamedTuple):
    """The process's own span, in which everything lies that lies in nothing else."""

    ids: Ids
    name: str
    begin_ns: int
    """Monotonic."""
    parent: Ids | None = None


@dataclass
class _Extra:
    """What a span has beyond a name and times."""

    begin: Begin | None = None
    events: list[tuple[int, str, Attributes | None]] = field(default_factory=list)
    passed: list[Passed] = field(default_factory=list)
    """Flows through it."""


_Frame = tuple[int, int, Site | None, bytes, int, _Extra | None]
"""A slice that is open on a lane: span id, begin, site, trace id, parent id, extra. Without a site it is not ours."""


@dataclass
class _Stack:
    """What is open on a lane, and a bare begin whose time has not come yet."""

    frames: list[_Frame] = field(default_factory=list)
    site: Site | None = None


class SpanWriter:
    """Makes spans of what a process records, and hands them on in encoded requests."""

    name = "spans"

    def __init__(
        self,
        root: RootSpan,
        resource: Resource,
        to_unix_ns: int,
        send: Callable[[bytes, int], None],
        destination: Destination,
    ) -> None:
        """``to_unix_ns``: what is added to monotonic times; ``send``: takes a request and how many spans are in it."""
        self._root = root
        trace = root.ids.trace_id.to_bytes(16, "big")
        self._root_frame: _Frame = root.ids.span_id, root.begin_ns, None, trace, 0, None
        self._resource = resource_bytes(resource)
        self._to_unix = to_unix_ns
        self._send = send
        self._destination = destination
        self._encoder = SpanEncoder()
        self._templates: dict[Site, Template] = {}
        self._stacks: dict[Lane, _Stack] = {}
        self._free: dict[int, _Extra] = {}
        self._links = FlowLinks()
        self._shared: dict[Site, bytes] = {}  # what all spans of a site have in common, encoded
        self._flowing: list[tuple[SpanData, bytes, list[Passed]]] = []  # ended; what they link to is not known yet
        self._made: list[bytes] = []

    def begin_round(self) -> None:
        """Nothing to prepare: what is made goes to a queue, which is bounded."""

    def take(self, lane: Lane, records: list[Record]) -> None:
        """Make spans of what ended on a lane."""
        if lane.kind == "shared":
            for record in records:
                self._take_free(record)
            return
        stack = self._stacks.setdefault(lane, _Stack())
        frames, site = stack.frames, stack.site
        root = self._root_frame
        add, to_unix, seed = self._made.append, self._to_unix, lane.seed
        templates = self._templates
        for record in records:
            if type(record) is int:
                if site is not None:
                    around = frames[-1] if frames else root
                    frames.append((slice_id(seed, record, len(frames)), record, site, around[3], around[0], None))
                    site = None
                elif frames:
                    span_id, begin_ns, ended, trace, parent, extra = frame = frames.pop()
                    if ended is None:
                        continue
                    if extra is None:
                        template = templates.get(ended) or self._new_template(ended)
                        try:
                            add(bare(trace, span_id, parent, template, begin_ns + to_unix, record + to_unix))
                        except ValueError as error:  # times before 1970: a machine without a battery for its clock
                            self._destination.failed(error, "unreadable")
                    else:
                        self._end_rich(frame, End(record))
            elif isinstance(record, Site):
                site = record
            else:
                self._take_rare(lane, stack, record)
        stack.site = site

    def end_round(self) -> None:
        """Hand on what was made."""
        flowing, self._flowing = self._flowing, []
        for span, shared, passed in flowing:
            links = self._links.of(passed, Ids(span.trace_id, span.span_id))
            self._add(span._replace(links=links) if links else span, shared)
        made, self._made = self._made, []
        for spans in _batches(made):
            self._send(request(self._resource, {SCOPE: spans}), len(spans))
        if self._encoder.unreadable:
            error = TypeError("a span holds attributes, events or flows that cannot be written")
            self._destination.failed(error, "unreadable", self._encoder.unreadable)
            self._encoder.unreadable = 0

    def forget(self, lane: Lane) -> bool:
        """A lane's thread has ended."""
        stack = self._stacks.get(lane)
        if stack is not None and stack.frames:
            return False
        self._stacks.pop(lane, None)
        return True

    def close(self, now_ns: int) -> None:
        """End what is open, marked as such, and last the process's own span."""
        end = End(now_ns, {OPEN_AT_END: True})
        for stack in self._stacks.values():
            while stack.frames:
                self._end(stack, end)
        for number in list(self._free):
            self._end_free(number, end)
        root = self._root
        parent = root.parent.span_id if root.parent is not None else 0
        times = root.begin_ns + self._to_unix, now_ns + self._to_unix
        self._add(SpanData(*root.ids, parent, root.name, *times))
        self.end_round()

    # --- what carries more than times -------------------------------------------------------------------------------

    def _take_rare(self, lane: Lane, stack: _Stack, record: Record) -> None:
        if isinstance(record, Begin):
            self._begin(lane, stack, record)
        elif isinstance(record, End):
            self._end(stack, record)
        elif isinstance(record, Instant):
            self._instant(stack, record)
        elif isinstance(record, Attached):
            trace = record.parent.trace_id.to_bytes(16, "big")
            stack.frames.append((record.parent.span_id, 0, None, trace, 0, None))

    def _begin(self, lane: Lane, stack: _Stack, begin: Begin) -> None:
        frames = stack.frames
        around = frames[-1] if frames else self._root_frame
        belongs_to = begin.ids or begin.parent
        trace = around[3] if belongs_to is None else belongs_to.trace_id.to_bytes(16, "big")
        span_id = begin.ids.span_id if begin.ids is not None else slice_id(lane.seed, begin.time_ns, len(frames))
        parent = around[0]
        if begin.parent is not None:
            parent = begin.parent.span_id
        elif begin.span:
            parent = 0  # an iteration is a trace of its own, unless it has a parent
        passed = self._saw(begin.flows, Ids(int.from_bytes(trace, "big"), span_id), begin.time_ns)
        frames.append((span_id, begin.time_ns, begin.site, trace, parent, _Extra(begin, passed=passed)))

    def _end(self, stack: _Stack, end: End) -> None:
        """The end of the slice that is this deep."""
        frames = stack.frames
        if end.depth >= len(frames):
            return  # its begin was not kept
        frame = frames.pop(len(frames) - 1 - end.depth)
        if frame[2] is not None:
            self._end_rich(frame, end)

    def _end_rich(self, frame: _Frame, end: End) -> None:
        span_id, begin_ns, site, trace, parent, extra = frame
        assert site is not None
        self._finish(Ids(int.from_bytes(trace, "big"), span_id), parent, site, begin_ns, end, extra or _Extra())

    def _instant(self, stack: _Stack, instant: Instant) -> None:
        """An event of the slice that it lies in; else a span of no length."""
        frames = stack.frames
        time_ns = instant.time_ns
        span_id, begin_ns, site, trace, parent, extra = frames[-1] if frames else self._root_frame
        if site is None:
            ids = Ids(int.from_bytes(trace, "big"), new_id())
            begin = Begin(time_ns, Site(instant.name, instant.category), instant.flows, instant.attributes)
            extra = _Extra(begin, passed=self._saw(instant.flows, ids, time_ns))
            self._finish(ids, span_id, begin.site, time_ns, End(time_ns), extra)
            return
        if extra is None:
            extra = _Extra()
            frames[-1] = span_id, begin_ns, site, trace, parent, extra
        extra.events.append((time_ns + self._to_unix, instant.name, instant.attributes))
        extra.passed += self._saw(instant.flows, Ids(int.from_bytes(trace, "big"), span_id), time_ns)

    # --- slices on tracks of their own --------------------------------------------------------------------------------

    def _take_free(self, record: Record) -> None:
        try:
            if isinstance(record, FreeBegin):
                self._begin_free(record.number, record.begin)
            elif isinstance(record, FreeEnd):
                self._end_free(record.number, record.end)
            elif isinstance(record, Placed):
                number = new_id()
                self._begin_free(number, record.begin)
                self._end_free(number, End(record.end_ns, {"rl.track": record.track}))
        except Exception as error:  # times that are no integers, say: others' slices must not pay for it
            self._destination.failed(error, "unreadable")

    def _begin_free(self, number: int, begin: Begin) -> None:
        ids = Ids((begin.parent or self._root.ids).trace_id, number)
        self._free[number] = _Extra(begin, passed=self._saw(begin.flows, ids, begin.time_ns))

    def _end_free(self, number: int, end: End) -> None:
        extra = self._free.pop(number, None)
        if extra is not None and extra.begin is not None:
            begin = extra.begin
            parent = begin.parent or self._root.ids
            self._finish(Ids(parent.trace_id, number), parent.span_id, begin.site, begin.time_ns, end, extra)

    # --- making -------------------------------------------------------------------------------------------------------

    def _saw(self, flows: Flows | None, span: Ids, time_ns: int) -> list[Passed]:
        """Flows through a span. What is no id is counted."""
        if not flows:
            return []
        passed = self._links.saw(flows, span, time_ns)
        self._encoder.unreadable += len(flows) - len(passed)
        return passed

    def _finish(self, ids: Ids, parent_id: int, site: Site, begin_ns: int, end: End, extra: _Extra) -> None:
        attributes: dict[str, Any] = {}
        begin = extra.begin
        if begin is not None:
            if begin.attributes:
                attributes.update(begin.attributes)
            if begin.cpu_ns is not None and end.cpu_ns is not None:
                attributes[CPU_TIME] = (end.cpu_ns - begin.cpu_ns) / 1e9
        if end.attributes:
            attributes.update(end.attributes)
        if extra.passed:
            attributes["rl.flow.ids"] = list(dict.fromkeys([f"{flow:016x}" for flow, _ in extra.passed]))
        common = site.span_attributes
        shared = b""
        if common and attributes.keys().isdisjoint(common):
            shared = self._shared.get(site) or self._new_shared(site)
        elif common:
            attributes = {**common, **attributes}  # the span's own win
        to_unix = self._to_unix
        end_ns = max(end.time_ns, begin_ns)
        span = SpanData(
            ids[0], ids[1], parent_id, site.span_name, begin_ns + to_unix, end_ns + to_unix,
            attributes, end.error, extra.events,
        )  # fmt: skip
        if extra.passed:
            self._flowing.append((span, shared, extra.passed))
        else:
            self._add(span, shared)

    def _add(self, span: SpanData, shared: bytes = b"") -> None:
        try:
            self._made.append(self._encoder.span(span, shared))
        except ValueError as error:  # times before 1970, say
            self._destination.failed(error, "unreadable")

    def _new_shared(self, site: Site) -> bytes:
        if len(self._shared) >= _MAX_TEMPLATES:
            self._shared.clear()
        made = self._shared[site] = self._encoder.attributes(site.span_attributes)
        return made

    def _new_template(self, site: Site) -> Template:
        if len(self._templates) >= _MAX_TEMPLATES:
            self._templates.clear()
        made = self._templates[site] = self._encoder.template(site.span_name, site.span_attributes)
        return made


def _batches(made: Sequence[bytes]) -> Iterator[list[bytes]]:
    """Spans for one request each: not too many, and not too large together. (One that is too large goes alone.)"""
    batch: list[bytes] = []
    size = 0
    for span in made:
        if batch and (len(batch) >= _BODY_SPANS or size + len(span) > _BODY_BYTES):
            yield batch
            batch, size = [], 0
        batch.append(span)
        size += len(span)
    if batch:
        yield batch
