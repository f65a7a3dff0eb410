"""The fixed layout of histogram buckets, so that merging histograms is a plain sum.

Layout ``b16``: 16 buckets per power of two for magnitudes from 2^-40 to 2^24, both signs, a zero bucket (magnitudes up
to 2^-40) and two overflow buckets. Bucket ``i`` > 0 holds values in ``(2^((i-1)/16 - 40), 2^(i/16 - 40)]``, bucket
``-i`` those in ``(-2^(i/16 - 40), -2^((i-1)/16 - 40)]``, bucket 0 zero. Bounds at powers of two are exact, and a value
on a bound belongs to the bucket below it on the number line, for both signs, as Prometheus's ``le`` wants it (a reward
of -1 is at most -1). A quantile read from a bucket's geometric middle is off by at most 2.2%.
"""

import math
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping

import numpy as np
import numpy.typing as npt

LAYOUT = "b16"
PER_OCTAVE = 16
MIN_EXPONENT, MAX_EXPONENT = -40, 24
OVERFLOW = (MAX_EXPONENT - MIN_EXPONENT) * PER_OCTAVE + 1  # the bucket of magnitudes above 2^24
SIZE = 2 * OVERFLOW + 1
_SMALLEST = 2.0**MIN_EXPONENT

# Where a mantissa in [1, 2) falls is decided by comparing with these and nothing else, so that one value lands in the
# same bucket whether it came alone, in an array or on a device.
THRESHOLDS = tuple(2.0 ** (step / PER_OCTAVE) for step in range(PER_OCTAVE))
_THRESHOLDS = np.array(THRESHOLDS)


def bucket_of(value: float) -> int:
    """The bucket of one finite value."""
    if -_SMALLEST < value <= _SMALLEST:
        return 0
    mantissa, exponent = math.frexp(abs(value))  # magnitude = 2*mantissa * 2^(exponent-1), 2*mantissa in [1, 2)
    octave = (exponent - 1 - MIN_EXPONENT) * PER_OCTAVE
    if value > 0:
        return min(octave + bisect_left(THRESHOLDS, 2.0 * mantissa), OVERFLOW)
    return -min(octave + bisect_right(THRESHOLDS, 2.0 * mantissa), OVERFLOW)


def count_buckets(values: npt.NDArray[np.float64]) -> dict[int, float]:
    """How many of these finite values fall into each bucket, without the empty ones."""
    mantissas, exponents = np.frexp(np.abs(values))
    mantissas *= 2.0
    steps = np.searchsorted(_THRESHOLDS, mantissas, side="left")
    negative = values < 0
    if negative.any():
        steps += negative & (_THRESHOLDS.take(steps, mode="clip") == mantissas)  # on a bound: the bucket below it
    indices = np.minimum((exponents.astype(np.int64) - 1 - MIN_EXPONENT) * PER_OCTAVE + steps, OVERFLOW)
    indices = np.where(negative, -indices, indices)
    indices[(values > -_SMALLEST) & (values <= _SMALLEST)] = 0
    return sparse(np.bincount((indices + OVERFLOW).ravel(), minlength=SIZE))


def sparse(dense: npt.ArrayLike) -> dict[int, float]:
    """Counts of all `SIZE` buckets, from the lowest to the highest, without the empty ones."""
    counts = np.asarray(dense)
    found = np.flatnonzero(counts)
    return dict(zip((found - OVERFLOW).tolist(), counts[found].astype(np.float64).tolist(), strict=True))


def upper_magnitude(index: int) -> float:
    """The larger magnitude of a bucket's two bounds (infinite for the overflow buckets, 2^-40 for the zero bucket)."""
    position = abs(index)
    if position >= OVERFLOW:
        return math.inf
    octave, step = divmod(position, PER_OCTAVE)
    return float(THRESHOLDS[step] * 2.0 ** (octave + MIN_EXPONENT))


def middle(index: int) -> float:
    """The value that stands for a bucket: the geometric middle of its bounds, 0 for the zero bucket."""
    if index == 0:
        return 0.0
    lower = upper_magnitude(abs(index) - 1)
    upper = upper_magnitude(index)
    magnitude = lower if math.isinf(upper) else math.sqrt(lower * upper)
    return math.copysign(magnitude, index)


def quantile(buckets: Mapping[int, float], q: float, below: float = 0.0, above: float = 0.0) -> float:
    """The value at rank ``q * (n - 1)``, between two values by linear interpolation, as NumPy does by default.

    Each of the two is right to within the layout's relative error. ``below`` and ``above`` count values that are
    -infinity and +infinity. NaN if there is nothing.
    """
    total = below + above + sum(buckets.values())
    if not total:
        return math.nan
    rank = q * (total - 1)
    lower = _at_rank(buckets, math.floor(rank), below)
    upper = _at_rank(buckets, math.ceil(rank), below)
    share = rank - math.floor(rank)
    return lower if lower == upper or not share else (1.0 - share) * lower + share * upper


def _at_rank(buckets: Mapping[int, float], rank: int, below: float) -> float:
    if rank < below:
        return -math.inf
    seen = below
    for index in sorted(buckets):
        seen += buckets[index]
        if rank < seen:
            return middle(index)
    return math.inf


def at_most(buckets: Mapping[int, float], bounds: Iterable[float]) -> list[float]:
    """For each bound, in ascending order, how many values are at most that.

    Exact where bounds are signed powers of two, or 0 (which counts the zero bucket).
    """
    ordered = sorted(buckets)
    counts: list[float] = []
    total, position = 0.0, 0
    for bound in bounds:
        while position < len(ordered) and upper_bound(ordered[position]) <= bound:
            total += buckets[ordered[position]]
            position += 1
        counts.append(total)
    return counts


def upper_bound(index: int) -> float:
    """The upper bound of a bucket on the number line."""
    if index > 0:
        return upper_magnitude(index)
    return -upper_magnitude(-index - 1) if index else 0.0
