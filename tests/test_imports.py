"""Data goes one way: a room imports only from rooms above it, and importing the package stays light."""

import ast
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import rltel
from export.making import environment

SOURCE = Path(rltel.__file__).parent
ROOMS = ["core", "names", "record", "reduce", "rl", "export", "runs", "traces", "analysis", "dashboards"]
ROOMS += ["telemetry", "process", "integrations", "cli", "faces"]
"""From the ground up, as in the design. What lies beside the rooms is below."""
GROUND = {"rltel.version"}
"""Imports nothing, and may be imported by all."""
FACES = {"rltel", "rltel.__main__", "rltel.stats_tracker", "rltel.stats_logger"}
HEAVY = ["torch", "grpc", "tensorboard", "wandb", "perfetto", "requests", "swanlab", "trackio", "yaml", "omegaconf"]


def module_name(path: Path) -> str:
    parts = path.relative_to(SOURCE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


FILES = {module_name(path): path for path in sorted(SOURCE.rglob("*.py"))}


def room(module: str) -> str:
    return "faces" if module in FACES else module.split(".")[1]


def imported(module: str) -> Iterator[tuple[str, bool]]:
    """The package's modules that this one imports, and whether that happens when it is imported itself."""
    tree = ast.parse(FILES[module].read_text())
    later = {
        id(inner)
        for node in ast.walk(tree)
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda))
        for inner in ast.walk(node)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{module}: a relative import hides which room it is from"
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        else:
            continue
        for name in names:
            target = name if name in FILES else name.rpartition(".")[0]
            if target in FILES:
                yield target, id(node) not in later


EDGES = {module: list(imported(module)) for module in FILES}


def test_every_module_is_in_a_room() -> None:
    strange = [module for module in FILES if room(module) not in ROOMS and module not in GROUND]
    assert not strange, f"{strange}: in no room of {ROOMS}"


@pytest.mark.parametrize("module", [module for module in FILES if module not in GROUND])
def test_a_room_imports_only_from_rooms_above_it(module: str) -> None:
    """Imports inside functions count, too: they hide no dependency."""
    mine = ROOMS.index(room(module))
    wrong = [target for target, _ in EDGES[module] if target not in GROUND and ROOMS.index(room(target)) > mine]
    assert not wrong, f"{module} (room {room(module)}) imports {wrong}, of rooms that come later in {ROOMS}"


def test_the_ground_imports_nothing_of_ours() -> None:
    assert [target for module in GROUND for target, _ in EDGES[module]] == []


def test_the_test_sees_imports() -> None:
    """What everything above relies on."""
    assert ("rltel.export.points", True) in EDGES["rltel.export.prometheus.table"]
    assert ("rltel.export.otlp.metrics", False) in EDGES["rltel.export.open_sinks"]
    assert ("rltel.export.perfetto.wire", True) in EDGES["rltel.traces.merge"]


def test_no_modules_import_each_other_in_a_circle() -> None:
    done: set[str] = set()

    def visit(module: str, path: list[str]) -> None:
        assert module not in path, f"a circle: {' -> '.join([*path[path.index(module) :], module])}"
        if module not in done:
            for target, _ in EDGES[module]:
                visit(target, [*path, module])
            done.add(module)

    for module in FILES:
        visit(module, [])


def test_nothing_imports_the_package_s_face() -> None:
    """It pulls in everything."""
    assert [module for module in FILES for target, _ in EDGES[module] if target in FACES] == []


def test_importing_the_package_stays_light() -> None:
    code = "import json, sys, rltel; print(json.dumps(sorted({name.split('.')[0] for name in sys.modules})))"
    ran = subprocess.run(
        [sys.executable, "-c", code], env=environment(), capture_output=True, text=True, timeout=60, check=True
    )
    loaded = set(json.loads(ran.stdout))
    assert "rltel" in loaded
    assert not loaded & set(HEAVY)


def test_importing_the_package_writes_and_starts_nothing(tmp_path: Path) -> None:
    code = "import threading, rltel; print(threading.active_count())"
    ran = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, env=environment(), capture_output=True, text=True, check=True
    )
    assert (ran.stdout, ran.stderr, list(tmp_path.iterdir())) == ("1\n", "", [])


def test_what_is_switched_on_imports_only_its_own_libraries(tmp_path: Path) -> None:
    code = (
        "import json, sys, rltel\n"
        "rltel.init({'jsonl': {'path': sys.argv[1]}, 'prometheus': {'enabled': True, 'port': 0}})\n"
        "rltel.log({'x': 1.0}, step=0)\nrltel.shutdown()\n"
        "print(json.dumps(sorted({name.split('.')[0] for name in sys.modules})))\n"
    )
    ran = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "r.jsonl")],
        env=environment(RLTEL_RUN_DIR=str(tmp_path / "run")),
        capture_output=True,
        text=True,
        check=True,
    )
    assert not set(json.loads(ran.stdout)) & set(HEAVY)
