"""From a commit to data points with OpenTelemetry names: shared by Prometheus and OTLP.

What a key needs each time (its names, its sums) is remembered in `Totals`; what a commit adds is put beside it.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, NamedTuple

from rltel.export.commit import Commit
from rltel.export.moe_series import series_of_loads
from rltel.export.totals import Known, Total, Totals
from rltel.names.otel import Name
from rltel.record.buckets import at_most
from rltel.record.kinds import COUNTER, Kind, State
from rltel.reduce.snapshot import Metric
from rltel.rl.moe.loads import EXPERT_LOADS

__all__ = ["SECONDS_BOUNDS", "VALUE_BOUNDS", "HistogramValue", "Point", "PointKind", "Totals", "points_of"]

PointKind = Literal["gauge", "sum", "counter", "histogram"]

# Stable bounds: a series whose `le` labels change is a new series. Powers of two, exact in the buckets' layout.
SECONDS_BOUNDS = tuple(2.0**e for e in range(-20, 13))
VALUE_BOUNDS = (
    *(-(2.0**e) for e in range(20, -11, -1)),
    0.0,
    *(2.0**e for e in range(-10, 21)),
)

_NONE: Mapping[str, str] = {}


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


class Point(NamedTuple):
    """One data point: ``sum`` is cumulative and may fall, ``counter`` is cumulative and never does.

    Nobody changes its attributes: the points of a series may share them.
    """

    name: str
    unit: str
    kind: PointKind
    attributes: Mapping[str, str]
    value: float | HistogramValue
    about: str
    tracker: str = ""


def points_of(commit: Commit, totals: Totals) -> list[Point]:
    """Every data point of a commit, which the totals have counted in."""
    points = list(_axis_points(commit, totals))
    incarnation = str(commit.identity.incarnation)
    late = _Late()
    for key, metric in commit.snapshot.items():
        if metric.state.kind is EXPERT_LOADS:
            continue  # many series each: below
        known = totals.known(key, metric)
        if known.name.overflow:
            late.take(known, metric.state)
        else:
            points.extend(_points_of_metric(metric, known, known.total, incarnation))
        if known.name.also is not None:
            points.extend(_as_part(known, known.name.also, late))
        if known.nonfinite is not None:
            points.extend(_nonfinite(known.nonfinite, known, late))
    points.extend(late.points(totals, incarnation))
    points.extend(
        Point(name.name, name.unit, "gauge", name.attributes, value, name.about, tracker)
        for name, value, tracker in series_of_loads(commit.snapshot, totals.namer)
    )
    return points


class _Late:
    """What of a commit goes to overflow series: one series for all of a metric, with what they recorded together."""

    def __init__(self) -> None:
        self._metrics: dict[tuple[str, bool], tuple[Known, State]] = {}
        self._parts: dict[str, tuple[Name, str]] = {}
        self._nonfinite: Name | None = None

    def take(self, known: Known, state: State) -> None:
        """A metric without a series of its own."""
        place = (known.name.name, known.kind is COUNTER)
        if place not in self._metrics:
            self._metrics[place] = (known, State(known.kind, state.moments, state.buckets))
        else:
            self._metrics[place][1].add(state.moments, state.buckets)

    def take_part(self, name: Name, unit: str) -> None:
        """A histogram whose second name has no series of its own."""
        self._parts[name.name] = (name, unit)

    def take_nonfinite(self, name: Name) -> None:
        """A count of what was not finite without a series of its own."""
        self._nonfinite = name

    def points(self, totals: Totals, incarnation: str) -> Iterator[Point]:
        """The points of the overflow series."""
        for (name, is_counter), (known, state) in self._metrics.items():
            of_all = known._replace(tracker="")
            yield from _points_of_metric(Metric(state), of_all, totals.shared(name, is_counter), incarnation)
        for part, unit in self._parts.values():
            yield _histogram_point(part, part.name, unit, totals.shared(part.name, is_counter=False), "")
        if self._nonfinite is not None:
            last = self._nonfinite
            yield Point(last.name, "", "counter", last.attributes, totals.nonfinite_rest, last.about)


def _axis_points(commit: Commit, totals: Totals) -> Iterator[Point]:
    """OpenTelemetry has no step axis: the step stands beside the metrics as a gauge."""
    attributes = totals.axes.setdefault(commit.axis, {"rl.axis": commit.axis})
    yield Point("rl.step", "", "gauge", attributes, float(commit.step), "Step of the last commit.")
    if commit.env_steps is not None:
        yield Point("rl.env_steps", "", "gauge", _NONE, float(commit.env_steps), "Environment steps so far.")


def _points_of_metric(metric: Metric, known: Known, total: Total, incarnation: str) -> Iterator[Point]:
    name, kind, tracker = known.name, known.kind, known.tracker
    if kind is COUNTER:
        yield Point(name.name, name.unit, "counter", name.attributes, total.sum, name.about, tracker)
        return
    if name.instrument == "histogram":
        yield _histogram_point(name, name.name, _unit_of(kind, name), total, tracker)
        return
    if kind.bucketed:
        yield _histogram_point(name, f"{name.name}.distribution", _unit_of(kind, name), total, tracker)
    for suffix, stat, value in metric.state.values():
        if stat not in ("count", "nonfinite"):
            attributes = known.gauges.get(stat) or _gauge_attributes(known, stat, suffix)
            yield Point(name.name, name.unit, "gauge", attributes, value, name.about, tracker)
    if kind.averages:
        yield from _pair(known, total, incarnation)


def _gauge_attributes(known: Known, stat: str, suffix: str) -> Mapping[str, str]:
    name = known.name
    plain = name.canonical and not suffix  # a canonical name says by itself which statistic it is
    made = known.gauges[stat] = name.attributes if plain else {"rl.stat": stat, **name.attributes}
    return made


def _pair(known: Known, total: Total, incarnation: str) -> Iterator[Point]:
    """Numerator and denominator of an average, so that a backend can weight over workers and time."""
    name, tracker = known.name, known.tracker
    attributes = known.pairs.get(incarnation)
    if attributes is None:
        attributes = known.pairs[incarnation] = {**name.attributes, "rl.incarnation": incarnation}
    above, below = "Numerator of the average.", "Denominator of the average."
    yield Point(f"{name.name}.numerator", "", "sum", attributes, total.sum, above, tracker)
    yield Point(f"{name.name}.denominator", "", "sum", attributes, total.count, below, tracker)


def _as_part(known: Known, also: Name, late: _Late) -> Iterator[Point]:
    """The same histogram under its second name."""
    if also.overflow:
        late.take_part(also, _unit_of(known.kind, known.name))
    else:
        yield _histogram_point(also, also.name, _unit_of(known.kind, known.name), known.total, known.tracker)


def _nonfinite(name: Name, known: Known, late: _Late) -> Iterator[Point]:
    if name.overflow:
        late.take_nonfinite(name)
    else:
        yield Point(name.name, "", "counter", name.attributes, known.total.nonfinite, name.about, known.tracker)


def _unit_of(kind: Kind, name: Name) -> str:
    return "s" if kind.clocked else name.unit


def _histogram_point(name: Name, named: str, unit: str, total: Total, tracker: str) -> Point:
    bounds = SECONDS_BOUNDS if unit == "s" else VALUE_BOUNDS
    value = HistogramValue(bounds, dict(total.buckets), total.sum)
    return Point(named, unit, "histogram", name.attributes, value, name.about, tracker)
