"""Finds the programs that the tests drive, and says what to do without one.

``tests/tools/setup_tools.sh`` puts most of them into ``.tools/`` at the root of the repository, or
into the folder that ``RLTEL_TOOLS_DIR`` names.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import shutil
import subprocess
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]
TOOLS_SOURCE = REPOSITORY / "tests" / "tools"

_OLDEST_NODE = 20
_HINT = "run tests/tools/setup_tools.sh"

Found = TypeVar("Found")


def require(name: str, found: Found | None, reason: str) -> Found:
    """Returns ``found``; without it, skips the test.

    With ``RLTEL_REQUIRE_SERVERS=1`` the test fails instead, so that a run in which everything
    should be there cannot pass by skipping.

    Args:
        name: What is needed, for the message.
        found: The thing itself, or None if it is missing.
        reason: Why it is missing, or how to get it.
    """
    if found is not None:
        return found
    message = f"needs {name}: {reason}"
    if os.environ.get("RLTEL_REQUIRE_SERVERS") == "1":
        pytest.fail(message, pytrace=False)
    pytest.skip(message, allow_module_level=True)


def need_package(name: str) -> Any:
    """A module of a package that the extra ``test`` installs."""
    try:
        found = importlib.import_module(name)
    except ImportError:
        found = None
    return require(f"the package of {name}", found, 'install ".[test]" (make test does)')


def tools_dir() -> Path:
    """The folder that ``setup_tools.sh`` fills."""
    return Path(os.environ.get("RLTEL_TOOLS_DIR") or REPOSITORY / ".tools").resolve()


def find_trace_processor() -> Path | None:
    """The folder with the WebAssembly build of the trace processor."""
    assets = tools_dir() / "trace-processor"
    files = ("trace_processor.wasm", "engine.mjs", "engine_bundle.node.js")
    return assets if all((assets / file).is_file() for file in files) else None


@cache
def find_node() -> Path | None:
    """Node.js, if it is new enough for ``trace_query.mjs``."""
    node = shutil.which("node")
    if node is None:
        return None
    version = subprocess.run([node, "--version"], capture_output=True, text=True, check=False).stdout
    major = version.lstrip("v").partition(".")[0]
    return Path(node) if major.isdigit() and int(major) >= _OLDEST_NODE else None


def find_prometheus() -> Path | None:
    """The Prometheus server."""
    return _fetched("prometheus") or _on_path("prometheus")


def find_promtool() -> Path | None:
    """Prometheus's command line tool."""
    return _fetched("promtool") or _on_path("promtool")


def find_victoria_metrics() -> Path | None:
    """The VictoriaMetrics server; one on PATH does not count, as it may be too old to take OTLP."""
    return _fetched("victoria-metrics")


def find_rotel() -> Path | None:
    """The agent's own executable, which the wheel ``rotel`` holds beside its Python modules."""
    package = importlib.util.find_spec("rotel")  # does not import it
    if package is None or package.origin is None:
        return None
    return _executable(Path(package.origin).parent / "rotel-agent")


def need_trace_processor() -> Path:
    """`find_trace_processor`, required."""
    return require("the trace processor", find_trace_processor(), _HINT)


def need_node() -> Path:
    """`find_node`, required."""
    return require("node", find_node(), f"install Node.js {_OLDEST_NODE} or newer")


def need_prometheus() -> Path:
    """`find_prometheus`, required."""
    return require("prometheus", find_prometheus(), _HINT)


def need_promtool() -> Path:
    """`find_promtool`, required."""
    return require("promtool", find_promtool(), _HINT)


def need_victoria_metrics() -> Path:
    """`find_victoria_metrics`, required."""
    return require("victoria-metrics", find_victoria_metrics(), _HINT)


def need_rotel() -> Path:
    """`find_rotel`, required."""
    return require("rotel", find_rotel(), "pip install rotel")


def _fetched(program: str) -> Path | None:
    return _executable(tools_dir() / "servers" / "unpacked" / "usr" / "bin" / program)


def _on_path(program: str) -> Path | None:
    found = shutil.which(program)
    return Path(found) if found else None


def _executable(path: Path) -> Path | None:
    return path if os.access(path, os.X_OK) and path.is_file() else None
