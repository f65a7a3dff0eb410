"""Our buckets as OpenTelemetry's exponential histograms of scale 4: both have 16 buckets per power of two.

Bucket ``k`` of scale 4 holds magnitudes in ``(2^(k/16), 2^((k+1)/16)]``, just as ours do above 0. Two things differ: a
negative value right on a bound counts in the bucket of the larger magnitudes (so that Prometheus's ``le`` is right); and
all that is above 2^24 stands in the first bucket above it.
"""

from collections.abc import Mapping
from dataclasses import dataclass
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
    whole = _whole(buckets)
    return Exponential(
        whole.get(0, 0),
        _dense({index + _SHIFT: count for index, count in whole.items() if index > 0}),
        _dense({-index + _SHIFT: count for index, count in whole.items() if index < 0}),
    )


def _whole(buckets: Mapping[int, float]) -> dict[int, int]:
    """Whole before they are told apart: what is cumulative must not fall."""
    seen, before = 0.0, 0
    whole = {}
    for index in sorted(buckets):
        seen += buckets[index]
        whole[index] = int(seen) - before
        before = int(seen)
    return whole


def _dense(sparse: Mapping[int, int]) -> Dense:
    if not sparse:
        return Dense(0, [])
    first = min(sparse)
    return Dense(first, [sparse.get(index, 0) for index in range(first, max(sparse) + 1)])
