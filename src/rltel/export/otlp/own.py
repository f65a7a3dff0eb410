"""How the process's telemetry itself does, as points: what the scrape endpoint shows as ``rltel_*``.

It goes along with commits, at their times, so that a store that is only sent to can say what was lost, too.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from rltel.export.commit import Commit
from rltel.export.points import HistogramValue, Point, PointKind
from rltel.export.sink import DURATION_BOUNDS, Destination
from rltel.names.otel import Namer
from rltel.record.buckets import bucket_of, upper_magnitude

EVERY_NS = 5_000_000_000
"""As often as accounts are sent at most: a trainer may commit a hundred times a second, and these change slowly."""
FIRST_NS = 1_000_000_000
"""The same of a process that has only begun: the pauses double until they are that long."""


def nobody() -> Iterable[Destination]:
    """No accounts."""
    return ()


class OwnMetrics:
    """What commits take along: when the process began, each; and one in a while, what its destinations had.

    Args:
        started_ns: when the process began, in ns since the epoch.
        destinations: the accounts of all.
        namer: what named the keys; None where nobody can tell.
    """

    def __init__(
        self, started_ns: int, destinations: Callable[[], Iterable[Destination]] = nobody, namer: Namer | None = None
    ) -> None:
        self._started_s = started_ns / 1e9
        self._destinations = destinations
        self._namer = namer
        self._due_ns = 0
        self._pause_ns = FIRST_NS
        self._last: tuple[int, Sequence[Point]] = (-1, ())
        # Points of a series share their labels: the encoder remembers each dict that it has seen.
        self._labels: dict[tuple[tuple[str, str], ...], Mapping[str, str]] = {}

    def of(self, commit: Commit) -> Sequence[Point]:
        """Those that go with this commit. One that is sent again takes the same: a point is not to change."""
        began = "When this process began, in seconds since the epoch."
        labels = {"rl.incarnation": str(commit.identity.incarnation)}
        # With each, so that a replay says the same as the process itself.
        start = self._point("rl.process.start_time", "s", "gauge", labels, self._started_s, began)
        if commit.number != self._last[0] and self._is_due(commit.time_ns):
            self._last = commit.number, list(self._accounts())
        return [start, *self._last[1]] if commit.number == self._last[0] else [start]

    def _is_due(self, time_ns: int) -> bool:
        if self._due_ns - self._pause_ns <= time_ns < self._due_ns:  # after a clock was set back, it is at once
            return False
        self._pause_ns = min(2 * self._pause_ns, EVERY_NS) if self._due_ns else FIRST_NS
        self._due_ns = time_ns + self._pause_ns
        return True

    def _accounts(self) -> Iterator[Point]:
        for destination in list(self._destinations()):
            yield from self._of_destination(destination)
        if self._namer is None:
            return
        about = "Keys that carry rl_key since another had their name."
        yield self._point("rltel.names_collided", "", "counter", {}, self._namer.collisions, about)
        about = "Keys that share their metric's overflow series, for want of label sets."
        for metric, count in sorted(self._namer.overflowed.copy().items()):
            yield self._point("rltel.overflowed_keys", "", "gauge", {"metric": metric}, count, about)

    def _of_destination(self, of: Destination) -> Iterator[Point]:
        to = {"destination": of.name}
        about = "Commits and records that a destination took."
        yield self._point("rltel.exported", "", "counter", to, of.exported_total, about)
        about = "Commits and records that were lost, by reason."
        for reason, count in sorted(of.dropped_totals.items()):
            yield self._point("rltel.dropped", "", "counter", {**to, "reason": reason}, count, about)
        about = "Attempts that were made again, since the other side was away."
        yield self._point("rltel.retries", "", "counter", to, of.retries_total, about)
        if of.last_success is not None:
            about = "When a destination took something last."
            yield self._point("rltel.last_success_timestamp", "s", "gauge", to, of.last_success, about)
        if of.queue is not None:
            waiting = of.queue()
            yield self._point("rltel.queue_items", "", "gauge", to, waiting.items, "What waits for a destination.")
            about = "About how much memory that takes."
            yield self._point("rltel.queue_bytes", "By", "gauge", to, waiting.size_bytes, about)
        about = "How long a destination took, each time."
        yield self._point("rltel.export", "s", "histogram", to, _durations(of), about)

    def _point(
        self,
        name: str,
        unit: str,
        kind: PointKind,
        labels: Mapping[str, str],
        value: float | HistogramValue,
        about: str,
    ) -> Point:
        shared = self._labels.setdefault(tuple(labels.items()), labels)
        return Point(name, unit, kind, shared, value if isinstance(value, HistogramValue) else float(value), about)


def _bucket_within(bound: float) -> int:
    """The highest bucket of our layout with nothing above a bound, which need not be one of its own."""
    found = bucket_of(bound)
    return found if upper_magnitude(found) <= bound else found - 1


_BUCKETS = (*map(_bucket_within, DURATION_BOUNDS), bucket_of(2 * DURATION_BOUNDS[-1]))


def _durations(of: Destination) -> HistogramValue:
    """Counts between bounds that stay exact; as an exponential histogram each attempt took as long as its bound."""
    durations = of.durations
    below = (0, *durations.counts[:-1])
    counts = {bucket: float(up - low) for bucket, low, up in zip(_BUCKETS, below, durations.counts, strict=True)}
    return HistogramValue(
        DURATION_BOUNDS, {bucket: count for bucket, count in counts.items() if count}, durations.total_s
    )
