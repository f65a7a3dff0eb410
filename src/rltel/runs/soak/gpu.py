"""GPUs as ``nvidia-smi`` shows them, where it is there."""

import csv
import shutil
import subprocess
from collections.abc import Collection
from typing import Any

_TIMEOUT_S = 2.0
_APPS = ("pid", "process_name", "used_gpu_memory", "gpu_uuid")
_DEVICES = ("index", "uuid", "name", "driver_version")


class Gpus:
    """Asks ``nvidia-smi``. Without it, or while it does not answer, numbers are null: unknown is not zero."""

    def __init__(self, program: str = "nvidia-smi") -> None:
        self._program = shutil.which(program)

    def devices(self) -> list[dict[str, str]]:
        """The GPUs of this machine."""
        return self._ask("--query-gpu", _DEVICES) or []

    def sample(self, pids: Collection[int]) -> dict[str, Any]:
        """A sample's ``gpu``: what these processes hold. Memory in MiB.

        In a container the driver may show pids of the host, or none: such rows match no process, and are counted.
        """
        rows = self._ask("--query-compute-apps", _APPS)
        if rows is None:
            return {"process_count": None, "used_memory_mib_total": None, "processes": []}
        mine = [row for row in rows if row["pid"].isdecimal() and int(row["pid"]) in pids]
        memory = [amount for row in mine if (amount := _mib(row["used_gpu_memory"])) is not None]
        return {
            "process_count": len(mine),
            "used_memory_mib_total": sum(memory) if memory or not mine else None,
            "processes": mine,
            "unmatched_process_count": len(rows) - len(mine),
        }

    def _ask(self, query: str, columns: tuple[str, ...]) -> list[dict[str, str]] | None:
        if self._program is None:
            return None
        command = [self._program, f"{query}={','.join(columns)}", "--format=csv,noheader"]
        try:
            ran = subprocess.run(command, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False)  # noqa: S603 - ours
        except (OSError, subprocess.TimeoutExpired):
            return None
        if ran.returncode != 0:
            return None
        rows = csv.reader(ran.stdout.splitlines(), skipinitialspace=True)
        return [dict(zip(columns, row, strict=True)) for row in rows if len(row) == len(columns)]


def _mib(text: str) -> int | None:
    amount, _, unit = text.strip().partition(" ")
    return int(amount) if amount.isdecimal() and unit in ("MiB", "MB") else None
