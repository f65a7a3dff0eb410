"""Our buckets as OpenTelemetry's exponential histograms of scale 4: both have 16 buckets per power of two.

Bucket ``k`` of scale 4 holds magnitudes in ``(2^(k/16), 2^((k+1)/16)]``, just as ours do above 0. Two things differ: a
negative value right on a bound counts in the bucket of the larger magnitudes (so that Prometheus's ``le`` is right);
and all that is above 2^24 stands in the first bucket above it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import NamedTuple

from rltel.record.buckets import MIN_EXPONENT, PER_OCTAVE

SCALE = 4
_SHIFT = MIN_EXPONENT * PER_OCTAVE - 1  # our bucket 1 begins at 2^MIN_EXPONENT


class Dense(NamedTuple):
    """Counts of consecutive buckets, the first of which has the index ``offset``."""

    offset: int
    counts: list[int]


@dataclass(frozen=True)
class Exponential:
    """The counts of an exponential histogram. Magnitudes up to 2^-40 count as zero."""

    zero: int
    positive: Dense
    negative: Dense

    @property
    def count(self) -> int:
        """All values."""
        return self.zero + sum(self.positive.counts) + sum(self.negative.counts)


def exponential(buckets: Mapping[int, float]) -> Exponential:
    """Sparse counts as an exponential histogram. Half counts (weights) are made whole so that their sum stays."""
    indices = sorted(buckets)
    counts = dict(zip(indices, whole(list(accumulate(buckets[index] for index in indices))), strict=True))
    return Exponential(
        counts.get(0, 0),
        _dense({index + _SHIFT: count for index, count in counts.items() if index > 0}),
        _dense({-index + _SHIFT: count for index, count in counts.items() if index < 0}),
    )


def whole(cumulative: Sequence[float]) -> list[int]:
    """Counts of their own from those that go up, made whole before they are told apart: these must not fall."""
    return [upper - lower for lower, upper in pairwise([0, *map(int, cumulative)])]


def _dense(sparse: Mapping[int, int]) -> Dense:
    if not sparse:
        return Dense(0, [])
    first = min(sparse)
    return Dense(first, [sparse.get(index, 0) for index in range(first, max(sparse) + 1)])
