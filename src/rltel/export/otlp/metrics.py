"""OTLP metrics: each step once, with its own time."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, Protocol

from opentelemetry.sdk.resources import Resource

from rltel.core.config import OtlpConfig
from rltel.export.commit import Commit
from rltel.export.otlp.metrics_wire import MetricsEncoder, SeriesKey, series_key
from rltel.export.otlp.own import OwnMetrics, nobody
from rltel.export.otlp.settings import otlp_settings
from rltel.export.otlp.transport import GrpcTransport, HttpTransport, Transport
from rltel.export.points import Point
from rltel.export.sink import Destination, PartlyTakenError
from rltel.names.otel import Namer

_METHOD = "/opentelemetry.proto.collector.metrics.v1.MetricsService/Export"


class Carrier(Protocol):
    """Brings the points of one commit to a receiver."""

    def send(self, points: Sequence[Point], time_ns: int, new: Collection[SeriesKey]) -> None:
        """Raises ConnectionError if they were not taken. Sums that are ``new`` are sent as 0 first."""

    def close(self) -> None:
        """Close the connection."""


class OtlpSink:
    """Sends the points of every commit.

    Args:
        carrier: what brings them there.
        address: for people, without secrets.
        about: what a replay must say again to continue the same series.
        own: how the process's telemetry does; None to leave that out.
    """

    name = "otlp"

    def __init__(
        self, carrier: Carrier, address: str, about: Mapping[str, Any] | None = None, own: OwnMetrics | None = None
    ) -> None:
        self.about = about
        self._own = own
        self._carrier = carrier
        self._address = address
        self._begun: set[SeriesKey] = set()

    def describe(self) -> str:
        """The endpoint, without secrets."""
        return self._address

    def write(self, commit: Commit, points: Sequence[Point]) -> None:
        """Send one commit.

        Raises ConnectionError if the receiver did not take it (`SendError` says more), or only in part
        (`PartlyTakenError`).
        """
        if self._own is not None:
            points = [*points, *self._own.of(commit)]
        new = _sums(points) - self._begun
        try:
            self._carrier.send(points, commit.time_ns, new)
        except PartlyTakenError:
            self._begun |= new
            raise
        self._begun |= new

    def have_begun(self, points: Sequence[Point]) -> None:
        """The receiver has these already: sums among them do not begin now."""
        self._begun |= _sums(points)

    def flush(self) -> None:
        """Nothing waits."""

    def close(self) -> None:
        """Close the connection."""
        self._carrier.close()


class WireCarrier:
    """Encodes, and sends once: whether to try again is the worker's decision, on what the error says."""

    def __init__(self, transport: Transport, encoder: MetricsEncoder, address: str) -> None:
        self._transport = transport
        self._encoder = encoder
        self._address = address

    def send(self, points: Sequence[Point], time_ns: int, new: Collection[SeriesKey]) -> None:
        """Raises `SendError` if the receiver did not take it, `PartlyTakenError` if not all of it."""
        body = self._encoder.encode(points, time_ns, new)
        answer = self._transport.send(body, self._transport.timeout_s)
        if answer.rejected:
            raise PartlyTakenError(f"{self._address}: rejected {answer.rejected} data points: {answer.message}")

    def close(self) -> None:
        """Close the connection."""
        self._transport.close()


def open_otlp_metrics(
    config: OtlpConfig,
    resource: Resource,
    started_ns: int,
    environ: Mapping[str, str],
    destinations: Callable[[], Iterable[Destination]] = nobody,
    namer: Namer | None = None,
) -> OtlpSink:
    """The sink of this config and the standard variables. Raises `ConfigError` for settings that cannot be.

    Args:
        config: where to, and how.
        resource: who we are.
        started_ns: when the process began, in ns since the epoch; sums are cumulative since then.
        environ: the environment.
        destinations: the accounts of all, which go along (`OwnMetrics`).
        namer: what named the keys.
    """
    settings = otlp_settings(config, environ, "metrics")
    transport = _GrpcMetrics(settings) if settings.protocol == "grpc" else HttpTransport(settings)
    encoder = MetricsEncoder(resource, started_ns, exponential_histograms=config.exponential_histograms)
    about = {"resource": dict(resource.attributes), "started_ns": started_ns}
    own = OwnMetrics(started_ns, destinations, namer)
    return OtlpSink(WireCarrier(transport, encoder, settings.address), settings.address, about, own)


def _sums(points: Sequence[Point]) -> set[SeriesKey]:
    return {series_key(point) for point in points if point.kind == "sum"}


class _GrpcMetrics(GrpcTransport):
    """The same for another method. (Answers for spans and for metrics are the same bytes.)"""

    method = _METHOD
