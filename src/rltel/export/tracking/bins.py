"""A distribution's buckets as bins with edges, which is how tracking services take histograms."""

import math

from rltel.record.buckets import upper_bound
from rltel.record.kinds import HISTOGRAM, Moments, State

MAX_BINS = 128


def bins_of(state: State) -> tuple[list[float], list[float]] | None:
    """Counts of adjacent bins, and their edges (one more, ascending, all finite). None if there is nothing to show.

    Where the values span more than `MAX_BINS` buckets, two, four ... of them share a bin.
    """
    if state.kind is not HISTOGRAM or not state.buckets:
        return None
    first, last = min(state.buckets), max(state.buckets)
    stride = 1
    while (last - first) // stride + 1 > MAX_BINS:
        stride *= 2
    counts = [0.0] * ((last - first) // stride + 1)
    for index, count in state.buckets.items():
        counts[(index - first) // stride] += count
    edges = [upper_bound(min(first + stride * number - 1, last)) for number in range(len(counts) + 1)]
    return counts, _seen(edges, Moments(*state.moments))


def _seen(edges: list[float], moments: Moments) -> list[float]:
    """The outermost edges are the extremes that were seen, where edges still ascend then (and never infinite)."""
    if moments.low < edges[1]:
        edges[0] = moments.low
    elif math.isinf(edges[0]):
        edges[0] = math.nextafter(edges[1], -math.inf)
    if moments.high > edges[-2]:
        edges[-1] = moments.high
    elif math.isinf(edges[-1]):
        edges[-1] = math.nextafter(edges[-2], math.inf)
    return edges
