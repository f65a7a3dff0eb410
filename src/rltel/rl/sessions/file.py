"""The sessions of one process on disk: one line each, in files of bounded size, all together bounded as well."""

import os
from collections import deque
from collections.abc import Iterable
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import Protocol
from weakref import WeakSet

from rltel.core.identity import Identity
from rltel.rl.sessions.lines import header

MAX_FILE_BYTES = 64_000_000
MAX_TOTAL_BYTES = 1_024_000_000
_MAX_WAITING = 16_000_000  # bytes that may wait for a disk that takes nothing


class Account(Protocol):
    """Where it is counted what arrived and what did not (a `rltel.export.sink.Destination`)."""

    def exported(self, count: int = 1) -> None:
        """This many arrived."""

    def dropped(self, reason: str, count: int = 1) -> bool:
        """This many were lost."""

    def failed(self, error: BaseException, reason: str = "error", count: int = 1) -> None:
        """Lost because of an exception; said once."""


class SessionFile:
    """Appends lines. There is no file before the first: most processes have no sessions.

    A disk that takes nothing for a while costs nothing that fits into 16 MB; what does not is counted.
    """

    def __init__(
        self,
        folder: Path,
        identity: Identity,
        account: Account,
        *,
        max_file_bytes: int = MAX_FILE_BYTES,
        max_total_bytes: int = MAX_TOTAL_BYTES,
    ) -> None:
        self._folder = folder
        self._identity = identity
        self._account = account
        self._max_file_bytes = max_file_bytes
        self._max_total_bytes = max_total_bytes
        self._descriptor = -1
        self._parts = 0
        self._file_bytes = 0
        self._total_bytes = 0
        self._is_torn = False
        self._waiting: deque[tuple[bytes, int]] = deque()  # blocks, and how many lines are in each
        self._closed = False
        _files.add(self)

    def path_of(self, part: int) -> Path:
        """The first, the second ... file."""
        return self._folder / f"{self._identity.name}{'' if part == 1 else f'.part{part}'}.jsonl"

    def write(self, lines: Iterable[bytes]) -> None:
        """Append these, in one write. Never raises for what the disk does."""
        block = list(lines)
        if block:
            self._put(b"".join(block), len(block))
        try:
            while self._waiting and not self._closed:
                self._append(*self._waiting[0])
                self._waiting.popleft()
        except OSError as error:
            self._account.failed(error, reason="disk", count=0)  # not lost yet

    def _put(self, block: bytes, lines: int) -> None:
        held = sum(len(each) for each, _ in self._waiting)
        if self._closed:
            self._account.dropped("shutdown", lines)
        elif self._total_bytes >= self._max_total_bytes:
            error = OSError(f"sessions: {self._max_total_bytes} bytes are written: no more are")
            self._account.failed(error, "max_total_mb", count=lines)
        elif self._waiting and held + len(block) > _MAX_WAITING:
            self._account.dropped("disk", lines)
        else:
            self._waiting.append((block, lines))

    def _append(self, block: bytes, lines: int) -> None:
        if self._descriptor < 0 or self._file_bytes >= self._max_file_bytes:
            self._open_part()
        self._write(block)
        self._account.exported(lines)

    def _open_part(self) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        before, self._descriptor = self._descriptor, self._create()
        self._file_bytes, self._is_torn = 0, False
        if before >= 0:
            os.close(before)
        self._write(header(self._identity))

    def _create(self) -> int:
        for part in count(self._parts + 1):
            with suppress(FileExistsError):  # another run's, in a directory that was used before
                made = os.open(self.path_of(part), os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_EXCL, 0o644)
                self._parts = part
                return made
        raise AssertionError("count() never ends")

    def _write(self, data: bytes) -> None:
        if self._is_torn:
            os.ftruncate(self._descriptor, self._file_bytes)  # half a block: what follows would be unreadable
            self._is_torn = False
        written = os.write(self._descriptor, data)
        if written != len(data):
            self._is_torn = True
            raise OSError(None, f"only {written} of {len(data)} bytes written", str(self.path_of(self._parts)))
        self._file_bytes += written
        self._total_bytes += written

    def close(self) -> None:
        """Close it. What waits for the disk is lost, and counted. A second call does nothing."""
        self._closed = True
        lost = sum(lines for _, lines in self._waiting)
        self._waiting.clear()
        if lost:
            self._account.dropped("disk", lost)
        self.let_go()

    def let_go(self) -> None:
        """Close the descriptor, and write nothing more."""
        self._closed = True
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)


_files: WeakSet[SessionFile] = WeakSet()


def _let_go() -> None:
    """In a forked child the file is the parent's."""
    for file in _files:
        file.let_go()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_let_go)
