"""The processes that a command has started, wherever they have gone since."""

import contextlib
import os
from collections.abc import Set

from rltel.runs.soak.processes import Process, Row, descendants, table


class Tree:
    """What has come of one command.

    Its descendants; those orphans that came to this process (`adopting`); and those seen before that are still alive.
    Children that this process had before are not of the command; it should start none while the soak lasts.
    """

    def __init__(self) -> None:
        self._others = {row.process for row in table().values() if row.parent == os.getpid()}
        self._command: int | None = None
        self._seen: set[Process] = set()

    def started(self, pid: int) -> None:
        """The command is this child of this process."""
        self._command = pid

    def alive(self) -> list[Process]:
        """Its processes that run now. Those that ended and nobody else will notice are cleared away."""
        rows = table()
        mine = self._mine(rows)
        self._seen |= {rows[pid].process for pid in mine}
        found = {process for process in self._seen if process.pid in rows and rows[process.pid].process == process}
        for process in list(found):
            if rows[process.pid].is_zombie:
                found.discard(process)
                self._clear(rows[process.pid])
        self._seen = found  # who has ended never comes again
        return sorted(found, key=lambda process: process.pid)

    def signal(self, number: int) -> list[Process]:
        """Send a signal to all that run now; returns those."""
        alive = self.alive()
        for process in alive:
            process.signal(number)
        return alive

    def _mine(self, rows: dict[int, Row]) -> Set[int]:
        roots = {pid for pid, row in rows.items() if row.parent == os.getpid() and row.process not in self._others} | {
            process.pid for process in self._seen if rows.get(process.pid) and rows[process.pid].process == process
        }
        return descendants(rows, roots)

    def _clear(self, row: Row) -> None:
        if row.parent == os.getpid() and row.process.pid != self._command:  # the command's end is its starter's to see
            with contextlib.suppress(ChildProcessError):
                os.waitpid(row.process.pid, os.WNOHANG)
