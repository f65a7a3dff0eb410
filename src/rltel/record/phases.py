"""Phase clocks: how a learner or a collector spends its iterations.

One pair of clock readings serves both the slice and the number, so the picture and the metric cannot disagree. When an
iteration ends, each phase's total goes to a tracker under the key that its set declares.
"""

import logging
from collections.abc import Callable, Iterable
from typing import Any, NoReturn, Self

from rltel.core.errors import PhaseError
from rltel.core.steps import step_problem
from rltel.core.wording import suggestion
from rltel.record.lane import Open
from rltel.record.phase_sets import Phase, PhaseSet
from rltel.record.recorder import Recorder, timeline
from rltel.record.records import Attributes, Flows, Site
from rltel.record.slices import Raised, as_flows
from rltel.record.spans import Span
from rltel.record.tracker import Tracker

_log = logging.getLogger("rltel")


class PhaseClock:
    """The clock of one loop. Used by the loop's own thread (background phases may be timed from any thread)."""

    def __init__(self, phases: PhaseSet, tracker: Tracker, recorder: Recorder = timeline) -> None:
        self.phases = phases
        self.overlaps = 0
        """Exclusive phases that were entered while another was open: a contract violation."""
        self._recorder = recorder
        self._totals = {phase.name: _Total(phase, phases, tracker) for phase in phases.phases}
        self._spans = {name: _PhaseSpan(self, total) for name, total in self._totals.items()}
        self._site = Site(phases.loop, "rl.loop", f"rl.{phases.loop_rl}" if phases.loop_rl else phases.loop)
        self._record_loop: Callable[[int], None] | None = None
        if phases.loop_key is not None and phases.loop_metric is not None:
            self._record_loop = tracker.timing_appender(phases.loop_key, phases.loop_metric)
        self._in_iteration = False
        self._open_exclusive = 0
        self._next_step = 0

    def iteration(self, step: int | None = None, **attributes: Any) -> "Iteration":
        """One round of the loop: an ``rl.loop`` span, with a real OpenTelemetry context in place inside it.

        ``step``: which one it is; ``trace.steps`` goes by it (`rltel.record.window`). Raises `PhaseError` if that is no
        whole number from 0 to 2**63 - 1.
        """
        if step is not None and (wrong := step_problem(step)):
            raise PhaseError(f"{self.phases.loop}: step: {wrong}")
        return Iteration(self, step, attributes)

    cycle = iteration

    def phase(self, name: str, flow: int | Iterable[int] | None = None, **attributes: Any) -> "_PhaseSpan":
        """Time a phase of the current iteration. ``flow``: arrows through it; attributes are drawn with it.

        Raises `PhaseError` if the set has no such phase, `RecordError` if ``flow`` is no id.
        """
        try:
            span = self._spans[name]
        except KeyError:
            self._refuse_name("phase", name)
        flows = None if flow is None else as_flows(flow)
        if span.is_out or span.total.kind == "background":
            span = _PhaseSpan(self, span.total)  # entered again before its end, or maybe by another thread
        span.is_out = True
        span.flows = flows
        span.attributes = attributes or None
        return span

    def device_wait(self, name: str, inside: str) -> "_DeviceWait":
        """Time a wait for a device in the phase ``inside`` as the phase ``name``, whose work it is.

        An event-backed simulator returns from its step at once; the first read of its outputs, in a later phase, waits
        for the device. ``device_wait("backend_step", inside="update_state")`` draws and counts that wait as
        backend_step, and takes it off update_state. (So with the phases that these two belong to, if they differ.)

        Raises `PhaseError` if the set has no such phases, or if one is a background phase; on entering, if ``inside``
        is not open.
        """
        for each in (name, inside):
            if each not in self._totals:
                self._refuse_name("device_wait", each)
            if self._totals[each].kind == "background":
                raise PhaseError(f'device_wait: "{each}" is a background phase, whose times add up to nothing')
        return _DeviceWait(self, self._with_parents(name), self._with_parents(inside))

    def _with_parents(self, name: str) -> "list[_Total]":
        """A phase, and what it is nested in."""
        found: list[_Total] = []
        parent: str | None = name
        while parent is not None:
            found.append(self._totals[parent])
            parent = found[-1].phase.parent
        return found

    def _is_open(self, total: "_Total") -> bool:
        return self._spans[total.phase.name].is_out

    def _refuse_name(self, what: str, name: str) -> NoReturn:
        have = ", ".join(self._spans)
        raise PhaseError(
            f'{what}: the set "{self.phases.name}" of the {self.phases.role} has no "{name}"'
            f"{suggestion(name, self._spans)}; have {have}"
        )

    def _begin_iteration(self, step: int | None) -> int:
        """Which iteration this is: the one after the last, if nobody says."""
        if self._in_iteration:
            hint = "" if self.phases.role == "learner" else "; for rollouts at the same time use rltel.rl.sessions"
            raise PhaseError(
                f"{self.phases.loop}: entered again before the last one ended (a clock is of one loop{hint})"
            )
        self._in_iteration = True
        self._open_exclusive = 0
        for total in self._totals.values():
            total.begin_iteration()
        number = self._next_step if step is None else step
        self._next_step = number + 1
        return number

    def _end_iteration(self, wall_ns: int) -> None:
        self._in_iteration = False
        if self._record_loop is not None:
            self._record_loop(wall_ns)
        for total in self._totals.values():
            total.end_iteration()

    def _refuse(self, phase: Phase) -> NoReturn:
        loop = self.phases.loop
        way_in = "cycle" if loop == "cycle" else "iteration"
        raise PhaseError(f'phase "{phase.name}": entered outside of its {loop}; wrap it in "with clock.{way_in}():"')

    def _note_overlap(self, phase: Phase) -> None:
        self.overlaps += 1
        if self.overlaps == 1:
            _log.warning(
                "phase %s of the %s was entered while another exclusive phase was open: their times overlap and add up "
                "to more than the iteration (counted; reported once)",
                phase.name,
                self.phases.role,
            )


class _Total:
    """What a phase has taken in the current iteration."""

    __slots__ = ("calls", "kind", "moved_ns", "per_call", "phase", "record", "site", "spent_ns", "times")

    def __init__(self, phase: Phase, phases: PhaseSet, tracker: Tracker) -> None:
        self.phase = phase
        self.kind = phase.kind
        span_name = f"rl.{phase.rl}" if phase.rl else phase.name
        self.site = Site(phase.name, phase.kind, span_name, {"rl.phase": phase.name, "rl.phase.kind": phase.kind})
        self.record: Callable[[int], None] = tracker.timing_appender(phase.key, phases.metrics[phase.name])
        self.per_call = phase.per_call or phase.kind == "background"
        """Whether each call's time is recorded for itself, instead of the iteration's total."""
        self.begin_iteration()

    def begin_iteration(self) -> None:
        """All from zero."""
        self.spent_ns = self.times = self.moved_ns = 0
        self.calls: list[int] = []

    def end_iteration(self) -> None:
        """Record what it took."""
        for call in self.calls:
            self.record(call)
        if self.times:
            self.record(self.spent_ns)

    def end_call(self, duration_ns: int) -> None:
        """One call of those that are recorded each for itself."""
        if self.kind == "background":
            self.record(duration_ns)
        else:
            self.calls.append(duration_ns - self.moved_ns)
            self.moved_ns = 0

    def add(self, duration_ns: int) -> None:
        """It took so much more, somewhere else."""
        if not self.per_call:
            self.spent_ns += duration_ns
            self.times = self.times or 1
        elif self.calls:
            self.calls[-1] += duration_ns
        else:
            self.calls.append(duration_ns)

    def take_off(self, duration_ns: int) -> None:
        """So much of what it takes, while it is open, is another's."""
        if self.per_call:
            self.moved_ns += duration_ns
        else:
            self.spent_ns -= duration_ns


class Iteration(Span):
    """One iteration, from ``with`` to its end."""

    __slots__ = ("_clock", "_number", "_step")

    def __init__(self, clock: PhaseClock, step: int | None, attributes: dict[str, Any]) -> None:
        numbered = attributes if step is None else {"rl.loop.iteration": step, **attributes}
        super().__init__(clock._recorder, clock._site, None, numbered)
        self._clock = clock
        self._step = step

    def __enter__(self) -> Self:
        clock = self._clock
        self._number = clock._begin_iteration(self._step)
        try:
            self._recorder.begin_step(self._number, clock, numbered=self._step is not None)
            return super().__enter__()
        except BaseException:
            clock._in_iteration = False
            raise

    def __exit__(self, kind: Raised, error: BaseException | None, trace: object) -> None:
        super().__exit__(kind, error, trace)
        self._recorder.after_iteration()

    def _ended(self, duration_ns: int) -> None:
        self._recorder.end_step(self._number, self._clock)
        self._clock._end_iteration(duration_ns)


class _PhaseSpan(Open):
    """One phase, from ``with`` to its end. One object per phase is used again and again: it holds its own start."""

    __slots__ = ("_clock", "_now", "_recorder", "attributes", "flows", "is_out", "total")

    def __init__(self, clock: PhaseClock, total: _Total) -> None:
        self._clock = clock
        self._recorder = clock._recorder
        self._now = clock._recorder.now
        self.total = total
        self.flows: Flows | None = None
        self.attributes: Attributes | None = None
        self.is_out = False
        """Handed out to be entered, and not ended yet."""
        self.lane = None

    def __enter__(self) -> Self:
        clock = self._clock
        total = self.total
        kind = total.kind
        if not self.is_out:
            raise PhaseError(f'phase "{total.phase.name}": used for a second time; call phase again')
        if kind != "background":
            if not clock._in_iteration:
                self.is_out = False
                clock._refuse(total.phase)
            if kind == "exclusive":
                if clock._open_exclusive > 0:
                    clock._note_overlap(total.phase)
                clock._open_exclusive += 1
        self.begin_ns = start = self._now()
        recorder = self._recorder
        if recorder.on:
            recorder.enter(self, total.site, start, self.flows, self.attributes)
        return self

    def __exit__(self, kind: Raised, error: BaseException | None, trace: object) -> None:
        end = self._now()
        self.is_out = False
        if self.lane is not None:
            self._recorder.leave(self, end, kind)
        total = self.total
        if total.kind == "exclusive":
            self._clock._open_exclusive -= 1
        if total.per_call:
            total.end_call(end - self.begin_ns)
            return
        total.spent_ns += end - self.begin_ns
        total.times += 1


class _DeviceWait(Open):
    """A wait for a device, on the account of the phase that the device works for. Not a phase that is entered."""

    __slots__ = ("_clock", "_from", "_to")

    def __init__(self, clock: PhaseClock, to: list[_Total], taken_from: list[_Total]) -> None:
        self._clock = clock
        self._to = to
        self._from = taken_from
        self.lane = None

    def __enter__(self) -> Self:
        clock, inside = self._clock, self._from[0]
        if not clock._in_iteration:
            clock._refuse(self._to[0].phase)
        if not clock._is_open(inside):
            raise PhaseError(f'device_wait: "{inside.phase.name}" is not open; enter it around the wait')
        self.begin_ns = begin = clock._recorder.now()
        if clock._recorder.on:
            clock._recorder.enter(self, self._to[0].site, begin, None, {"rl.phase.inside": inside.phase.name})
        return self

    def __exit__(self, kind: Raised, error: BaseException | None, trace: object) -> None:
        recorder = self._clock._recorder
        end = recorder.now()
        if self.lane is not None:
            recorder.leave(self, end, kind)
        duration_ns = end - self.begin_ns
        for total in self._to:
            if total not in self._from:
                total.add(duration_ns)
        for total in self._from:
            if total not in self._to and self._clock._is_open(total):
                total.take_off(duration_ns)
