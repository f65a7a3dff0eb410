"""Carries encoded OTLP requests to a receiver, over HTTP or gRPC: one try each, bounded in time.

Whether to try again is the caller's decision; the error says what the protocol says of it. No message holds a header
or the secrets of a URL, whoever wrote it.
"""

import contextlib
import email.utils
import gzip
import re
import time
import zlib
from collections.abc import Callable, Mapping
from http import HTTPStatus
from http.client import HTTPException
from pathlib import Path
from typing import Any, NamedTuple, Protocol
from urllib.parse import parse_qsl, unquote, urlsplit

from google.protobuf.message import DecodeError
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse

from rltel.core.config import OtlpConfig
from rltel.core.redact import HIDDEN
from rltel.export.otlp.fork_gate import gate
from rltel.export.otlp.settings import OtlpSettings, otlp_settings
from rltel.export.quiet import HTTP_LOGGERS, quieten, quietly
from rltel.version import VERSION

_USER_AGENT = f"rltel/{VERSION}"
_PACKED: dict[str, Callable[[bytes], bytes]] = {
    "none": lambda body: body,
    "gzip": lambda body: gzip.compress(body, 3),  # spans hardly get smaller beyond, and take thrice the time
    "deflate": lambda body: zlib.compress(body, 3),
}
_RETRYABLE_HTTP = {429, 502, 503, 504}
_RETRYABLE_GRPC = {"CANCELLED", "DEADLINE_EXCEEDED", "ABORTED", "OUT_OF_RANGE", "UNAVAILABLE", "DATA_LOSS"}
_MAX_ANSWER = 1 << 16
_MAX_WORDS = 200
_SHORTEST_SECRET = 4  # shorter ones stand in half of all words


class Answer(NamedTuple):
    """What a receiver said when it took a request."""

    rejected: int
    """Spans that it did not take, and will not if they are sent again."""
    message: str
    """Why, or a warning; "" if it had nothing to say."""


class SendError(ConnectionError):
    """A request did not arrive, or was not taken."""

    def __init__(self, message: str, *, retryable: bool, retry_after_s: float | None = None) -> None:
        super().__init__(message)
        self.retryable = retryable
        """Whether the protocol allows to send the same again."""
        self.retry_after_s = retry_after_s
        """How long the receiver asked to wait before that."""


class Transport(Protocol):
    """Takes request bodies to one address. Used by one thread."""

    timeout_s: float
    """What the settings allow for one request."""

    def send(self, body: bytes, timeout_s: float) -> Answer:
        """One try. Raises `SendError` if the receiver did not take it within about `timeout_s`."""

    def close(self) -> None:
        """Close the connection."""


def trace_transport(config: OtlpConfig, environ: Mapping[str, str]) -> tuple[Transport, str]:
    """For spans, with the address for people. Raises `ConfigError` for settings that cannot be."""
    settings = otlp_settings(config, environ, "traces")
    made = GrpcTransport(settings) if settings.protocol == "grpc" else HttpTransport(settings)
    return made, settings.address


class HttpTransport:
    """OTLP/HTTP with protobuf bodies, on one kept-alive connection."""

    def __init__(self, settings: OtlpSettings) -> None:
        import requests  # only where it is used

        from rltel.export.otlp.bounded import BoundedAdapter, Deadline  # imports it too

        quieten(*HTTP_LOGGERS)
        self.timeout_s = settings.timeout_s
        self._settings = settings
        self._scrub = _Scrub(settings)
        self._pack = _PACKED[settings.compression]
        self._deadline = Deadline()
        self._session = requests.Session()
        for scheme in ("http://", "https://"):
            self._session.mount(scheme, BoundedAdapter(self._deadline))
        self._session.headers["User-Agent"] = _USER_AGENT
        self._session.headers.update(settings.headers)
        self._session.headers["Content-Type"] = "application/x-protobuf"  # what the body is, no setting can change
        self._session.headers.pop("Content-Encoding", None)
        if settings.compression != "none":
            self._session.headers["Content-Encoding"] = settings.compression
        if "authorization" in settings.headers:
            self._session.auth = _as_it_is  # else a netrc file's entry for the host would replace ours

    def send(self, body: bytes, timeout_s: float) -> Answer:
        """One try. What a receiver took, and has not finished saying so within the time, has arrived."""
        from requests import ConnectionError as NoConnection  # only where it is used
        from requests import Timeout as TooLate
        from urllib3.util import Timeout

        packed, settings = self._pack(body), self._settings
        pair = (settings.client_certificate, settings.client_key)
        self._deadline.begin(timeout_s)
        try:
            with (
                quietly(),
                self._session.post(
                    settings.url,
                    data=packed,
                    timeout=Timeout(total=timeout_s),  # type: ignore[arg-type]  # documented for adapters, not typed
                    verify=settings.certificate or True,
                    cert=pair if settings.client_key else settings.client_certificate,  # type: ignore[arg-type]  # a pair has both
                    allow_redirects=False,  # a redirected POST becomes a GET, and "succeeds"
                    stream=True,
                ) as response,
            ):
                said = _said(response)
        except TooLate:
            raise SendError(f"{settings.address}: no answer within {timeout_s:g} s", retryable=True) from None
        except NoConnection as error:
            raise SendError(f"{settings.address}: {_cause(error)}", retryable=True) from None
        except Exception as error:  # an address that cannot be; the error's own text shows it
            raise SendError(f"{settings.address}: cannot send ({type(error).__name__})", retryable=False) from None
        kind = response.headers.get("Content-Type", "")
        if not response.ok or response.is_redirect:
            raise self._refused(response.status_code, response.headers.get("Retry-After"), kind, said)
        if said and kind.startswith("text/html"):
            raise SendError(f"{settings.address}: answers with a web page, not as a receiver does", retryable=False)
        return _answer(said, self._scrub)

    def _refused(self, status: int, retry_after: str | None, kind: str, said: bytes) -> SendError:
        words = self._scrub(_words_of_status(said) if "protobuf" in kind else said.decode(errors="replace"))
        about = f"{status} {_phrase(status)}".strip() + (f": {words}" if words and "html" not in kind else "")
        return SendError(
            f"{self._settings.address}: HTTP {about}",
            retryable=status in _RETRYABLE_HTTP,
            retry_after_s=_seconds(retry_after),
        )

    def close(self) -> None:
        """Close the connection."""
        self._session.close()


class GrpcTransport:
    """OTLP/gRPC, bytes in and bytes out."""

    method = "/opentelemetry.proto.collector.trace.v1.TraceService/Export"

    def __init__(self, settings: OtlpSettings) -> None:
        self.timeout_s = settings.timeout_s
        self._settings = settings
        self._scrub = _Scrub(settings)
        self._channel: Any = None
        if gate.is_usable:
            self._open(settings)

    def _open(self, settings: OtlpSettings) -> None:
        import grpc  # heavy: only where it is used

        self._metadata = tuple(settings.headers.items())
        given: dict[str, Any] = {
            "options": [
                ("grpc.primary_user_agent", _USER_AGENT),
                ("grpc.initial_reconnect_backoff_ms", 200),
                ("grpc.max_reconnect_backoff_ms", 5000),  # not two minutes: a receiver that is back is found
            ],
            "compression": grpc_compression(settings),
        }
        target = _target(settings.url)
        if settings.secure:
            self._channel = grpc.secure_channel(target, grpc_credentials(settings), **given)
        else:
            self._channel = grpc.insecure_channel(target, **given)
        self._export = self._channel.unary_unary(self.method)

    def send(self, body: bytes, timeout_s: float) -> Answer:
        """One try."""
        import grpc  # heavy: only where it is used

        if not gate.is_usable or self._channel is None:
            raise SendError(
                f"{self._settings.address}: this process was forked during a gRPC call, so it cannot use gRPC; "
                "set otlp.protocol to http/protobuf, or start it by spawn or forkserver",
                retryable=False,
            )
        try:
            with gate.call(), quietly():
                said = self._export(body, timeout=timeout_s, metadata=self._metadata)
        except grpc.RpcError as error:
            raise self._refused(error) from None
        except Exception as error:  # a closed channel, metadata of another kind; the error's own text may show them
            raise SendError(
                f"{self._settings.address}: cannot send ({type(error).__name__})", retryable=False
            ) from None
        return _answer(said, self._scrub)

    def _refused(self, error: Any) -> SendError:
        code, wait_s = error.code().name, _retry_delay(error.trailing_metadata() or ())
        retryable = code in _RETRYABLE_GRPC or (code == "RESOURCE_EXHAUSTED" and wait_s is not None)
        words = self._scrub(error.details() or "")
        message = f"{self._settings.address}: {code}" + (f": {words}" if words else "")
        return SendError(message, retryable=retryable, retry_after_s=wait_s)

    def close(self) -> None:
        """Close the connection."""
        if self._channel is not None and gate.is_usable:
            with gate.call():
                self._channel.close()


def grpc_compression(settings: OtlpSettings) -> Any:
    """As a ``grpc.Compression``."""
    import grpc  # heavy: only where it is used

    kinds = {"gzip": grpc.Compression.Gzip, "deflate": grpc.Compression.Deflate, "none": grpc.Compression.NoCompression}
    return kinds[settings.compression]


def grpc_credentials(settings: OtlpSettings) -> Any:
    """As ``grpc.ChannelCredentials``, for a connection that is secure."""
    import grpc  # heavy: only where it is used

    def content(path: str | None) -> bytes | None:
        return Path(path).read_bytes() if path else None

    key = settings.client_key or settings.client_certificate  # one file may hold both
    return grpc.ssl_channel_credentials(
        content(settings.certificate), content(key), content(settings.client_certificate)
    )


class _Scrub:
    """Others' words, shortened and without our secrets: receivers quote what they were sent."""

    def __init__(self, settings: OtlpSettings) -> None:
        parts = urlsplit(settings.url)
        secrets = [*settings.headers.values(), *(value for _, value in parse_qsl(parts.query)), parts.query]
        user = [parts.username or "", parts.password or ""]
        secrets += user + [unquote(word) for word in user]
        secrets += [word for value in settings.headers.values() for word in value.split()]  # without its "Bearer"
        longest_first = sorted({secret for secret in secrets if len(secret) >= _SHORTEST_SECRET}, key=len, reverse=True)
        self._secrets = re.compile("|".join(map(re.escape, longest_first))) if longest_first else None

    def __call__(self, words: str) -> str:
        hidden = self._secrets.sub(HIDDEN, words) if self._secrets else words
        line = " ".join(hidden.split())
        return line if len(line) <= _MAX_WORDS else f"{line[:_MAX_WORDS]}..."


def _said(response: Any) -> bytes:
    """As much as came of an answer whose status is known: that is what counts, whatever happens to the rest."""
    from requests import RequestException  # only where it is used

    try:
        return next(response.iter_content(_MAX_ANSWER), b"")
    except RequestException:
        return b""


def _answer(said: bytes, scrub: _Scrub) -> Answer:
    """A receiver that took the request and says it in another way than OTLP's has still taken it."""
    try:
        partial = ExportTraceServiceResponse.FromString(said).partial_success
    except DecodeError:
        return Answer(0, "")
    return Answer(max(partial.rejected_spans, 0), scrub(partial.error_message))


def _words_of_status(said: bytes) -> str:
    """The message of the google.rpc.Status that a failure comes with."""
    from google.rpc.status_pb2 import Status  # type: ignore[import-untyped]  # no py.typed; only where something failed

    try:
        return str(Status.FromString(said).message)
    except DecodeError:
        return ""


def _retry_delay(metadata: Any) -> float | None:
    """Seconds of the google.rpc.RetryInfo that a failure comes with."""
    from google.rpc.error_details_pb2 import RetryInfo  # type: ignore[import-untyped]  # as above
    from google.rpc.status_pb2 import Status

    for name, value in metadata:
        if name != "grpc-status-details-bin":
            continue
        with contextlib.suppress(DecodeError):
            for detail in Status.FromString(value).details:
                info = RetryInfo()
                if detail.Unpack(info):
                    return max(float(info.retry_delay.ToTimedelta().total_seconds()), 0.0)
    return None


def _seconds(retry_after: str | None) -> float | None:
    """Of a Retry-After header: seconds, or a date."""
    if not retry_after:
        return None
    if retry_after.strip().isdecimal():
        return float(retry_after)
    parsed = email.utils.parsedate_tz(retry_after)
    return max(email.utils.mktime_tz(parsed) - time.time(), 0.0) if parsed else None


def _phrase(status: int) -> str:
    try:
        return HTTPStatus(status).phrase
    except ValueError:
        return ""


def _cause(error: BaseException) -> str:
    """The system's words for it. (Those of the libraries around it show the URL.)"""
    at: BaseException | None = error
    while at is not None:
        if isinstance(at, TimeoutError):
            return "timed out"
        if isinstance(at, OSError) and at.strerror:
            return at.strerror
        if isinstance(at, HTTPException):
            return type(at).__name__
        at = at.__cause__ or at.__context__
    return type(error).__name__


def _target(url: str) -> str:
    """What gRPC connects to: the host and port of a URL, or an address in gRPC's own notation."""
    parts = urlsplit(url)
    return parts.netloc if parts.scheme.lower() in ("http", "https") else url


def _as_it_is(prepared: Any) -> Any:
    """Authentication that is in the headers already."""
    return prepared
