"""The HTTP server of one process: on loopback unless told otherwise, with TLS and a password if asked."""

import errno
import logging
import os
import socket
import ssl
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from socketserver import ThreadingMixIn
from typing import Any
from weakref import WeakSet
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

from prometheus_client.core import CollectorRegistry

from rltel.core.config import PrometheusConfig
from rltel.core.errors import ConfigError
from rltel.core.files import replace
from rltel.core.identity import Identity
from rltel.export.prometheus.app import INSTANCE, App, no_trouble, scrape_app

_log = logging.getLogger("rltel")
_TRIED_PORTS = 100
_WILDCARDS = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104  # what to ask of a process that listens everywhere


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
    """Serves ``/metrics`` and ``/healthz`` on the configured port, the next free one, or any if too many are taken.

    Args:
        config: where, and who may.
        registry: what is shown.
        first_port: the first one that is tried; 0 for any.
        trouble: says in a few words what is wrong with this process, nothing if it is well (``/healthz``).
    """

    def __init__(
        self,
        config: PrometheusConfig,
        registry: CollectorRegistry,
        first_port: int,
        trouble: Callable[[], str] = no_trouble,
    ) -> None:
        _refuse_halves(config)
        self._instance: str | None = None  # of whoever is advertised
        app = scrape_app(registry, config.username, config.password, trouble, self._is_me)
        context = _tls(config.tls_cert, config.tls_key) if config.tls_cert and config.tls_key else None
        self._server = _bind(config.host, first_port, app)
        if context is not None:
            self._server.socket = context.wrap_socket(
                self._server.socket, server_side=True, do_handshake_on_connect=False
            )  # the client's own thread shakes hands: one that never does must not keep the others waiting
        _servers.add(self._server)
        self.port: int = self._server.server_port
        self._advertised: Path | None = None
        self._scheme = "https" if context is not None else "http"
        self._knows_its_address = bool(config.advertise) or config.host not in _WILDCARDS
        self.target = f"{_in_url(config.advertise or _WILDCARDS.get(config.host, config.host))}:{self.port}"
        self.url = f"{self._scheme}://{_in_url(config.host)}:{self.port}/metrics"
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(0.05,), name="rltel-prometheus", daemon=True
        )
        self._thread.start()

    def advertise(self, path: Path, identity: Identity) -> None:
        """Write the file that Prometheus's ``file_sd_configs`` reads.

        Its labels are those of the OTLP route. They also say how to scrape (``__scheme__``), and whom: the file of a
        process that was killed stays, and another run's process may have its port by then.
        """
        if not self._knows_its_address:
            _log.warning(
                "prometheus.host is a wildcard and prometheus.advertise is not set: prometheus_sd/ says %s, which is "
                "right for a Prometheus on this machine alone",
                self.target,
            )
        path.parent.mkdir(parents=True, exist_ok=True)
        self._advertised, self._instance = path, identity.instance_id
        labels = {
            "rl_run_id": identity.run_id,
            "rl_role": identity.role,
            "rl_rank": str(identity.index),
            "__scheme__": self._scheme,
            f"__param_{INSTANCE}": identity.instance_id,
        }
        replace(path, [{"targets": [self.target], "labels": labels}])

    def close(self) -> None:
        """Stop listening, and no longer say that we do."""
        if self._advertised is not None:
            with suppress(OSError):  # its folder may be gone, or read-only by now
                self._advertised.unlink()
        self._server.shutdown()
        self._server.server_close()

    def _is_me(self, instance: str) -> bool:
        return self._instance in (None, instance)


def _in_url(host: str) -> str:
    return f"[{host}]" if ":" in host and not host.startswith("[") else host


def _refuse_halves(config: PrometheusConfig) -> None:
    """Half a protection would be none, without a word."""
    for one, other in (("tls_cert", "tls_key"), ("username", "password")):
        if (getattr(config, one) is None) != (getattr(config, other) is None):
            raise ConfigError(f"prometheus.{one}, prometheus.{other}: expected both or neither, got one")


def _tls(cert: str, key: str) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        context.load_cert_chain(cert, key)
    except OSError as error:
        raise ConfigError(f"prometheus.tls_cert, prometheus.tls_key: cannot use {cert} and {key}: {error}") from error
    return context


def _bind(host: str, first_port: int, app: App) -> WSGIServer:
    """The first port from ``first_port`` on that can be had, else any: a crowded host is no reason not to train."""
    last = min(first_port + _TRIED_PORTS - 1, 65535) if first_port else 0
    first = min(first_port, last)
    for port in range(first, last + 1):
        server = _server(host, port, app)
        if server is not None:
            return server
    server = _server(host, 0, app)
    if server is None:
        raise ConfigError(f"prometheus.port: none of {first} to {last} on {host} may be used, and no other either")
    _log.warning("prometheus.port: none of %d to %d on %s may be used: took %d", first, last, host, server.server_port)
    return server


def _server(host: str, port: int, app: App) -> WSGIServer | None:
    """None if the port is taken, or not for this user. Raises `ConfigError` for a host that is none of ours."""
    try:
        return make_server(host, port, app, _Server6 if ":" in host else _Server, handler_class=_Silent)
    except OSError as error:
        if error.errno in (errno.EADDRINUSE, errno.EACCES):
            return None
        raise ConfigError(f'prometheus.host: cannot listen on "{host}": {error}') from error
