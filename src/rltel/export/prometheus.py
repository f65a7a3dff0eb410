"""The scrape endpoint: a collector on a registry, and a server on loopback unless told otherwise."""

import base64
import errno
import hmac
import os
import socket
import ssl
import threading
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from socketserver import ThreadingMixIn
from typing import Any
from weakref import WeakSet
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

from prometheus_client import make_wsgi_app
from prometheus_client.core import CollectorRegistry, Metric
from prometheus_client.registry import Collector

from rltel.core.config import PrometheusConfig
from rltel.core.errors import ConfigError
from rltel.core.files import replace
from rltel.core.identity import Identity
from rltel.export.commit import Commit
from rltel.export.points import HistogramValue, Point
from rltel.export.sink import Destination
from rltel.names.prometheus import label_name, prometheus_name

_TRIED_PORTS = 100
_Key = tuple[str, tuple[tuple[str, str], ...]]


class PrometheusSink:
    """Keeps the last point of every series, and shows them to whoever scrapes."""

    name = "prometheus"

    def __init__(self, timestamps: bool = False) -> None:
        self._timestamps = timestamps
        self._lock = threading.Lock()
        self._series: dict[_Key, tuple[Point, float]] = {}
        self.address = ""

    def describe(self) -> str:
        """The endpoint's URL."""
        return self.address

    def write(self, commit: Commit, points: Sequence[Point]) -> None:
        """Take the points of one commit."""
        time = commit.time_ns / 1e9
        latest = {(point.name, tuple(sorted(point.attributes.items()))): (point, time) for point in points}
        with self._lock:
            self._series.update(latest)

    def flush(self) -> None:
        """Nothing waits."""

    def close(self) -> None:
        """Nothing to close: the server belongs to `Endpoint`."""

    def families(self) -> Iterable[Metric]:
        """The series as Prometheus families, each name once."""
        with self._lock:
            series = list(self._series.values())
        families: dict[str, Metric] = {}
        for point, time in series:
            exposed = _exposed_name(point)
            kind = {"sum": "gauge"}.get(point.kind, point.kind)  # a sum that may fall is no Prometheus counter
            family = families.get(exposed)
            if family is None:
                bare = exposed.removesuffix("_total") if kind == "counter" else exposed  # the library appends it
                family = families[exposed] = Metric(bare, point.about, kind)
            elif family.type != kind:
                family.name, family.type = exposed, "unknown"  # of two types, it is of neither
            _add_samples(family, exposed, point, time if self._timestamps else None)
        return families.values()


class RunCollector(Collector):
    """What the registry asks: our series, our own health, and which process this is."""

    def __init__(
        self, sink: PrometheusSink, destinations: Callable[[], Iterable[Destination]], identity: Identity
    ) -> None:
        self._sink = sink
        self._destinations = destinations
        self._identity = identity
        self.scrapes = 0
        """How often somebody asked."""

    def collect(self) -> Iterable[Metric]:
        """All families."""
        self.scrapes += 1
        yield from self._sink.families()
        yield _target_info(self._identity)
        yield from _self_metrics(self._destinations())


def _exposed_name(point: Point) -> str:
    return prometheus_name(point.name, point.unit, "counter" if point.kind == "counter" else "gauge")


def _add_samples(family: Metric, name: str, point: Point, time: float | None) -> None:
    labels = {label_name(attribute): value for attribute, value in point.attributes.items()}
    value = point.value
    if isinstance(value, HistogramValue):
        for bound, count in zip(value.bounds, value.counts, strict=True):
            family.add_sample(f"{name}_bucket", {**labels, "le": repr(bound)}, count, time)
        family.add_sample(f"{name}_bucket", {**labels, "le": "+Inf"}, value.count, time)
        family.add_sample(f"{name}_count", labels, value.count, time)
        family.add_sample(f"{name}_sum", labels, value.total, time)
    else:
        family.add_sample(name, labels, value, time)


def _target_info(identity: Identity) -> Metric:
    info = Metric("target", "The process that is scraped.", "info")
    labels = {
        "instance_id": identity.instance_id,
        "rl_run_id": identity.run_id,
        "rl_role": identity.role,
        "rl_rank": str(identity.rank),
    }
    info.add_sample("target_info", labels, 1.0)
    return info


def _self_metrics(destinations: Iterable[Destination]) -> Iterable[Metric]:
    exported = Metric("rltel_exported", "Commits that a destination took.", "counter")
    dropped = Metric("rltel_dropped", "Commits and records that were lost, by reason.", "counter")
    for destination in destinations:
        labels = {"destination": destination.name}
        exported.add_sample("rltel_exported_total", labels, destination.exported_total)
        for reason, count in sorted(destination.dropped_totals.items()):
            dropped.add_sample("rltel_dropped_total", {**labels, "reason": reason}, count)
    return exported, dropped


class _Server(ThreadingMixIn, WSGIServer):
    daemon_threads = True
    allow_reuse_address = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that hangs up, or speaks no TLS, is its own trouble."""


class _Server6(_Server):
    address_family = socket.AF_INET6


class _Silent(WSGIRequestHandler):
    timeout = 30.0  # seconds that a silent client keeps its thread

    def log_message(self, format: str, *args: Any) -> None:
        """Scrapes are not news."""


_servers: WeakSet[WSGIServer] = WeakSet()


def _let_go() -> None:
    """In a forked child: its copy of a listening socket would hold the port after the parent's end."""
    for server in _servers:
        server.socket.close()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_let_go)


class Endpoint:
    """The HTTP server of one process, on the configured port or the next free one."""

    def __init__(self, config: PrometheusConfig, registry: CollectorRegistry, first_port: int) -> None:
        app = make_wsgi_app(registry)
        if config.username is not None and config.password is not None:
            app = _with_password(app, config.username, config.password)
        context = _tls(config.tls_cert, config.tls_key) if config.tls_cert and config.tls_key else None
        self._server = _bind(config.host, first_port, app)
        if context is not None:
            self._server.socket = context.wrap_socket(
                self._server.socket, server_side=True, do_handshake_on_connect=False
            )  # the client's own thread shakes hands: one that never does must not keep the others waiting
        _servers.add(self._server)
        self.port: int = self._server.server_port
        self._advertised: Path | None = None
        scheme = "https" if config.tls_cert else "http"
        host = f"[{config.host}]" if ":" in config.host else config.host
        self.target = f"{config.advertise or host}:{self.port}"
        self.url = f"{scheme}://{host}:{self.port}/metrics"
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(0.05,), name="rltel-prometheus", daemon=True
        )
        self._thread.start()

    def advertise(self, path: Path, identity: Identity) -> None:
        """Write the file that Prometheus's ``file_sd_configs`` reads."""
        path.parent.mkdir(parents=True, exist_ok=True)
        self._advertised = path
        labels = {"rl_run": identity.run_id, "rl_role": identity.role, "rl_index": str(identity.index)}
        replace(path, [{"targets": [self.target], "labels": labels}])

    def close(self) -> None:
        """Stop listening, and no longer say that we do."""
        if self._advertised is not None:
            self._advertised.unlink(missing_ok=True)
        self._server.shutdown()
        self._server.server_close()


def _tls(cert: str, key: str) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        context.load_cert_chain(cert, key)
    except OSError as error:
        raise ConfigError(f"prometheus.tls_cert, prometheus.tls_key: cannot use {cert} and {key}: {error}") from error
    return context


def _bind(host: str, first_port: int, app: Any) -> WSGIServer:
    """The first port from ``first_port`` on that can be had (port 0: any)."""
    last = min(first_port + _TRIED_PORTS - 1, 65535) if first_port else 0
    server = _Server6 if ":" in host else _Server
    for port in range(min(first_port, last), last + 1):
        try:
            return make_server(host, port, app, server, handler_class=_Silent)
        except OSError as error:
            if error.errno not in (errno.EADDRINUSE, errno.EACCES):
                raise ConfigError(f'prometheus.host: cannot listen on "{host}": {error}') from error
    raise ConfigError(f"prometheus.port: none of {min(first_port, last)} to {last} on {host} is free")


def _with_password(app: Any, username: str, password: str) -> Any:
    expected = b"Basic " + base64.b64encode(f"{username}:{password}".encode())

    def guarded(environ: dict[str, Any], start_response: Any) -> Any:
        given = environ.get("HTTP_AUTHORIZATION", "").encode()
        if hmac.compare_digest(given, expected):
            return app(environ, start_response)
        start_response("401 Unauthorized", [("WWW-Authenticate", 'Basic realm="rltel"'), ("Content-Length", "0")])
        return [b""]

    return guarded
