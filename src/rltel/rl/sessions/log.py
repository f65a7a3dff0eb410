"""Brings sessions that have ended to their file, on the pipeline's thread."""

import threading
from contextlib import suppress
from itertools import islice

from rltel.rl.sessions.file import Account, SessionFile
from rltel.rl.sessions.lines import line_of
from rltel.rl.sessions.registry import Sessions

_BLOCK = 256  # lines that are written at once
_LAST_WAIT_S = 0.5


class SessionLog:
    """From the begin of a process's telemetry to its end. `drain` and `close` may be called from different threads."""

    def __init__(self, sessions: Sessions, file: SessionFile, account: Account) -> None:
        self._sessions = sessions
        self._file = file
        self._account = account
        self._draining = threading.Lock()
        self._closed = False
        sessions.keep_ended(True)

    def drain(self) -> None:
        """Write what has ended, and end what is too old."""
        self._sessions.end_old()
        with self._draining:
            if not self._closed:
                self._write()

    def _write(self) -> None:
        lost = self._sessions.take_lost()
        if lost:
            self._account.dropped("queue_full", lost)
        ended = iter(self._sessions.take())
        while block := list(islice(ended, _BLOCK)):
            lines = []
            for each in block:
                with suppress_and_count(self._account):
                    lines.append(line_of(each))
            self._file.write(lines)
        self._file.write(())  # what waited for the disk

    def close(self) -> None:
        """The end: what is under way is written as unfinished. Hardly waits for a drain that hangs. Never raises."""
        self._sessions.end_all()
        self._sessions.keep_ended(False)
        if not self._draining.acquire(timeout=_LAST_WAIT_S):
            left = len(self._sessions.take())
            if left:
                self._account.dropped("shutdown", left)
            return
        try:
            if not self._closed:
                self._closed = True
                with suppress_and_count(self._account):
                    self._write()
                self._file.close()
        finally:
            self._draining.release()


class suppress_and_count(suppress):  # noqa: N801  # as contextlib's own
    """What cannot be written must not cost the others."""

    def __init__(self, account: Account) -> None:
        super().__init__(Exception)
        self._account = account

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> bool:
        if isinstance(error, Exception):
            self._account.failed(error, "unreadable")
        return super().__exit__(kind, error, trace)  # type: ignore[arg-type]  # handed on as it came
