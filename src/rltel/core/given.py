"""What a user hands to `init`, as plain data: YAML files, OmegaConf's containers, dataclasses and our own structs."""

import dataclasses
import os
import re
import sys
from collections.abc import Mapping
from enum import Enum
from pathlib import Path
from typing import Any

from rltel.core.config import Section, TelemetryConfig
from rltel.core.errors import ConfigError
from rltel.core.sections import SECTIONS

_QUOTED = re.compile(r"'([^']*)'")
FOREIGN = ("stats_logger", "training")
"""The sections that make a mapping a trainer's own config: AReaL's, UniLab's."""


def plain_config(given: Any) -> dict[str, Any]:
    """A mapping of sections, in dicts and lists, with only the fields that were set.

    Raises `ConfigError` for what is no config, and for a file that cannot be read.
    """
    if given is None:
        return {}
    if isinstance(given, (str, os.PathLike)):
        return _resolved(_from_file(Path(given)))
    if isinstance(given, TelemetryConfig):
        plain: Any = given_fields(given)
    elif _is_omegaconf(given):
        plain = _from_omegaconf(given)
    elif isinstance(given, Mapping):
        plain = _resolved({key: _plain(item) for key, item in given.items()})
    elif dataclasses.is_dataclass(given) and not isinstance(given, type):
        plain = _from_dataclass(given)
    else:
        plain = None
    if not isinstance(plain, dict):
        raise ConfigError(
            "config: expected a TelemetryConfig, a mapping, an OmegaConf object or a path of a YAML file, "
            f"or a trainer's dataclass with a stats_logger, got {type(given).__name__}"
        )
    return {name: given_fields(part) if isinstance(part, Section) else part for name, part in plain.items()}


def given_fields(section: Section) -> dict[str, Any]:
    """The fields that were set, as opposed to left at their defaults."""
    return {name: _plain(getattr(section, name)) for name in section.given()}


def is_foreign(plain: Mapping[str, Any]) -> bool:
    """Whether this is a trainer's config, of which only some sections are for us."""
    return any(name in plain for name in FOREIGN)


def _plain(value: Any) -> Any:
    """The same data in dicts and lists: OmegaConf's containers, wherever they are, and tuples become those."""
    if _is_omegaconf(value):
        return _strict(value)
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: _plain(getattr(value, field.name, None)) for field in dataclasses.fields(value)}
    return value.value if isinstance(value, Enum) else value


def _from_dataclass(given: Any) -> dict[str, Any] | None:
    """A trainer's whole config, or AReaL's ``StatsLoggerConfig`` alone."""
    plain: dict[str, Any] = _plain(given)
    if {"experiment_name", "trial_name", "wandb", "tensorboard"} <= plain.keys():
        return {"stats_logger": plain}
    return plain if is_foreign(plain) else None


# --- YAML -----------------------------------------------------------------------------------------------------------


def _from_file(path: Path) -> dict[str, Any]:
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


# --- OmegaConf ------------------------------------------------------------------------------------------------------


def _is_omegaconf(value: Any) -> bool:
    omegaconf = sys.modules.get("omegaconf")  # whoever has such an object has imported it
    return omegaconf is not None and bool(omegaconf.OmegaConf.is_config(value))


def _from_omegaconf(value: Any) -> Any:
    is_empty = value._is_none() or value._is_missing()
    if isinstance(value, Mapping) and not is_empty and is_foreign(value):
        return _lenient(value)
    return _strict(value)


def _strict(value: Any) -> Any:
    omegaconf = sys.modules["omegaconf"]
    try:
        return omegaconf.OmegaConf.to_container(value, resolve=True, throw_on_missing=True)
    except omegaconf.errors.OmegaConfBaseException as error:
        raise ConfigError(f"config: {error}") from error


def _lenient(config: Any) -> dict[str, Any]:
    """A trainer's config: what cannot be resolved in the sections that are not ours is left as it is written."""
    plain = {}
    for key in config:
        plain[key] = _strict_section(config, key) if key in SECTIONS else _as_far_as_possible(config, key)
    return plain


def _strict_section(config: Any, key: str) -> Any:
    omegaconf = sys.modules["omegaconf"]
    try:
        return _plain(config[key])
    except omegaconf.errors.OmegaConfBaseException as error:
        raise ConfigError(f"config: {error}") from error


def _as_far_as_possible(config: Any, key: Any) -> Any:
    omegaconf = sys.modules["omegaconf"]
    try:
        value = config[key]
    except omegaconf.errors.OmegaConfBaseException:
        return config._get_node(key)._value()  # "???" or "${...}"
    if not _is_omegaconf(value):
        return _plain(value)
    if value._is_missing() or value._is_none():
        return None
    keys = list(value) if isinstance(value, Mapping) else range(len(value))
    items = {each: _as_far_as_possible(value, each) for each in keys}
    return items if isinstance(value, Mapping) else list(items.values())


def _resolved(plain: dict[str, Any]) -> dict[str, Any]:
    """A trainer's YAML has interpolations (``fileroot: ${cluster.fileroot}``); OmegaConf, which it uses, knows them."""
    if not any("${" in repr(plain.get(name)) for name in FOREIGN):
        return plain
    try:
        import omegaconf  # only where there are interpolations
    except ImportError:
        return plain  # whoever needs the value says so
    try:
        config = omegaconf.OmegaConf.create(plain)
    except omegaconf.errors.OmegaConfBaseException:  # something in it that OmegaConf cannot hold
        return plain
    return _lenient(config)
