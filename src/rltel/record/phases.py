"""Phase clocks: how a learner or a collector spends its iterations.

One pair of clock readings serves both the slice and the number, so the picture and the metric cannot disagree. When an
iteration ends, each phase's total goes to a tracker under the key that its set declares.
"""

import logging
from collections.abc import Iterable
from types import TracebackType
from typing import Any, NoReturn, Self

from opentelemetry import context as otel_context

from rltel.core.context import current, new_id, new_trace_id, span_context, with_span
from rltel.core.errors import PhaseError
from rltel.record.kinds import PHASE_S, TIMING
from rltel.record.phase_sets import Phase, PhaseSet
from rltel.record.recorder import End, Flows, Recorder, ThreadBuffer, as_flows, timeline
from rltel.record.tracker import Tracker

_log = logging.getLogger("rltel")


class PhaseClock:
    """The clock of one loop. Used by the loop's own thread (background phases may be timed from any thread)."""

    def __init__(self, phases: PhaseSet, tracker: Tracker, recorder: Recorder = timeline) -> None:
        self.phases = phases
        self.overlaps = 0
        """Exclusive phases that were entered while another was open: a contract violation."""
        self._recorder = recorder
        self._tracker = tracker
        self._spans = {phase.name: _PhaseSpan(self, phase) for phase in phases.phases}
        self._recorders = {phase.name: tracker.timing_appender(phase.key, phase.metric) for phase in phases.phases}
        loop_kind = TIMING if (phases.loop_key or "").startswith("timeperf/") else PHASE_S
        self._record_loop = tracker.timing_appender(phases.loop_key, loop_kind) if phases.loop_key else None
        self._in_iteration = False
        self._open_exclusive = 0
        self._spent: dict[str, int] = {}

    def iteration(self, step: int | None = None) -> "Iteration":
        """One round of the loop: an ``rl.loop`` span, with a real OpenTelemetry context in place inside it."""
        return Iteration(self, step)

    cycle = iteration

    def phase(self, name: str, flow: int | Iterable[int] | None = None, **attributes: Any) -> "_PhaseSpan":
        """Time a phase of the current iteration. ``flow``: arrows through it; attributes are drawn with it.

        Raises `PhaseError` if the set has no such phase.
        """
        try:
            span = self._spans[name]
        except KeyError:
            have = ", ".join(self._spans)
            raise PhaseError(
                f'phase: the set "{self.phases.name}" of the {self.phases.role} has no "{name}"; have {have}'
            ) from None
        if span.is_open or span.phase.kind == "background":
            span = _PhaseSpan(self, span.phase)  # entered again before its end, or maybe by another thread
        span.flows = None if flow is None else as_flows(flow)
        span.attributes = attributes or None
        return span

    def _begin_iteration(self) -> None:
        if self._in_iteration:
            raise PhaseError(f"{self.phases.loop}: entered again before the last one ended")
        self._in_iteration = True
        self._spent = {}
        self._open_exclusive = 0

    def _end_iteration(self, wall_ns: int) -> None:
        self._in_iteration = False
        if self._record_loop is not None:
            self._record_loop(wall_ns)
        for name, spent in self._spent.items():
            self._recorders[name](spent)

    def _refuse(self, phase: Phase) -> NoReturn:
        loop = self.phases.loop
        raise PhaseError(f'phase "{phase.name}": entered outside of its loop; wrap it in "with clock.{loop}():"')

    def _note_overlap(self, phase: Phase) -> None:
        self.overlaps += 1
        if self.overlaps == 1:
            _log.warning(
                "phase %s of the %s was entered while another exclusive phase was open: their times overlap and add up "
                "to more than the iteration (counted; reported once)",
                phase.name,
                self.phases.role,
            )


class Iteration:
    """One iteration, from ``with`` to its end."""

    __slots__ = ("_buffer", "_clock", "_start", "_step", "_token", "context")

    def __init__(self, clock: PhaseClock, step: int | None) -> None:
        self._clock = clock
        self._step = step

    def __enter__(self) -> Self:
        clock = self._clock
        clock._begin_iteration()
        recorder = clock._recorder
        parent = current()
        self.context = span_context(parent.trace_id if parent else new_trace_id(), new_id())
        self._token = otel_context.attach(with_span(self.context))
        self._start = recorder.now()
        self._buffer: ThreadBuffer | None = None
        if recorder.on:
            attributes: dict[str, Any] = {
                "trace_id": f"{self.context.trace_id:032x}",
                "span_id": f"{self.context.span_id:016x}",
            }
            if self._step is not None:
                attributes["rl.loop.iteration"] = self._step
            self._buffer = recorder.begin((self._start, clock.phases.loop, "rl.loop", None, attributes))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        end = self._clock._recorder.now()
        if self._buffer is not None:
            self._buffer.records.append(end if kind is None else End(end, {"error": kind.__name__}))
        otel_context.detach(self._token)
        self._clock._end_iteration(end - self._start)


class _PhaseSpan:
    """One phase, from ``with`` to its end. One object per phase is used again and again: it holds its own start."""

    __slots__ = ("_buffer", "_clock", "_start", "attributes", "flows", "is_open", "phase")

    def __init__(self, clock: PhaseClock, phase: Phase) -> None:
        self._clock = clock
        self.phase = phase
        self.flows: Flows | None = None
        self.attributes: dict[str, Any] | None = None
        self.is_open = False
        self._buffer: ThreadBuffer | None = None

    def __enter__(self) -> Self:
        clock = self._clock
        phase = self.phase
        if phase.kind != "background":
            if not clock._in_iteration:
                clock._refuse(phase)
            if phase.kind == "exclusive":
                if clock._open_exclusive:
                    clock._note_overlap(phase)
                clock._open_exclusive += 1
        self.is_open = True
        recorder = clock._recorder
        self._start = start = recorder.now()
        if recorder.on:
            self._buffer = recorder.begin((start, phase.name, phase.kind, self.flows, self.attributes))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        clock = self._clock
        end = clock._recorder.now()
        self.is_open = False
        if self._buffer is not None:
            self._buffer.records.append(end if kind is None else End(end, {"error": kind.__name__}))
            self._buffer = None
        phase = self.phase
        if phase.kind == "background":
            clock._recorders[phase.name](end - self._start)
            return
        if phase.kind == "exclusive":
            clock._open_exclusive -= 1
        spent = clock._spent
        spent[phase.name] = spent.get(phase.name, 0) + end - self._start
