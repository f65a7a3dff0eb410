"""Where one signal goes over OTLP, and how: the config, the signal's own standard variables, the general ones.

What the config sets is strongest, then ``OTEL_EXPORTER_OTLP_TRACES_...`` (or ``METRICS``), then
``OTEL_EXPORTER_OTLP_...``. The general ones have become fields of the config when it was resolved; where the config
says just what they say, the signal's own are stronger.
"""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit, urlunsplit

import msgspec
from opentelemetry.util.re import parse_env_headers

from rltel.core.config import OtlpConfig
from rltel.core.errors import ConfigError
from rltel.core.redact import redact_url
from rltel.export.quiet import quieten, quietly

_HEADER_NAME = re.compile(r"[a-z0-9!#$%&'*+.^_`|~-]+")
_GRPC_VALUE = re.compile(r"[\x20-\x7e]*")
_HTTP_VALUE = re.compile(r"[\t\x20-\x7e\xa0-\xff]*")

Signal = Literal["metrics", "traces"]
_WORDS = {
    "endpoint": "ENDPOINT",
    "protocol": "PROTOCOL",
    "compression": "COMPRESSION",
    "certificate": "CERTIFICATE",
    "insecure": "INSECURE",
    "timeout_s": "TIMEOUT",  # seconds, as OpenTelemetry's Python SDK reads it
}
_TYPES = {of.name: of.type for of in msgspec.structs.fields(OtlpConfig)}
_NEEDED = {
    "protocol": '"grpc" or "http/protobuf"',
    "compression": '"none", "gzip" or "deflate"',
    "insecure": "true or false",
    "timeout_s": "a number > 0 (seconds)",
}


@dataclass(frozen=True)
class OtlpSettings:
    """Of one signal, nothing left open. Secrets do not show in its ``repr``."""

    protocol: Literal["http/protobuf", "grpc"]
    url: str = field(repr=False)
    """HTTP: with the signal's path. gRPC: as it was given."""
    secure: bool
    """Whether the connection is encrypted."""
    headers: Mapping[str, str] = field(repr=False)
    """By lower-case name: gRPC takes no others."""
    compression: Literal["none", "gzip", "deflate"]
    timeout_s: float
    """For one request."""
    certificate: str | None
    """File of the authorities to trust, in PEM, instead of the usual ones."""
    client_certificate: str | None
    client_key: str | None

    @property
    def address(self) -> str:
        """For people, without secrets."""
        return redact_url(self.url)


def otlp_settings(config: OtlpConfig, environ: Mapping[str, str], signal: Signal) -> OtlpSettings:
    """What holds for this signal. Raises `ConfigError` naming the field or variable that cannot be."""
    found = _Sources(config, environ, signal)
    protocol, _ = found.chosen("protocol")
    url = _url(found, protocol, signal)
    secure = _is_secure(url, protocol, found.chosen("insecure")[0])
    client_certificate, client_key = found.text("CLIENT_CERTIFICATE"), found.text("CLIENT_KEY")
    if client_key and not client_certificate:
        raise ConfigError("OTEL_EXPORTER_OTLP_CLIENT_KEY: is set, and OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE is not")
    certificate, _ = found.chosen("certificate")
    if secure:  # what is set for others does not matter where it is not used
        _readable("certificate", certificate)
        _readable("client certificate", client_certificate)
        _readable("client key", client_key)
    return OtlpSettings(
        protocol=protocol,
        url=url,
        secure=secure,
        headers=_sendable(found.headers(), protocol),
        compression=found.chosen("compression")[0] or "none",
        timeout_s=found.chosen("timeout_s")[0],
        certificate=certificate,
        client_certificate=client_certificate,
        client_key=client_key,
    )


class _Sources:
    """The config and the variables, asked in their order."""

    def __init__(self, config: OtlpConfig, environ: Mapping[str, str], signal: Signal) -> None:
        self._config = config
        self._environ = environ
        self._own = f"OTEL_EXPORTER_OTLP_{signal.upper()}_"
        self._general = "OTEL_EXPORTER_OTLP_"

    def chosen(self, name: str) -> tuple[Any, str]:
        """The value of a field of the config, and the variable that it is from ("" for the config)."""
        word, value = _WORDS[name], getattr(self._config, name)
        is_given = name in self._config.given() and value is not None
        general = self._text(self._general + word)
        if is_given and not (general and _converted(general, name) == value):
            return value, ""
        if own := self._text(self._own + word):
            return self._needed(self._own + word, own, name), self._own + word
        if general and not is_given:
            return self._needed(self._general + word, general, name), self._general + word
        return value, ""

    def text(self, word: str) -> str | None:
        """A variable that has no field in the config: the signal's own, else the general one."""
        return self._text(self._own + word) or self._text(self._general + word) or None

    def headers(self) -> dict[str, str]:
        """The config's over those of the variables."""
        variable = next((p + "HEADERS" for p in (self._own, self._general) if self._text(p + "HEADERS")), "")
        headers = _parsed_headers(variable, self._text(variable)) if variable else {}
        return {**headers, **{name.lower(): value for name, value in self._config.headers.items()}}

    def is_own(self, variable: str) -> bool:
        """Whether a variable is the signal's."""
        return variable.startswith(self._own)

    def _text(self, variable: str) -> str:
        return self._environ.get(variable, "").strip()

    def _needed(self, variable: str, text: str, name: str) -> Any:
        value = _converted(text, name)
        if value is None:
            raise ConfigError(f'{variable}: expected {_NEEDED.get(name, "text")}, got "{text}"')
        return value


def _converted(text: str, name: str) -> Any:
    """A variable's text as the field's type; None if it is not of it."""
    try:
        value = msgspec.convert(text, _TYPES[name], strict=False)
    except msgspec.ValidationError:
        return None
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _parsed_headers(variable: str, text: str) -> Mapping[str, str]:
    """``name=value,...``, percent-encoded or not. OpenTelemetry's own parser logs what it refuses, secret or not."""
    quieten("opentelemetry.util.re")
    entries = [entry for entry in text.split(",") if entry.strip()]
    with quietly():
        for position, entry in enumerate(entries, 1):
            if not parse_env_headers(entry.strip(), liberal=True):
                raise ConfigError(
                    f"{variable}: expected name=value pairs with commas between them; "
                    f"number {position} of {len(entries)} is none (its text is not shown: it may be a secret)"
                )
        return parse_env_headers(text, liberal=True)


def _sendable(headers: Mapping[str, str], protocol: str) -> Mapping[str, str]:
    """Else every request fails, with an error that shows the header."""
    allowed = _GRPC_VALUE if protocol == "grpc" else _HTTP_VALUE
    for name, value in headers.items():
        if not _HEADER_NAME.fullmatch(name):
            raise ConfigError(f'otlp.headers: "{name}" is no name of a header')
        if not allowed.fullmatch(value):
            raise ConfigError(f"otlp.headers: the value of {name} has line breaks or letters that cannot be sent")
    return headers


def _url(found: _Sources, protocol: str, signal: Signal) -> str:
    endpoint, variable = found.chosen("endpoint")
    named = variable or "otlp.endpoint"
    try:
        urlsplit(endpoint or "")
    except ValueError as error:  # half of an IPv6 address
        raise ConfigError(f'{named}: {error}, got "{redact_url(endpoint)}"') from None
    if protocol == "grpc":
        url: str = endpoint or "http://127.0.0.1:4317"
        if "@" in urlsplit(url).netloc:
            raise ConfigError(
                f"{named}: gRPC takes no user name and password in its address, {redact_url(url)}; "
                f"give an authorization header in otlp.headers"
            )
        return url
    url = endpoint or "http://127.0.0.1:4318"
    if not url.lower().startswith(("http://", "https://")):
        raise ConfigError(f'{named}: expected a URL such as "http://127.0.0.1:4318", got "{redact_url(url)}"')
    return url if found.is_own(variable) else _below(url, f"/v1/{signal}")


def _below(url: str, path: str) -> str:
    """The path under a base URL, before its query."""
    parts = urlsplit(url)
    return urlunsplit(parts._replace(path=parts.path.rstrip("/") + path))


def _is_secure(url: str, protocol: str, insecure: bool | None) -> bool:
    """The scheme decides; gRPC's addresses need not have one."""
    if url.lower().startswith("https://"):
        return True
    if protocol != "grpc":
        return False
    return not (url.lower().startswith("http://") if insecure is None else insecure)


def _readable(what: str, path: str | None) -> None:
    if path is None:
        return
    try:
        with Path(path).open("rb"):
            pass
    except OSError as error:
        raise ConfigError(f"otlp: cannot read the {what} {path}: {error.strerror}") from None
