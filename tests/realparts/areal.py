"""Single modules of the real AReaL, whose 82 requirements are not here, with a stats tracker of our choice."""

from __future__ import annotations

import importlib
import importlib.util
import logging
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

from realparts import requirements

TRACKER = "areal.utils.stats_tracker"
_ABSENT = {"areal", "aiohttp", "einops", "flask", "httpx", "numba", "torchdata", "transformers", "werkzeug"}
"""Top-level packages of which only stand-ins are there."""


def find_areal() -> Path | None:
    """The folder of AReaL's package, which ``tests/tools/get_areal.sh`` fills."""
    root = requirements.tools_dir() / "areal" / "areal"
    return root if (root / "utils" / "stats_tracker.py").is_file() else None


def need_areal() -> Path:
    """`find_areal`, required."""
    return requirements.require("areal", find_areal(), "run tests/tools/get_areal.sh .tools")


@contextmanager
def real_modules(*names: str, tracker: ModuleType | None = None) -> Iterator[list[Any]]:
    """Imports these modules of AReaL; all others of it, and what it requires, are stand-ins.

    Args:
        names: Modules to import for real, full names.
        tracker: What they find as ``areal.utils.stats_tracker``; None for AReaL's own.
    """
    root = need_areal()
    before = {name: module for name, module in sys.modules.items() if _is_absent(name)}
    real = {*names} if tracker else {*names, TRACKER, "areal.utils.seqpack"}
    finder = _Finder(root, real)
    try:
        for name in before:
            del sys.modules[name]
        sys.meta_path.insert(0, finder)
        if tracker is not None:
            sys.modules[TRACKER] = tracker
        yield [importlib.import_module(name) for name in names]
    finally:
        sys.meta_path.remove(finder)
        for name in [name for name in sys.modules if _is_absent(name)]:
            del sys.modules[name]
        sys.modules.update(before)


def _is_absent(name: str) -> bool:
    return name.partition(".")[0] in _ABSENT


class _Finder:
    """Finds the real modules in AReaL's folder, and makes stand-ins of the rest."""

    def __init__(self, root: Path, real: set[str]) -> None:
        self._root = root
        self._real = real

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if not _is_absent(name):
            return None
        if name in self._real:
            return importlib.util.spec_from_file_location(name, self._place(name).with_suffix(".py"))
        spec = ModuleSpec(name, self, is_package=True)  # type: ignore[arg-type]
        if name.startswith("areal"):
            spec.submodule_search_locations = [str(self._place(name))]
        return spec

    def _place(self, name: str) -> Path:
        return self._root.joinpath(*name.split(".")[1:])

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return _StandIn(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        vars(module).update(_WORKING.get(module.__name__, {}))


class _AnyClass(type):
    """Classes that have whatever attribute one asks for."""

    def __getattr__(cls, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return SimpleNamespace()


class _StandIn(ModuleType):
    """A module in which every name is a class, or a submodule where AReaL has one."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        if any(Path(folder, name).is_dir() or Path(folder, f"{name}.py").is_file() for folder in self.__path__):
            return importlib.import_module(f"{self.__name__}.{name}")
        made = _AnyClass(name, (), {"__init__": lambda self, *args, **options: None})
        setattr(self, name, made)
        return made


def _undecorated(*_: Any, **__: Any) -> Callable[[Any], Any]:
    return lambda function: function


def _each(function: Callable[[Any], Any], data: list[Any], **_: Any) -> list[Any]:
    return [function(item) for item in data]


_WORKING: dict[str, dict[str, Any]] = {
    "areal.infra.platforms": {
        "current_platform": SimpleNamespace(is_initialized=lambda: False, device_type="cpu"),
        "is_npu_available": False,
    },
    "areal.utils.data": {
        "batched_call": _each,
        "split_padded_tensor_dict_into_mb_list": lambda data, mb_spec: SimpleNamespace(mbs=[data]),
    },
    "areal.utils.hf_utils": {"apply_chat_template": lambda tokenizer, messages, **_: [len(messages)]},
    "areal.utils.logging": {"getLogger": logging.getLogger},
    "areal.utils.perf_tracer": {"trace_perf": _undecorated},
    "numba": {"njit": lambda function: function},
}
"""What the stand-ins really have to do."""
