"""How the process's telemetry itself does, as points: ``rltel_*`` at the endpoint, and with commits over OTLP."""

from collections.abc import Iterable, Iterator, Mapping

from rltel.export.points import HistogramValue, Point, PointKind
from rltel.export.sink import DURATION_BOUNDS, Destination
from rltel.names.otel import Namer
from rltel.record.buckets import bucket_of, upper_magnitude


def start_point(incarnation: int, started_s: float) -> Point:
    """When this process began (seconds since the epoch): each incarnation is a series."""
    about = "When this process began, in seconds since the epoch."
    return _point("rl.process.start_time", "s", "gauge", {"rl.incarnation": str(incarnation)}, started_s, about)


def account_points(destinations: Iterable[Destination], namer: Namer | None) -> Iterator[Point]:
    """What destinations took and lost, and what became of names, if ``namer`` can tell."""
    for destination in destinations:
        yield from _of_destination(destination)
    if namer is None:
        return
    about = "Keys that carry rl_key since another had their name."
    yield _point("rltel.names_collided", "", "counter", {}, namer.collisions, about)
    about = "Keys that share their metric's overflow series, for want of label sets."
    for metric, count in sorted(namer.overflowed.copy().items()):
        yield _point("rltel.overflowed_keys", "", "gauge", {"metric": metric}, count, about)


def _of_destination(of: Destination) -> Iterator[Point]:
    to = {"destination": of.name}
    about = "Commits and records that a destination took."
    yield _point("rltel.exported", "", "counter", to, of.exported_total, about)
    about = "Commits and records that were lost, by reason."
    for reason, count in sorted(of.dropped_totals.items()):
        yield _point("rltel.dropped", "", "counter", {**to, "reason": reason}, count, about)
    about = "Attempts that were made again, since the other side was away."
    yield _point("rltel.retries", "", "counter", to, of.retries_total, about)
    if of.last_success is not None:
        about = "When a destination took something last."
        yield _point("rltel.last_success_timestamp", "s", "gauge", to, of.last_success, about)
    if of.queue is not None:
        waiting = of.queue()
        yield _point("rltel.queue_items", "", "gauge", to, waiting.items, "What waits for a destination.")
        about = "About how much memory that takes."
        yield _point("rltel.queue_bytes", "By", "gauge", to, waiting.size_bytes, about)
    about = "How long a destination took, each time."
    yield _point("rltel.export", "s", "histogram", to, _durations(of), about)


def _point(
    name: str, unit: str, kind: PointKind, labels: Mapping[str, str], value: float | HistogramValue, about: str
) -> Point:
    return Point(name, unit, kind, labels, value if isinstance(value, HistogramValue) else float(value), about)


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
