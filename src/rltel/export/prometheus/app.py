"""What the endpoint answers: the exposition in the format that the client asks for, and whether we are well."""

import base64
import gzip
import hmac
import logging
from collections.abc import Callable, Iterable, Mapping
from hashlib import sha256
from typing import Any, NamedTuple
from urllib.parse import parse_qs
from wsgiref.types import StartResponse

from prometheus_client.core import CollectorRegistry

from rltel.export.prometheus.exposition import expose

_log = logging.getLogger("rltel")
_TEXT = "text/plain; charset=utf-8"
INSTANCE = "instance"
"""The parameter of a scrape that says which process is meant: its ``service.instance.id``."""
_FAST = 1  # of zlib's levels: a scrape must not take the trainer's CPU for a few bytes on a local network

App = Callable[[dict[str, Any], StartResponse], Iterable[bytes]]


class _Answer(NamedTuple):
    status: str
    body: bytes
    headers: tuple[tuple[str, str], ...] = (("Content-Type", _TEXT),)


_NOT_FOUND = _Answer("404 Not Found", b"/metrics and /healthz are here\n")
_NOT_ALLOWED = _Answer("405 Method Not Allowed", b"", (("Allow", "GET, HEAD"),))
_DENIED = _Answer("401 Unauthorized", b"", (("WWW-Authenticate", 'Basic realm="rltel", charset="UTF-8"'),))
_GONE = _Answer("410 Gone", b"another process is here now\n")
_FAILED = _Answer("500 Internal Server Error", b"the metrics could not be collected; the process's log says why\n")


def no_trouble() -> str:
    """All is well."""
    return ""


def whoever(instance: str) -> bool:
    """Whichever process is meant, it is this one."""
    return True


def scrape_app(
    registry: CollectorRegistry,
    username: str | None = None,
    password: str | None = None,
    trouble: Callable[[], str] = no_trouble,
    is_me: Callable[[str], bool] = whoever,
) -> App:
    """A WSGI application that shows a registry.

    A scrape that names another process (``?instance=``) gets 410: what this one has would be filed as that one's.
    ``/healthz`` needs no password: a kubelet has none, and all it learns is whether the process is well.
    """
    wanted = None if username is None or password is None else _digest(f"{username}:{password}".encode())
    failures: list[str] = []

    def answer(environ: Mapping[str, Any]) -> _Answer:
        if environ["REQUEST_METHOD"] not in ("GET", "HEAD"):
            return _NOT_ALLOWED
        path = environ.get("PATH_INFO") or "/"
        if path == "/healthz":
            return _health(trouble)
        if wanted is not None and not hmac.compare_digest(_given(environ), wanted):
            return _DENIED
        if path not in ("/", "/metrics"):
            return _NOT_FOUND
        if not all(map(is_me, parse_qs(environ.get("QUERY_STRING", "")).get(INSTANCE, []))):
            return _GONE
        try:
            return _exposition(registry, environ)
        except Exception as error:  # a user's own collector on the registry may raise anything
            if not failures:
                failures.append(str(error))
                _log.warning("prometheus: a scrape failed: %s (said once)", error)
            return _FAILED

    def app(environ: dict[str, Any], start_response: StartResponse) -> Iterable[bytes]:
        status, body, headers = answer(environ)
        start_response(status, [*headers, ("Content-Length", str(len(body)))])
        return [b"" if environ["REQUEST_METHOD"] == "HEAD" else body]

    return app


def _health(trouble: Callable[[], str]) -> _Answer:
    found = trouble()
    return _Answer("503 Service Unavailable", f"{found}\n".encode()) if found else _Answer("200 OK", b"ok\n")


def _exposition(registry: CollectorRegistry, environ: Mapping[str, Any]) -> _Answer:
    content_type, body = expose(registry, environ.get("HTTP_ACCEPT", ""))
    headers = [("Content-Type", content_type), ("Vary", "Accept, Accept-Encoding")]
    if _takes_gzip(environ.get("HTTP_ACCEPT_ENCODING", "")):
        headers.append(("Content-Encoding", "gzip"))
        body = gzip.compress(body, _FAST)
    return _Answer("200 OK", body, tuple(headers))


def _takes_gzip(accepted: str) -> bool:
    for each in accepted.split(","):
        coding, _, parameters = each.partition(";")
        if coding.strip().lower() == "gzip":
            return parameters.replace(" ", "") not in ("q=0", "q=0.0", "q=0.00", "q=0.000")
    return False


def _given(environ: Mapping[str, Any]) -> bytes:
    """The digest of the credentials that came, whatever came: one of fixed length, so that comparing tells nothing."""
    scheme, _, payload = environ.get("HTTP_AUTHORIZATION", "").partition(" ")
    if scheme.lower() != "basic":
        return b""
    try:
        credentials = base64.b64decode(payload.strip(), validate=True)
    except ValueError:  # no base64, or no ASCII
        return b""
    return _digest(credentials)


def _digest(credentials: bytes) -> bytes:
    return sha256(credentials).digest()
