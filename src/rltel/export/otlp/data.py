"""Points as OpenTelemetry's `MetricsData`, for any `MetricExporter` that somebody has.

SDK instruments would drop NaN, lower-case names, and know only the time of collection.
"""

from collections.abc import Collection, Iterator, Sequence
from typing import NamedTuple

from opentelemetry.sdk.metrics.export import (
    AggregationTemporality,
    Buckets,
    ExponentialHistogram,
    ExponentialHistogramDataPoint,
    Gauge,
    Histogram,
    HistogramDataPoint,
    Metric,
    MetricExporter,
    MetricExportResult,
    MetricsData,
    NumberDataPoint,
    ResourceMetrics,
    ScopeMetrics,
    Sum,
)
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.util.instrumentation import InstrumentationScope

from rltel.export.otlp.exponential import SCALE, exponential, whole
from rltel.export.otlp.metrics_wire import BEFORE_NS, SeriesKey, scope_name, series_key
from rltel.export.points import HistogramValue, Point
from rltel.export.quiet import quietly
from rltel.version import VERSION

_CUMULATIVE = AggregationTemporality.CUMULATIVE


class ExporterCarrier:
    """Hands each commit to an exporter.

    Args:
        exporter: OpenTelemetry's, or a user's own.
        resource: who we are.
        started_ns: since when sums are cumulative.
        timeout_s: for one commit.
        exponential_histograms: instead of those with explicit bounds.
    """

    def __init__(
        self,
        exporter: MetricExporter,
        resource: Resource,
        started_ns: int,
        timeout_s: float,
        exponential_histograms: bool = False,
    ) -> None:
        self._exporter = exporter
        self._resource = resource
        self._started_ns = started_ns
        self._timeout_ms = timeout_s * 1e3
        self._exponential = exponential_histograms

    def send(self, points: Sequence[Point], time_ns: int, new: Collection[SeriesKey]) -> None:
        """Raises ConnectionError if the exporter says that it failed."""
        data = metrics_data(
            points, self._resource, self._started_ns, time_ns, exponential_histograms=self._exponential, new=new
        )
        with quietly():
            result = self._exporter.export(data, timeout_millis=self._timeout_ms)
        if result is not MetricExportResult.SUCCESS:
            raise ConnectionError("the exporter did not take the metrics")

    def close(self) -> None:
        """Close the connection."""
        with quietly():
            self._exporter.shutdown(timeout_millis=100)


def metrics_data(
    points: Sequence[Point],
    resource: Resource,
    started_ns: int,
    time_ns: int,
    *,
    exponential_histograms: bool = False,
    new: Collection[SeriesKey] = (),
) -> MetricsData:
    """Points as OpenTelemetry's data model: a scope per tracker, a metric per name and kind.

    Sums that are ``new`` are also sent as they were a moment before, 0: a backend that sees a sum for the first time
    cannot know whether it grew just now, and `delta` would leave out the first step.
    """
    scopes: dict[str, dict[tuple[str, str], list[Point]]] = {}
    for point in points:  # two keys of one name may be of two kinds: a counter's points are not a gauge's
        scopes.setdefault(point.tracker, {}).setdefault((point.name, point.kind), []).append(point)
    made = _Maker(started_ns, time_ns, exponential_histograms, new)
    return MetricsData(
        [
            ResourceMetrics(
                resource,
                [
                    ScopeMetrics(
                        InstrumentationScope(scope_name(tracker), VERSION),
                        [made.metric(of_name) for of_name in names.values()],
                        "",
                    )
                    for tracker, names in scopes.items()
                ],
                "",
            )
        ]
    )


class _Maker(NamedTuple):
    """What all points of one commit have in common."""

    started_ns: int
    time_ns: int
    exponential_histograms: bool
    new: Collection[SeriesKey]

    def metric(self, points: Sequence[Point]) -> Metric:
        """The points of one name and kind."""
        first = points[0]
        data: Gauge | Sum | Histogram | ExponentialHistogram
        if first.kind == "gauge":
            data = Gauge([self._number(point, 0, self.time_ns) for point in points])
        elif first.kind != "histogram":
            data = Sum(list(self._sums(points)), _CUMULATIVE, is_monotonic=first.kind == "counter")
        elif self.exponential_histograms:
            data = ExponentialHistogram([self._exponential(point) for point in points], _CUMULATIVE)
        else:
            data = Histogram([self._explicit(point) for point in points], _CUMULATIVE)
        return Metric(first.name, first.about, first.unit, data)

    def _sums(self, points: Sequence[Point]) -> Iterator[NumberDataPoint]:
        for point in points:
            if self.new and series_key(point) in self.new:
                yield self._number(point._replace(value=0.0), self.started_ns, self.time_ns - BEFORE_NS)
            yield self._number(point, self.started_ns, self.time_ns)

    def _number(self, point: Point, started_ns: int, time_ns: int) -> NumberDataPoint:
        assert not isinstance(point.value, HistogramValue)
        return NumberDataPoint(dict(point.attributes), started_ns, time_ns, point.value)

    def _explicit(self, point: Point) -> HistogramDataPoint:
        value = point.value
        assert isinstance(value, HistogramValue)
        counts = whole([*value.counts, value.count])
        return HistogramDataPoint(
            dict(point.attributes),
            self.started_ns,
            self.time_ns,
            sum(counts),
            value.total,
            counts,
            list(value.bounds),
            min=None,  # type: ignore[arg-type]  # not known of all time; the encoders leave out what is None
            max=None,  # type: ignore[arg-type]
        )

    def _exponential(self, point: Point) -> ExponentialHistogramDataPoint:
        value = point.value
        assert isinstance(value, HistogramValue)
        counts = exponential(value.buckets)
        return ExponentialHistogramDataPoint(
            dict(point.attributes),
            self.started_ns,
            self.time_ns,
            counts.count,
            value.total,
            SCALE,
            counts.zero,
            Buckets(*counts.positive),
            Buckets(*counts.negative),
            0,
            min=None,  # type: ignore[arg-type]  # as above
            max=None,  # type: ignore[arg-type]
        )
