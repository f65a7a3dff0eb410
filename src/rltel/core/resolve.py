"""From what the user gave to one validated `TelemetryConfig`.

Precedence, strongest first: ``RLTEL_<SECTION>_<FIELD>``, what the config sets, standard ``OTEL_*`` variables, defaults.
``OTEL_SDK_DISABLED=true`` or ``RLTEL_DISABLED=1`` turns everything off and always wins. (Arguments of ``init`` such as
``run_id`` are stronger still; `identity.py` takes them.)

Every error names the path and the value: ``trace.flush_interval_s: expected a number > 0, got "fast"``.
"""

import json
import math
import os
import re
import sys
import types
import typing
from collections.abc import Callable, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any, Literal, get_args, get_origin

import msgspec

from rltel.core.config import Section, TelemetryConfig
from rltel.core.errors import ConfigError
from rltel.core.redact import redact, redact_url

Layer = dict[str, dict[str, Any]]
_SECTIONS: dict[str, type[Section]] = {
    f.name: type(f.default) for f in msgspec.structs.fields(TelemetryConfig) if isinstance(f.default, Section)
}
_VARIABLES = {
    f"RLTEL_{section}_{field.name}".upper(): (section, field)
    for section, kind in _SECTIONS.items()
    for field in msgspec.structs.fields(kind)
}
_TRUE = frozenset({"1", "true", "yes", "on"})
_FALSE = frozenset({"0", "false", "no", "off"})

_QUOTED = re.compile(r"'([^']*)'")
_MAX_SHOWN = 200


def resolve(given: Any = None, environ: Mapping[str, str] | None = None) -> TelemetryConfig:
    """The config in force. `given`: None, a TelemetryConfig, a mapping, an OmegaConf object or a path of a YAML file.

    Raises `ConfigError` with every problem found, one per line.
    """
    environ = _without_blanks(os.environ if environ is None else environ)
    problems: list[str] = []
    merged: Layer = {name: {} for name in _SECTIONS}
    variables: dict[str, str] = {}
    for layer, origin in (
        (_from_otel(environ), _OTEL_VARIABLE),
        (as_layer(given), {}),
        (_from_environment(environ, problems), _RLTEL_VARIABLE),
    ):
        for section, fields in layer.items():
            _merge_section(merged, section, fields, problems)
            variables.update({path: origin.get(path, "") for path in _paths(section, fields)})
    sections: dict[str, Any] = {name: _build(name, fields, variables, problems) for name, fields in merged.items()}
    config = TelemetryConfig(**sections)
    wrong = {re.split(r"[.:]", problem)[0] for problem in problems}
    problems += [found for found in _contradictions(config) if found.partition(".")[0] not in wrong]
    if problems:
        raise ConfigError("\n".join(problems))
    return config


def _without_blanks(environ: Mapping[str, str]) -> dict[str, str]:
    """A variable that is set to nothing is not set, as OpenTelemetry has it."""
    return {name: value for name, value in environ.items() if value.strip()}


def _paths(section: str, fields: Any) -> list[str]:
    return [f"{section}.{name}" for name in fields] if isinstance(fields, Mapping) else []


def disabled(environ: Mapping[str, str] | None = None) -> bool:
    """Whether a kill switch is thrown."""
    environ = os.environ if environ is None else environ
    return (
        environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true"
        or environ.get("RLTEL_DISABLED", "").strip().lower() in _TRUE
    )


def as_layer(given: Any) -> Layer:
    """What the user gave, as a nested mapping of only the fields that were set."""
    if given is None:
        return {}
    if isinstance(given, (str, os.PathLike)):
        return _from_file(Path(given))
    plain = _given_fields(given) if isinstance(given, TelemetryConfig) else _plain(given)
    if not isinstance(plain, Mapping):
        raise ConfigError(
            f"config: expected a TelemetryConfig, a mapping, an OmegaConf object or a path of a YAML file, "
            f"got {type(given).__name__}"
        )
    return {name: _given_fields(part) if isinstance(part, Section) else part for name, part in plain.items()}


def _given_fields(section: Section) -> dict[str, Any]:
    return {name: _plain(getattr(section, name)) for name in section.given()}


def _plain(value: Any) -> Any:
    """The same data in dicts and lists: OmegaConf's containers, wherever they are, and tuples become those."""
    if _is_omegaconf(value):
        return _from_omegaconf(value)
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    return value


def _from_file(path: Path) -> Layer:
    try:
        import yaml  # only users of YAML files need it
    except ImportError as missing:
        raise ConfigError(f"config: reading {path} needs PyYAML (pip install pyyaml), or give a mapping") from missing
    try:
        loaded = yaml.safe_load(path.read_bytes())
    except OSError as error:
        raise ConfigError(f"config: cannot read {path}: {error.strerror}") from error
    except (yaml.YAMLError, ValueError) as error:  # ValueError: a date that is none
        raise ConfigError(f"config: {path} is not YAML{_where(error)}") from None  # its own text quotes lines: secrets
    if loaded is None:
        return {}
    if not isinstance(loaded, Mapping):
        raise ConfigError(f"config: {path}: expected a mapping of sections, got {type(loaded).__name__}")
    return dict(loaded)


def _where(error: Any) -> str:
    """What is wrong in a YAML file, and in which line, without a word of it."""
    mark = getattr(error, "problem_mark", None)
    if mark is None:
        return ""
    problem = _QUOTED.sub(_without_words, error.problem or "")
    return f", line {mark.line + 1}, column {mark.column + 1}: {problem}"


def _without_words(quoted: re.Match[str]) -> str:
    is_syntax = len(quoted[1]) == 1 or quoted[1].startswith("<")  # ':', '<stream end>'
    return quoted[0] if is_syntax else "'...'"


def _is_omegaconf(value: Any) -> bool:
    omegaconf = sys.modules.get("omegaconf")  # whoever has such an object has imported it
    return omegaconf is not None and bool(omegaconf.OmegaConf.is_config(value))


def _from_omegaconf(value: Any) -> Any:
    omegaconf = sys.modules["omegaconf"]
    try:
        return omegaconf.OmegaConf.to_container(value, resolve=True, throw_on_missing=True)
    except omegaconf.errors.OmegaConfBaseException as error:
        raise ConfigError(f"config: {error}") from error


def _from_environment(environ: Mapping[str, str], problems: list[str]) -> Layer:
    """``RLTEL_<SECTION>_<FIELD>`` for every field. Lists are comma-separated, mappings are JSON."""
    layer: Layer = {}
    for variable, text in environ.items():
        if variable in _VARIABLES:
            section, field = _VARIABLES[variable]
            layer.setdefault(section, {})[field.name] = _parse(text, field.type, f"{section}.{field.name}", problems)
        elif variable.startswith(tuple(f"RLTEL_{section}_".upper() for section in _SECTIONS)):
            problems.append(f"{variable}: unknown variable{_suggestion(variable, _VARIABLES)}")
    return layer


def _parse(text: str, kind: Any, path: str, problems: list[str]) -> Any:
    """An environment variable's text as the field's type would have it in YAML."""
    bare = text.strip()
    origins = {get_origin(part) or part for part in _alternatives(kind)}
    if bare in _literals(kind):
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
    except json.JSONDecodeError:
        problems.append(f"{path}: expected a JSON object, got {_shown(text, path)} (from {_RLTEL_VARIABLE[path]})")
        return {}


def _boolean(text: str) -> Any:
    lowered = text.lower()
    return True if lowered in _TRUE else False if lowered in _FALSE else text


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
        if dash and first.isdecimal() and last.isdecimal() and int(first) <= int(last):
            found.extend((int(first), int(last)) if _is_pair(kind) else range(int(first), int(last) + 1))
        else:
            found.append(_number(part))
    return found


_OTEL: dict[str, tuple[str, str, Callable[[str], Any]]] = {
    "OTEL_EXPORTER_OTLP_ENDPOINT": ("otlp", "endpoint", str),
    "OTEL_EXPORTER_OTLP_PROTOCOL": ("otlp", "protocol", str),
    "OTEL_EXPORTER_OTLP_COMPRESSION": ("otlp", "compression", str),
    "OTEL_EXPORTER_OTLP_CERTIFICATE": ("otlp", "certificate", str),
    "OTEL_EXPORTER_OTLP_INSECURE": ("otlp", "insecure", _boolean),
    "OTEL_EXPORTER_OTLP_TIMEOUT": ("otlp", "timeout_s", _number),  # seconds, as OpenTelemetry's Python SDK reads it
    "OTEL_EXPORTER_PROMETHEUS_HOST": ("prometheus", "host", str),
    "OTEL_EXPORTER_PROMETHEUS_PORT": ("prometheus", "port", _number),
}
_OTEL_VARIABLE = {f"{section}.{field}": variable for variable, (section, field, _) in _OTEL.items()}
_RLTEL_VARIABLE = {f"{section}.{field.name}": variable for variable, (section, field) in _VARIABLES.items()}


def _from_otel(environ: Mapping[str, str]) -> Layer:
    """Standard variables that have a field here. (Headers stay with the exporter, which reads them itself.)"""
    layer: Layer = {}
    for variable, (section, field, convert) in _OTEL.items():
        if variable in environ:
            layer.setdefault(section, {})[field] = convert(environ[variable].strip())
    return layer


def _merge_section(merged: Layer, section: str, fields: Any, problems: list[str]) -> None:
    if section not in _SECTIONS:
        problems.append(f"{section}: unknown section{_suggestion(section, _SECTIONS)}; have {', '.join(_SECTIONS)}")
    elif fields is None:
        return  # an empty section in YAML
    elif not isinstance(fields, Mapping):
        problems.append(f"{section}: expected a mapping, got {_shown(fields, section)}")
    else:
        merged[section].update(fields)


def _build(section: str, fields: Mapping[str, Any], variables: Mapping[str, str], problems: list[str]) -> Section:
    """One section, each field checked on its own so that all problems are named at once."""
    kind = _SECTIONS[section]
    known = {field.name: field for field in msgspec.structs.fields(kind)}
    values: dict[str, Any] = {}
    for name, value in fields.items():
        path = f"{section}.{name}"
        variable = variables[path]
        if name not in known:
            problems.append(f"{path}: unknown key{_suggestion(name, known)}")
        elif _fits(value, known[name].type):
            values[name] = msgspec.convert(value, known[name].type)
        elif not variable.startswith("OTEL_") or fields.get("enabled"):  # what others set for others is no error here
            origin = f" (from {variable})" if variable else ""
            problems.append(f"{path}: expected {_described(known[name].type)}, got {_shown(value, path)}{origin}")
    return kind(**values)


def _fits(value: Any, kind: Any) -> bool:
    try:
        msgspec.convert(value, kind)
    except msgspec.ValidationError:
        return False
    return not isinstance(value, float) or math.isfinite(value)


def _suggestion(name: Any, known: Any) -> str:
    close = get_close_matches(str(name), known, n=1)
    return f' (did you mean "{close[0]}"?)' if close else ""


def _shown(value: Any, name: str) -> str:
    try:
        text = json.dumps(redact(value, name))
    except TypeError:
        text = repr(redact(value, name))
    return text if len(text) <= _MAX_SHOWN else f"{text[:_MAX_SHOWN]}..."


def _alternatives(kind: Any) -> tuple[Any, ...]:
    """The members of a union, without their annotations."""
    if get_origin(kind) is Annotated:
        return _alternatives(get_args(kind)[0])
    if get_origin(kind) in (typing.Union, types.UnionType):
        return tuple(part for member in get_args(kind) for part in _alternatives(member))
    return (kind,)


def _literals(kind: Any) -> tuple[Any, ...]:
    return tuple(v for part in _alternatives(kind) if get_origin(part) is Literal for v in get_args(part))


def _element_types(kind: Any) -> tuple[Any, ...]:
    return tuple(arg for part in _alternatives(kind) if get_origin(part) is list for arg in get_args(part))


def _is_pair(kind: Any) -> bool:
    notes = [note for member in get_args(kind) for note in get_args(member)]
    return any(isinstance(note, msgspec.Meta) and note.max_length == 2 for note in notes)


_PLAIN = {str: "a string", bool: "true or false", int: "a whole number", float: "a number", type(None): "null"}


def _described(kind: Any) -> str:
    """A field's type in words: ``a number > 0``, ``one of "step", "env_steps"``, ``a string or null``."""
    if get_origin(kind) is Annotated:
        base, *notes = get_args(kind)
        return _described(base) + "".join(_bounds(note) for note in notes if isinstance(note, msgspec.Meta))
    if get_origin(kind) in (typing.Union, types.UnionType):
        return " or ".join(_described(member) for member in get_args(kind))
    if get_origin(kind) is Literal:
        choices = [json.dumps(choice) for choice in get_args(kind)]
        return choices[0] if len(choices) == 1 else "one of " + ", ".join(choices)
    if get_origin(kind) is list:
        return f"a list ({_described(get_args(kind)[0])} each)"
    if get_origin(kind) is dict:
        return "a mapping with strings as keys" + (" and values" if get_args(kind)[1] is str else "")
    return _PLAIN.get(kind, str(kind))


def _bounds(meta: msgspec.Meta) -> str:
    if meta.min_length is not None and meta.min_length == meta.max_length:
        return f" of length {meta.min_length}"
    parts = [
        f"{sign} {bound:g}" for sign, bound in ((">", meta.gt), (">=", meta.ge), ("<=", meta.le)) if bound is not None
    ]
    return " " + " and ".join(parts) if parts else ""


def _contradictions(config: TelemetryConfig) -> list[str]:
    """Settings that are fine one by one and make no sense together."""
    return [message for wrong, message in _checks(config) if wrong]


def _checks(config: TelemetryConfig) -> list[tuple[bool, str]]:
    prometheus, trace, otlp = config.prometheus, config.trace, config.otlp
    steps = trace.steps or [0, 0]
    return [
        (
            (prometheus.tls_cert is None) != (prometheus.tls_key is None),
            "prometheus.tls_cert, prometheus.tls_key: expected both or neither, got one",
        ),
        (
            (prometheus.username is None) != (prometheus.password is None),
            "prometheus.username, prometheus.password: expected both or neither, got one",
        ),
        (
            trace.max_total_mb < trace.max_file_mb,
            f"trace.max_total_mb: expected at least max_file_mb, {trace.max_file_mb:g}, got {trace.max_total_mb:g}",
        ),
        (
            steps[0] > steps[1] or steps[0] < 0,
            f"trace.steps: expected the first and the last step, in order, got {steps}",
        ),
        (
            otlp.enabled and not (otlp.metrics or otlp.traces),
            "otlp.enabled: true, but otlp.metrics and otlp.traces are both false: nothing would be sent",
        ),
        (
            otlp.enabled and otlp.protocol != "grpc" and "://" not in (otlp.endpoint or "://"),
            f'otlp.endpoint: expected a URL such as "http://127.0.0.1:4318", got "{redact_url(otlp.endpoint or "")}"',
        ),
        (
            isinstance(trace.ranks, list) and any(rank < 0 for rank in trace.ranks),
            f'trace.ranks: expected ranks >= 0 or "all", got {trace.ranks}',
        ),
        (
            isinstance(config.run.writer, int) and config.run.writer < 0,
            f'run.writer: expected a rank >= 0 or "last", got {config.run.writer}',
        ),
    ]
