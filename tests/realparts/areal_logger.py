"""AReaL's own config classes, and its StatsLogger with backends that remember what they were sent."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import ModuleType, SimpleNamespace
from typing import Any

from realparts import areal
from realparts.areal import real_modules

_CONFIG = "areal.api.cli_args"
_CONSTANTS = "areal.utils.constants"
_LOGGER = "areal.utils.stats_logger"
_VERSION = SimpleNamespace(commit="", branch="", is_dirty=False, version="", full_version_with_dirty_description="")


def _module(name: str, **content: Any) -> ModuleType:
    made = ModuleType(name)
    vars(made).update(content)
    return made


# What AReaL's config classes ask of modules that are not there.
areal._WORKING["areal.engine.fsdp_utils.attn_impl"] = {
    "BUILTIN_ATTN_IMPLS": ["sdpa"],
    "is_valid_attn_impl": bool,
    "get_attn_impl_validation_error": str,
}
areal._WORKING["areal.utils.logging"] = {"getLogger": lambda name, *_: logging.getLogger(name)}


@contextmanager
def _stand_ins(modules: dict[str, ModuleType]) -> Iterator[None]:
    before = {name: sys.modules.get(name) for name in modules}
    sys.modules.update(modules)
    try:
        yield
    finally:
        for name, module in before.items():
            if module is None:
                del sys.modules[name]
            else:
                sys.modules[name] = module


def _of_the_command_line() -> dict[str, ModuleType]:
    """What AReaL's config classes import and do not need."""
    names = ("uvloop", "hydra", "hydra.core", "hydra.core.global_hydra")
    nothing = {"install": lambda: None, "compose": None, "initialize": None, "GlobalHydra": None}
    return {name: _module(name, **nothing) for name in names}


@contextmanager
def areal_config_classes() -> Iterator[Any]:
    """AReaL's ``areal.api.cli_args``, the real one."""
    with _stand_ins(_of_the_command_line()), real_modules(_CONSTANTS, _CONFIG) as (_, config):
        yield config


@dataclass
class Sent:
    """What reached a backend: the step, and the item."""

    steps: list[tuple[int, dict[str, Any]]] = field(default_factory=list)
    started: list[dict[str, Any]] = field(default_factory=list)

    def log(self, item: dict[str, Any], step: int) -> None:
        self.steps.append((step, dict(item)))

    def init(self, **how: Any) -> None:
        self.started.append(how)


@dataclass
class ArealLogger:
    """AReaL's two modules, and what its backends got."""

    config: Any
    module: Any
    wandb: Sent
    scalars: list[tuple[str, float, int]]
    """Of TensorBoard: key, value, step."""


@contextmanager
def areal_logger() -> Iterator[ArealLogger]:
    """AReaL's real StatsLogger. Its tracking packages, which log in first, are replaced by ones that remember."""
    sent = {name: Sent() for name in ("wandb", "swanlab", "trackio")}
    scalars: list[tuple[str, float, int]] = []
    writer = SimpleNamespace(add_scalar=lambda *scalar: scalars.append(scalar), close=lambda: None)
    backends = {
        name: _module(name, log=each.log, init=each.init, login=lambda *_: None, finish=lambda: None)
        for name, each in sent.items()
    }
    backends["tensorboardX"] = _module("tensorboardX", SummaryWriter=lambda log_dir: writer)
    backends["tabulate"] = _module("tabulate", tabulate=lambda rows, **_: str(rows))
    with (
        _stand_ins({**_of_the_command_line(), **backends}),
        real_modules(_CONSTANTS, _CONFIG, "areal.utils.printing", _LOGGER) as (_, config, _, module),
    ):
        module.version_info = _VERSION
        yield ArealLogger(config, module, sent["wandb"], scalars)
