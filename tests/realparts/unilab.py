"""The real unilab-rl, unpacked and not installed: what runs it gets its folder on ``PYTHONPATH``."""

from __future__ import annotations

from pathlib import Path

from realparts import requirements


def find_unilab() -> Path | None:
    """The folder that holds its package ``uni_rl``, which ``tests/tools/get_unilab.sh`` fills."""
    root = requirements.tools_dir() / "unilab"
    return root if (root / "uni_rl" / "algos" / "appo" / "runner.py").is_file() else None


def need_unilab() -> Path:
    """`find_unilab`, required."""
    return requirements.require("unilab-rl", find_unilab(), "run tests/tools/get_unilab.sh .tools")
