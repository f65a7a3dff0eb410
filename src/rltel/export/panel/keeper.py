"""Puts the terminal in order if this process is killed: then nothing in it can do so itself.

A scroll region outlives the process that set it. A small shell waits at a pipe, whose other end closes with this
process, whatever ends it.
"""

import contextlib
import os
import subprocess
import weakref

_WAIT_S = 1.0
_SCRIPT = "trap '' INT QUIT TERM HUP TSTP TTOU; read -r _; printf %s \"$1\""

_waiting: "weakref.WeakSet[Keeper]" = weakref.WeakSet()


class Keeper:
    """Writes `text` to a terminal when this process has gone without calling `dismiss`. Without a shell: nothing."""

    def __init__(self, fd: int, text: str) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        with contextlib.suppress(OSError):
            self._process = subprocess.Popen(  # noqa: S603  # a fixed script
                ["/bin/sh", "-c", _SCRIPT, "rltel-keeper", text],
                stdin=subprocess.PIPE,
                stdout=fd,
                stderr=subprocess.DEVNULL,
                start_new_session=True,  # the signals of the terminal are not for it
            )
            _waiting.add(self)

    def dismiss(self) -> None:
        """It is not needed any more."""
        process, self._process = self._process, None
        if process is None:
            return
        process.kill()
        if process.stdin is not None:
            process.stdin.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_WAIT_S)

    def forget(self) -> None:
        """In a forked child: it is the parent's, and waits for the parent alone."""
        process, self._process = self._process, None
        if process is not None and process.stdin is not None:
            os.close(process.stdin.fileno())
            process.stdin = None
            process.returncode = 0  # so that nobody warns that it still runs


def _forget_all() -> None:
    for keeper in list(_waiting):
        keeper.forget()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_all)
