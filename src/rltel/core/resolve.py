"""From what the user gave to one validated `TelemetryConfig`.

Precedence, strongest first: ``RLTEL_<SECTION>_<FIELD>``, what the config sets, what a trainer's own sections in it set
(`foreign_config.py`), standard ``OTEL_*`` variables, defaults. ``OTEL_SDK_DISABLED=true`` or ``RLTEL_DISABLED=1`` turns
everything off and always wins. (Arguments of ``init`` such as ``run_id`` are stronger still; `identity.py` takes them.)

Every error names the path and the value: ``trace.flush_interval_s: expected a number > 0, got "fast"``.
"""

import dataclasses
import logging
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from rltel.core.config import Section, TelemetryConfig
from rltel.core.errors import ConfigError
from rltel.core.foreign_config import Parted, part
from rltel.core.given import plain_config
from rltel.core.redact import redact_url
from rltel.core.sections import SECTIONS, TYPES, Layer, switch_of
from rltel.core.variables import OTEL_VARIABLE, RLTEL_VARIABLE, TRUE, from_environment, from_otel, without_blanks
from rltel.core.wording import alternatives, fits, has_nul, misfit, shown, suggestion

_log = logging.getLogger("rltel")
_MOST = 1e9  # seconds are 30 years, megabytes a petabyte


@dataclass(frozen=True)
class Resolved:
    """The config in force, and where each field that is not at its default comes from."""

    config: TelemetryConfig
    origins: Mapping[str, str]
    """By path (``trace.enabled``): a variable, a field of the trainer's own config, or ``config``."""
    notes: tuple[str, ...] = ()
    """What in a trainer's config was not taken over, and may have been meant for us."""


def resolve(given: Any = None, environ: Mapping[str, str] | None = None) -> TelemetryConfig:
    """The config in force. `given`: None, a TelemetryConfig, a mapping, an OmegaConf object or a path of a YAML file;
    also a trainer's own config (AReaL's with ``stats_logger``, UniLab's with ``training``) in any of these forms, and
    AReaL's dataclasses.

    Raises `ConfigError` with every problem found, one per line.
    """
    resolved = resolve_with_origins(given, environ)
    for note in resolved.notes:
        _log.warning("%s", note)
    return resolved.config


def resolve_with_origins(given: Any = None, environ: Mapping[str, str] | None = None) -> Resolved:
    """As `resolve`, and where each value comes from."""
    try:
        return _resolved(given, environ)
    except RecursionError:
        raise ConfigError(
            "config: expected sections and settings, got something without end, or that holds itself"
        ) from None


def _resolved(given: Any, environ: Mapping[str, str] | None) -> Resolved:
    environ = without_blanks(os.environ if environ is None else environ)
    problems: list[str] = []
    parted = _parted(given, environ)
    problems += parted.foreign.problems
    merged: Layer = {name: {} for name in SECTIONS}
    origins: dict[str, str] = {}
    for layer, named in (
        (from_otel(environ), OTEL_VARIABLE),
        (parted.foreign.layer, parted.foreign.origins),
        (parted.own, {}),
        (from_environment(environ, problems), RLTEL_VARIABLE),
    ):
        for section, fields in layer.items():
            _merge_section(merged, section, fields, problems)
            origins.update({path: named.get(path, "config") for path in _paths(section, fields)})
    sections: dict[str, Any] = {name: _build(name, fields, origins, problems) for name, fields in merged.items()}
    config = TelemetryConfig(**sections)
    wrong = {re.split(r"[.:]", problem)[0] for problem in problems}
    problems += [found for found in _contradictions(config) if found.partition(".")[0] not in wrong]
    notes = (*parted.notes, *parted.foreign.notes)
    if problems:
        raise _error(problems, notes)
    return Resolved(config, origins, notes)


def _error(problems: list[str], notes: Iterable[str]) -> ConfigError:
    """The notes go with it: what was misspelt may be why the rest is wrong."""
    error = ConfigError("\n".join(problems))
    for note in notes:
        error.add_note(note)
    return error


def _parted(given: Any, environ: Mapping[str, str]) -> Parted:
    is_object = dataclasses.is_dataclass(given) and not isinstance(given, type)
    return part(plain_config(given), environ, is_object=is_object)


def _paths(section: str, fields: Any) -> list[str]:
    return [f"{section}.{name}" for name in fields] if isinstance(fields, Mapping) else []


def disabled(environ: Mapping[str, str] | None = None) -> bool:
    """Whether a kill switch is thrown."""
    environ = os.environ if environ is None else environ
    return (
        environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true"
        or environ.get("RLTEL_DISABLED", "").strip().lower() in TRUE
    )


def _merge_section(merged: Layer, section: str, fields: Any, problems: list[str]) -> None:
    if section not in SECTIONS:
        problems.append(f"{section}: unknown section{suggestion(section, SECTIONS)}; have {', '.join(SECTIONS)}")
    elif fields is None:
        return  # an empty section in YAML
    elif not isinstance(fields, Mapping):
        problems.append(f"{section}: expected a mapping, got {shown(fields, section)}{_switched_on(section)}")
    else:
        merged[section].update(fields)


def _switched_on(section: str) -> str:
    switch = switch_of(section)
    return f" (switched on with `{switch}`)" if switch else ""


def _build(section: str, fields: Mapping[str, Any], origins: Mapping[str, str], problems: list[str]) -> Section:
    """One section, each field checked on its own so that all problems are named at once."""
    kind = SECTIONS[section]
    known = {field.name: field for field in msgspec.structs.fields(kind)}
    values: dict[str, Any] = {}
    for name, value in fields.items():
        path = f"{section}.{name}"
        origin = origins[path]
        if name not in known:
            hint = _switched_on(section) if name == "enabled" else ""
            problems.append(f"{path}: unknown key{hint or suggestion(name, known)}")
        elif fits(value, known[name].type):
            if has_nul(value):
                problems.append(f"{path}: expected text without NUL characters, got {shown(value, path)}")
            values[name] = msgspec.convert(value, known[name].type)
        elif not origin.startswith("OTEL_") or fields.get("enabled"):  # what others set for others is no error here
            problems.append(misfit(path, known[name].type, value, "" if origin == "config" else origin))
    return kind(**values)


def _contradictions(config: TelemetryConfig) -> list[str]:
    """Settings that are fine one by one and make no sense together."""
    return [*_endless(config), *(message for wrong, message in _checks(config) if wrong)]


def _endless(config: TelemetryConfig) -> Iterator[str]:
    """Times and sizes that no clock and no memory can hold."""
    for path, kind in TYPES.items():
        section, name = path.split(".")
        value = getattr(getattr(config, section), name)
        if float in alternatives(kind) and isinstance(value, (int, float)) and value > _MOST:
            yield f"{path}: expected a number <= {_MOST:g}, got {shown(value, path)}"


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
        (config.tensorboard.path == "", 'tensorboard.path: expected a folder or null, got ""'),
        (config.jsonl.path == "", 'jsonl.path: expected a file or null, got ""'),
    ]
