"""A `MetricExporter` on our own transport: it says why something was not taken, and whether to try again.

OpenTelemetry's exporters say neither, and log every failure; the pipeline needs the first to know what to do and has
its own way to say the second, once.
"""

from collections.abc import Mapping
from typing import Any

from opentelemetry.exporter.otlp.proto.common.metrics_encoder import encode_metrics
from opentelemetry.sdk.metrics.export import MetricExporter, MetricExportResult, MetricsData

from rltel.core.config import OtlpConfig
from rltel.export.otlp_settings import OtlpSettings, otlp_settings
from rltel.export.otlp_transport import GrpcTransport, HttpTransport, SendError, Transport

_METHOD = "/opentelemetry.proto.collector.metrics.v1.MetricsService/Export"


class TransportExporter(MetricExporter):
    """Encodes, and sends once."""

    def __init__(self, transport: Transport, address: str) -> None:
        super().__init__()
        self._transport = transport
        self._address = address

    def export(self, metrics_data: MetricsData, timeout_millis: float = 10_000, **kwargs: Any) -> MetricExportResult:
        """Raises `SendError` if the receiver did not take it, or not all of it."""
        answer = self._transport.send(encode_metrics(metrics_data).SerializeToString(), timeout_millis / 1e3)
        if answer.rejected:
            raise SendError(
                f"{self._address}: rejected {answer.rejected} data points: {answer.message}", retryable=False
            )
        return MetricExportResult.SUCCESS

    def force_flush(self, timeout_millis: float = 10_000) -> bool:
        """Nothing waits."""
        return True

    def shutdown(self, timeout_millis: float = 30_000, **kwargs: Any) -> None:
        """Close the connection."""
        self._transport.close()


def metric_exporter(config: OtlpConfig, environ: Mapping[str, str]) -> tuple[MetricExporter, str]:
    """An exporter for this config and the standard variables, and the address for people.

    Raises `ConfigError` for settings that cannot be.
    """
    settings = otlp_settings(config, environ, "metrics")
    transport = _GrpcMetrics(settings) if settings.protocol == "grpc" else HttpTransport(settings)
    return TransportExporter(transport, settings.address), settings.address


class _GrpcMetrics(GrpcTransport):
    """The same for another method. (Answers for spans and for metrics are the same bytes.)"""

    def __init__(self, settings: OtlpSettings) -> None:
        super().__init__(settings)
        self._export = self._channel.unary_unary(_METHOD)
