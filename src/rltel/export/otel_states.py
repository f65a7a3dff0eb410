"""Any OpenTelemetry program's metrics as the states of our record: what happened since the last export."""

import math

from opentelemetry.sdk.metrics.export import MetricsData, NumberDataPoint

from rltel.export.otel_points import Bin, Distribution, Keys, Series, bins_of_point
from rltel.record.buckets import bucket_of
from rltel.record.kinds import COUNTER, HISTOGRAM, Moments, State
from rltel.reduce.snapshot import Snapshot, gauge_of


class States:
    """Turns exports into snapshots. What comes as a sum of all time is told apart from what was there before."""

    def __init__(self) -> None:
        self._keys = Keys()
        self._before: dict[str, tuple[int, Moments, dict[int, float]]] = {}
        self._levels: dict[str, float] = {}

    def snapshot(self, data: MetricsData) -> Snapshot:
        """One export. A distribution of nothing is left out."""
        states: dict[str, State] = {}
        for each in self._keys.series(data):
            state = self._state(each)
            if state is None:
                continue
            if each.key in states and state.kind is states[each.key].kind and not state.kind.replaces:
                states[each.key].add(state.moments, state.buckets)
            else:
                states[each.key] = state
        return Snapshot.of_states(states)

    def _state(self, each: Series) -> State | None:
        point = each.point
        if not isinstance(point, NumberDataPoint):
            moments, buckets = self._news(each, *_of_distribution(point))
            return State(HISTOGRAM, moments, buckets) if moments.n > 0 else None
        value = float(point.value)
        if each.monotonic:
            moments, _ = self._news(each, Moments(total=value), {})
            return State(COUNTER, moments)
        if each.summed and each.delta:  # a level that is told by how it changes
            value = self._levels[each.key] = self._levels.get(each.key, 0.0) + value
        return gauge_of(value)

    def _news(self, each: Series, moments: Moments, buckets: dict[int, float]) -> tuple[Moments, dict[int, float]]:
        """What is new in a sum; all of it, if it began anew."""
        if each.delta:
            return moments, buckets
        start = each.point.start_time_unix_nano or 0
        known, before, held = self._before.get(each.key, (start, Moments(), {}))
        self._before[each.key] = start, moments, buckets
        shrank = moments.n < before.n or (each.monotonic and moments.total < before.total)
        if known != start or shrank:
            return moments, buckets
        new = {index: count - held.get(index, 0.0) for index, count in buckets.items()}
        return (
            moments._replace(total=moments.total - before.total, n=moments.n - before.n),
            {index: count for index, count in new.items() if count > 0},
        )


def _of_distribution(point: Distribution) -> tuple[Moments, dict[int, float]]:
    """Its bins in our layout, each at its middle: quantiles are as exact as the program's own bins."""
    bins = bins_of_point(point)
    buckets: dict[int, float] = {}
    for each in bins:
        if each.held:
            index = bucket_of(_middle(each))
            buckets[index] = buckets.get(index, 0.0) + each.held
    if not bins:
        return Moments(), {}
    return Moments(float(point.sum or 0.0), float(point.count), bins[0].low, bins[-1].high), buckets


def _middle(each: Bin) -> float:
    if each.low > 0:
        return math.sqrt(each.low) * math.sqrt(each.high)
    if each.high < 0:
        return -math.sqrt(-each.low) * math.sqrt(-each.high)
    return each.low / 2 + each.high / 2
