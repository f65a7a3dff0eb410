"""Receives OTLP: an HTTP or a gRPC receiver inside the test, or the real agent ``rotel`` before the HTTP one.

The agent takes OTLP over gRPC and over HTTP and relays it to the receiver, so what a test sees has
been decoded and encoded by an implementation that is not Python's. The receivers in the test can be
told what to answer, and can ask for TLS.
"""

from __future__ import annotations

import gzip
import ssl
import sys
import threading
import time
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

from google.protobuf.message import DecodeError
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, InstrumentationScope, KeyValue
from opentelemetry.proto.metrics.v1.metrics_pb2 import (
    ExponentialHistogramDataPoint,
    HistogramDataPoint,
    Metric,
    NumberDataPoint,
    SummaryDataPoint,
)
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from realparts import requirements
from realparts.certificate import Certificate
from realparts.processes import HOST, accepts, server, tail

Attributes: TypeAlias = dict[str, Any]
Point: TypeAlias = NumberDataPoint | HistogramDataPoint | ExponentialHistogramDataPoint | SummaryDataPoint
Message: TypeAlias = ExportMetricsServiceRequest | ExportTraceServiceRequest

_MESSAGES: dict[str, type[Message]] = {
    "/v1/metrics": ExportMetricsServiceRequest,
    "/v1/traces": ExportTraceServiceRequest,
}

_METHODS: dict[str, type[Message]] = {
    "/opentelemetry.proto.collector.metrics.v1.MetricsService/Export": ExportMetricsServiceRequest,
    "/opentelemetry.proto.collector.trace.v1.TraceService/Export": ExportTraceServiceRequest,
}
_UNPACKED: dict[str | None, Callable[[bytes], bytes]] = {
    None: lambda body: body,
    "gzip": gzip.decompress,
    "deflate": zlib.decompress,
}

Item = TypeVar("Item")


@dataclass(frozen=True)
class ReceivedMetric:
    """One data point with all that stands around it."""

    name: str
    attributes: Attributes
    """Of the point."""
    kind: str
    """gauge, sum, histogram, exponential_histogram or summary."""
    point: Point
    resource: Attributes
    scope: InstrumentationScope
    metric: Metric
    """The whole metric: unit, description, temporality, monotonicity, all points."""

    @property
    def value(self) -> float | int:
        """Of a gauge or a sum."""
        if not isinstance(self.point, NumberDataPoint):
            raise TypeError(f"{self.name} is a {self.kind}, whose point has no single value")
        return self.point.as_int if self.point.HasField("as_int") else self.point.as_double

    @property
    def unit(self) -> str:
        """Of the metric."""
        return self.metric.unit


@dataclass(frozen=True)
class ReceivedSpan:
    """One span with all that stands around it."""

    name: str
    attributes: Attributes
    span: Span
    resource: Attributes
    scope: InstrumentationScope


@dataclass(frozen=True)
class ReceivedRequest:
    """One request that was accepted."""

    path: str
    """Of the URL, or gRPC's method."""
    headers: Mapping[str, str]
    """By lower-case name. Over gRPC: the metadata that are text."""
    message: Message


class OtlpSink:
    """What has arrived. All methods may be called from any thread.

    Attributes:
        endpoint: Base URL of the receiver, once it runs; over HTTP, /v1/metrics and /v1/traces are
            below it.
        status: HTTP status to answer with; other than 200, the request is not kept.
        grpc_status: Name, details and trailing metadata of a gRPC status to answer with; if it is set,
            the request is not kept.
        answer: Body to answer with: serialized, as it is; empty, all was accepted.
        answer_headers: Over HTTP, set in each answer.
        delay: Seconds to wait before each answer.
        refused: How many requests got another status than 200, for whatever cause.
    """

    def __init__(self) -> None:
        self.endpoint = ""
        self.status = 200
        self.grpc_status: tuple[str, str, tuple[tuple[str, str | bytes], ...]] | None = None
        self.answer = b""
        self.answer_headers: dict[str, str] = {}
        self.delay = 0.0
        self.refused = 0
        self._requests: list[ReceivedRequest] = []
        self._arrived = threading.Condition()

    def requests(self) -> list[ReceivedRequest]:
        """The accepted requests in the order of their arrival."""
        with self._arrived:
            return list(self._requests)

    def metrics(self) -> list[ReceivedMetric]:
        """Every data point of every metric, in the order of arrival."""
        return [metric for request in self.requests() for metric in _metrics(request.message)]

    def spans(self) -> list[ReceivedSpan]:
        """Every span, in the order of arrival."""
        return [span for request in self.requests() for span in _spans(request.message)]

    def wait_for_metric(
        self,
        name: str,
        timeout: float = 60.0,
        predicate: Callable[[ReceivedMetric], object] | None = None,
    ) -> ReceivedMetric:
        """The first data point of that name of which the predicate holds.

        Raises:
            AssertionError: None came in time; the message says what did.
        """

        def wanted() -> ReceivedMetric | None:
            of_name = (metric for metric in self.metrics() if metric.name == name)
            return next((metric for metric in of_name if predicate is None or predicate(metric)), None)

        return self.wait_for(wanted, f"metric {name!r}", timeout)

    def wait_for_span(
        self,
        name: str,
        timeout: float = 60.0,
        predicate: Callable[[ReceivedSpan], object] | None = None,
    ) -> ReceivedSpan:
        """Like `wait_for_metric`, for spans."""

        def wanted() -> ReceivedSpan | None:
            of_name = (span for span in self.spans() if span.name == name)
            return next((span for span in of_name if predicate is None or predicate(span)), None)

        return self.wait_for(wanted, f"span {name!r}", timeout)

    def wait_for(self, wanted: Callable[[], Item | None], what: str, timeout: float = 60.0) -> Item:
        """Calls ``wanted`` at each arrival until it gives something true, and returns that."""
        deadline = time.monotonic() + timeout
        with self._arrived:
            while not (item := wanted()):
                if time.monotonic() > deadline:
                    raise AssertionError(f"{what} did not arrive in {timeout} s\n{self.describe()}")
                self._arrived.wait(max(0.0, deadline - time.monotonic()))
        return item

    def describe(self) -> str:
        """What has arrived, in a few lines, for messages."""
        metrics = sorted({metric.name for metric in self.metrics()})
        spans = sorted({span.name for span in self.spans()})
        return f"arrived: {len(self.requests())} requests; refused: {self.refused}\nmetrics: {metrics}\nspans: {spans}"

    def keep(self, request: ReceivedRequest) -> None:
        """Adds a request, for the receiver."""
        with self._arrived:
            self._requests.append(request)
            self._arrived.notify_all()

    def refuse(self) -> None:
        """Counts a refused request, for the receiver."""
        with self._arrived:
            self.refused += 1
            self._arrived.notify_all()


class RotelAgent(OtlpSink):
    """A running agent; what it relayed is read as from any `OtlpSink`.

    Attributes:
        grpc_endpoint: Base URL of its OTLP/gRPC receiver.
        http_endpoint: Base URL of its OTLP/HTTP receiver.
        log: Its output.
    """

    def __init__(self, log: Path) -> None:
        super().__init__()
        self.grpc_endpoint = ""
        self.http_endpoint = ""
        self.log = log

    def describe(self) -> str:
        """Also the agent's log."""
        return f"{super().describe()}\nlog of rotel: {tail(self.log)}"


@contextmanager
def otlp_sink(tls: Certificate | None = None, trust: str | None = None) -> Iterator[OtlpSink]:
    """Runs the HTTP receiver alone; it answers one request for each connection.

    With ``tls`` it speaks HTTPS; with ``trust`` (a file) it also wants a client's certificate.
    """
    sink = OtlpSink()
    with _receiving(sink, tls, trust):
        yield sink


@contextmanager
def otlp_grpc_sink(tls: Certificate | None = None, trust: str | None = None, port: int = 0) -> Iterator[OtlpSink]:
    """Runs a gRPC receiver; ``tls`` and ``trust`` as for `otlp_sink`; port 0: any."""
    import grpc

    sink = OtlpSink()
    grpc_server = grpc.server(ThreadPoolExecutor(4), handlers=(_grpc_handlers(sink),))
    if tls is None:
        port = grpc_server.add_insecure_port(f"{HOST}:{port}")
    else:
        pair = (Path(tls.key).read_bytes(), Path(tls.cert).read_bytes())
        roots = Path(trust).read_bytes() if trust else None
        credentials = grpc.ssl_server_credentials([pair], roots, require_client_auth=trust is not None)
        port = grpc_server.add_secure_port(f"{HOST}:{port}", credentials)
    sink.endpoint = f"{'https' if tls else 'http'}://{HOST}:{port}"
    grpc_server.start()
    try:
        yield sink
    finally:
        grpc_server.stop(grace=None).wait()


def _grpc_handlers(sink: OtlpSink) -> Any:
    import grpc

    class Handlers(grpc.GenericRpcHandler):
        def service(self, call: Any) -> Any:
            if call.method not in _METHODS:
                return None

            def take(body: bytes, context: Any) -> bytes:
                time.sleep(sink.delay)
                if sink.grpc_status is not None:
                    name, details, trailers = sink.grpc_status
                    sink.refuse()
                    context.set_trailing_metadata(trailers)
                    context.abort(grpc.StatusCode[name], details)
                headers = {name: value for name, value in call.invocation_metadata if isinstance(value, str)}
                sink.keep(ReceivedRequest(call.method, headers, _METHODS[call.method].FromString(body)))
                return sink.answer

            return grpc.unary_unary_rpc_method_handler(take)

    return Handlers()


@contextmanager
def rotel(tmp_path: Path) -> Iterator[RotelAgent]:
    """Runs the agent with the HTTP receiver behind it.

    The agent answers a request before it has relayed it, so tests wait for what they sent. If the
    receiver refuses (`OtlpSink.status`), the agent tries again after 0.2 s and more.
    """
    program = requirements.need_rotel()
    agent = RotelAgent(tmp_path / "rotel.log")

    def command(ports: Sequence[int]) -> list[str]:
        return [
            str(program),
            "start",
            f"--otlp-grpc-endpoint={HOST}:{ports[0]}",
            f"--otlp-http-endpoint={HOST}:{ports[1]}",
            "--exporter=otlp",
            f"--otlp-exporter-endpoint={agent.endpoint}",
            "--otlp-exporter-protocol=http",
            "--otlp-exporter-retry-initial-backoff=200ms",
            "--batch-timeout=50ms",
        ]

    def ready(ports: Sequence[int]) -> bool:
        return all(accepts(port) for port in ports)

    with _receiving(agent), server(command, ports=2, ready=ready, log=agent.log) as ports:
        agent.grpc_endpoint, agent.http_endpoint = (f"http://{HOST}:{port}" for port in ports)
        yield agent


@contextmanager
def _receiving(sink: OtlpSink, tls: Certificate | None = None, trust: str | None = None) -> Iterator[None]:
    handler = type("SinkHandler", (_Handler,), {"sink": sink})
    with _Server((HOST, 0), handler) as http_server:
        sink.endpoint = f"{'https' if tls else 'http'}://{HOST}:{http_server.server_port}"
        if tls is not None:
            context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=trust)
            context.verify_mode = ssl.CERT_REQUIRED if trust else ssl.CERT_NONE
            context.load_cert_chain(*tls)
            http_server.socket = context.wrap_socket(
                http_server.socket, server_side=True, do_handshake_on_connect=False
            )
        thread = threading.Thread(target=http_server.serve_forever, args=(0.02,), daemon=True)
        thread.start()
        try:
            yield
        finally:
            http_server.shutdown()
            thread.join()


class _Server(ThreadingHTTPServer):
    request_queue_size = 128  # a stalled machine must not refuse

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that hangs up or is not trusted is what some tests are about; the rest is a fault and is shown."""
        if not isinstance(sys.exception(), (ssl.SSLError, ConnectionError)):
            super().handle_error(request, client_address)


class _Handler(BaseHTTPRequestHandler):
    """HTTP/1.0: a connection ends with its answer, so a stopped receiver takes nothing more."""

    sink: OtlpSink

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        status = self._take(body)
        answer = self.sink.answer
        headers = {"Content-Type": "application/x-protobuf", **self.sink.answer_headers}
        if status != 200:
            self.sink.refuse()  # whoever waits for it may change what the next one is answered
        time.sleep(self.sink.delay)
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def _take(self, body: bytes) -> int:
        """Keeps the request; returns the status to answer with."""
        if self.sink.status != 200:
            return self.sink.status
        message_type = _MESSAGES.get(self.path)
        if message_type is None:
            return 404
        if self.headers.get_content_type() != "application/x-protobuf":
            return 415
        try:
            message = message_type.FromString(_UNPACKED[self.headers.get("Content-Encoding")](body))
        except (KeyError, OSError, EOFError, zlib.error, DecodeError):
            return 400
        headers = {name.lower(): value for name, value in self.headers.items()}
        self.sink.keep(ReceivedRequest(self.path, headers, message))
        return 200

    def log_message(self, format: str, *args: object) -> None:
        """Says nothing."""


def _metrics(message: Message) -> Iterator[ReceivedMetric]:
    if not isinstance(message, ExportMetricsServiceRequest):
        return
    for of_resource in message.resource_metrics:
        resource = _attributes(of_resource.resource.attributes)
        for of_scope in of_resource.scope_metrics:
            for metric in of_scope.metrics:
                kind = metric.WhichOneof("data")
                if kind is None:
                    continue
                for point in getattr(metric, kind).data_points:
                    attributes = _attributes(point.attributes)
                    yield ReceivedMetric(metric.name, attributes, kind, point, resource, of_scope.scope, metric)


def _spans(message: Message) -> Iterator[ReceivedSpan]:
    if not isinstance(message, ExportTraceServiceRequest):
        return
    for of_resource in message.resource_spans:
        resource = _attributes(of_resource.resource.attributes)
        for of_scope in of_resource.scope_spans:
            for span in of_scope.spans:
                yield ReceivedSpan(span.name, _attributes(span.attributes), span, resource, of_scope.scope)


def _attributes(pairs: Iterable[KeyValue]) -> Attributes:
    return {pair.key: _python_value(pair.value) for pair in pairs}


def _python_value(value: AnyValue) -> Any:
    kind = value.WhichOneof("value")
    if kind is None:
        return None
    if kind == "array_value":
        return [_python_value(item) for item in value.array_value.values]
    if kind == "kvlist_value":
        return _attributes(value.kvlist_value.values)
    return getattr(value, kind)
