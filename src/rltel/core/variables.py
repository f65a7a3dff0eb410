"""Settings from the environment: ``RLTEL_<SECTION>_<FIELD>``, and OpenTelemetry's own variables that have a field."""

import json
from collections.abc import Callable, Mapping
from typing import Any, get_args, get_origin

import msgspec

from rltel.core.sections import SECTIONS, TYPES, Layer
from rltel.core.wording import alternatives, literals, shown, suggestion

RLTEL_VARIABLE = {path: f"RLTEL_{path.replace('.', '_')}".upper() for path in TYPES}
"""The variable of every field, by its path."""
_PATHS = {variable: path for path, variable in RLTEL_VARIABLE.items()}
_PREFIXES = tuple(f"RLTEL_{section}_".upper() for section in SECTIONS)
_DIGITS = 18
_MOST_RANKS = 10_000_000  # a longer list would not fit into memory
TRUE = frozenset({"1", "true", "yes", "on"})
_FALSE = frozenset({"0", "false", "no", "off"})


def without_blanks(environ: Mapping[str, str]) -> dict[str, str]:
    """A variable that is set to nothing is not set, as OpenTelemetry has it."""
    return {name: value for name, value in environ.items() if value.strip()}


def from_environment(environ: Mapping[str, str], problems: list[str]) -> Layer:
    """``RLTEL_<SECTION>_<FIELD>`` for every field. Lists are comma-separated, mappings are JSON."""
    layer: Layer = {}
    for variable, text in environ.items():
        if variable in _PATHS:
            path = _PATHS[variable]
            section, field = path.split(".")
            layer.setdefault(section, {})[field] = _parse(text, TYPES[path], path, problems)
        elif variable.startswith(_PREFIXES):
            problems.append(f"{variable}: unknown variable{suggestion(variable, _PATHS)}")
    return layer


def _parse(text: str, kind: Any, path: str, problems: list[str]) -> Any:
    """An environment variable's text as the field's type would have it in YAML."""
    bare = text.strip()
    origins = {get_origin(part) or part for part in alternatives(kind)}
    if bare in literals(kind):
        return bare
    if bare.lower() in ("null", "none") and type(None) in origins:
        return None
    if bool in origins:
        return _boolean(bare)
    if dict in origins:
        return _json(text, path, problems)
    if list in origins:
        return _integers(bare, kind) if int in _element_types(kind) else [part.strip() for part in bare.split(",")]
    if int in origins or float in origins:
        return _number(bare)
    return text


def _json(text: str, path: str, problems: list[str]) -> Any:
    try:
        return json.loads(text)
    except (json.JSONDecodeError, RecursionError):
        problems.append(f"{path}: expected a JSON object, got {shown(text, path)} (from {RLTEL_VARIABLE[path]})")
        return {}


def _boolean(text: str) -> Any:
    lowered = text.lower()
    return True if lowered in TRUE else False if lowered in _FALSE else text


def _number(text: str) -> Any:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def _integers(text: str, kind: Any) -> list[Any]:
    """``0,2-3`` as [0, 2, 3], and ``2-9`` as [2, 9] for a pair; the rest is left for the type check to refuse."""
    found: list[Any] = []
    for part in text.split(","):
        first, dash, last = part.strip().partition("-")
        span = _span(first, last) if dash else range(0)
        if span and (_is_pair(kind) or len(span) <= _MOST_RANKS):
            found.extend((span[0], span[-1]) if _is_pair(kind) else span)
        else:
            found.append(_number(part))
    return found


def _span(first: str, last: str) -> range:
    """From one to the other; nothing for what is no number, or one with more digits than Python reads."""
    is_span = all(text.isdecimal() and len(text) <= _DIGITS for text in (first, last))
    return range(int(first), int(last) + 1) if is_span else range(0)


def _element_types(kind: Any) -> tuple[Any, ...]:
    return tuple(arg for part in alternatives(kind) if get_origin(part) is list for arg in get_args(part))


def _is_pair(kind: Any) -> bool:
    notes = [note for member in get_args(kind) for note in get_args(member)]
    return any(isinstance(note, msgspec.Meta) and note.max_length == 2 for note in notes)


_OTEL: dict[str, tuple[str, Callable[[str], Any]]] = {
    "OTEL_EXPORTER_OTLP_ENDPOINT": ("otlp.endpoint", str),
    "OTEL_EXPORTER_OTLP_PROTOCOL": ("otlp.protocol", str),
    "OTEL_EXPORTER_OTLP_COMPRESSION": ("otlp.compression", str),
    "OTEL_EXPORTER_OTLP_CERTIFICATE": ("otlp.certificate", str),
    "OTEL_EXPORTER_OTLP_INSECURE": ("otlp.insecure", _boolean),
    "OTEL_EXPORTER_OTLP_TIMEOUT": ("otlp.timeout_s", _number),  # seconds, as OpenTelemetry's Python SDK reads it
    "OTEL_EXPORTER_PROMETHEUS_HOST": ("prometheus.host", str),
    "OTEL_EXPORTER_PROMETHEUS_PORT": ("prometheus.port", _number),
}
OTEL_VARIABLE = {path: variable for variable, (path, _) in _OTEL.items()}
"""The standard variable of a field, for those that have one."""


def from_otel(environ: Mapping[str, str]) -> Layer:
    """Standard variables that have a field here. (Headers stay with the exporter, which reads them itself.)"""
    layer: Layer = {}
    for variable, (path, convert) in _OTEL.items():
        if variable in environ:
            section, field = path.split(".")
            layer.setdefault(section, {})[field] = convert(environ[variable].strip())
    return layer
