"""Checks a Collector's configuration as the Collector does when it starts, and what it would only do wrong later."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

import yaml

from collector.components import COMPONENTS, TELEMETRY, Component, OneOf, Type

_VARIABLE = re.compile(r"\$\{env:(\w+)(?::-([^}]*))?\}")
_SECTIONS = {"receivers": "receiver", "processors": "processor", "exporters": "exporter"}


def expanded(text: str, environ: Mapping[str, str]) -> str:
    """The file with its variables. Raises ValueError for one that has no value and no default."""

    def value(match: re.Match[str]) -> str:
        name, default = match[1], match[2]
        if name not in environ and default is None:
            raise ValueError(f"{name} has no default, and is not set")
        return environ.get(name) or default or ""

    return _VARIABLE.sub(value, text)


def loaded(text: str, environ: Mapping[str, str] | None = None) -> dict[str, Any]:
    """A configuration, its variables replaced."""
    return dict(yaml.safe_load(expanded(text, environ or {})))


def problems(config: Mapping[str, Any]) -> list[str]:
    """What is wrong with a configuration, each with its place."""
    return list(_problems(config))


def distributions(config: Mapping[str, Any]) -> set[str]:
    """Which distributions its components come from."""
    return {
        component.distribution
        for section in _SECTIONS
        for name in config.get(section, {})
        if (component := _component(section, name)) is not None
    }


def _problems(config: Mapping[str, Any]) -> Iterator[str]:
    for key in config.keys() - {*_SECTIONS, "service"}:
        yield f"{key}: unknown section"
    for section in _SECTIONS:
        for name, options in config.get(section, {}).items():
            component = _component(section, name)
            if component is None:
                yield f"{section}.{name}: no such component"
                continue
            wrong = [
                *_mismatches(f"{section}.{name}", options or {}, component.options),
                *(f"{section}.{name}.{needed}: needed" for needed in sorted(component.needs - (options or {}).keys())),
            ]
            yield from wrong or _contradictions(section, name, options or {})
    service = config.get("service", {})
    for key in service.keys() - {"telemetry", "pipelines"}:
        yield f"service.{key}: unknown key"
    yield from _mismatches("service.telemetry", service.get("telemetry", {}), TELEMETRY)
    yield from _wrong_pipelines(config, service.get("pipelines", {}))
    yield from _taken_twice(config)


def _component(section: str, name: str) -> Component | None:
    return COMPONENTS[section].get(name.partition("/")[0])


def _mismatches(where: str, value: Any, wanted: Type) -> Iterator[str]:
    if isinstance(wanted, OneOf):
        if value not in wanted:
            yield f"{where}: expected one of {', '.join(wanted)}, got {value!r}"
    elif isinstance(wanted, dict):
        if not isinstance(value, dict):
            yield f"{where}: expected a mapping, got {value!r}"
            return
        for key, item in value.items():
            if key in wanted:
                yield from _mismatches(f"{where}.{key}", item, wanted[key])
            else:
                yield f"{where}.{key}: unknown option"
    elif isinstance(wanted, list):
        if not isinstance(value, list) or not value:
            yield f"{where}: expected a list, got {value!r}"
            return
        for position, item in enumerate(value):
            yield from _mismatches(f"{where}[{position}]", item, wanted[0])
    elif not wanted(value):
        yield f"{where}: expected {wanted.__doc__}, got {value!r}"


def _contradictions(section: str, name: str, options: Mapping[str, Any]) -> Iterator[str]:
    """What each option is right by itself, and together they are not."""
    where, kind = f"{section}.{name}", name.partition("/")[0]
    if kind == "memory_limiter":
        limit, spike = options.get("limit_mib", 0), options.get("spike_limit_mib", 0)
        if not limit and not options.get("limit_percentage"):
            yield f"{where}: needs limit_mib or limit_percentage"
        if limit and spike >= limit:
            yield f"{where}.spike_limit_mib: has to be less than limit_mib"
    elif kind == "batch":
        largest = options.get("send_batch_max_size", 0)
        if largest and largest < options.get("send_batch_size", 8192):
            yield f"{where}.send_batch_max_size: has to be at least send_batch_size"
    elif kind == "otlp_http" and not options.keys() & {"endpoint", "metrics_endpoint", "traces_endpoint"}:
        yield f"{where}.endpoint: needed"
    elif kind == "tail_sampling":
        for position, policy in enumerate(options.get("policies", [])):
            if policy.get("type") not in policy or len(policy) != 3:
                yield f"{where}.policies[{position}]: needs name, type, and the options of its type alone"


def _wrong_pipelines(config: Mapping[str, Any], pipelines: Mapping[str, Any]) -> Iterator[str]:
    if not pipelines:
        yield "service.pipelines: needed"
    used: dict[str, set[str]] = {section: set() for section in _SECTIONS}
    for pipeline, parts in pipelines.items():
        where, signal = f"service.pipelines.{pipeline}", pipeline.partition("/")[0]
        for key in parts.keys() - _SECTIONS.keys():
            yield f"{where}.{key}: unknown key"
        for section, what in _SECTIONS.items():
            names = parts.get(section, [])
            if not names and section != "processors":
                yield f"{where}.{section}: needs a {what}"
            if len(names) != len(set(names)):
                yield f"{where}.{section}: names one twice"
            for name in names:
                used[section].add(name)
                component = _component(section, name)
                if name not in config.get(section, {}):
                    yield f"{where}.{section}: {name} is not configured"
                elif component is not None and signal not in component.signals:
                    yield f"{where}.{section}: {name} has no {signal}"
        yield from _wrong_order(where, parts.get("processors", []))
    for section in _SECTIONS:
        for name in sorted(config.get(section, {}).keys() - used[section]):
            yield f"{section}.{name}: in no pipeline"


def _wrong_order(where: str, processors: list[str]) -> Iterator[str]:
    """The Collector takes any order; these are wrong all the same."""
    kinds = [name.partition("/")[0] for name in processors]
    if "memory_limiter" in kinds[1:]:
        yield f"{where}.processors: memory_limiter has to be the first"
    if "batch" in kinds[:-1]:
        yield f"{where}.processors: batch has to be the last"


def _taken_twice(config: Mapping[str, Any]) -> Iterator[str]:
    seen: set[str] = set()
    for where, listens in listeners(config):
        if listens in seen:
            yield f"{where}: {listens} is taken by another part of this file"
        seen.add(listens)


def listeners(config: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Where it listens: the place in the file, and host:port."""
    for name, receiver in config.get("receivers", {}).items():
        for protocol, options in (receiver or {}).get("protocols", {}).items():
            if isinstance(options, dict) and "endpoint" in options:
                yield f"receivers.{name}.{protocol}", str(options["endpoint"])
    for name, exporter in config.get("exporters", {}).items():
        if name.partition("/")[0] == "prometheus" and exporter:
            yield f"exporters.{name}", str(exporter.get("endpoint"))
    metrics = config.get("service", {}).get("telemetry", {}).get("metrics", {})
    for reader in metrics.get("readers", []) if isinstance(metrics, dict) else []:
        own = reader.get("pull", {}).get("exporter", {}).get("prometheus", {})
        yield "service.telemetry.metrics", f"{own.get('host')}:{own.get('port')}"
