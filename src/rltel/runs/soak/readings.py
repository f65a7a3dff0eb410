"""What a process tree uses: memory and descriptors."""

import os
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from rltel.runs.soak.processes import Process

_CLASSES = {"anon_inode:[eventfd]": "eventfd", "anon_inode:[eventpoll]": "eventpoll"}
_PREFIXES = (
    *(("pipe:", "pipe"), ("socket:", "socket"), ("memfd:", "memfd"), ("/memfd:", "memfd")),
    *(("/dev/nvidia", "nvidia"), ("/dev/shm/", "shared_memory"), ("/run/shm/", "shared_memory")),  # noqa: S108 - names
)
_MAX_COMMAND = 512

Hide = Callable[[Sequence[str]], list[str]]
"""Takes the secrets out of a command line."""


def read_tree(processes: Iterable[Process], hide: Hide) -> dict[str, Any]:
    """A sample's ``process``: totals, and each process. RSS in KiB; pages that processes share count in each."""
    read = [found for process in processes if (found := read_process(process, hide)) is not None]
    classes: Counter[str] = Counter()
    for each in read:
        classes.update(each["fd_classes"])
    return {
        "process_count": len(read),
        "rss_kib_total": sum(each["rss_kib"] for each in read),
        "fd_count_total": sum(each["fd_count"] for each in read),
        "fd_classes_total": dict(sorted(classes.items())),
        "processes": read,
    }


def read_process(process: Process, hide: Hide) -> dict[str, Any] | None:
    """What one process uses; None if it has ended."""
    folder = Path("/proc", str(process.pid))
    classes = Counter(_descriptors(folder / "fd"))
    found = {
        "pid": process.pid,
        "start_ticks": [process.start],
        "rss_kib": _rss_kib(folder),
        "fd_count": classes.total(),
        "fd_classes": dict(sorted(classes.items())),
        "command": _command(folder, hide),
    }
    return found if process.is_alive() else None  # looked at last: all of the above was this process's


def descriptor_class(target: str) -> str:
    """``pipe``, ``socket``, ``memfd``, ``eventfd``, ``eventpoll``, ``nvidia``, ``shared_memory`` or ``other``."""
    if target in _CLASSES:
        return _CLASSES[target]
    return next((name for prefix, name in _PREFIXES if target.startswith(prefix)), "other")


def _descriptors(folder: Path) -> Iterable[str]:
    try:
        names = os.listdir(folder)  # noqa: PTH208 - names are enough
    except OSError:
        return  # ended, or another user's
    for name in names:
        try:
            yield descriptor_class(os.readlink(folder / name))  # noqa: PTH115 - "pipe:[1]" is no path
        except OSError:
            continue  # closed meanwhile


def _rss_kib(folder: Path) -> int:
    try:
        pages = int((folder / "statm").read_text().split()[1])
    except (OSError, ValueError, IndexError):
        return 0
    return pages * os.sysconf("SC_PAGE_SIZE") // 1024


def _command(folder: Path, hide: Hide) -> str:
    try:
        arguments = (folder / "cmdline").read_bytes().decode(errors="replace").split("\0")
    except OSError:
        return ""
    return " ".join(hide(arguments)).strip()[:_MAX_COMMAND]
