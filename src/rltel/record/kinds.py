"""Kinds of metrics: which moments a kind keeps, how each merges, and how merged moments become values.

Every kind keeps a subset of the same seven moments, so batches, workers and ranks merge by one rule:
element-wise, by the moment's own operation. Sums, counts and extremes are over *finite* values; NaN and the infinities
are counted beside them, and the value is derived from all of it, so that it is the same whoever held the NaN.
"""

import math
import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import NamedTuple

from rltel.names.phases import PhaseLabel, read_label
from rltel.record.buckets import quantile


class Op(Enum):
    """How two values of one moment become one."""

    SUM = "sum"
    MIN = "min"
    MAX = "max"


class Moment(Enum):
    """What a state can keep, with the operation that merges it and the value that changes nothing."""

    SUM = (0, Op.SUM, 0.0)
    COUNT = (1, Op.SUM, 0.0)
    MIN = (2, Op.MIN, math.inf)
    MAX = (3, Op.MAX, -math.inf)
    NAN = (4, Op.SUM, 0.0)
    POSITIVE_INFINITY = (5, Op.SUM, 0.0)
    NEGATIVE_INFINITY = (6, Op.SUM, 0.0)

    def __init__(self, position: int, op: Op, identity: float) -> None:
        self.position = position
        self.op = op
        self.identity = identity


class Moments(NamedTuple):
    """All seven moments of some values. Where weights are given, ``total`` is the weighted sum and ``n`` the weight."""

    total: float = 0.0
    n: float = 0.0
    low: float = math.inf
    high: float = -math.inf
    nan: float = 0.0
    positive_infinity: float = 0.0
    negative_infinity: float = 0.0

    @property
    def nonfinite(self) -> float:
        """How many values were not finite."""
        return self.nan + self.positive_infinity + self.negative_infinity


EMPTY = Moments()
_OPERATIONS: dict[Op, Callable[[float, float], float]] = {Op.SUM: operator.add, Op.MIN: min, Op.MAX: max}
_MERGES = tuple(_OPERATIONS[moment.op] for moment in Moment)


class Value(NamedTuple):
    """One number of a metric: what is appended to its key in the flat dict, which statistic it is, and the number."""

    suffix: str
    stat: str
    value: float


_made = tuple.__new__  # what a named tuple's own constructor calls, at half the cost
Finish = Callable[[Moments, Mapping[int, float]], Sequence[Value]]


@dataclass(frozen=True, slots=True, eq=False)  # a kind is itself: comparing and hashing its fields would be slow
class Kind:
    """One kind of metric. ``replaces``: the last recorded value replaces earlier ones of this process."""

    name: str
    keeps: tuple[Moment, ...]
    finish: Finish
    suffixes: tuple[str, ...] = ("",)
    """What may follow its key in the flat dict."""
    bucketed: bool = False
    replaces: bool = False
    adds_up: bool = False
    """What one process records adds up, and of several processes the largest counts: time spent side by side."""
    averages: bool = False
    """Whether sum and count make an average that a backend may want to weight itself."""
    clocked: bool = False
    """Whether it is measured in seconds, whatever its key says."""
    phase: PhaseLabel | None = None
    """Which phase of whose loop it times."""
    positions: tuple[int, ...] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "positions", tuple(moment.position for moment in self.keeps))

    def __reduce__(self) -> tuple[Callable[[str], "Kind"], tuple[str]]:
        """By name: states that were pickled or copied are still of the same kind (which is compared by identity)."""
        return kind_named, (self.name,)

    def __str__(self) -> str:
        return self.name if self.phase is None else str(self.phase)


_NO_BUCKETS: dict[int, float] = {}


class State:
    """The merged state of one metric: its moments, and sparse bucket counts where the kind has them."""

    __slots__ = ("buckets", "kind", "moments")

    def __init__(
        self, kind: Kind, moments: Sequence[float] = EMPTY, buckets: Mapping[int, float] | None = None
    ) -> None:
        self.kind = kind
        self.moments = list(moments)
        # Thousands of keys are exported at once: what has no buckets does not cost a dict each time.
        self.buckets: dict[int, float] = dict(buckets) if buckets else {} if kind.bucketed else _NO_BUCKETS

    def add(self, moments: Sequence[float], buckets: Mapping[int, float] | None = None) -> None:
        """Merge what was newly recorded, or another process's state. Moments that the kind does not keep stay empty."""
        mine = self.moments
        for position in self.kind.positions:
            mine[position] = _MERGES[position](mine[position], moments[position])
        if buckets:
            counts = self.buckets
            for index, count in buckets.items():
                counts[index] = counts.get(index, 0.0) + count

    def replace(self, moments: Sequence[float]) -> None:
        """Take the place of what was recorded before (gauges)."""
        for position in self.kind.positions:
            self.moments[position] = moments[position]

    def prolong(self, moments: Sequence[float]) -> None:
        """Add what the same process recorded later (kinds that add up)."""
        at = Moment.MAX.position
        self.moments[at] = max(self.moments[at], 0.0) + max(moments[at], 0.0)

    def values(self) -> Sequence[Value]:
        """The metric's numbers. What is an average, extreme or quantile of nothing is left out."""
        moments = _made(Moments, self.moments)
        values = self.kind.finish(moments, self.buckets)
        if moments.nan or moments.positive_infinity or moments.negative_infinity:
            return (*values, Value("/nonfinite", "nonfinite", moments.nonfinite))
        return values


_new_state = object.__new__
_INF = math.inf


def mean_state(kind: Kind, total: float, count: float) -> State:
    """The state of so many finite numbers of a kind that keeps their sum and count, at half the constructor's cost."""
    state = _new_state(State)
    state.kind = kind
    state.moments = [total, count, _INF, -_INF, 0.0, 0.0, 0.0]
    state.buckets = _NO_BUCKETS
    return state


def empty_state(kind: Kind) -> State:
    """The state of nothing, at half the constructor's cost."""
    state = _new_state(State)
    state.kind = kind
    state.moments = [0.0, 0.0, _INF, -_INF, 0.0, 0.0, 0.0]
    state.buckets = {} if kind.bucketed else _NO_BUCKETS
    return state


def _average(moments: Moments) -> float | None:
    if moments.nan or (moments.positive_infinity and moments.negative_infinity):
        return math.nan
    if moments.positive_infinity or moments.negative_infinity:
        return math.inf if moments.positive_infinity else -math.inf
    return moments.total / moments.n if moments.n else None


def _sum(moments: Moments) -> float:
    """The sum; a sum of nothing is 0."""
    if not moments.nonfinite:
        return moments.total
    return _average(moments) or 0.0


def _lowest(moments: Moments) -> float | None:
    if moments.nan:
        return math.nan
    if moments.negative_infinity:
        return -math.inf
    if moments.low < math.inf:
        return moments.low
    return math.inf if moments.positive_infinity else None


def _highest(moments: Moments) -> float | None:
    if moments.nan:
        return math.nan
    if moments.positive_infinity:
        return math.inf
    if moments.high > -math.inf:
        return moments.high
    return -math.inf if moments.negative_infinity else None


Reader = Callable[[Moments], float | None]


def _one(stat: str, read: Reader, suffix: str = "") -> Finish:
    """A kind with one number."""

    def finish(moments: Moments, buckets: Mapping[int, float]) -> Sequence[Value]:
        value = read(moments)
        return () if value is None else (_made(Value, (suffix, stat, value)),)

    return finish


def _together(*parts: Finish) -> Finish:
    def finish(moments: Moments, buckets: Mapping[int, float]) -> Sequence[Value]:
        return [value for part in parts for value in part(moments, buckets)]

    return finish


def _with_count(stat: str) -> Finish:
    """An average with AReaL's ``__count`` partner (all calls, those with non-finite values too)."""

    def finish(moments: Moments, buckets: Mapping[int, float]) -> Sequence[Value]:
        value = _average(moments)
        if value is None:
            return ()
        count = moments.n + moments.nan + moments.positive_infinity + moments.negative_infinity
        partner = int(count) if count.is_integer() else count
        return _made(Value, ("", stat, value)), _made(Value, ("__count", "count", partner))

    return finish


def _quantiles(moments: Moments, buckets: Mapping[int, float]) -> Sequence[Value]:
    if not (buckets or moments.nonfinite):
        return ()
    values = []
    for name, q in (("p50", 0.5), ("p90", 0.9), ("p99", 0.99)):
        value = math.nan
        if not moments.nan:
            value = quantile(buckets, q, moments.negative_infinity, moments.positive_infinity)
            if math.isfinite(value):  # a bucket's middle may lie outside what was really seen
                value = min(max(value, moments.low), moments.high)
        values.append(Value(f"/{name}", name, value))
    return values


def _scaled(stat: str, scale: float) -> Finish:
    def read(moments: Moments) -> float | None:
        average = _average(moments)
        return None if average is None else average * scale

    return _one(stat, read)


_NONFINITE = (Moment.NAN, Moment.POSITIVE_INFINITY, Moment.NEGATIVE_INFINITY)
_MEAN = (Moment.SUM, Moment.COUNT, *_NONFINITE)
_THREE = ("/avg", "/min", "/max")
_QUANTILES = (*_THREE, "/p50", "/p90", "/p99")
_COUNTED = ("", "__count")
_TIMED = (Moment.SUM, Moment.COUNT, Moment.MAX)


def _three(moments: Moments, buckets: Mapping[int, float]) -> Sequence[Value]:
    """Average and extremes. All are there, or none."""
    average = _average(moments)
    if average is None:
        return ()
    low, high = _lowest(moments), _highest(moments)
    return (
        _made(Value, ("/avg", "avg", average)),
        _made(Value, ("/min", "min", low)),
        _made(Value, ("/max", "max", high)),
    )


AVG_MIN_MAX = Kind("avg_min_max", (*_MEAN, Moment.MIN, Moment.MAX), _three, _THREE, averages=True)
AVG = Kind("avg", _MEAN, _one("avg", _average), averages=True)
SUM = Kind("sum", (Moment.SUM, *_NONFINITE), _one("sum", _sum))
MIN = Kind("min", (Moment.MIN, *_NONFINITE), _one("min", _lowest))
MAX = Kind("max", (Moment.MAX, *_NONFINITE), _one("max", _highest))
WEIGHTED_AVG = Kind("weighted_avg", _MEAN, _one("avg", _average), averages=True)
SCALAR = Kind("scalar", _MEAN, _with_count("avg"), _COUNTED, averages=True)
TIMING = Kind("timing", _TIMED, _with_count("avg"), _COUNTED, bucketed=True, clocked=True)
PHASE_S = Kind("phase_s", _TIMED, _scaled("avg", 1.0), bucketed=True, clocked=True)
PHASE_MS = Kind("phase_ms", _TIMED, _scaled("avg", 1e3), bucketed=True, clocked=True)
HISTOGRAM = Kind(
    "histogram", (*_MEAN, Moment.MIN, Moment.MAX), _together(_three, _quantiles), _QUANTILES, bucketed=True
)
COUNTER = Kind("counter", (Moment.SUM,), _one("total", _sum))
ELAPSED = Kind("elapsed", (Moment.MAX,), _one("max", _highest), adds_up=True)
GAUGE_MEAN = Kind("gauge_mean", _MEAN, _one("last", _average), replaces=True)
GAUGE_SUM = Kind("gauge_sum", _MEAN, _one("last", lambda m: _sum(m) if m.n or m.nonfinite else None), replaces=True)
GAUGE_MIN = Kind("gauge_min", (Moment.MIN, *_NONFINITE), _one("last", _lowest), replaces=True)
GAUGE_MAX = Kind("gauge_max", (Moment.MAX, *_NONFINITE), _one("last", _highest), replaces=True)
GAUGE_WRITER = Kind("gauge_writer", _MEAN, _one("last", _average), replaces=True)

KINDS: dict[str, Kind] = {
    kind.name: kind
    for kind in (
        AVG_MIN_MAX, AVG, SUM, MIN, MAX, WEIGHTED_AVG, SCALAR, TIMING, PHASE_S, PHASE_MS, HISTOGRAM, COUNTER, ELAPSED,
        GAUGE_MEAN, GAUGE_SUM, GAUGE_MIN, GAUGE_MAX, GAUGE_WRITER,
    )
}  # fmt: skip

SUFFIXES = sorted({suffix for kind in KINDS.values() for suffix in kind.suffixes if suffix})


_of_phases: dict[str, Kind] = {}


def phase_kind(view: Kind, label: PhaseLabel) -> Kind:
    """The kind of a phase's times: as ``view`` (`TIMING`, `PHASE_S`, `PHASE_MS`), and its label goes with it.

    The same view and label give the same kind, in every process.
    """
    name = f"{view.name}:{label.written}"
    # One atomic step, so that two threads do not make two kinds of one name, and a fork holds no lock.
    return _of_phases.get(name) or _of_phases.setdefault(name, replace(view, name=name, phase=label))


def find_kind(name: str) -> Kind | None:
    """The kind of this name; None if there is none, as in what another process made up."""
    found = KINDS.get(name) or _of_phases.get(name)
    if found is not None:
        return found
    view_name, _, written = name.partition(":")
    view, label = KINDS.get(view_name), read_label(written)
    return phase_kind(view, label) if view is not None and view.clocked and label is not None else None


def kind_named(name: str) -> Kind:
    """The kind of this name. Raises KeyError."""
    found = find_kind(name)
    if found is None:
        raise KeyError(name)
    return found


GAUGES = {"mean": GAUGE_MEAN, "sum": GAUGE_SUM, "min": GAUGE_MIN, "max": GAUGE_MAX, "writer": GAUGE_WRITER}
