"""What was recorded since the process began: cumulative sums of everything that was committed.

They are added up before any queue, so that a commit that a queue drops is still in the next sum.
"""

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from rltel.export.commit import Commit
from rltel.names.otel import Name, Namer
from rltel.record.buckets import bucket_of, middle
from rltel.record.kinds import COUNTER, HISTOGRAM, Kind, Moment, Moments, State
from rltel.reduce.snapshot import Metric

_SUM, _COUNT = Moment.SUM.position, Moment.COUNT.position
_NONFINITE = tuple(moment.position for moment in (Moment.NAN, Moment.POSITIVE_INFINITY, Moment.NEGATIVE_INFINITY))


class Total:
    """Sum, count and buckets of everything that one key recorded, and how much of it was not finite."""

    __slots__ = ("buckets", "count", "nonfinite", "sum")

    def __init__(self) -> None:
        self.sum = 0.0
        self.count = 0.0
        self.nonfinite = 0.0
        self.buckets: dict[int, float] = {}

    def add(self, moments: Sequence[float], buckets: Mapping[int, float]) -> None:
        """What one commit has."""
        self.sum += moments[_SUM]
        self.count += moments[_COUNT]
        self.nonfinite += nonfinite_of(moments)
        for index, count in buckets.items():
            self.buckets[index] = self.buckets.get(index, 0.0) + count


class Known(NamedTuple):
    """What need not be found out again each time a key comes."""

    name: Name
    kind: Kind
    tracker: str
    total: Total
    nonfinite: Name | None
    """The count of what was not finite; None for kinds that keep no such count."""
    is_plain: bool
    """Whether its numbers are added as they are, and to nothing else."""
    gauges: dict[str, Mapping[str, str]]
    """The attributes of each of its statistics that was shown."""
    pairs: dict[str, Mapping[str, str]]
    """And those of its pair, by incarnation."""


class Totals:
    """Cumulative sums by key, and for each overflow series."""

    def __init__(self, namer: Namer) -> None:
        self.namer = namer
        self._known: dict[str, Known] = {}
        self._shared: dict[tuple[str, bool], Total] = {}
        self.axes: dict[str, Mapping[str, str]] = {}
        """The attributes of each axis's step."""
        self.nonfinite_rest = 0.0
        """Values that were not finite, of the keys that share the overflow series of that count."""

    def add(self, commit: Commit) -> None:
        """Count a commit in. Each commit exactly once, whether or not it goes anywhere."""
        for key, metric in commit.snapshot.items():
            known = self.known(key, metric)
            state = metric.state
            if known.is_plain:
                known.total.add(state.moments, state.buckets)
            else:
                self._add_all(known, state)

    def known(self, key: str, metric: Metric) -> Known:
        """What is known of a key, for the kind that it has in this commit."""
        known = self._known.get(key)
        if known is None or known.kind is not metric.state.kind or known.tracker != metric.tracker:
            known = self._known[key] = self._find_out(key, metric, known.total if known else Total())
        return known

    def shared(self, name: str, is_counter: bool) -> Total:
        """What the keys have recorded that share this metric's overflow series."""
        return self._shared.setdefault((name, is_counter), Total())

    def _find_out(self, key: str, metric: Metric, total: Total) -> Known:
        kind = metric.state.kind
        name = self.namer.name(key, metric.tracker, counter=kind is COUNTER, phase=kind.phase, series=_label_sets(kind))
        nonfinite = self.namer.nonfinite(key) if Moment.NAN in kind.keeps else None
        overflows = any(each is not None and each.overflow for each in (name, name.also, nonfinite))
        return Known(name, kind, metric.tracker, total, nonfinite, not (overflows or _is_converted(kind, name)), {}, {})

    def _add_all(self, known: Known, state: State) -> None:
        recorded = _in_unit(state, known.name)
        known.total.add(*recorded)
        for name in (known.name, known.name.also):
            if name is not None and name.overflow:
                self.shared(name.name, known.kind is COUNTER).add(*recorded)
        if known.nonfinite is not None and known.nonfinite.overflow:
            self.nonfinite_rest += nonfinite_of(state.moments)


def nonfinite_of(moments: Sequence[float]) -> float:
    """How many values were not finite."""
    nan, positive, negative = _NONFINITE
    return moments[nan] + moments[positive] + moments[negative]


def _label_sets(kind: Kind) -> int:
    """How many series one key of this kind may be under one name: one for each statistic that is shown."""
    return len(kind.suffixes) - ("__count" in kind.suffixes)


def _is_converted(kind: Kind, name: Name) -> bool:
    """Whether its numbers are not those of its OpenTelemetry metric."""
    return name.instrument == "histogram" and (not kind.bucketed or (kind is HISTOGRAM and name.scale != 1.0))


def _in_unit(state: State, name: Name) -> tuple[Sequence[float], Mapping[int, float]]:
    """A state's moments and buckets as its OpenTelemetry metric has them."""
    if not _is_converted(state.kind, name):
        return state.moments, state.buckets
    return _rescaled(state, name.scale) if state.kind.bucketed else _observed(state, name.scale)


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
