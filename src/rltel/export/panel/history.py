"""What the panel knows of the whole run, beside the window: since when it runs, and how the return has moved."""

import math
from collections import deque
from typing import Literal, NamedTuple

from rltel.export.panel.labels import ITERATION
from rltel.export.panel.llm.keys import reward_key
from rltel.export.panel.sample import Sample

_COMPARED = 10
_MOVED = 0.05

Trend = Literal["up", "down", "flat"]


class Progress(NamedTuple):
    """How far a run is."""

    iteration: int
    elapsed_s: float
    """Since the first commit."""
    eta_s: float | None
    """Until the last iteration; None where that is not known, or nothing can be told yet."""
    peak: float | None
    """The highest mean return so far. Values that are not finite are none."""
    trend: Trend | None
    """The last ten reports against the ten before, from 5% of their size; None before there are twenty."""


class History:
    """Grows by nothing but a few numbers, however long the run."""

    def __init__(self) -> None:
        self._began_ns: int | None = None
        self._first_iteration = 0
        self._iteration = 0
        self._peak: float | None = None
        self._returns: deque[float] = deque(maxlen=2 * _COMPARED)

    def add(self, sample: Sample, now_ns: int) -> None:
        """One more learner sample."""
        told = sample.values.get(ITERATION)
        iteration = sample.step if told is None or not math.isfinite(told) else int(told)
        if self._began_ns is None:
            self._began_ns, self._first_iteration = now_ns, iteration
        self._iteration = iteration
        key = reward_key(tuple(sample.values))
        self._add_return(None if key is None else sample.values[key])

    def _add_return(self, value: float | None) -> None:
        if value is None or not math.isfinite(value):
            return
        self._returns.append(value)
        self._peak = value if self._peak is None else max(self._peak, value)

    def progress(self, now_ns: int, max_iterations: int | None) -> Progress:
        """Where the run is now."""
        elapsed_s = 0.0 if self._began_ns is None else (now_ns - self._began_ns) / 1e9
        return Progress(self._iteration, elapsed_s, self._eta_s(elapsed_s, max_iterations), self._peak, self._trend())

    def _eta_s(self, elapsed_s: float, max_iterations: int | None) -> float | None:
        """At this process's pace: what a run did before it was resumed does not count."""
        done = self._iteration - self._first_iteration
        if max_iterations is None or done <= 0:
            return None
        return elapsed_s / done * max(max_iterations - self._iteration, 0)

    def _trend(self) -> Trend | None:
        if len(self._returns) < 2 * _COMPARED:
            return None
        reports = list(self._returns)
        before, now = sum(reports[:_COMPARED]) / _COMPARED, sum(reports[_COMPARED:]) / _COMPARED
        # Of its size, not of itself: a return that falls from -100 to -103 has not gone up.
        if abs(now - before) <= _MOVED * abs(before):
            return "flat"
        return "up" if now > before else "down"
