"""A pseudo-terminal: what a program writes to it is read here, byte by byte."""

import fcntl
import io
import os
import struct
import termios
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from export.making import wait_until


@dataclass
class Pseudo:
    """One terminal. ``stream`` is the program's end."""

    stream: io.TextIOWrapper
    master: int
    written: bytearray = field(default_factory=bytearray)
    reader: threading.Thread | None = None

    def read(self) -> None:
        """Read along, as a terminal does."""
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()

    def _read(self) -> None:
        while True:
            try:
                self.written += os.read(self.master, 65536)
            except OSError:  # the other end is closed
                return

    def resize(self, columns: int, rows: int) -> None:
        """A size; 0 where it has none."""
        fcntl.ioctl(self.master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    @property
    def text(self) -> str:
        """Everything so far: a character that has not come whole is left out."""
        return self.written.decode(errors="ignore")

    def wait_for(self, text: str) -> None:
        """Until this was written."""
        wait_until(lambda: text in self.text, repr(text))


@contextmanager
def pseudo_terminal(columns: int = 100, rows: int = 40) -> Iterator[Pseudo]:
    """A terminal for the length of the block."""
    master, slave = os.openpty()
    stream = os.fdopen(slave, "w", encoding="utf-8")
    terminal = Pseudo(stream, master)
    terminal.resize(columns, rows)
    terminal.read()
    try:
        yield terminal
    finally:
        termios.tcflush(master, termios.TCIOFLUSH)
        stream.close()
        if terminal.reader is not None:
            terminal.reader.join(10)
        os.close(master)
