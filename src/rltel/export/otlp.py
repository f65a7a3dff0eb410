"""OTLP metrics: each step once, with its own time, through OpenTelemetry's own exporters.

Built as ``MetricsData`` and handed to a ``MetricExporter``: SDK instruments would drop NaN, lower-case names, and know
only the time of collection.
"""

import logging
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

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
from rltel.core.redact import redact_url
from rltel.export.commit import Commit
from rltel.export.points import HistogramValue, Point
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
        with _quietly():
            result = self._exporter.export(data, timeout_millis=self._timeout_ms)
        if result is not MetricExportResult.SUCCESS:
            raise ConnectionError(f"{self._address} did not take the metrics of step {commit.step}")

    def flush(self) -> None:
        """Nothing waits."""

    def close(self) -> None:
        """Close the connection."""
        with _quietly():
            self._exporter.shutdown(timeout_millis=100)


class _Quiet(threading.local):
    """Whether this thread is in an exporter of ours, whose failures are counted and said once."""

    exporting = False

    def filter(self, record: logging.LogRecord) -> bool:
        """Of the exporters' loggers: what they say of others' exports stays."""
        return not self.exporting


_quiet = _Quiet()


@contextmanager
def _quietly() -> Iterator[None]:
    """The exporters log every failure and retry, with addresses as they are; we say it once, redacted."""
    _quiet.exporting = True
    try:
        yield
    finally:
        _quiet.exporting = False


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
    """OpenTelemetry's exporter for this config, and the address for people.

    What the config leaves open (headers, credentials), the exporter reads from its standard variables.
    """
    given: dict[str, Any] = {"timeout": config.timeout_s}
    if config.headers:
        given["headers"] = {name.lower(): value for name, value in config.headers.items()}  # gRPC takes no others
    endpoint, own_endpoint = config.endpoint, environ.get("OTEL_EXPORTER_OTLP_METRICS_ENDPOINT")
    if own_endpoint and endpoint == environ.get("OTEL_EXPORTER_OTLP_ENDPOINT"):
        endpoint = None  # only the general variable's: the one for metrics is stronger
    if config.protocol == "grpc":
        return _grpc_exporter(config, given, endpoint or own_endpoint or "http://127.0.0.1:4317")
    if endpoint is None and own_endpoint:
        return _http_exporter(config, given, own_endpoint)
    return _http_exporter(config, given, f"{(endpoint or 'http://127.0.0.1:4318').rstrip('/')}/v1/metrics")


def _http_exporter(config: OtlpConfig, given: dict[str, Any], endpoint: str) -> tuple[MetricExporter, str]:
    from opentelemetry.exporter.otlp.proto.http import Compression  # only where it is used
    from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter

    logging.getLogger(OTLPMetricExporter.__module__).addFilter(_quiet)
    if config.compression:
        given["compression"] = Compression(config.compression)
    if config.certificate:
        given["certificate_file"] = config.certificate
    return OTLPMetricExporter(endpoint=endpoint, **given), redact_url(endpoint)


def _grpc_exporter(config: OtlpConfig, given: dict[str, Any], endpoint: str) -> tuple[MetricExporter, str]:
    import grpc  # heavy: only where it is used
    from opentelemetry.exporter.otlp.proto.grpc import exporter
    from opentelemetry.exporter.otlp.proto.grpc.metric_exporter import OTLPMetricExporter

    logging.getLogger(exporter.__name__).addFilter(_quiet)
    compressions = {
        "gzip": grpc.Compression.Gzip,
        "deflate": grpc.Compression.Deflate,
        "none": grpc.Compression.NoCompression,
    }
    if config.compression:
        given["compression"] = compressions[config.compression]
    if config.certificate:
        given["credentials"] = grpc.ssl_channel_credentials(Path(config.certificate).read_bytes())
    insecure = config.insecure if config.insecure is not None else endpoint.startswith("http://")
    return OTLPMetricExporter(endpoint=endpoint, insecure=insecure, **given), redact_url(endpoint)
