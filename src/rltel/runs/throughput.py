"""How fast a run goes: between its last two commits, and over the last iterations."""

from collections import deque
from typing import NamedTuple

WINDOW_ITERATIONS = 100


class _Point(NamedTuple):
    step: int
    amount: int
    time_ns: int


class Throughput:
    """Rates of something that is counted, over the wall clock.

    Points are cumulative, so a rate is a difference of two of them, and what leaves the window takes its own
    count along. (Keeping a running sum, and taking off the newest amount for the oldest, is how UniLab's tail shows
    1000 steps/s for a run that does 10.)
    """

    def __init__(self, window_iterations: int = WINDOW_ITERATIONS) -> None:
        self._window = window_iterations
        self._points: deque[_Point] = deque()

    def add(self, step: int, amount: int, time_ns: int) -> None:
        """At this step and time (monotonic, ns) there were so many. O(1), amortised.

        The first commit of a step counts. A step or an amount that goes back (an earlier checkpoint) starts anew.
        """
        points = self._points
        if points and (step < points[-1].step or amount < points[-1].amount):
            points.clear()
        if points and step == points[-1].step:
            return
        points.append(_Point(step, amount, time_ns))
        while len(points) > 2 and points[1].step <= step - self._window:
            points.popleft()

    @property
    def iterations(self) -> int:
        """How many the tail is over: at most the window's, unless commits lie further apart."""
        return self._points[-1].step - self._points[0].step if self._points else 0

    @property
    def last(self) -> float | None:
        """Per second, between the last two commits; None before there are two."""
        return _rate(self._points[-2], self._points[-1]) if len(self._points) > 1 else None

    @property
    def tail(self) -> float | None:
        """Per second, over the window."""
        return _rate(self._points[0], self._points[-1]) if len(self._points) > 1 else None


def _rate(earlier: _Point, later: _Point) -> float | None:
    elapsed_ns = later.time_ns - earlier.time_ns
    return (later.amount - earlier.amount) * 1e9 / elapsed_ns if elapsed_ns > 0 else None
