"""What OpenTelemetry's Collector 0.152 takes, of the components that our files use: their options and their types.

From the components' documentation and `mapstructure` tags. Options that nobody should use here (deprecated ones) are
left out on purpose. A type is one of the checks below (its docstring says what it wants), a dict of options, a list of
one type, or a `OneOf`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, TypeAlias

Type: TypeAlias = Any  # a check, a dict of options, [item type], or OneOf

_DURATION = re.compile(r"(\d+(\.\d+)?(ns|us|ms|s|m|h))+")
_ADDRESS = re.compile(r"[\w.\-\[\]:]+:\d{1,5}")
_URL = re.compile(r"https?://[^\s/]+(/\S*)?")


class OneOf(tuple[str, ...]):
    """Texts that are allowed."""

    __slots__ = ()


@dataclass(frozen=True)
class Component:
    """One type of component."""

    signals: frozenset[str]
    options: dict[str, Type]
    needs: frozenset[str] = frozenset()
    """Options without a default."""
    distribution: str = "core"
    changes_what_is_kept: bool = False
    """It drops or regroups, so batches are made after it."""


def text(value: object) -> bool:
    """a text"""
    return isinstance(value, str) and bool(value)


def whole(value: object) -> bool:
    """a whole number"""
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def port(value: object) -> bool:
    """a port"""
    return whole(value) and 0 < value < 65536  # type: ignore[operator]  # it is a number


def number(value: object) -> bool:
    """a number"""
    return isinstance(value, int | float) and not isinstance(value, bool)


def flag(value: object) -> bool:
    """true or false"""
    return isinstance(value, bool)


def duration(value: object) -> bool:
    """a duration such as 1s, 500ms or 1h30m"""
    return value == 0 or (isinstance(value, str) and _DURATION.fullmatch(value) is not None)


def address(value: object) -> bool:
    """host:port"""
    return isinstance(value, str) and _ADDRESS.fullmatch(value) is not None


def url(value: object) -> bool:
    """a URL of HTTP"""
    return isinstance(value, str) and _URL.fullmatch(value) is not None


_TELEMETRY = frozenset({"metrics", "traces", "logs"})
_SERVER_TLS = dict.fromkeys(("ca_file", "cert_file", "key_file", "client_ca_file", "min_version"), text)
_CLIENT_TLS = {
    **dict.fromkeys(("ca_file", "cert_file", "key_file", "server_name_override", "min_version"), text),
    "insecure": flag,
    "insecure_skip_verify": flag,
}
_RETRY = {
    "enabled": flag,
    "initial_interval": duration,
    "max_interval": duration,
    "max_elapsed_time": duration,
    "multiplier": number,
    "randomization_factor": number,
}
_QUEUE = {
    "enabled": flag,
    "num_consumers": whole,
    "queue_size": whole,
    "sizer": OneOf(("requests", "items", "bytes")),
    "block_on_overflow": flag,
    "wait_for_result": flag,
    "storage": text,
}
_HTTP_SERVER = {
    "endpoint": address,
    "tls": _SERVER_TLS,
    "cors": {"allowed_origins": [text], "allowed_headers": [text], "max_age": whole},
    "max_request_body_size": whole,
    "include_metadata": flag,
    "read_timeout": duration,
    "write_timeout": duration,
}
_GRPC_SERVER = {
    "endpoint": address,
    "transport": OneOf(("tcp", "tcp4", "tcp6", "unix")),
    "tls": _SERVER_TLS,
    "max_recv_msg_size_mib": whole,
    "max_concurrent_streams": whole,
    "include_metadata": flag,
}
_POLICIES = {
    "status_code": {"status_codes": [OneOf(("OK", "ERROR", "UNSET"))]},
    "latency": {"threshold_ms": whole, "upper_threshold_ms": whole},
    "probabilistic": {"sampling_percentage": number, "hash_salt": text},
}

COMPONENTS: dict[str, dict[str, Component]] = {
    "receivers": {
        "otlp": Component(
            _TELEMETRY, {"protocols": {"grpc": _GRPC_SERVER, "http": _HTTP_SERVER}}, frozenset({"protocols"})
        )
    },
    "processors": {
        "memory_limiter": Component(
            _TELEMETRY,
            {
                "check_interval": duration,
                "limit_mib": whole,
                "spike_limit_mib": whole,
                "limit_percentage": whole,
                "spike_limit_percentage": whole,
            },
            frozenset({"check_interval"}),
        ),
        "batch": Component(
            _TELEMETRY,
            {"timeout": duration, "send_batch_size": whole, "send_batch_max_size": whole, "metadata_keys": [text]},
        ),
        "transform": Component(
            _TELEMETRY,
            {
                "error_mode": OneOf(("ignore", "silent", "propagate")),
                "metric_statements": [
                    {"context": OneOf(("resource", "scope", "metric", "datapoint")), "statements": [text]}
                ],
            },
            distribution="contrib",
        ),
        "tail_sampling": Component(
            frozenset({"traces"}),
            {
                "decision_wait": duration,
                "num_traces": whole,
                "expected_new_traces_per_sec": whole,
                "decision_cache": {"sampled_cache_size": whole, "non_sampled_cache_size": whole},
                "policies": [{"name": text, "type": OneOf(tuple(_POLICIES)), **_POLICIES}],
            },
            frozenset({"policies"}),
            distribution="contrib",
            changes_what_is_kept=True,
        ),
    },
    "exporters": {
        "otlp_http": Component(
            _TELEMETRY,
            {
                "endpoint": url,
                "metrics_endpoint": url,
                "traces_endpoint": url,
                "tls": _CLIENT_TLS,
                "headers": text,
                "timeout": duration,
                "compression": OneOf(("none", "gzip", "zstd", "snappy", "zlib", "deflate")),
                "encoding": OneOf(("proto", "json")),
                "sending_queue": _QUEUE,
                "retry_on_failure": _RETRY,
            },
        ),
        "debug": Component(
            _TELEMETRY,
            {
                "verbosity": OneOf(("basic", "normal", "detailed")),
                "sampling_initial": whole,
                "sampling_thereafter": whole,
                "use_internal_logger": flag,
            },
        ),
        "prometheus": Component(
            frozenset({"metrics"}),
            {
                "endpoint": address,
                "namespace": text,
                "send_timestamps": flag,
                "metric_expiration": duration,
                "enable_open_metrics": flag,
            },
            frozenset({"endpoint"}),
            distribution="contrib",
        ),
        "file": Component(
            _TELEMETRY,
            {
                "path": text,
                "format": OneOf(("json", "proto")),
                "compression": OneOf(("zstd",)),
                "rotation": {"max_megabytes": whole, "max_days": whole, "max_backups": whole, "localtime": flag},
            },
            frozenset({"path"}),
            distribution="contrib",
        ),
    },
}

TELEMETRY: Type = {
    "metrics": {
        "level": OneOf(("none", "basic", "normal", "detailed")),
        "readers": [{"pull": {"exporter": {"prometheus": {"host": text, "port": port}}}}],
    },
    "logs": {"level": OneOf(("debug", "info", "warn", "error"))},
}
