"""Draws frames on a terminal at a steady pace, from a thread of its own, and puts the terminal in order at the end."""

import os
import threading
import time
from collections.abc import Callable, Sequence
from typing import TextIO

from rich.text import Text

from rltel.export.panel.ansi import encoded
from rltel.export.panel.keeper import Keeper
from rltel.export.panel.terminal import RELEASE, Terminal

_STOPPED_S = 0.5  # a gap of that between two frames: Ctrl+Z, and a shell had the terminal meanwhile

MakeLines = Callable[[os.terminal_size], Sequence[Text]]
"""Makes a frame for a size; no lines: there is no room for one."""


class Drawing:
    """The thread. A frame that cannot be made or drawn is counted, and the next one is tried."""

    def __init__(self, stream: TextIO, encoding: str, period_s: float, make: MakeLines) -> None:
        self.failures = 0
        """Frames that could not be drawn."""
        self._stream = stream
        self._encoding = encoding
        self._period_s = period_s
        self._make = make
        self._error: Exception | None = None
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run, name="rltel-panel", daemon=True)
        self._thread.start()

    def raise_error(self) -> None:
        """What went wrong last, if anything did since the last call."""
        error, self._error = self._error, None
        if error is not None:
            raise error

    def end(self, timeout_s: float) -> bool:
        """Leave the last frame on the screen; False if the terminal does not take it in time."""
        self._ending.set()
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def _run(self) -> None:
        try:
            fd = os.dup(self._stream.fileno())  # the terminal itself, whatever the program makes of its descriptor
        except (OSError, ValueError) as error:
            self._error = error
            return
        terminal, keeper = Terminal(fd, self._encoding), Keeper(fd, RELEASE)
        try:
            self._draw_until_the_end(terminal)
        finally:
            self._attempt(lambda: self._leave(terminal))
            keeper.dismiss()
            os.close(fd)

    def _draw_until_the_end(self, terminal: Terminal) -> None:
        while True:
            drawn = time.monotonic()
            self._attempt(lambda: self._show(terminal))
            if self._ending.wait(self._period_s):
                return
            if time.monotonic() - drawn > self._period_s + _STOPPED_S:
                terminal.renew()

    def _attempt(self, step: Callable[[], None]) -> None:
        try:
            step()
        except Exception as error:  # whatever it is, the training and the other destinations go on
            self._error = error
            self.failures += 1  # last: whoever sees the count finds the error

    def _show(self, terminal: Terminal) -> None:
        if not terminal.is_ours():
            return
        size = terminal.size()
        lines = self._make(size)
        if lines:
            terminal.show(encoded(lines), size)

    def _leave(self, terminal: Terminal) -> None:
        lines: Sequence[Text] = ()
        try:
            lines = self._make(terminal.size())
        finally:  # without a last frame, too, the terminal is given back
            terminal.leave(encoded(lines))
