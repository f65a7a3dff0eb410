"""OpenTelemetry's metric points, of whatever program, as numbers and bins that files can hold.

A series is called as it is written in PromQL: ``name{attribute=value}``, attributes sorted.
"""

import math
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from opentelemetry.sdk.metrics.export import (
    AggregationTemporality,
    ExponentialHistogramDataPoint,
    HistogramDataPoint,
    MetricsData,
    NumberDataPoint,
    Sum,
)

_LARGEST_EXPONENT = 1023.99  # of what a float holds

Distribution = HistogramDataPoint | ExponentialHistogramDataPoint


class Bin(NamedTuple):
    """How many values were above ``low`` and at most ``high``."""

    low: float
    high: float
    held: float


class Series(NamedTuple):
    """One point of one series. ``delta``: what it holds is of the last interval, not of all time."""

    key: str
    point: NumberDataPoint | Distribution
    monotonic: bool
    delta: bool


class Keys:
    """What series are called, remembered: two scopes that have the same name and attributes are kept apart."""

    def __init__(self) -> None:
        self._owners: dict[str, str] = {}

    def series(self, data: MetricsData) -> Iterator[Series]:
        """Every point."""
        for of_resource in data.resource_metrics:
            for of_scope in of_resource.scope_metrics:
                for metric in of_scope.metrics:
                    of = metric.data
                    delta = getattr(of, "aggregation_temporality", None) is AggregationTemporality.DELTA
                    monotonic = isinstance(of, Sum) and of.is_monotonic
                    for point in of.data_points:
                        key = self._key(metric.name, point.attributes or {}, of_scope.scope.name)
                        yield Series(key, point, monotonic, delta)

    def _key(self, name: str, attributes: Any, scope: str) -> str:
        inner = ",".join(f"{key}={attributes[key]}" for key in sorted(attributes))
        key = f"{name}{{{inner}}}" if inner else name
        return key if self._owners.setdefault(key, scope) == scope else f"{scope}/{key}"


def bins_of_point(point: Distribution) -> list[Bin]:
    """The bins of a histogram that hold something, and those between them, ascending and side by side."""
    made = list(_explicit(point) if isinstance(point, HistogramDataPoint) else _exponential(point))
    filled = [number for number, each in enumerate(made) if each.held]
    if not filled:
        return []
    made = made[filled[0] : filled[-1] + 1]
    low, high = _extremes(point, made)
    made[0] = made[0]._replace(low=low)
    made[-1] = made[-1]._replace(high=high)
    return made


def _explicit(point: HistogramDataPoint) -> Iterator[Bin]:
    edges = [-math.inf, *point.explicit_bounds, math.inf]
    for low, high, count in zip(edges, edges[1:], point.bucket_counts, strict=False):
        yield Bin(low, high, count)


def _exponential(point: ExponentialHistogramDataPoint) -> Iterator[Bin]:
    lower, upper = point.negative, point.positive
    for number in reversed(range(len(lower.bucket_counts))):
        smaller, larger = _bounds(lower.offset + number, point.scale)
        yield Bin(-larger, -smaller, lower.bucket_counts[number])
    last = -_bounds(lower.offset, point.scale)[0] if lower.bucket_counts else 0.0
    if point.zero_count:
        zero = float(getattr(point, "zero_threshold", 0.0))  # not every version of the SDK has it
        yield Bin(min(last, -zero), zero, point.zero_count)
        last = zero
    for number, count in enumerate(upper.bucket_counts):
        low, high = _bounds(upper.offset + number, point.scale)
        if low > last:
            yield Bin(last, low, 0.0)
        yield Bin(low, high, count)
        last = high


def _bounds(index: int, scale: int) -> tuple[float, float]:
    width = 2.0**-scale
    return 2.0 ** min(index * width, _LARGEST_EXPONENT), 2.0 ** min((index + 1) * width, _LARGEST_EXPONENT)


def _extremes(point: Distribution, made: Sequence[Bin]) -> tuple[float, float]:
    """What was seen, else what the bins say: never infinite."""
    first, last = made[0], made[-1]
    low, high = point.min, point.max
    if low is None or not first.low <= low <= first.high:
        low = first.low if math.isfinite(first.low) else min(first.high, 0.0)
    if high is None or not last.low <= high <= last.high:
        high = last.high if math.isfinite(last.high) else max(last.low, 0.0)
    if math.isinf(low):
        low = high
    if math.isinf(high):
        high = low
    return low, max(low, high)
