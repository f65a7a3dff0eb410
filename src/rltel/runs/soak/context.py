"""Where a soak ran: source, GPUs, versions. Nothing of it imports what the command uses."""

import os
import platform
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from rltel.runs.git_state import git_state
from rltel.runs.soak.gpu import Gpus
from rltel.version import VERSION

_TIMEOUT_S = 2.0
_UNKNOWN = {"commit": None, "branch": None, "dirty": None}


def context_of(folder: Path, gpus: Gpus) -> dict[str, Any]:
    """The artifact's ``context``."""
    return {
        "source": {"path": str(folder.absolute()), **(git_state([folder], _TIMEOUT_S) or _UNKNOWN)},
        "gpu_devices": gpus.devices(),
        "software": {"python": platform.python_version(), "rltel": VERSION, "torch": _version("torch")},
        "environment": {"CUDA_VISIBLE_DEVICES": os.environ.get("CUDA_VISIBLE_DEVICES")},
    }


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None
