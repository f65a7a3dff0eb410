"""Processes as Linux's ``/proc`` shows them. A process is its pid *and* its start: pids come again.

``/proc`` itself and no library over it: descriptors by class, start ticks and the adoption of orphans are only there.
The parents' own lists of children are not read, as kernels are built without them, too.
"""

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from signal import pidfd_send_signal

from rltel.core.claims import has_ended, start_of

_PROC = Path("/proc")


@dataclass(frozen=True, slots=True)
class Process:
    """One process, told apart from any other that had its pid."""

    pid: int
    start: int
    """When it started, in the kernel's ticks since boot."""

    def is_alive(self) -> bool:
        """Whether it runs. One that has ended and waits for its parent to notice does not."""
        return start_of(self.pid) == self.start

    def signal(self, number: int) -> None:
        """Send a signal to this process and to no later one with its pid; nothing if it has ended."""
        try:
            descriptor = os.pidfd_open(self.pid)
        except OSError:
            return  # ended
        try:
            if self.is_alive():  # checked while the pid is held, so it cannot become another's in between
                pidfd_send_signal(descriptor, number)
        except (ProcessLookupError, PermissionError):
            pass  # it ended just now, or took another user's rights: what remains is reported
        finally:
            os.close(descriptor)


@dataclass(frozen=True, slots=True)
class Row:
    """A line of the system's table of processes."""

    process: Process
    parent: int
    is_zombie: bool


def table() -> dict[int, Row]:
    """All processes of this system, by pid."""
    return {row.process.pid: row for row in _rows()}


def _rows() -> Iterator[Row]:
    for name in os.listdir(_PROC):  # noqa: PTH208 - thousands of names, of which no paths are needed
        if not name.isdecimal():
            continue
        try:
            # The name of the program stands in brackets and may hold anything, brackets and spaces as well.
            fields = (_PROC / name / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue  # ended meanwhile
        yield Row(Process(int(name), int(fields[19])), int(fields[1]), has_ended(fields))


def descendants(rows: Mapping[int, Row], roots: set[int]) -> set[int]:
    """The pids below and with these roots."""
    children: dict[int, list[int]] = {}
    for pid, row in rows.items():
        children.setdefault(row.parent, []).append(pid)
    found: set[int] = set()
    pending = [pid for pid in roots if pid in rows]
    while pending:
        pid = pending.pop()
        if pid not in found:
            found.add(pid)
            pending += children.get(pid, ())
    return found
