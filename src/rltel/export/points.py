"""From a commit to data points with OpenTelemetry names: shared by Prometheus and OTLP.

`Totals` turns what each interval recorded into cumulative sums, before any queue, so that a commit that a queue drops
is still in the next sum.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Literal

from rltel.export.commit import Commit
from rltel.names.otel import Name, Namer
from rltel.record.buckets import at_most, bucket_of, middle
from rltel.record.kinds import COUNTER, HISTOGRAM, Kind, Moment, Moments, State
from rltel.reduce.snapshot import Metric

PointKind = Literal["gauge", "sum", "counter", "histogram"]

# Stable bounds: a series whose `le` labels change is a new series. Powers of two, exact in the buckets' layout.
SECONDS_BOUNDS = tuple(2.0**e for e in range(-20, 13))
VALUE_BOUNDS = (
    *(-(2.0**e) for e in range(20, -11, -1)),
    0.0,
    *(2.0**e for e in range(-10, 21)),
)


@dataclass(frozen=True)
class HistogramValue:
    """A cumulative histogram, in our own buckets; shown with ``bounds``.

    What is not asked for costs nothing: between two scrapes there may be hundreds of commits.
    """

    bounds: Sequence[float]
    buckets: Mapping[int, float]
    total: float

    @cached_property
    def counts(self) -> Sequence[float]:
        """How many values are at most each of the bounds."""
        return at_most(self.buckets, self.bounds)

    @cached_property
    def count(self) -> float:
        """How many values there are."""
        return sum(self.buckets.values())


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
    """Cumulative sums of everything that was committed, by key, and for each overflow series."""

    def __init__(self, namer: Namer) -> None:
        self._namer = namer
        self._by_key: dict[str, _Total] = {}
        self._shared: dict[str, _Total] = {}
        self.nonfinite_rest = 0.0
        """Values that were not finite, of the keys that share the overflow series of that count."""

    def add(self, commit: Commit) -> None:
        """Count a commit in. Each commit exactly once, whether or not it goes anywhere."""
        for key, metric in commit.snapshot.items():
            name = name_of(key, metric, self._namer)
            total = self._by_key.get(key)
            if total is None:
                total = self._by_key[key] = _Total()
            recorded = _in_unit(metric.state, name)
            total.add(*recorded)
            for each in (name, name.also):
                if each is not None and each.overflow:
                    self.shared(each.name).add(*recorded)
            if Moment.NAN in metric.state.kind.keeps and self._namer.nonfinite(key).overflow:
                self.nonfinite_rest += Moments(*metric.state.moments).nonfinite

    def of(self, key: str) -> _Total:
        """What this key has recorded."""
        return self._by_key[key]

    def shared(self, name: str) -> _Total:
        """What the keys have recorded that share this metric's overflow series."""
        return self._shared.setdefault(name, _Total())


def name_of(key: str, metric: Metric, namer: Namer) -> Name:
    """What a metric of a commit is called."""
    kind = metric.state.kind
    return namer.name(key, metric.tracker, counter=kind is COUNTER, phase=kind.phase, series=_label_sets(kind))


def _label_sets(kind: Kind) -> int:
    """How many series one key of this kind may be under one name: one for each statistic that is shown."""
    return len(kind.suffixes) - ("__count" in kind.suffixes)


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
    late = _Late()
    for key, metric in commit.snapshot.items():
        name = name_of(key, metric, namer)
        total = totals.of(key)
        if name.overflow:
            late.take(name, metric)
        else:
            points.extend(_points_of_metric(metric, name, total, incarnation))
        if name.also is not None:
            points.extend(_as_part(metric, name, name.also, total, late))
        if Moment.NAN in metric.state.kind.keeps:
            points.extend(_nonfinite(namer.nonfinite(key), total, metric.tracker, late))
    points.extend(late.points(totals, incarnation))
    return points


class _Late:
    """What of a commit goes to overflow series: one series for all of a metric, with what they recorded together."""

    def __init__(self) -> None:
        self._metrics: dict[tuple[str, bool], tuple[Name, Metric]] = {}
        self._parts: dict[str, tuple[Name, str]] = {}
        self._nonfinite: Name | None = None

    def take(self, name: Name, metric: Metric) -> None:
        """A metric without a series of its own."""
        place = (name.name, metric.state.kind is COUNTER)
        if place not in self._metrics:
            kept = State(metric.state.kind, metric.state.moments, metric.state.buckets)
            self._metrics[place] = (name, Metric(kept))
        else:
            self._metrics[place][1].state.add(metric.state.moments, metric.state.buckets)

    def take_part(self, name: Name, unit: str) -> None:
        """A histogram whose second name has no series of its own."""
        self._parts[name.name] = (name, unit)

    def take_nonfinite(self, name: Name) -> None:
        """A count of what was not finite without a series of its own."""
        self._nonfinite = name

    def points(self, totals: Totals, incarnation: str) -> Iterator[Point]:
        """The points of the overflow series."""
        for name, metric in self._metrics.values():
            yield from _points_of_metric(metric, name, totals.shared(name.name), incarnation)
        for name, unit in self._parts.values():
            yield _histogram_point(name, unit, totals.shared(name.name), "")
        if self._nonfinite is not None:
            name = self._nonfinite
            yield Point(name.name, "", "counter", name.attributes, totals.nonfinite_rest, name.about)


def _axis_points(commit: Commit) -> Iterator[Point]:
    """OpenTelemetry has no step axis: the step stands beside the metrics as a gauge."""
    yield Point("rl.step", "", "gauge", {"rl.axis": commit.axis}, float(commit.step), "Step of the last commit.")
    if commit.env_steps is not None:
        yield Point("rl.env_steps", "", "gauge", {}, float(commit.env_steps), "Environment steps so far.")


def _points_of_metric(metric: Metric, name: Name, total: _Total, incarnation: str) -> Iterator[Point]:
    kind = metric.state.kind
    if kind is COUNTER:
        yield _point(name, "counter", name.attributes, total.moments[Moment.SUM.position], metric)
        return
    if name.instrument == "histogram":
        yield _histogram_point(name, _unit_of(metric, name), total, metric.tracker)
        return
    if kind.bucketed:
        distribution = replace(name, name=f"{name.name}.distribution")
        yield _histogram_point(distribution, _unit_of(metric, name), total, metric.tracker)
    yield from _gauges(metric, name)
    if kind.averages:
        yield from _pair(metric, name, total, incarnation)


def _as_part(metric: Metric, name: Name, also: Name, total: _Total, late: _Late) -> Iterator[Point]:
    """The same histogram under its second name."""
    if also.overflow:
        late.take_part(also, _unit_of(metric, name))
    else:
        yield _histogram_point(also, _unit_of(metric, name), total, metric.tracker)


def _unit_of(metric: Metric, name: Name) -> str:
    return "s" if metric.state.kind.clocked else name.unit


def _histogram_point(name: Name, unit: str, total: _Total, tracker: str) -> Point:
    bounds = SECONDS_BOUNDS if unit == "s" else VALUE_BOUNDS
    value = HistogramValue(bounds, dict(total.buckets), total.moments[Moment.SUM.position])
    return Point(name.name, unit, "histogram", name.attributes, value, name.about, tracker)


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


def _nonfinite(name: Name, total: _Total, tracker: str, late: _Late) -> Iterator[Point]:
    if name.overflow:
        late.take_nonfinite(name)
    else:
        count = Moments(*total.moments).nonfinite
        yield Point(name.name, "", "counter", name.attributes, count, name.about, tracker)


def _point(name: Name, kind: PointKind, attributes: Mapping[str, str], value: float, metric: Metric) -> Point:
    return Point(name.name, name.unit, kind, attributes, value, name.about, metric.tracker)
