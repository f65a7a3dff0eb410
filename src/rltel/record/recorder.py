"""Where slices go: lanes of small records, turned into packets and spans by the pipeline.

A slice's begin and its end are separate records, so that a slice that is open when the process dies is in the file,
open. Code without an event loop records on its thread's lane; code in an asyncio task on a lane that the task has for
as long as anything of it is open, so tasks that interleave do not disturb each other's nesting.
"""

import logging
import os
import time
from asyncio import _get_running_loop as running_loop
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from opentelemetry.trace import Tracer

from rltel.core.context import new_id, new_trace_id
from rltel.core.errors import RecordError
from rltel.record.lane import Inside, Lane, Open, slice_id
from rltel.record.lanes import Lanes
from rltel.record.records import (
    Attached,
    Attributes,
    Begin,
    CounterSample,
    End,
    Flows,
    FreeBegin,
    Ids,
    Instant,
    Placed,
    Record,
    Site,
)
from rltel.record.slices import (
    Handle,
    Quiet,
    Raised,
    RichSlice,
    Slice,
    SliceSite,
    Unheard,
    as_attributes,
    as_flows,
)
from rltel.record.window import Window

_log = logging.getLogger("rltel")
MAX_RECORDS = 3 << 19  # per lane, between two drains: about 100 MB; what does not fit is counted, not kept
_MAX_SITES = 10_000  # that are remembered


def _nothing() -> None:
    """Nobody wants to know."""


class Recorder:
    """Where slices go. Off until the telemetry starts it; then every thread gets a lane at its first record."""

    def __init__(self, now: Callable[[], int] = time.perf_counter_ns, limit: int = MAX_RECORDS) -> None:
        self.now = now
        self.after_iteration: Callable[[], None] = _nothing
        """Called when an iteration has ended, by its thread: devices are asked then what they have done."""
        self._limit = limit
        self._window: Window | None = None
        self._inside: ContextVar[Inside | None] = ContextVar("rltel.inside", default=None)  # set under event loops only
        self.reset()

    on: bool
    """Whether slices are recorded now."""

    def reset(self) -> None:
        """Forget everything (a forked child must not write its parent's records)."""
        self._is_awaited = False
        self.lost = 0
        """Slices of a process that never called init."""
        self._begin_anew(thread_time=False)
        self.stop()

    def _begin_anew(self, *, thread_time: bool) -> None:
        """On lanes on which nothing is left from before."""
        self._thread_time = thread_time
        self._lanes = Lanes(self._limit, thread_time=thread_time)
        self._mine = self._lanes.mine
        self._sites: dict[str | tuple[str, str], SliceSite] = {}
        self._quiet: dict[str, Quiet] = {}

    # --- on and off -------------------------------------------------------------------------------------------------

    def start(self, *, steps: Iterable[int] | None = None, thread_time: bool = False) -> None:
        """Begin to record, on new lanes; with ``steps`` (the first and the last), once the first of them begins."""
        self._begin_anew(thread_time=thread_time)
        self._window = None if steps is None else Window(*steps)
        self._switch(self._window is None)

    def stop(self) -> None:
        """Stop recording. What is on the lanes stays to be taken; slices that are open still write their end."""
        self._window = None
        self._switch(False)
        self.tracer: Tracer | None = None
        """A user's own: iterations and rollouts are started live on it."""
        self.root: Ids | None = None
        """What slices belong to that lie in nothing else: the process's own span."""
        self.adopted = False
        """Whether the process's span is part of another one's trace: then iterations are, too."""

    def begin_step(self, step: int, clock: object, *, numbered: bool) -> None:
        """An iteration of this clock begins. ``numbered``: by the user, not by the clock."""
        if self._window is not None:
            self._switch(self._window.begin(step, clock, numbered=numbered, on=self.on))

    def end_step(self, step: int, clock: object) -> None:
        """It has ended."""
        if self._window is not None:
            self._switch(self.on and not self._window.ends_with(step, clock))

    def _switch(self, on: bool) -> None:
        self.on = on
        self._bare = on and not self._thread_time  # whether a slice need not say more than when

    # --- without init -------------------------------------------------------------------------------------------------

    def is_awaited(self) -> None:
        """Init was called: from here on slices that are not drawn are not wanted."""
        self._is_awaited = True
        self._quiet.clear()

    def _silent(self) -> type[Quiet]:
        return Quiet if self._is_awaited else Unheard

    def unheard(self) -> None:
        """A slice was opened in a process that never called init, as a worker that somebody forgot."""
        self.lost += 1
        if self.lost == 1:
            _log.warning("slice: rltel.init was not called in this process, so nothing is drawn (counted; said once)")

    # --- lanes ------------------------------------------------------------------------------------------------------

    @property
    def shared(self) -> Lane:
        """The lane of what lies on no thread."""
        return self._lanes.shared

    def lanes(self) -> list[Lane]:
        """All lanes that may hold records."""
        return self._lanes.all()

    def forget(self, lane: Lane) -> None:
        """Nothing more will come from this lane: its thread has ended."""
        self._lanes.forget(lane)

    @property
    def dropped(self) -> int:
        """Slices, instants and samples that were not kept because their lane was full, since the start."""
        return self._lanes.dropped

    def here(self) -> Lane:
        """The lane to open a slice on: this task's, or this thread's."""
        return self._lanes.here()

    def thread_lane(self) -> Lane:
        """This thread's lane."""
        return self._lanes.of_thread()

    # --- slices -----------------------------------------------------------------------------------------------------

    def slice(
        self,
        name: str,
        category: str = "",
        *,
        flow: int | Iterable[int] | None = None,
        attributes: Attributes | None = None,
    ) -> Any:
        """A context manager, or a decorator, that draws what runs inside as a slice of this thread or task.

        ``flow``: ids (`new_flow`) of arrows that pass through this slice; slices with the same id are joined in the
        order of time, over threads and processes. What is known only later goes to ``.set(key=value)`` of what ``with``
        gives. What this returns is for one use at a time: call it anew for every ``with``.

        Raises `RecordError` if the name is no string, and on entering a slice that is open.
        """
        if flow is None and attributes is None and not category:
            try:
                if not self.on:
                    return self._quiet[name]
                if self._bare:
                    return Slice(self._sites[name])
            except (KeyError, TypeError):
                self._open_site(name)
                return self.slice(name)
        _check_name(name)
        flows = as_flows(flow)
        if not self.on:
            return self._silent()(self, name, category, flows, attributes)
        return RichSlice(self._site(name, category), flows, attributes)

    def _open_site(self, name: str) -> None:
        _check_name(name)
        if len(self._quiet) >= _MAX_SITES:
            self._quiet.clear()
        self._quiet[name] = self._silent()(self, name, "", None, None)
        self._site(name, "")

    def _site(self, name: str, category: str) -> SliceSite:
        """The same object for the same place: what reads the records remembers things by it."""
        key: str | tuple[str, str] = (name, category) if category else name
        found = self._sites.get(key)
        if found is None:
            if len(self._sites) >= _MAX_SITES:
                self._sites.clear()  # names made up on the way must not fill the memory
            found = self._sites[key] = SliceSite(name, category, self, self._mine)
        return found

    def begin(
        self,
        name: str,
        category: str = "",
        *,
        flow: int | Iterable[int] | None = None,
        attributes: Attributes | None = None,
    ) -> Handle:
        """Begin a slice that ends when ``.end()`` of what this returns is called, wherever that is.

        It may overlap any other: it is drawn on a track of its name, on as many lanes as it takes.
        """
        if not self.on:
            return Handle(self.now, self.shared, 0)
        number, lane = new_id(), self.shared
        begin = Begin(self.now(), Site(name, category), as_flows(flow), as_attributes(attributes), parent=self.origin())
        kept = self._append(lane, FreeBegin(number, begin))
        return Handle(self.now, lane, number if kept else 0)

    def place(
        self,
        track: str,
        name: str,
        begin_ns: int,
        end_ns: int,
        category: str = "",
        *,
        flow: int | Iterable[int] | None = None,
        attributes: Attributes | None = None,
    ) -> None:
        """Draw a whole slice, known afterwards, on a track of its own (monotonic clock, nanoseconds).

        On one track, give slices in the order of their begins; those that overlap get another lane. Raises
        `RecordError` for one that ends before it begins.
        """
        if self.on:
            if end_ns < begin_ns:
                raise RecordError(f"place_slice({name!r}): expected end_ns >= begin_ns, got {end_ns} < {begin_ns}")
            begin = Begin(begin_ns, Site(name, category), as_flows(flow), as_attributes(attributes))
            self._append(self.shared, Placed(track, begin, end_ns))

    def instant(
        self,
        name: str,
        category: str = "",
        *,
        flow: int | Iterable[int] | None = None,
        attributes: Attributes | None = None,
    ) -> None:
        """Mark one moment on this thread's or task's track."""
        if self.on:
            instant = Instant(self.now(), name, category, as_flows(flow), as_attributes(attributes))
            lane = self._lanes.open_here()
            self._append(lane, instant)
            if self.tracer is not None and lane.top is not None:
                lane.top.happened(name, instant.attributes)

    def counter(self, name: str, value: float, unit: str = "") -> None:
        """One sample of a counter, drawn as a track of its own. Raises `RecordError` if the value is no number."""
        if self.on:
            try:
                number = float(value)
            except (TypeError, ValueError, OverflowError):
                raise RecordError(f"counter({name!r}): expected a number, got {value!r}") from None
            self._append(self._lanes.open_here(), CounterSample(self.now(), name, unit, number))

    def _append(self, lane: Lane, record: Record) -> bool:
        if len(lane.records) >= lane.limit:
            lane.dropped += 1
            return False
        lane.records.append(record)
        return True

    # --- the way in and out, for slices of all kinds ------------------------------------------------------------------

    def enter(
        self,
        span: Open,
        site: Site,
        time_ns: int,
        flows: Flows | None = None,
        attributes: Attributes | None = None,
    ) -> None:
        """Open `span` here."""
        if self._bare and flows is None and attributes is None and running_loop() is None:
            try:
                lane = self._mine.lane
            except AttributeError:
                lane = self.thread_lane()
            records = lane.records
            if len(records) >= lane.limit:
                lane.dropped += 1
                span.lane = None
                return
            span.lane = lane
            span.begin_ns = time_ns
            span.outer = lane.top
            span.plain = True
            lane.top = span
            records.append(site)
            records.append(time_ns)
            return
        self.enter_with(span, Begin(time_ns, site, flows, attributes))

    def enter_with(self, span: Open, begin: Begin) -> None:
        """Open `span` here, with more to say."""
        lane = self.here()
        if not self._has_room(lane):
            span.lane = None
            return
        span.start(lane, begin.time_ns, begin.ids)
        if running_loop() is not None:
            parent = self._step_inside(span, lane, begin.parent)
            begin = begin._replace(ids=span.ids, parent=parent)
        if lane.thread_time:
            begin = begin._replace(cpu_ns=time.thread_time_ns())
        self._open(span, lane, begin)

    def _open(self, span: Open, lane: Lane, begin: Begin | Attached) -> None:
        span.outer = lane.top  # again: garbage collection may have closed what was there a moment ago
        lane.top = span
        lane.records.append(begin)
        self._lanes.hold(lane)

    def _has_room(self, lane: Lane) -> bool:
        if len(lane.records) < lane.limit:
            return True
        lane.dropped += 1
        self._lanes.release(lane)
        return False

    def leave(self, span: Open, time_ns: int, raised: Raised) -> None:
        """Close `span`, wherever it was opened."""
        lane = span.lane
        if lane is None:
            return
        span.lane = None
        if span.plain and lane.top is span and raised is None:
            lane.top = span.outer
            lane.records.append(time_ns)
            return
        span.say_more()
        lane.close(span, self._end(span, lane, time_ns, raised))
        if span.in_loop:
            self._step_out(span, lane)
            self._lanes.release(lane)

    def _end(self, span: Open, lane: Lane, time_ns: int, raised: Raised) -> int | End:
        """How a slice ends. A generator that nobody runs to its end is no error."""
        said = {**(span.said or {}), "abandoned": True} if raised is GeneratorExit else span.said
        error = None if raised is None or raised is GeneratorExit else raised.__name__
        cpu_ns = time.thread_time_ns() if lane.thread_time and self._lanes.is_mine(lane) else None
        return time_ns if (said, error, cpu_ns) == (None, None, None) else End(time_ns, said, error, cpu_ns)

    # --- what belongs to what, over lanes -----------------------------------------------------------------------------

    def origin(self) -> Ids | None:
        """The ids of the innermost slice that is open here, for what it causes elsewhere. None if nothing is open."""
        lane = self._lanes.open_here()
        if lane.kind == "task" and lane.top is not None:
            return self._ids_of(lane, lane.top)
        lane = self.thread_lane()
        if lane.top is None or running_loop() is not None:
            inherited = self._inherited()
            if inherited is not None:
                return inherited
        return self._ids_of(lane, lane.top)  # under a loop: what runs the loop

    @contextmanager
    def attached(self, parent: Ids) -> Iterator[None]:
        """What begins inside, on this lane and in the tasks created inside, belongs to this parent."""
        held = Open()
        held.lane = None
        if self.on:
            self._attach(held, parent)
        try:
            yield
        finally:
            self.leave(held, self.now(), None)

    def _attach(self, held: Open, parent: Ids) -> None:
        lane = self.here()
        if not self._has_room(lane):
            return
        held.start(lane, self.now(), parent)
        if running_loop() is not None:
            self._step_inside(held, lane, parent)
        self._open(held, lane, Attached(parent))

    def _step_inside(self, span: Open, lane: Lane, parent: Ids | None) -> Ids | None:
        """Tasks and callbacks that are created inside a slice are its children. Returns what it lies in itself.

        (None: what is around it on its lane.)
        """
        around = self._inside.get()
        if lane.top is None and lane.kind == "task":
            lane.inherited = self.origin()
        if parent is None:
            parent = self._parent_of(lane, around)
        if span.ids is None:
            trace_id = parent.trace_id if parent is not None else self._trace_of(span)
            span.ids = Ids(trace_id, slice_id(lane.seed, span.begin_ns, lane.depth_of(span)))
        span.in_loop, span.around = True, around
        self._inside.set(Inside(span.ids, lane.task, lane.inherited))
        return parent

    def _parent_of(self, lane: Lane, around: Inside | None) -> Ids | None:
        """What a slice lies in, if that is not what is around it on its lane."""
        if lane.kind == "task":
            return lane.inherited if lane.top is None else None
        top = lane.top
        if around is None or (top is not None and not top.plain and top.ids == around.ids):
            return None
        return around.ids  # a callback belongs to what scheduled it, not to what runs the loop

    def _step_out(self, span: Open, lane: Lane) -> None:
        """What comes next here lies in what is around the slice that has ended."""
        if self._lanes.is_of_this_task(lane):
            top = lane.top
            if top is not None and top.ids is not None:
                self._inside.set(Inside(top.ids, lane.task, lane.inherited))
            else:
                self._inside.set(None if lane.inherited is None else Inside(lane.inherited))
            return
        here = self._inside.get()
        if here is not None and here.ids == span.ids and lane.kind == "thread":
            self._inside.set(span.around)

    def _inherited(self) -> Ids | None:
        """What this task, callback or thread was created in."""
        here = self._inside.get()
        if here is None:
            return None
        is_own = here.task is not None and self._lanes.is_running(here.task)  # ended where this task could not see it
        return here.before if is_own else here.ids

    def _ids_of(self, lane: Lane, span: Open | None) -> Ids | None:
        """The ids of a slice that is open."""
        if span is None:
            return None
        span.say_more()
        if span.ids is None:
            span.ids = Ids(self._trace_of(span), slice_id(lane.seed, span.begin_ns, lane.depth_of(span)))
        return span.ids

    def _trace_of(self, span: Open) -> int:
        outer = span.outer
        while outer is not None:
            if not outer.plain and outer.ids is not None:
                return outer.ids.trace_id
            outer = outer.outer
        return self._root_trace()

    def _root_trace(self) -> int:
        return self.root.trace_id if self.root is not None else new_trace_id()


def _check_name(name: object) -> None:
    if not isinstance(name, str):
        raise RecordError(f'slice: expected a name, as in rltel.slice("reward"), got {name!r}')


timeline = Recorder()
"""The process's recorder."""
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=timeline.reset)
