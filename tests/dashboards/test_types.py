"""The files against Grafana's own types, by its compiler."""

import json
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from realparts.requirements import TOOLS_SOURCE, need_node, require, tools_dir
from rltel.dashboards.all_of_them import DASHBOARDS

_MODELS = {each.slug: each.model() for each in DASHBOARDS}


def tsc(tmp_path: Path, *programs: str) -> subprocess.CompletedProcess[str]:
    """Type-checks programs that import ``./dashboard_types``."""
    types = tools_dir() / "grafana-types" / "node_modules"
    compiler = types / "typescript" / "bin" / "tsc"
    require("@grafana/schema", compiler if compiler.is_file() else None, "run tests/tools/setup_tools.sh")
    (tmp_path / "node_modules").symlink_to(types)
    (tmp_path / "dashboard_types.ts").write_text((TOOLS_SOURCE / "dashboard_types.ts").read_text())
    for number, program in enumerate(programs):
        (tmp_path / f"checked_{number}.ts").write_text(program)
    options = {
        "strict": True,
        "noEmit": True,
        "skipLibCheck": True,
        "module": "esnext",
        "target": "es2022",
        "types": [],
    }
    config = {"compilerOptions": {**options, "moduleResolution": "bundler"}, "include": ["*.ts"]}
    (tmp_path / "tsconfig.json").write_text(json.dumps(config))
    command = [str(need_node()), str(compiler), "--project", str(tmp_path)]
    return subprocess.run(command, capture_output=True, text=True, timeout=200, check=False)


def program(model: Mapping[str, Any]) -> str:
    """Every part as a constant of its own type: in a union of types, the compiler lets more pass."""
    frame = {name: value for name, value in model.items() if name not in ("panels", "templating", "annotations")}
    typed = [("frame", frame)]
    typed += [(panel["type"], panel) for panel in model["panels"]]
    typed += [("variable", each) for each in model["templating"]["list"]]
    typed += [("annotation", each) for each in model["annotations"]["list"]]
    lines = ["import type * as types from './dashboard_types';"]
    lines += [f"export const c{n}: types.{name} = {json.dumps(value)};" for n, (name, value) in enumerate(typed)]
    return "\n".join(lines)


def test_the_files_are_dashboards(tmp_path: Path) -> None:
    checked = tsc(tmp_path, *(program(model) for model in _MODELS.values()))
    assert (checked.returncode, checked.stdout) == (0, "")


def changed(path: str, value: object) -> dict[str, Any]:
    """The first dashboard with one thing in it different."""
    model: Any = json.loads(json.dumps(_MODELS["overview"]))
    *before, last = (int(part) if part.isdigit() else part for part in path.split("."))
    place = model
    for part in before:
        place = place[part]
    place[last] = value
    return model  # type: ignore[no-any-return]  # JSON


WRONG = {
    "schemaVersion": "39",
    "panels.1.fieldConfig.defaults.unitt": "s",
    "panels.1.fieldConfig.defaults.thresholds.mode": "relative",
    "panels.1.options.colourMode": "value",
    "panels.6.options.legend.placement": "top",
    "panels.6.fieldConfig.defaults.custom.drawStyle": "curve",
    "panels.6.targets.0.query": "up",
    "templating.list.1.type": "question",
    "annotations.list.0.enabled": True,
}


def test_the_test_sees_what_is_none(tmp_path: Path) -> None:
    checked = tsc(tmp_path, *(program(changed(path, value)) for path, value in WRONG.items()))
    refused = {Path(line.partition("(")[0]).name for line in checked.stdout.splitlines() if "error TS" in line}
    assert refused == {f"checked_{number}.ts" for number in range(len(WRONG))}, checked.stdout


@pytest.mark.parametrize("path", ["panels.1.title", "uid"])
def test_a_change_is_one(path: str) -> None:
    """What the test above relies on."""
    assert changed(path, "x") != _MODELS["overview"]
