"""The scrape table: the last point of every series, as Prometheus families.

A gauge that nobody updates any more goes: what a worker that has finished reported last must not stand there as if it
were now. Counters, cumulative sums and histograms stay as long as their process: they are still true.
"""

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from typing import NamedTuple

from prometheus_client.samples import Sample

from rltel.export.commit import Commit
from rltel.export.points import HistogramValue, Point, PointKind
from rltel.export.prometheus.exposition import Family, Labels, family_named
from rltel.names.prometheus import label_name, prometheus_name

EXPIRE_S = 300.0
"""How long a gauge stays without an update, at least; as long as Prometheus itself looks back."""
_EXPIRE_COMMITS = 10  # and so many commits of its axis: a trainer that paused has not lost its workers
_GAPS = 3  # and so many times its own longest pause: an evaluation may come once an hour
_REMEMBERED = 10_000  # how many that went are remembered, with when they came last: their pause was no end

_label = lru_cache(maxsize=4096)(label_name)
_Key = tuple[str, frozenset[tuple[str, str]]]


class _Progress(NamedTuple):
    """Where an axis is: when its last commit came (monotonic seconds), and how many there were."""

    at: float
    commits: int


class _Series:
    """One series: what never changes of it, and its last value."""

    __slots__ = ("about", "axis", "exposed", "kind", "labels", "longest", "seen", "time", "value")

    def __init__(self, point: Point, axis: str, seen: _Progress) -> None:
        self.kind: PointKind = point.kind
        self.exposed = prometheus_name(point.name, point.unit, "counter" if point.kind == "counter" else "gauge")
        self.labels = Labels({_label(attribute): value for attribute, value in point.attributes.items()})
        self.about = point.about
        self.axis = axis
        self.seen = seen
        self.longest = 0.0
        self.value = point.value
        self.time = 0.0

    def update(self, point: Point, time_s: float, axis: str, now: _Progress) -> None:
        self.value, self.time = point.value, time_s
        if axis == self.axis:
            self.longest = max(self.longest, now.at - self.seen.at)
        self.axis, self.seen = axis, now

    def family(self) -> Family:
        """An empty one for it and others of its name."""
        return family_named(self.exposed, self.kind, self.about)

    def is_over(self, latest: _Progress, expire_s: float) -> bool:
        """Whether the others of its axis went on without it for too long."""
        return (
            self.kind == "gauge"
            and latest.commits - self.seen.commits > _EXPIRE_COMMITS
            and latest.at - self.seen.at > max(expire_s, _GAPS * self.longest)
        )


class PrometheusSink:
    """Keeps the last point of every series, and shows them to whoever scrapes.

    Args:
        timestamps: whether samples carry their step's own time.
        expire_s: seconds after which a gauge that nobody updates is gone.
        now: a monotonic clock, in seconds.
    """

    name = "prometheus"

    def __init__(
        self,
        timestamps: bool = False,
        *,
        expire_s: float = EXPIRE_S,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._timestamps = timestamps
        self._expire_s = expire_s
        self._now = now
        self._lock = threading.Lock()
        self._series: dict[_Key, _Series] = {}
        self._groups: list[list[_Series]] | None = None  # by name; None when there are others than before
        self._gone: dict[_Key, tuple[str, _Progress]] = {}
        self._axes: dict[str, _Progress] = {}
        self._swept = now()
        self.address = ""
        self.expired = 0
        """Series that went since nobody updated them."""

    def describe(self) -> str:
        """The endpoint's URL."""
        return self.address

    def write(self, commit: Commit, points: Sequence[Point]) -> None:
        """Take the points of one commit."""
        now = _Progress(self._now(), self._commits_of(commit.axis) + 1)
        time_s = commit.time_ns / 1e9
        with self._lock:
            self._axes[commit.axis] = now
            for point in points:
                key = (point.name, frozenset(point.attributes.items()))
                series = self._series.get(key)
                if series is None or series.kind != point.kind:
                    self._groups = None
                    series = self._series[key] = _Series(point, *self._gone.pop(key, (commit.axis, now)))
                series.update(point, time_s, commit.axis, now)
            if now.at - self._swept > self._expire_s / 10:
                self._swept = now.at
                self._sweep()

    def flush(self) -> None:
        """Nothing waits."""

    def close(self) -> None:
        """Nothing to close: the server belongs to the endpoint."""

    def __len__(self) -> int:
        return len(self._series)

    def families(self) -> Iterator[Family]:
        """The series as Prometheus families, each name once, as they were at one moment."""
        with self._lock:
            if self._groups is None:
                self._groups = _grouped(self._series.values())
            groups = self._groups
            # Values are replaced, never changed: taken here, they can be put into words without the lock.
            values = [series.value for group in groups for series in group]
            times = [series.time if self._timestamps else None for group in groups for series in group]
        position = 0
        for group in groups:
            family = group[0].family()
            for series in group:
                family.join(series.kind)
                _add_samples(family, series, values[position], times[position])
                position += 1
            yield family

    def _commits_of(self, axis: str) -> int:
        progress = self._axes.get(axis)
        return progress.commits if progress else 0

    def _sweep(self) -> None:
        over = [key for key, series in self._series.items() if series.is_over(self._axes[series.axis], self._expire_s)]
        for key in over:
            self._groups = None
            series = self._series.pop(key)
            self._gone[key] = (series.axis, series.seen)
        for key in list(self._gone)[:-_REMEMBERED]:
            del self._gone[key]
        self.expired += len(over)


def families_of(points: Iterable[Point]) -> Iterator[Family]:
    """Points that nobody keeps, as Prometheus families, each name once."""
    families: dict[str, Family] = {}
    for point in points:
        series = _Series(point, "", _Progress(0.0, 0))
        family = families.setdefault(series.exposed, series.family())
        _add_samples(family, series, point.value, None)
    yield from families.values()


def _grouped(all_series: Iterable[_Series]) -> list[list[_Series]]:
    groups: dict[str, list[_Series]] = {}
    for series in all_series:
        groups.setdefault(series.exposed, []).append(series)
    return list(groups.values())


def _add_samples(family: Family, series: _Series, value: float | HistogramValue, time_s: float | None) -> None:
    name, labels = series.exposed, series.labels
    if isinstance(value, HistogramValue):
        _add_histogram(family.samples, name, labels, value, time_s)
    else:
        family.samples.append(Sample(name, labels, value, time_s))  # what `add_sample` does, without its overhead


def _add_histogram(
    samples: list[Sample], name: str, labels: Labels, value: HistogramValue, time_s: float | None
) -> None:
    bucket = f"{name}_bucket"
    for bound, count in zip(value.bounds, value.counts, strict=True):
        samples.append(Sample(bucket, labels.with_bound(repr(bound)), count, time_s))
    samples.append(Sample(bucket, labels.with_bound("+Inf"), value.count, time_s))
    samples.append(Sample(f"{name}_count", labels, value.count, time_s))
    samples.append(Sample(f"{name}_sum", labels, value.total, time_s))
