"""Whether ports are free and endpoints answer. Asks only addresses that the config names, each at most a second."""

import errno
import os
import socket
import ssl
from collections.abc import Iterator, Mapping
from contextlib import closing
from netrc import NetrcParseError, netrc
from urllib.parse import urlsplit

from rltel.cli.checks.finding import Finding, ok, problem, warning, within
from rltel.core.config import OtlpConfig, PrometheusConfig, TelemetryConfig
from rltel.core.errors import ConfigError
from rltel.core.redact import redact_url
from rltel.export.otlp.settings import OtlpSettings, Signal, otlp_settings
from rltel.export.otlp.transport import GrpcTransport, HttpTransport, SendError

BOUND_S = 1.0
_MARGIN_S = 0.5  # for what is no waiting: importing gRPC, a TLS handshake's arithmetic
_DEFAULT_PORTS = {"http": 80, "https": 443}


def check_network(config: TelemetryConfig, environ: Mapping[str, str] | None = None) -> Iterator[Finding]:
    """Findings on the scrape endpoint's port, and on everything that is sent to."""
    environ = os.environ if environ is None else environ
    if config.prometheus.enabled:
        yield from _prometheus(config.prometheus)
    if config.otlp.enabled:
        yield from _otlp(config.otlp, environ)
    if config.prometheus.push_url:
        yield _reachable("prometheus.push_url", config.prometheus.push_url)
    if config.wandb.mode in ("online", "shared"):
        yield from _wandb(config, environ)
    if config.swanlab.mode in ("cloud", "online"):
        yield _swanlab(config, environ)


def _prometheus(config: PrometheusConfig) -> Iterator[Finding]:
    area = "prometheus.port"
    try:
        with closing(within(BOUND_S, lambda: _bound(config.host, config.port))):
            yield ok(area, f"{config.host}:{config.port} is free" if config.port else "any free port")
    except PermissionError:
        yield warning(
            area, f"{config.host}:{config.port} may not be used", "choose a port above 1023; the next one is tried"
        )
    except OSError as error:
        if isinstance(error, socket.gaierror) or error.errno != errno.EADDRINUSE:
            yield problem(
                "prometheus.host", f'cannot listen on "{config.host}": {error.strerror}', "set an address of this host"
            )
        else:
            yield warning(
                area,
                f"{config.host}:{config.port} is taken",
                "stop what holds it, or have Prometheus read prometheus_sd/ of the run: the next free port is used",
            )
    yield from _certificate(config)
    if config.host not in ("127.0.0.1", "::1", "localhost") and config.password is None:
        yield warning(
            "prometheus.host",
            f"{config.host} is open to others, without a password",
            "set prometheus.username and password, or keep it behind a firewall",
        )


def _bound(host: str, port: int) -> socket.socket:
    family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    made = socket.socket(family, kind, protocol)
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as the server that will be there
        made.bind(address)
        made.listen(1)
    except OSError:
        made.close()
        raise
    return made


def _certificate(config: PrometheusConfig) -> Iterator[Finding]:
    if config.tls_cert is None or config.tls_key is None:
        return
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(config.tls_cert, config.tls_key)
    except OSError as error:
        what = f"cannot use {config.tls_cert} and {config.tls_key}: {error}"
        yield problem("prometheus.tls_cert", what, "give a certificate and its key, in PEM, that this user may read")
    else:
        yield ok("prometheus.tls_cert", f"{config.tls_cert} fits its key")


def _otlp(config: OtlpConfig, environ: Mapping[str, str]) -> Iterator[Finding]:
    signals: tuple[tuple[Signal, bool], ...] = (("metrics", config.metrics), ("traces", config.traces))
    for signal, is_on in signals:
        if not is_on:
            continue
        try:
            yield _receiver(otlp_settings(config, environ, signal), signal)
        except ConfigError as error:
            yield problem(f"otlp {signal}", str(error), "correct what it names")


def _receiver(settings: OtlpSettings, signal: Signal) -> Finding:
    """An empty request, as OTLP allows: a receiver takes it and stores nothing."""
    area = f"otlp {signal}"
    transport = GrpcTransport(settings) if settings.protocol == "grpc" else HttpTransport(settings)
    try:
        within(BOUND_S + _MARGIN_S, lambda: transport.send(b"", BOUND_S))
    except SendError as error:
        if "UNIMPLEMENTED" in str(error) and signal == "metrics":
            return ok(area, f"{settings.address} answers")  # the request is that of traces, which it need not take
        return problem(area, str(error), _advice(str(error)))
    except TimeoutError as error:
        return problem(area, f"{settings.address}: {error}", _advice("timed out"))
    finally:
        transport.close()
    return ok(area, f"{settings.address} answers ({settings.protocol})")


def _advice(said: str) -> str:
    if any(word in said for word in ("401", "403", "UNAUTHENTICATED", "PERMISSION_DENIED")):
        return "correct otlp.headers or OTEL_EXPORTER_OTLP_HEADERS: the receiver does not let us in"
    if any(word in said for word in ("404", "405", "UNIMPLEMENTED", "web page")):
        return "correct otlp.endpoint (a base URL, without /v1/...) and otlp.protocol: something else listens there"
    return "start the receiver, or correct otlp.endpoint and otlp.protocol (4318 is for http/protobuf, 4317 for grpc)"


def _reachable(area: str, url: str) -> Finding:
    """Whether anybody listens at a URL."""
    parts = urlsplit(url if "://" in url else f"http://{url}")
    shown = redact_url(url)
    try:
        address = parts.hostname or "", parts.port or _DEFAULT_PORTS.get(parts.scheme, 80)
        within(BOUND_S + _MARGIN_S, lambda: socket.create_connection(address, BOUND_S).close())
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or str(error)
        return problem(area, f"{shown}: {why}", f"correct {area}, or start what should listen there")
    return ok(area, f"{shown} listens")


def _wandb(config: TelemetryConfig, environ: Mapping[str, str]) -> Iterator[Finding]:
    base_url = config.wandb.base_url
    if base_url:
        yield _reachable("wandb.base_url", base_url)
    host = urlsplit(base_url or "https://api.wandb.ai").hostname or ""
    if config.wandb.api_key or environ.get("WANDB_API_KEY") or _has_netrc(host):
        yield ok("wandb.api_key", "there is one (not tried: only addresses of the config are asked)")
    else:
        yield problem(
            "wandb.api_key",
            f"wandb.mode is {config.wandb.mode}, and there is no key",
            "set WANDB_API_KEY, or: wandb login",
        )


def _swanlab(config: TelemetryConfig, environ: Mapping[str, str]) -> Finding:
    if config.swanlab.api_key or environ.get("SWANLAB_API_KEY"):
        return ok("swanlab.api_key", "there is one (not tried: only addresses of the config are asked)")
    return warning(
        "swanlab.api_key",
        f"swanlab.mode is {config.swanlab.mode}, and no key is set",
        "set SWANLAB_API_KEY, or: swanlab login",
    )


def _has_netrc(host: str) -> bool:
    try:
        return netrc().authenticators(host) is not None
    except (OSError, NetrcParseError):
        return False
