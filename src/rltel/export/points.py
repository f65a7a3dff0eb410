"""From a commit to data points with OpenTelemetry names: shared by Prometheus and OTLP.

`Totals` turns what each interval recorded into cumulative sums, before any queue, so that a commit that a queue drops
is still in the next sum.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from rltel.export.commit import Commit
from rltel.names.otel import Name, Namer
from rltel.record.buckets import at_most, bucket_of, middle
from rltel.record.kinds import COUNTER, HISTOGRAM, Moment, Moments, State
from rltel.reduce.snapshot import Metric

PointKind = Literal["gauge", "sum", "counter", "histogram"]

# Stable bounds: a series whose `le` labels change is a new series. Powers of two, exact in the buckets' layout.
SECONDS_BOUNDS = tuple(2.0**e for e in range(-20, 13))
VALUE_BOUNDS = (
    *(-(2.0**e) for e in range(20, -11, -1)),
    0.0,
    *(2.0**e for e in range(-10, 21)),
)


@dataclass(frozen=True, slots=True)
class HistogramValue:
    """A cumulative histogram: ``counts[i]`` values are at most ``bounds[i]``; ``count`` is all of them."""

    bounds: Sequence[float]
    counts: Sequence[float]
    count: float
    total: float


@dataclass(frozen=True, slots=True)
class Point:
    """One data point: ``sum`` is cumulative and may fall, ``counter`` is cumulative and never does."""

    name: str
    unit: str
    kind: PointKind
    attributes: Mapping[str, str]
    value: float | HistogramValue
    about: str
    tracker: str = ""


@dataclass(slots=True)
class _Total:
    """What one key has recorded since the process began."""

    moments: list[float] = field(default_factory=lambda: list(Moments()))
    buckets: dict[int, float] = field(default_factory=dict)

    def add(self, moments: Sequence[float], buckets: Mapping[int, float]) -> None:
        for moment in Moment:
            if moment not in (Moment.MIN, Moment.MAX):
                self.moments[moment.position] += moments[moment.position]
        for index, count in buckets.items():
            self.buckets[index] = self.buckets.get(index, 0.0) + count


class Totals:
    """Cumulative sums of everything that was committed, by key."""

    def __init__(self, namer: Namer) -> None:
        self._namer = namer
        self._by_key: dict[str, _Total] = {}

    def add(self, commit: Commit) -> None:
        """Count a commit in. Each commit exactly once, whether or not it goes anywhere."""
        for key, metric in commit.snapshot.items():
            total = self._by_key.get(key)
            if total is None:
                total = self._by_key[key] = _Total()
            total.add(*_in_unit(metric.state, name_of(key, metric, self._namer)))

    def of(self, key: str) -> _Total:
        """What this key has recorded."""
        return self._by_key[key]


def name_of(key: str, metric: Metric, namer: Namer) -> Name:
    """What a metric of a commit is called."""
    kind = metric.state.kind
    return namer.name(key, metric.tracker, counter=kind is COUNTER, phase=kind.phase)


def _in_unit(state: State, name: Name) -> tuple[Sequence[float], Mapping[int, float]]:
    """A state's moments and buckets as its OpenTelemetry metric has them."""
    if name.instrument != "histogram":
        return state.moments, state.buckets
    if not state.kind.bucketed:
        return _observed(state, name.scale)
    if state.kind is HISTOGRAM and name.scale != 1.0:
        return _rescaled(state, name.scale)
    return state.moments, state.buckets


def _observed(state: State, scale: float) -> tuple[Sequence[float], Mapping[int, float]]:
    """A catalogue histogram that was fed plain numbers observes each of them (at their average)."""
    moments = Moments(*state.moments)
    count = moments.n or 1.0  # a sum or an extreme is one number
    average = moments.total / moments.n if moments.n else next((value.value for value in state.values()), math.nan)
    if not math.isfinite(average):
        return moments._replace(total=0.0), {}
    return moments._replace(total=average * scale * count), {bucket_of(average * scale): count}


def _rescaled(state: State, scale: float) -> tuple[Sequence[float], Mapping[int, float]]:
    """A distribution in its metric's unit. Its buckets move as their middles do."""
    moments = Moments(*state.moments)
    buckets: dict[int, float] = {}
    for index, count in state.buckets.items():
        moved = bucket_of(middle(index) * scale)
        buckets[moved] = buckets.get(moved, 0.0) + count
    return moments._replace(total=moments.total * scale), buckets


def points_of(commit: Commit, totals: Totals, namer: Namer) -> list[Point]:
    """Every data point of a commit."""
    points = list(_axis_points(commit))
    incarnation = str(commit.identity.incarnation)
    for key, metric in commit.snapshot.items():
        points.extend(_points_of_metric(key, metric, totals.of(key), name_of(key, metric, namer), incarnation))
    return points


def _axis_points(commit: Commit) -> Iterator[Point]:
    """OpenTelemetry has no step axis: the step stands beside the metrics as a gauge."""
    yield Point("rl.step", "", "gauge", {"rl.axis": commit.axis}, float(commit.step), "Step of the last commit.")
    if commit.env_steps is not None:
        yield Point("rl.env_steps", "", "gauge", {}, float(commit.env_steps), "Environment steps so far.")


def _points_of_metric(key: str, metric: Metric, total: _Total, name: Name, incarnation: str) -> Iterator[Point]:
    kind = metric.state.kind
    if kind is COUNTER:
        yield _point(name, "counter", name.attributes, total.moments[Moment.SUM.position], metric)
        return
    histogram = name.instrument == "histogram"
    if kind.bucketed or histogram:
        yield from _distributions(metric, name, total)
    if not histogram:
        yield from _gauges(metric, name)
        if kind.averages:
            yield from _pair(metric, name, total, incarnation)
    if Moment.NAN in kind.keeps:
        yield _nonfinite(key, total, metric.tracker)


def _distributions(metric: Metric, name: Name, total: _Total) -> Iterator[Point]:
    """The histogram of what was recorded, under each name that it has."""
    unit = "s" if metric.state.kind.clocked else name.unit
    where = name.name if name.instrument == "histogram" else f"{name.name}.distribution"
    value = _histogram(total, unit)
    yield Point(where, unit, "histogram", name.attributes, value, name.about, metric.tracker)
    if name.also is not None:
        yield Point(name.also.name, unit, "histogram", name.also.attributes, value, name.also.about, metric.tracker)


def _gauges(metric: Metric, name: Name) -> Iterator[Point]:
    for value in metric.state.values():
        if value.stat in ("count", "nonfinite"):
            continue
        plain = name.canonical and not value.suffix  # a canonical name says by itself which statistic it is
        attributes = name.attributes if plain else {"rl.stat": value.stat, **name.attributes}
        yield _point(name, "gauge", attributes, value.value, metric)


def _pair(metric: Metric, name: Name, total: _Total, incarnation: str) -> Iterator[Point]:
    """Numerator and denominator of an average, so that a backend can weight over workers and time."""
    attributes = {**name.attributes, "rl.incarnation": incarnation}
    for part, moment in (("numerator", Moment.SUM), ("denominator", Moment.COUNT)):
        value = total.moments[moment.position]
        yield Point(
            f"{name.name}.{part}", "", "sum", attributes, value, f"{part.capitalize()} of the average.", metric.tracker
        )


def _nonfinite(key: str, total: _Total, tracker: str) -> Point:
    count = Moments(*total.moments).nonfinite
    return Point(
        "rl.stats.nonfinite", "", "counter", {"rl.key": key}, count, "Values that were NaN or infinite.", tracker
    )


def _point(name: Name, kind: PointKind, attributes: Mapping[str, str], value: float, metric: Metric) -> Point:
    return Point(name.name, name.unit, kind, attributes, value, name.about, metric.tracker)


def _histogram(total: _Total, unit: str) -> HistogramValue:
    bounds = SECONDS_BOUNDS if unit == "s" else VALUE_BOUNDS
    counts = at_most(total.buckets, bounds)
    moments = Moments(*total.moments)
    return HistogramValue(bounds, counts, sum(total.buckets.values()), moments.total)
