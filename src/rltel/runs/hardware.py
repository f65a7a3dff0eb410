"""What the run's writer runs on: processor, cores, memory, graphics cards. Names no host."""

import os
import platform
import shutil
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

_QUERY = ("--query-gpu=name,memory.total", "--format=csv,noheader,nounits")
_MIB = 1 << 20


def hardware(root: Path = Path("/"), timeout_s: float = 1.0) -> dict[str, Any]:
    """``cpu``, ``cores`` (all), ``usable_cores`` (of this process), ``memory_bytes``, ``gpus``. None: cannot be told.

    ``memory_bytes`` is the container's limit, if that is less than the machine's. Asks torch about cards only if the
    program itself has started CUDA, else the driver's files, else ``nvidia-smi``, within `timeout_s`.
    """
    return {
        "cpu": _cpu(root),
        "cores": os.cpu_count(),
        "usable_cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "memory_bytes": _memory_bytes(root),
        "gpus": _of_torch() or _of_driver(root) or _of_nvidia_smi(timeout_s),
    }


def _cpu(root: Path) -> str | None:
    return _field(root / "proc/cpuinfo", "model name") or platform.processor() or platform.machine() or None


def _memory_bytes(root: Path) -> int | None:
    found = []
    with suppress(ValueError, IndexError):
        found.append(int((_field(root / "proc/meminfo", "MemTotal") or "").split()[0]) * 1024)
    for limit in ("sys/fs/cgroup/memory.max", "sys/fs/cgroup/memory/memory.limit_in_bytes"):
        with suppress(OSError, ValueError):  # "max": no limit
            found.append(int((root / limit).read_text()))
    return min(found, default=None)


def _field(path: Path, name: str) -> str | None:
    """``name : value`` in one of the kernel's files."""
    with suppress(OSError, UnicodeDecodeError), path.open() as file:
        for line in file:
            found, colon, value = line.partition(":")
            if colon and found.strip() == name:
                return value.strip()
    return None


def _of_torch() -> list[dict[str, Any]]:
    torch = sys.modules.get("torch")
    try:
        if torch is None or not torch.cuda.is_initialized():
            return []
        cards = [torch.cuda.get_device_properties(number) for number in range(torch.cuda.device_count())]
    except (AttributeError, RuntimeError):  # still being imported, or a driver in trouble
        return []
    return [{"name": card.name, "memory_bytes": card.total_memory} for card in cards]


def _of_driver(root: Path) -> list[dict[str, Any]]:
    files = sorted((root / "proc/driver/nvidia/gpus").glob("*/information"))
    return [{"name": name, "memory_bytes": None} for path in files if (name := _field(path, "Model"))]


def _of_nvidia_smi(timeout_s: float) -> list[dict[str, Any]]:
    command = shutil.which("nvidia-smi")
    if command is None:
        return []
    try:
        ran = subprocess.run(  # noqa: S603  # the command is fixed, and no shell reads it
            [command, *_QUERY],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=timeout_s,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return []
    rows = [line.rpartition(",") for line in ran.stdout.splitlines()] if ran.returncode == 0 else []
    return [
        {"name": name.strip(), "memory_bytes": int(mib) * _MIB if mib.strip().isdecimal() else None}
        for name, comma, mib in rows
        if comma
    ]
