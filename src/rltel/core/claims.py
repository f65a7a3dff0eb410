"""Places in a run: exclusive files, one per (role, index, incarnation), so that no two processes write one file.

A claim names its holder (host, pid, start of the process). Whoever finds the holder gone takes the place's next
incarnation; whoever finds it alive takes the next index.
"""

import contextlib
import json
import os
import platform
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

from rltel.core.files import publish, replace

_FOLDER = "claims"


@dataclass(slots=True)
class Claim:
    """A place held by this process. `release` it at a clean end."""

    path: Path
    role: str
    index: int
    incarnation: int

    def release(self, how: Mapping[str, Any] | None = None) -> None:
        """Say that the holder has ended, and ``how``, as plain data (a second time does nothing)."""
        ended = self.path.with_suffix(".ended")
        with contextlib.suppress(OSError):  # a full disk: that it has ended matters more
            if how is not None and not ended.exists():
                replace(ended, how)
        with contextlib.suppress(OSError):  # the directory is gone: so is the place
            ended.touch()


def claim_place(run_dir: Path, role: str, wanted: int, *, rank_is_unique: bool = False) -> Claim:
    """Take the first free place of this role from index ``wanted`` on.

    ``rank_is_unique``: a launcher vouches that no other process has this rank, so a holder that cannot be seen from
    here (on another host) is a predecessor that died.
    """
    folder = run_dir / _FOLDER
    folder.mkdir(parents=True, exist_ok=True)
    for index in count(wanted):
        while True:
            last = _last_incarnation(folder, role, index)
            if last and is_held(_path(folder, role, index, last), rank_is_unique):
                break  # alive: try the next index
            path = _path(folder, role, index, last + 1)
            if publish(path, _myself()):
                return Claim(path, role, index, last + 1)
    raise AssertionError("count() never ends")


def _path(folder: Path, role: str, index: int, incarnation: int) -> Path:
    return folder / f"{role}-{index}.{incarnation}.json"


def _last_incarnation(folder: Path, role: str, index: int) -> int:
    numbers = [int(path.name.split(".")[1]) for path in folder.glob(f"{role}-{index}.*.json")]
    return max(numbers, default=0)


def _myself() -> dict[str, Any]:
    return {"machine": _machine(), "pid": os.getpid(), "started": start_of(os.getpid())}


def is_held(path: Path, rank_is_unique: bool) -> bool:
    """Whether a claim's process is, as far as can be told from here, still there."""
    if path.with_suffix(".ended").exists():
        return False
    try:
        holder = json.loads(path.read_text())
        machine, pid, claimed = holder["machine"], int(holder["pid"]), int(holder["started"])
    except (ValueError, KeyError, TypeError):
        return False  # claims appear whole: this one lost its content in a crash of its machine
    if machine != _machine():
        return not rank_is_unique
    started = start_of(pid)
    return started is not None and started == claimed


def _machine() -> str:
    """This boot of this machine, without its name: equal for processes whose pids can be compared."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot}:{Path('/proc/self/ns/pid').stat().st_ino}"
    except OSError:
        return f"{uuid.uuid5(uuid.NAMESPACE_DNS, platform.node())}:{platform.system()}"


def start_of(pid: int) -> int | None:
    """When a process started, in the kernel's ticks; None if there is none (a zombie has ended, too)."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return _alive_without_proc(pid)
    return None if has_ended(fields) else int(fields[19])


def has_ended(fields: Sequence[str]) -> bool:
    """Whether a process only waits to be noticed, by what ``/proc/<pid>/stat`` has after its name.

    One whose main thread has ended, and another has not, looks like that too.
    """
    state, threads = fields[0], int(fields[17])
    return state in "ZX" and threads <= 1


def _alive_without_proc(pid: int) -> int | None:
    """Where there is no /proc: 0 for a process that exists, None for one that does not."""
    if Path("/proc/self").is_dir():
        return None
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return None
    except PermissionError:
        return 0
    return 0
