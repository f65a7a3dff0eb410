"""One clock in terms of another, from measurements of their offset: piecewise linear, and how far off that may be."""

from bisect import bisect_right
from collections.abc import Iterable
from typing import NamedTuple

# No two clocks drift faster: NTP slews by at most 500 ppm, and quartz is better than that. A steeper slope between two
# measurements is the error of one of them; and clocks that were measured only once may drift this much.
MOST_DRIFT = 1e-3
USUAL_DRIFT = 1e-4  # two quartz clocks whose drift was not measured


class Pair(NamedTuple):
    """Two clocks read at one moment, in ns, and how far from the same moment that may have been."""

    here_ns: int
    there_ns: int
    error_ns: int

    def turned(self) -> "Pair":
        """The same the other way round."""
        return Pair(self.there_ns, self.here_ns, self.error_ns)

    @property
    def offset_ns(self) -> int:
        """How far this clock is ahead of the other."""
        return self.here_ns - self.there_ns


class ClockMap:
    """Converts times of one clock to another. Integers throughout: nothing is rounded to a float's 100 ns."""

    def __init__(self, pairs: Iterable[Pair]) -> None:
        self.pairs = _credible(sorted(pairs))
        self._times = [pair.here_ns for pair in self.pairs]

    def at(self, time_ns: int) -> int:
        """That moment on the other clock. Never turns the order of two moments round."""
        pairs = self.pairs
        if len(pairs) == 1:
            return time_ns - pairs[0].offset_ns
        segment = min(max(bisect_right(self._times, time_ns) - 1, 0), len(pairs) - 2)
        first, second = pairs[segment], pairs[segment + 1]
        drift = second.offset_ns - first.offset_ns
        return time_ns - first.offset_ns - drift * (time_ns - first.here_ns) // (second.here_ns - first.here_ns)

    def bound(self, low_ns: int, high_ns: int) -> int:
        """How far (ns) the result may be from the truth for times from ``low_ns`` to ``high_ns``.

        The errors of the measurements, how much a measurement differs from what those beside it foretell, and what
        the uncertain drift adds up to before the first and after the last one.
        """
        before, after = max(self._times[0] - low_ns, 0), max(high_ns - self._times[-1], 0)
        start, end = self.pairs[:2], self.pairs[-2:]
        outside = max(before * _drift_error(start), after * _drift_error(end))
        return max(pair.error_ns for pair in self.pairs) + self._bend() + int(outside) + 1

    def _bend(self) -> int:
        bends = (
            abs(middle.there_ns - ClockMap([first, last]).at(middle.here_ns))
            for first, middle, last in zip(self.pairs, self.pairs[1:], self.pairs[2:], strict=False)
        )
        return max(bends, default=0)


def _drift_error(pairs: list[Pair]) -> float:
    """How far the drift between two neighbours may be from the true one, as a ratio."""
    if len(pairs) < 2:
        return USUAL_DRIFT
    first, second = pairs
    resolution = 2  # readings are whole nanoseconds
    return (first.error_ns + second.error_ns + resolution) / (second.here_ns - first.here_ns)


def _credible(pairs: list[Pair]) -> list[Pair]:
    """Without those that their neighbours prove wrong: of two between which the clocks jump, the surer one stays."""
    kept: list[Pair] = []
    for pair in pairs:
        while kept and _jumps(kept[-1], pair) and pair.error_ns < kept[-1].error_ns:
            kept.pop()
        if not kept or not _jumps(kept[-1], pair):
            kept.append(pair)
    return kept


def _jumps(first: Pair, second: Pair) -> bool:
    apart = second.here_ns - first.here_ns
    return apart <= 0 or abs(second.offset_ns - first.offset_ns) > MOST_DRIFT * apart
