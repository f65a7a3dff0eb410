"""OTLP metrics: each step once, with its own time, through OpenTelemetry's own exporters.

Built as ``MetricsData`` and handed to a ``MetricExporter``: SDK instruments would drop NaN, lower-case names, and know
only the time of collection.
"""

from collections.abc import Mapping, Sequence
from itertools import pairwise

from opentelemetry.sdk.metrics.export import (
    AggregationTemporality,
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
from rltel.export.otlp_settings import OtlpSettings, otlp_settings
from rltel.export.otlp_transport import grpc_compression, grpc_credentials
from rltel.export.points import HistogramValue, Point
from rltel.export.quiet import HTTP_LOGGERS, quieten, quietly
from rltel.version import VERSION

_CUMULATIVE = AggregationTemporality.CUMULATIVE


class OtlpSink:
    """Sends the points of every commit."""

    name = "otlp"

    def __init__(
        self, exporter: MetricExporter, resource: Resource, started_ns: int, address: str, timeout_s: float
    ) -> None:
        self._exporter = exporter
        self._resource = resource
        self._started_ns = started_ns
        self._address = address
        self._timeout_ms = timeout_s * 1e3

    def describe(self) -> str:
        """The endpoint, without secrets."""
        return self._address

    def write(self, commit: Commit, points: Sequence[Point]) -> None:
        """Send one commit. Raises ConnectionError if the receiver did not take it."""
        data = metrics_data(points, self._resource, self._started_ns, commit.time_ns)
        with quietly():
            result = self._exporter.export(data, timeout_millis=self._timeout_ms)
        if result is not MetricExportResult.SUCCESS:
            raise ConnectionError(f"{self._address} did not take the metrics of step {commit.step}")

    def flush(self) -> None:
        """Nothing waits."""

    def close(self) -> None:
        """Close the connection."""
        with quietly():
            self._exporter.shutdown(timeout_millis=100)


def metrics_data(points: Sequence[Point], resource: Resource, started_ns: int, time_ns: int) -> MetricsData:
    """Points as OpenTelemetry's data model: a scope per tracker, a metric per name and kind."""
    scopes: dict[str, dict[tuple[str, str], list[Point]]] = {}
    for point in points:  # two keys of one name may be of two kinds: a counter's points are not a gauge's
        scopes.setdefault(point.tracker, {}).setdefault((point.name, point.kind), []).append(point)
    return MetricsData(
        [
            ResourceMetrics(
                resource,
                [
                    ScopeMetrics(
                        InstrumentationScope(f"rltel.{tracker}" if tracker else "rltel", VERSION),
                        [_metric(of_name, started_ns, time_ns) for of_name in names.values()],
                        "",
                    )
                    for tracker, names in scopes.items()
                ],
                "",
            )
        ]
    )


def _metric(points: Sequence[Point], started_ns: int, time_ns: int) -> Metric:
    first = points[0]
    data: Gauge | Sum | Histogram
    if first.kind == "histogram":
        data = Histogram([_histogram_point(point, started_ns, time_ns) for point in points], _CUMULATIVE)
    elif first.kind == "gauge":
        data = Gauge([_number_point(point, 0, time_ns) for point in points])
    else:
        numbers = [_number_point(point, started_ns, time_ns) for point in points]
        data = Sum(numbers, _CUMULATIVE, is_monotonic=first.kind == "counter")
    return Metric(first.name, first.about, first.unit, data)


def _number_point(point: Point, started_ns: int, time_ns: int) -> NumberDataPoint:
    assert not isinstance(point.value, HistogramValue)
    return NumberDataPoint(dict(point.attributes), started_ns, time_ns, point.value)


def _histogram_point(point: Point, started_ns: int, time_ns: int) -> HistogramDataPoint:
    value = point.value
    assert isinstance(value, HistogramValue)
    cumulative = [0, *map(int, value.counts), int(value.count)]  # whole before they are told apart: weights may be half
    counts = [upper - lower for lower, upper in pairwise(cumulative)]
    return HistogramDataPoint(
        dict(point.attributes),
        started_ns,
        time_ns,
        int(value.count),
        value.total,
        counts,
        list(value.bounds),
        min=None,  # type: ignore[arg-type]  # not known of all time; the encoders leave out what is None
        max=None,  # type: ignore[arg-type]
    )


def metric_exporter(config: OtlpConfig, environ: Mapping[str, str]) -> tuple[MetricExporter, str]:
    """OpenTelemetry's exporter for this config and the standard variables, and the address for people.

    Raises `ConfigError` for settings that cannot be.
    """
    settings = otlp_settings(config, environ, "metrics")
    make = _grpc_exporter if settings.protocol == "grpc" else _http_exporter
    return make(settings), settings.address


def _http_exporter(settings: OtlpSettings) -> MetricExporter:
    from opentelemetry.exporter.otlp.proto.http import Compression  # only where it is used
    from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter

    quieten(OTLPMetricExporter.__module__, *HTTP_LOGGERS)
    return OTLPMetricExporter(
        endpoint=settings.url,
        certificate_file=settings.certificate,
        client_key_file=settings.client_key,
        client_certificate_file=settings.client_certificate,
        headers=dict(settings.headers),
        timeout=settings.timeout_s,
        compression=Compression(settings.compression),
    )


def _grpc_exporter(settings: OtlpSettings) -> MetricExporter:
    from opentelemetry.exporter.otlp.proto.grpc import exporter  # heavy: only where it is used
    from opentelemetry.exporter.otlp.proto.grpc.metric_exporter import OTLPMetricExporter

    quieten(exporter.__name__)
    return OTLPMetricExporter(
        endpoint=settings.url,
        insecure=not settings.secure,
        credentials=grpc_credentials(settings) if settings.secure else None,
        headers=dict(settings.headers),
        timeout=settings.timeout_s,
        compression=grpc_compression(settings),
    )
