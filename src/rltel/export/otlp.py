"""OTLP metrics: each step once, with its own time, through any OpenTelemetry `MetricExporter`.

Built as ``MetricsData`` and handed to a ``MetricExporter``: SDK instruments would drop NaN, lower-case names, and know
only the time of collection.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
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

from rltel.core.config import OtlpConfig
from rltel.export.commit import Commit
from rltel.export.exponential import SCALE, exponential
from rltel.export.otlp_exporter import metric_exporter
from rltel.export.otlp_settings import otlp_settings
from rltel.export.points import HistogramValue, Point
from rltel.export.quiet import quietly
from rltel.version import VERSION

__all__ = ["OtlpSink", "metric_exporter", "metrics_data", "open_otlp_metrics"]

_SeriesKey = tuple[str, frozenset[tuple[str, str]]]
_CUMULATIVE = AggregationTemporality.CUMULATIVE


_BEFORE_NS = 1_000_000  # a millisecond: the least that receivers tell apart


class OtlpSink:
    """Sends the points of every commit.

    Args:
        exporter: OpenTelemetry's, or a user's own.
        resource: who we are.
        started_ns: since when sums are cumulative.
        address: the endpoint for people, without secrets.
        timeout_s: for one commit.
        exponential_histograms: instead of those with explicit bounds.
    """

    name = "otlp"

    def __init__(
        self,
        exporter: MetricExporter,
        resource: Resource,
        started_ns: int,
        address: str,
        timeout_s: float,
        exponential_histograms: bool = False,
    ) -> None:
        self._exporter = exporter
        self._resource = resource
        self._started_ns = started_ns
        self._address = address
        self._timeout_ms = timeout_s * 1e3
        self._exponential = exponential_histograms
        self._begun: set[_SeriesKey] = set()

    def describe(self) -> str:
        """The endpoint, without secrets."""
        return self._address

    def write(self, commit: Commit, points: Sequence[Point]) -> None:
        """Send one commit. Raises ConnectionError if the receiver did not take it (`SendError` says more)."""
        new = {_series_key(point) for point in points if point.kind == "sum"} - self._begun
        data = metrics_data(
            points, self._resource, self._started_ns, commit.time_ns, exponential_histograms=self._exponential, new=new
        )
        with quietly():
            result = self._exporter.export(data, timeout_millis=self._timeout_ms)
        if result is not MetricExportResult.SUCCESS:
            raise ConnectionError(f"{self._address} did not take the metrics of step {commit.step}")
        self._begun |= new

    def flush(self) -> None:
        """Nothing waits."""

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
    new: Collection[_SeriesKey] = (),
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
                        InstrumentationScope(f"rltel.{tracker}" if tracker else "rltel", VERSION),
                        [made.metric(of_name) for of_name in names.values()],
                        "",
                    )
                    for tracker, names in scopes.items()
                ],
                "",
            )
        ]
    )


def _series_key(point: Point) -> _SeriesKey:
    return point.name, frozenset(point.attributes.items())


class _Maker(NamedTuple):
    """What all points of one commit have in common."""

    started_ns: int
    time_ns: int
    exponential_histograms: bool
    new: Collection[_SeriesKey]

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
            if self.new and _series_key(point) in self.new:
                yield self._number(replace(point, value=0.0), self.started_ns, self.time_ns - _BEFORE_NS)
            yield self._number(point, self.started_ns, self.time_ns)

    def _number(self, point: Point, started_ns: int, time_ns: int) -> NumberDataPoint:
        assert not isinstance(point.value, HistogramValue)
        return NumberDataPoint(dict(point.attributes), started_ns, time_ns, point.value)

    def _explicit(self, point: Point) -> HistogramDataPoint:
        value = point.value
        assert isinstance(value, HistogramValue)
        # Whole before they are told apart: weights may be half.
        cumulative = [0, *map(int, value.counts), int(value.count)]
        counts = [upper - lower for lower, upper in pairwise(cumulative)]
        return HistogramDataPoint(
            dict(point.attributes),
            self.started_ns,
            self.time_ns,
            int(value.count),
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


def open_otlp_metrics(config: OtlpConfig, resource: Resource, started_ns: int, environ: Mapping[str, str]) -> OtlpSink:
    """The sink of this config and the standard variables. Raises `ConfigError` for settings that cannot be."""
    settings = otlp_settings(config, environ, "metrics")
    exporter, address = metric_exporter(config, environ)
    return OtlpSink(
        exporter,
        resource,
        started_ns,
        address,
        settings.timeout_s,
        exponential_histograms=config.exponential_histograms,
    )
