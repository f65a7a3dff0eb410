"""Sets of moments as intervals: their union, how long two of them hold at once. Pure functions, nanoseconds."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Times = NDArray[np.int64]


@dataclass(frozen=True)
class Intervals:
    """Disjoint intervals [start, end) in the order of time."""

    starts: Times
    ends: Times

    @property
    def total(self) -> int:
        """How long they last together."""
        return int((self.ends - self.starts).sum())


def union(starts: Times, ends: Times) -> Intervals:
    """What is covered by at least one of the intervals, which may overlap and stand in any order.

    Intervals without a length cover nothing.
    """
    lasting = ends > starts
    if lasting.all() and (starts[1:] > ends[:-1]).all():
        return Intervals(starts, ends)  # as the slices of one thread come: nothing is copied
    starts, ends = starts[lasting], ends[lasting]
    if not len(starts):
        return Intervals(starts, ends)
    order = np.argsort(starts, kind="stable")
    starts, ends = starts[order], np.maximum.accumulate(ends[order])
    first = np.concatenate(([True], starts[1:] > ends[:-1]))
    last = np.concatenate((first[1:], [True]))
    return Intervals(starts[first], ends[last])


def overlap(one: Intervals, other: Intervals) -> int:
    """How long both hold at once."""
    if len(one.starts) > len(other.starts):
        one, other = other, one  # the longer one is only looked up in
    if not len(one.starts):
        return 0
    before = np.concatenate(([0], np.cumsum(other.ends - other.starts)))
    return int((_covered(other, before, one.ends) - _covered(other, before, one.starts)).sum())


def within(intervals: Intervals, start: int, end: int) -> int:
    """How long they hold between two moments."""
    first = int(np.searchsorted(intervals.ends, start, side="right"))
    last = int(np.searchsorted(intervals.starts, end, side="left"))
    starts, ends = intervals.starts[first:last], intervals.ends[first:last]
    return int((np.minimum(ends, end) - np.maximum(starts, start)).sum()) if last > first else 0


def _covered(intervals: Intervals, before: Times, moments: Times) -> Times:
    """How long they have held up to each moment; ``before``: up to the start of each interval."""
    latest = np.searchsorted(intervals.starts, moments, side="right") - 1
    inside = np.minimum(moments, intervals.ends[latest]) - intervals.starts[latest]
    return np.where(latest >= 0, before[latest] + inside, 0)
