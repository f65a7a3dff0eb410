"""The soak monitor of the real unilab, run on one command; its package's imports, which need a simulator, are left out.

``python unilab_soak.py ROOT FOLDER OUTPUT SETTINGS COMMAND...`` prints nothing and writes the artifact.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import types
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from realparts import requirements


def need_soak() -> Path:
    """The folder that holds ``unilab`` 1.5.2, unpacked and not installed."""
    root = requirements.tools_dir() / "unilab-training"
    found = root if (root / "unilab" / "training" / "soak.py").is_file() else None
    return requirements.require("unilab's soak monitor", found, "run tests/tools/get_unilab.sh .tools")


def soak(root: Path, folder: Path, command: Sequence[str], **settings: float) -> dict[str, Any]:
    """The artifact that the real monitor writes."""
    output = folder.with_name(f"{folder.name}.theirs.json")
    arguments = [str(root), str(folder), str(output), json.dumps(settings), *command]
    environ = {**os.environ, "RLTEL_RUN_DIR": str(folder), "PYTHONPATH": str(Path(__file__).parents[1])}
    ran = subprocess.run(
        [sys.executable, __file__, *arguments], env=environ, capture_output=True, text=True, timeout=120, check=False
    )
    assert output.exists(), ran.stderr
    made: dict[str, Any] = json.loads(output.read_text())
    return made


def main(root: str, folder: str, output: str, settings: str, *command: str) -> None:
    """In a process of its own."""
    for name in ("unilab", "unilab.training"):
        package = types.ModuleType(name)
        package.__path__ = [str(Path(root, *name.split(".")))]
        sys.modules[name] = package
    from unilab.training.soak import SoakFailureError, run_soak

    try:
        run_soak(command=command, progress_dir=Path(folder), output_path=Path(output), **json.loads(settings))
    except SoakFailureError:
        sys.exit(1)


if __name__ == "__main__":
    main(*sys.argv[1:])
