"""What is new in a point that holds everything since its program began: the difference to the one before."""

from collections import Counter
from dataclasses import replace
from typing import Any

from opentelemetry.sdk.metrics.export import ExponentialHistogramDataPoint, HistogramDataPoint, NumberDataPoint

from rltel.export.otel.points import Distribution

_Point = NumberDataPoint | Distribution


class Deltas:
    """Remembers the last point of every series."""

    def __init__(self) -> None:
        self._before: dict[str, _Point] = {}

    def of(self, key: str, point: _Point) -> _Point:
        """The point with what came since the one before; the point itself if it is the first, or began anew.

        Extremes stay those of all time, as far as there are any: nobody knows better.
        """
        before = self._before.get(key)
        self._before[key] = point
        if before is None or before.start_time_unix_nano != point.start_time_unix_nano:
            return point
        return _minus(point, before) or point


def _minus(point: Any, before: Any) -> Any:
    """None if the earlier point cannot be part of the later one."""
    if type(point) is not type(before):
        return None
    if isinstance(point, NumberDataPoint):
        return replace(point, value=point.value - before.value) if point.value >= before.value else None
    made = _explicit(point, before) if isinstance(point, HistogramDataPoint) else _exponential(point, before)
    return None if made is None else replace(made, count=point.count - before.count, sum=point.sum - before.sum)


def _explicit(point: HistogramDataPoint, before: HistogramDataPoint) -> HistogramDataPoint | None:
    if list(point.explicit_bounds) != list(before.explicit_bounds):
        return None
    counts = [now - then for now, then in zip(point.bucket_counts, before.bucket_counts, strict=True)]
    return None if min(counts, default=0) < 0 else replace(point, bucket_counts=counts)


def _exponential(
    point: ExponentialHistogramDataPoint, before: ExponentialHistogramDataPoint
) -> ExponentialHistogramDataPoint | None:
    shift = before.scale - point.scale  # a program makes its bins wider when the values do not fit any more
    zero = point.zero_count - before.zero_count
    if shift < 0 or zero < 0:
        return None
    sides = {}
    for name in ("positive", "negative"):
        now, then = getattr(point, name), getattr(before, name)
        held: Counter[int] = Counter()
        for number, count in enumerate(then.bucket_counts):
            held[(then.offset + number) >> shift] += count
        counts = [count - held.pop(now.offset + number, 0) for number, count in enumerate(now.bucket_counts)]
        if min(counts, default=0) < 0 or held.total():
            return None
        sides[name] = replace(now, bucket_counts=counts)
    return replace(point, zero_count=zero, **sides)
