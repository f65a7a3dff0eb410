"""Any OpenTelemetry program's metrics as the states of our record: what happened since the last export."""

import math
from collections.abc import Iterator

from opentelemetry.sdk.metrics.export import MetricsData, NumberDataPoint

from rltel.export.otel.deltas import Deltas
from rltel.export.otel.points import Bin, Distribution, Keys, Series, bins_of_point
from rltel.record.buckets import bucket_of
from rltel.record.kinds import COUNTER, HISTOGRAM, Moments, State
from rltel.reduce.snapshot import Snapshot, gauge_of

_WIDE = 64  # buckets: four powers of two


class States:
    """Turns exports into snapshots. What comes as a sum of all time is told apart from what was there before."""

    def __init__(self) -> None:
        self._keys = Keys()
        self._deltas = Deltas()
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
        is_level = isinstance(each.point, NumberDataPoint) and not each.monotonic
        point = each.point if each.delta or is_level else self._deltas.of(each.key, each.point)
        if not isinstance(point, NumberDataPoint):
            moments, buckets = _of_distribution(point)
            return State(HISTOGRAM, moments, buckets) if moments.n > 0 else None
        value = float(point.value)
        if each.monotonic:
            return State(COUNTER, Moments(total=value))
        if each.delta:  # a level that is told by how it changes
            value = self._levels[each.key] = self._levels.get(each.key, 0.0) + value
        return gauge_of(value)


def _of_distribution(point: Distribution) -> tuple[Moments, dict[int, float]]:
    """Its bins in our layout: quantiles are as exact as the program's own bins."""
    bins = bins_of_point(point)
    buckets: dict[int, float] = {}
    for each in bins:
        for index, count in _spread(each):
            buckets[index] = buckets.get(index, 0.0) + count
    if not bins:
        return Moments(), {}
    return Moments(float(point.sum or 0.0), float(point.count), bins[0].low, bins[-1].high), buckets


def _spread(each: Bin) -> Iterator[tuple[int, float]]:
    """A bin's values over our buckets in it, evenly; those of one that is wide, or at zero, in its middle."""
    first, last = bucket_of(math.nextafter(each.low, math.inf)), bucket_of(each.high)
    if each.low < 0 < each.high or not 0 < last - first < _WIDE or 0 in (each.low, each.high):
        first = last = bucket_of((each.low + each.high) / 2)
    places = last - first + 1
    before = 0.0
    for place in range(places):
        upto = float(round(each.held * (place + 1) / places))
        if upto > before:
            yield first + place, upto - before
        before = upto
