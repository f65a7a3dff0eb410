"""The command's output, in a file that does not grow without end: its begin and its end are kept.

The command writes to the file itself, not through a pipe: a monitor that is killed must not end it.
"""

import errno
import os
from pathlib import Path

_CHUNK = 1 << 20


class Console:
    """The file, and how much was cut out of its middle.

    ``limit``: bytes; above that, a quarter at each end is kept. What the command writes in the very moment of a cut
    (microseconds) may be lost with it. Raises OSError if the file cannot be made.
    """

    def __init__(self, path: Path, limit: int) -> None:
        self.path = path
        self.cut_bytes = 0
        """Bytes that are no longer there."""
        self._limit = limit
        self._keep = limit // 4
        # O_APPEND: whoever writes goes on at the end, wherever that is after a cut.
        self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND | os.O_CLOEXEC, 0o644)
        self._head = 0  # where the begin ends; 0: nothing was cut yet
        self._tail = 0  # where what follows the mark begins

    def fileno(self) -> int:
        """For the command to write to."""
        return self._descriptor

    def trim(self) -> None:
        """Cut, if it has grown beyond the limit. Raises OSError if the disk does not take the rest."""
        size = os.fstat(self._descriptor).st_size
        if size > self._limit:
            self._cut(size)

    def close(self) -> None:
        """Close it, in this process."""
        os.close(self._descriptor)

    def _cut(self, size: int) -> None:
        head = self._head or self._line_after(self._keep)
        begin = self._line_after(size - self._keep)
        cut = self.cut_bytes + begin - (self._tail or head)
        mark = f"[rltel soak: {cut} bytes cut here]\n".encode()
        # Another descriptor of the same file, wherever that is by now: one with O_APPEND writes at the end only.
        with Path(f"/proc/self/fd/{self._descriptor}").open("r+b", buffering=0) as file:
            os.ftruncate(file.fileno(), _move(file.fileno(), begin, head, mark))
        self._head, self._tail, self.cut_bytes = head, head + len(mark), cut

    def _line_after(self, place: int) -> int:
        """Where the next line begins; the place itself if none does for long."""
        found = os.pread(self._descriptor, min(_CHUNK, self._keep), place).find(b"\n")
        return place if found < 0 else place + found + 1


def _move(descriptor: int, source: int, target: int, mark: bytes) -> int:
    """Bring the mark, and all from ``source`` to the end, to ``target``; where that ends then."""
    pending = mark
    while True:
        more = os.pread(descriptor, _CHUNK, source)
        source += len(more)
        pending += more
        if not pending:
            return target
        written = os.pwrite(descriptor, pending, target)
        if written != len(pending):
            raise OSError(errno.ENOSPC, "not all was written")
        target += written
        pending = b""
