"""The lower rows of a terminal, kept for the panel while everything else scrolls above them.

The rows are taken out of the terminal's scroll region. So whatever anybody prints (the trainer, its loggers, C++ code,
child processes, progress bars) goes above the panel by itself: nothing is redirected, nobody's stream is replaced.
"""

import os
from collections.abc import Mapping, Sequence
from typing import TextIO

FALLBACK = os.terminal_size((80, 24))
ROWS_ABOVE = 3
"""What the panel leaves to others at least."""

_SAVE, _RESTORE = "\x1b7", "\x1b8"
_WHOLE_SCREEN = "\x1b[r"
_CLEAR_BELOW = "\x1b[J"
_DOWN = "\x1bD"  # one row, scrolling at the bottom, in the same column
RELEASE = f"{_SAVE}{_WHOLE_SCREEN}{_RESTORE}{_CLEAR_BELOW}"
"""Gives the rows back: everything scrolls again, and what was below the cursor is gone."""

_NO_SCREENS = {"", "dumb", "unknown"}
_UNSET = {"", "0", "false"}


def is_screen(stream: TextIO, environ: Mapping[str, str]) -> bool:
    """Whether control codes belong there: it is a terminal that has them, no file, no CI's log, and nobody refuses."""
    try:
        if not stream.isatty():
            return False
        stream.fileno()
    except (OSError, ValueError, AttributeError):  # closed, or an object that only writes
        return False
    if environ.get("NO_COLOR") or environ.get("CI", "").lower() not in _UNSET:
        return False
    return environ.get("TERM", "") not in _NO_SCREENS


class Terminal:
    """Draws into the rows at the bottom. All methods are for one thread."""

    def __init__(self, fd: int, encoding: str = "utf-8") -> None:
        self._fd = fd
        self._encoding = encoding
        self._size: os.terminal_size | None = None
        self._kept = 0  # rows at the bottom that are ours

    def size(self) -> os.terminal_size:
        """Columns and rows right now. Some serial and container terminals say 0: 80 x 24 then."""
        try:
            size = os.get_terminal_size(self._fd)
        except OSError:
            return FALLBACK
        return size if size.columns and size.lines else FALLBACK

    def is_ours(self) -> bool:
        """Whether this process may draw: one in the background would draw over what the user does there."""
        try:
            return os.tcgetpgrp(self._fd) == os.getpgrp()
        except OSError:  # no job control on this terminal
            return True

    def renew(self) -> None:
        """Somebody else had the terminal: make room again, wherever the cursor is now."""
        self._kept = 0

    def show(self, lines: Sequence[str], size: os.terminal_size) -> None:
        """Draw these lines, made for this size. Others' text is not touched. Raises OSError if nobody takes them."""
        text = ""
        if size != self._size or len(lines) > self._kept:
            text = self._make_room(len(lines), size)
        first = size.lines - self._kept + 1
        padding = self._kept - len(lines)  # fewer rows than before: the panel stays at the bottom
        drawn = [f"\x1b[{first + i};1H\x1b[2K" for i in range(padding)]
        drawn += [f"\x1b[{first + padding + i};1H{line}\x1b[0m" for i, line in enumerate(lines)]
        self._write(f"{text}{_SAVE}{''.join(drawn)}{_RESTORE}")

    def leave(self, lines: Sequence[str]) -> None:
        """Give the rows back, and print these lines where others' text ends: they stay. Without a `show`, nothing."""
        if self._size is None:
            return
        self._size, self._kept = None, 0
        below = "".join(f"{line}\x1b[0m\r\n" for line in lines)
        self._write(f"{RELEASE}\r\n{below}")

    def _make_room(self, rows: int, size: os.terminal_size) -> str:
        """Rows for the panel below the cursor, and a scroll region above them.

        Whatever a change of size did to old rows, they were below the cursor, and so are gone before the new ones come.
        """
        self._size, self._kept = size, rows
        region = f"{_SAVE}\x1b[1;{size.lines - rows}r{_RESTORE}"
        return f"{RELEASE}{_DOWN * rows}\x1b[{rows}A{region}"

    def _write(self, text: str) -> None:
        """Past Python's buffers, whose locks a print of the trainer's would wait for."""
        left = memoryview(text.encode(self._encoding, "replace"))
        while left:
            left = left[os.write(self._fd, left) :]
