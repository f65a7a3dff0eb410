"""Requests carried to the real agent, and to receivers of the test that fail in every way the protocol knows."""

import contextlib
import email.utils
import logging
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
from google.protobuf.duration_pb2 import Duration
from google.rpc.error_details_pb2 import RetryInfo
from google.rpc.status_pb2 import Status
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTracePartialSuccess,
    ExportTraceServiceResponse,
)

from realparts.certificate import Certificate, certificate
from realparts.otlp_receiver import OtlpSink, otlp_grpc_sink, otlp_sink, rotel
from realparts.processes import free_port
from rltel.core.config import OtlpConfig
from rltel.core.resolve import resolve
from rltel.export.otlp.transport import Answer, SendError, Transport, trace_transport
from rltel.export.spans.wire import SpanData, SpanEncoder, request
from rltel.version import VERSION

BOTH = ["http/protobuf", "grpc"]
PLAIN = SpanData(5, 7, 0, "update", 1_795_987_000_000_000_000, 1_795_987_000_000_000_007, {"rl.step": 3})
SECRET = "geheimnis"
PATIENCE_S = 60.0  # for what answers at once: a machine that stalls for some seconds must not end it


def body(*names: str) -> bytes:
    return request(b"", {"rltel": [SpanEncoder().span(PLAIN._replace(name=name)) for name in names or ("update",)]})


@contextmanager
def transport(endpoint: str, protocol: Any = "http/protobuf", **config: Any) -> Iterator[Transport]:
    environ = {name: config.pop(name) for name in list(config) if name.isupper()}
    given = OtlpConfig(endpoint=endpoint, protocol=protocol, **config)
    made, _ = trace_transport(resolve({"otlp": given}, environ).otlp, environ)
    try:
        yield made
    finally:
        made.close()


def failure(endpoint: str, protocol: Any = "http/protobuf", timeout_s: float = PATIENCE_S, **config: Any) -> SendError:
    with transport(endpoint, protocol, **config) as made, pytest.raises(SendError) as raised:
        made.send(body(), timeout_s)
    return raised.value


@pytest.fixture(params=BOTH)
def protocol(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@contextmanager
def receiving(protocol: str, tls: Certificate | None = None, trust: str | None = None) -> Iterator[OtlpSink]:
    with (otlp_grpc_sink if protocol == "grpc" else otlp_sink)(tls, trust) as sink:
        yield sink


@pytest.fixture
def receiver(protocol: str) -> Iterator[OtlpSink]:
    with receiving(protocol) as sink:
        yield sink


class TestThroughRotel:
    """Decoded and encoded by an implementation that is not Python's."""

    @pytest.mark.parametrize("compression", ["none", "gzip"])
    def test_spans_arrive(self, protocol: str, compression: str, tmp_path: Path) -> None:
        data = PLAIN._replace(
            parent_id=9,
            attributes={"n": 1, "list": [0.5, "x"], "map": {"a": True}},
            error="out of memory",
            events=[(PLAIN.start_ns + 1, "checkpoint", {"size": 2})],
            links=[(11, 12)],
        )
        with rotel(tmp_path) as agent:
            endpoint = agent.grpc_endpoint if protocol == "grpc" else agent.http_endpoint
            with transport(endpoint, protocol, compression=compression) as made:
                assert made.send(request(b"", {"rltel.x": [SpanEncoder().span(data)]}), PATIENCE_S) == Answer(0, "")
            found = agent.wait_for_span("update")
        assert (found.scope.name, found.scope.version) == ("rltel.x", VERSION)
        assert found.attributes == {"n": 1, "list": [0.5, "x"], "map": {"a": True}}
        span = found.span
        assert (int.from_bytes(span.trace_id), int.from_bytes(span.parent_span_id)) == (5, 9)
        assert (span.start_time_unix_nano, span.end_time_unix_nano) == (data.start_ns, data.end_ns)
        assert (span.status.message, span.events[0].name) == ("out of memory", "checkpoint")
        assert span.links[0].span_id[-1] == 12


class TestSend:
    def test_one_connection_carries_many(self, receiver: OtlpSink, protocol: str) -> None:
        with transport(receiver.endpoint, protocol) as made:
            for name in ("one", "two", "three"):
                assert made.send(body(name), PATIENCE_S) == Answer(0, "")
        assert [span.name for span in receiver.spans()] == ["one", "two", "three"]

    def test_headers_and_who_we_are(self, receiver: OtlpSink, protocol: str) -> None:
        with transport(receiver.endpoint, protocol, headers={"X-Key": "k"}) as made:
            made.send(body(), PATIENCE_S)
        headers = receiver.requests()[0].headers
        assert headers["x-key"] == "k"
        assert headers["user-agent"].startswith(f"rltel/{VERSION}")

    @pytest.mark.parametrize("compression", ["none", "gzip", "deflate"])
    def test_compression(self, receiver: OtlpSink, protocol: str, compression: str) -> None:
        with transport(receiver.endpoint, protocol, compression=compression) as made:
            made.send(body(*["a long name"] * 50), PATIENCE_S)
        assert len(receiver.spans()) == 50
        if protocol != "grpc":  # gRPC's own header of it does not reach the receiver's program
            assert receiver.requests()[0].headers.get("content-encoding", "none") == compression

    def test_a_header_cannot_change_what_the_body_is(self) -> None:
        with (
            otlp_sink() as receiver,
            transport(receiver.endpoint, headers={"content-type": "text/plain", "Content-Encoding": "br"}) as made,
        ):
            made.send(body(), PATIENCE_S)
            assert len(receiver.spans()) == 1

    def test_the_signal_s_own_endpoint(self, receiver: OtlpSink, protocol: str) -> None:
        path = "" if protocol == "grpc" else "/v1/traces"
        environ = {"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": receiver.endpoint + path}
        made, address = trace_transport(OtlpConfig(protocol=protocol), environ)  # type: ignore[arg-type]  # a parameter
        assert address == receiver.endpoint + path
        made.send(body(), PATIENCE_S)
        made.close()
        assert len(receiver.spans()) == 1

    def test_a_partial_success_says_how_many(self, receiver: OtlpSink, protocol: str) -> None:
        partial = ExportTracePartialSuccess(rejected_spans=2, error_message="too\nold")
        receiver.answer = ExportTraceServiceResponse(partial_success=partial).SerializeToString()
        with transport(receiver.endpoint, protocol) as made:
            assert made.send(body(), PATIENCE_S) == Answer(2, "too old")

    def test_a_warning_rejects_nothing(self, receiver: OtlpSink, protocol: str) -> None:
        partial = ExportTracePartialSuccess(rejected_spans=-1, error_message="use TLS")
        receiver.answer = ExportTraceServiceResponse(partial_success=partial).SerializeToString()
        with transport(receiver.endpoint, protocol) as made:
            assert made.send(body(), PATIENCE_S) == Answer(0, "use TLS")

    def test_an_answer_in_other_words_is_an_answer(self, receiver: OtlpSink, protocol: str) -> None:
        receiver.answer = b'{"ok": true}'
        with transport(receiver.endpoint, protocol) as made:
            assert made.send(body(), PATIENCE_S) == Answer(0, "")

    def test_the_time_that_the_settings_allow(self) -> None:
        with transport("http://127.0.0.1:1", timeout_s=2.5) as made:
            assert made.timeout_s == 2.5


class TestHttpFailures:
    @pytest.fixture
    def receiver(self) -> Iterator[OtlpSink]:
        with otlp_sink() as sink:
            yield sink

    @pytest.mark.parametrize(
        ("status", "retryable", "said"),
        [
            (400, False, "HTTP 400 Bad Request"),
            (401, False, "HTTP 401 Unauthorized"),
            (404, False, "HTTP 404 Not Found"),
            (413, False, "HTTP 413"),
            (429, True, "HTTP 429 Too Many Requests"),
            (500, False, "HTTP 500"),
            (502, True, "HTTP 502"),
            (503, True, "HTTP 503 Service Unavailable"),
            (504, True, "HTTP 504"),
            (599, False, "HTTP 599"),
        ],
    )
    def test_a_status_says_whether_to_try_again(
        self, receiver: OtlpSink, status: int, retryable: bool, said: str
    ) -> None:
        receiver.status = status
        error = failure(receiver.endpoint)
        assert (error.retryable, error.retry_after_s) == (retryable, None)
        assert str(error).startswith(f"{receiver.endpoint}/v1/traces: {said}")
        assert receiver.refused == 1, "one try"

    def test_retry_after_in_seconds(self, receiver: OtlpSink) -> None:
        receiver.status, receiver.answer_headers = 503, {"Retry-After": "7"}
        assert failure(receiver.endpoint).retry_after_s == 7

    def test_retry_after_as_a_date(self, receiver: OtlpSink) -> None:
        receiver.status = 429
        receiver.answer_headers = {"Retry-After": email.utils.formatdate(time.time() + 3600, usegmt=True)}
        wait_s = failure(receiver.endpoint).retry_after_s
        assert wait_s is not None
        assert 3000 < wait_s <= 3600

    @pytest.mark.parametrize("text", ["soon", "-5", ""])
    def test_a_retry_after_that_is_none(self, receiver: OtlpSink, text: str) -> None:
        receiver.status, receiver.answer_headers = 503, {"Retry-After": text}
        assert failure(receiver.endpoint).retry_after_s is None

    def test_the_receiver_s_reason_is_told(self, receiver: OtlpSink) -> None:
        receiver.status, receiver.answer = 400, Status(code=3, message="no such tenant").SerializeToString()
        assert str(failure(receiver.endpoint)).endswith("HTTP 400 Bad Request: no such tenant")

    def test_a_reason_in_plain_text_is_shortened(self, receiver: OtlpSink) -> None:
        receiver.status, receiver.answer = 400, b"why not \n" * 1000
        receiver.answer_headers = {"Content-Type": "text/plain"}
        assert "Bad Request: why not why not" in (said := str(failure(receiver.endpoint)))
        assert len(said) < 400

    def test_a_redirect_is_not_followed(self, receiver: OtlpSink) -> None:
        """The POST would become a GET without a body, and its 200 would look like success."""
        receiver.status, receiver.answer_headers = 302, {"Location": "/elsewhere"}
        error = failure(receiver.endpoint)
        assert "HTTP 302 Found" in str(error)
        assert not error.retryable

    def test_a_web_page_is_no_receiver(self, receiver: OtlpSink) -> None:
        receiver.answer, receiver.answer_headers = b"<html>Log in</html>", {"Content-Type": "text/html; charset=utf-8"}
        assert "answers with a web page" in str(failure(receiver.endpoint))


class TestGrpcFailures:
    @pytest.fixture
    def receiver(self) -> Iterator[OtlpSink]:
        with otlp_grpc_sink() as sink:
            yield sink

    @pytest.mark.parametrize(
        ("code", "retryable"),
        [
            ("CANCELLED", True),
            ("DEADLINE_EXCEEDED", True),
            ("ABORTED", True),
            ("OUT_OF_RANGE", True),
            ("UNAVAILABLE", True),
            ("DATA_LOSS", True),
            ("RESOURCE_EXHAUSTED", False),
            ("INVALID_ARGUMENT", False),
            ("UNAUTHENTICATED", False),
            ("UNIMPLEMENTED", False),
            ("INTERNAL", False),
        ],
    )
    def test_a_code_says_whether_to_try_again(self, receiver: OtlpSink, code: str, retryable: bool) -> None:
        receiver.grpc_status = (code, "for a reason", ())
        error = failure(receiver.endpoint, "grpc")
        assert (error.retryable, error.retry_after_s) == (retryable, None)
        assert str(error) == f"{receiver.endpoint}: {code}: for a reason"
        assert receiver.refused == 1, "one try"

    @pytest.mark.parametrize("code", ["RESOURCE_EXHAUSTED", "UNAVAILABLE"])
    def test_retry_info(self, receiver: OtlpSink, code: str) -> None:
        """With it, exhausted resources come back."""
        status = Status(code=8, message="full")
        status.details.add().Pack(RetryInfo(retry_delay=Duration(seconds=1, nanos=500_000_000)))
        receiver.grpc_status = (code, "full", (("grpc-status-details-bin", status.SerializeToString()),))
        error = failure(receiver.endpoint, "grpc")
        assert (error.retryable, error.retry_after_s) == (True, 1.5)

    def test_a_receiver_that_is_back_is_found(self) -> None:
        """A channel that failed waits before it connects again, and answers at once meanwhile."""
        port = free_port()
        with transport(f"http://127.0.0.1:{port}", "grpc") as made:
            with pytest.raises(SendError):
                made.send(body(), 1.0)
            with otlp_grpc_sink(port=port) as receiver:
                deadline = time.monotonic() + PATIENCE_S
                while not receiver.spans():
                    assert time.monotonic() < deadline
                    with contextlib.suppress(SendError):
                        made.send(body(), 1.0)


class TestNobodyThere:
    def test_refused(self, protocol: str) -> None:
        endpoint = f"http://127.0.0.1:{free_port()}"
        error = failure(endpoint, protocol)
        assert error.retryable
        assert isinstance(error, ConnectionError)
        assert str(error).startswith(endpoint)
        assert "Connection refused" in str(error)

    def test_no_such_host(self, protocol: str) -> None:
        error = failure("http://nobody.invalid:4317", protocol)
        assert error.retryable
        assert "nobody.invalid" in str(error)

    def test_silence_ends_in_time(self, protocol: str) -> None:
        """open-telemetry/opentelemetry-python#2284: a collector that takes connections and says nothing."""
        with silent_server() as port:
            began = time.monotonic()
            error = failure(f"http://127.0.0.1:{port}", protocol, timeout_s=0.3)
            assert time.monotonic() - began < PATIENCE_S / 2, "a bound, not a measurement"
        assert error.retryable

    def test_a_receiver_that_is_too_slow(self, protocol: str) -> None:
        with receiving(protocol) as receiver:
            receiver.delay = 5.0  # no stall is to last so long that the answer is there when the client looks
            error = failure(receiver.endpoint, protocol, timeout_s=0.2)
            assert error.retryable
            # HTTP's second one: where it took so long to send.
            said = ("DEADLINE_EXCEEDED",) if protocol == "grpc" else ("no answer within 0.2 s", "timed out")
            assert any(words in str(error) for words in said)

    def test_a_connection_that_is_cut(self) -> None:
        def cut(connection: socket.socket) -> None:
            connection.recv(10)
            connection.close()

        with silent_server(cut) as port:
            error = failure(f"http://127.0.0.1:{port}")
        assert error.retryable
        assert str(error).startswith(f"http://127.0.0.1:{port}/v1/traces: ")

    def test_an_answer_that_never_ends(self) -> None:
        """Neither time nor memory is without bound."""

        def pour(connection: socket.socket) -> None:
            connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Type: application/x-protobuf\r\n\r\n")
            while True:
                connection.sendall(b"x" * 65536)

        with silent_server(pour) as port, transport(f"http://127.0.0.1:{port}") as made:
            assert made.send(body(), PATIENCE_S) == Answer(0, "")

    def test_a_closed_transport(self, receiver: OtlpSink) -> None:
        with transport(receiver.endpoint, "grpc") as made:
            made.close()
            with pytest.raises(SendError, match="cannot send"):
                made.send(body(), 1.0)
            made.close()


@contextmanager
def silent_server(answer: Callable[[socket.socket], None] = lambda connection: None) -> Iterator[int]:
    """Takes connections; says nothing, or what it is told to."""
    with ExitStack() as open_ones, socket.create_server(("127.0.0.1", 0)) as listener:

        def accept() -> None:
            while True:
                try:
                    connection = open_ones.enter_context(listener.accept()[0])
                    answer(connection)
                except OSError:  # the test is over, or the other side has gone
                    if listener.fileno() < 0:
                        return

        threading.Thread(target=accept, daemon=True).start()
        yield listener.getsockname()[1]
        listener.shutdown(socket.SHUT_RDWR)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Certificate:
    return certificate(tmp_path_factory.mktemp("tls"))


class TestTls:
    @pytest.fixture
    def receiver(self, protocol: str, made: Certificate) -> Iterator[OtlpSink]:
        with receiving(protocol, made) as sink:
            yield sink

    def test_with_its_authority(self, receiver: OtlpSink, protocol: str, made: Certificate) -> None:
        with transport(receiver.endpoint, protocol, certificate=made.cert) as sender:
            sender.send(body(), PATIENCE_S)
        assert len(receiver.spans()) == 1

    def test_with_the_authority_of_the_variable(self, receiver: OtlpSink, protocol: str, made: Certificate) -> None:
        with transport(receiver.endpoint, protocol, OTEL_EXPORTER_OTLP_TRACES_CERTIFICATE=made.cert) as sender:
            sender.send(body(), PATIENCE_S)
        assert len(receiver.spans()) == 1

    def test_requests_ca_bundle_does_not_override_the_config(
        self, receiver: OtlpSink, protocol: str, made: Certificate, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The library below prefers this variable over its session's setting."""
        monkeypatch.setenv("REQUESTS_CA_BUNDLE", made.key)
        self.test_with_its_authority(receiver, protocol, made)

    def test_a_stranger_is_not_trusted(self, receiver: OtlpSink, protocol: str) -> None:
        error = failure(receiver.endpoint, protocol)
        assert receiver.spans() == []
        assert "certificate" in str(error).lower()

    def test_a_client_s_certificate(self, protocol: str, made: Certificate) -> None:
        names = {"OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE": made.cert, "OTEL_EXPORTER_OTLP_CLIENT_KEY": made.key}
        with receiving(protocol, made, trust=made.cert) as receiver:
            failure(receiver.endpoint, protocol, certificate=made.cert)
            with transport(receiver.endpoint, protocol, certificate=made.cert, **names) as sender:
                sender.send(body(), PATIENCE_S)
            assert len(receiver.spans()) == 1


class TestSecrets:
    """In headers and URLs. Neither errors nor any logger, at any level, shows them."""

    @pytest.fixture(autouse=True)
    def everything_is_logged(self, caplog: pytest.LogCaptureFixture) -> Iterator[None]:
        with caplog.at_level(logging.DEBUG):
            yield
        assert [record for record in caplog.get_records("call") if SECRET in record.getMessage()] == []

    EMPTY = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"
    HEADERS = {"Authorization": f"Bearer {SECRET}"}  # noqa: RUF012  # never written to

    def test_in_a_url(self) -> None:
        error = failure(f"http://me:{SECRET}@127.0.0.1:{free_port()}/?token={SECRET}")
        assert SECRET not in str(error)

    def test_of_a_request_that_succeeds(self, receiver: OtlpSink, protocol: str) -> None:
        with transport(receiver.endpoint, protocol, headers=self.HEADERS) as made:
            made.send(body(), PATIENCE_S)
        assert receiver.requests()[0].headers["authorization"] == self.HEADERS["Authorization"]

    def test_what_others_send_is_still_logged(self, caplog: pytest.LogCaptureFixture) -> None:
        with transport("http://127.0.0.1:1"):
            logging.getLogger("urllib3.connectionpool").debug("of somebody else")
        assert "of somebody else" in caplog.text

    def test_in_a_query_of_a_request_that_succeeds(self) -> None:
        with silent_server(lambda connection: connection.sendall(self.EMPTY)) as port:
            own = f"http://me:{SECRET}@127.0.0.1:{port}/v1/traces?token={SECRET}"
            made, address = trace_transport(OtlpConfig(), {"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": own})
            assert SECRET not in address
            assert made.send(body(), PATIENCE_S) == Answer(0, "")
            made.close()

    def test_in_a_header_that_the_receiver_quotes(self, receiver: OtlpSink, protocol: str) -> None:
        quoted = f"token {SECRET} is too old"
        receiver.status, receiver.answer = 401, Status(message=quoted).SerializeToString()
        receiver.grpc_status = ("UNAUTHENTICATED", quoted, ())
        error = failure(receiver.endpoint, protocol, headers=self.HEADERS)
        assert str(error).endswith("token [redacted] is too old")

    def test_in_a_partial_success(self, receiver: OtlpSink, protocol: str) -> None:
        partial = ExportTracePartialSuccess(rejected_spans=1, error_message=f"key {SECRET} is read-only")
        receiver.answer = ExportTraceServiceResponse(partial_success=partial).SerializeToString()
        with transport(receiver.endpoint, protocol, headers={"x-key": SECRET}) as made:
            assert made.send(body(), PATIENCE_S) == Answer(1, "key [redacted] is read-only")

    def test_in_an_address_that_cannot_be(self) -> None:
        """The library's own error shows it."""
        error = failure(f"http://me:{SECRET}@127.0.0.1:99999/?token={SECRET}")
        assert SECRET not in str(error)
        assert "cannot send (InvalidURL)" in str(error)
        assert not error.retryable

    def test_a_netrc_file_does_not_replace_them(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        netrc = tmp_path / "netrc"
        netrc.write_text("machine 127.0.0.1 login other password other\n")
        monkeypatch.setenv("NETRC", str(netrc))
        with otlp_sink() as receiver, transport(receiver.endpoint, headers=self.HEADERS) as made:
            made.send(body(), PATIENCE_S)
            assert receiver.requests()[0].headers["authorization"] == self.HEADERS["Authorization"]
