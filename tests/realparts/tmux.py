"""A real terminal without a window: a shell in tmux, whose screen can be read and whose size can be changed."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from realparts import requirements

PROMPT = "$ "
_POLL_S = 0.05
_PATIENCE_S = 60.0
_SESSION = "rltel"


def find_tmux() -> Path | None:
    """The program: the system's, or the one that ``setup_tools.sh`` unpacked."""
    unpacked = requirements.tools_dir() / "servers" / "unpacked" / "usr" / "bin" / "tmux"
    found = shutil.which("tmux")
    return Path(found) if found else unpacked if unpacked.is_file() else None


def need_tmux() -> Path:
    """`find_tmux`, required."""
    hint = "run tests/tools/setup_tools.sh, or install the Debian package tmux"
    return requirements.require("tmux", find_tmux(), hint)


@dataclass
class Tmux:
    """One terminal, with a shell in it."""

    program: Path
    socket: Path

    def run(self, *arguments: str) -> str:
        """A command of tmux's own; what it prints."""
        command = [str(self.program), "-u", "-S", str(self.socket), *arguments]
        libraries = self.program.parents[2] / "lib"  # where it is an unpacked one
        env = {**os.environ, "LD_LIBRARY_PATH": str(libraries)} if (libraries / "libutempter.so.0").exists() else None
        return subprocess.run(command, capture_output=True, text=True, timeout=30, check=True, env=env).stdout

    def type(self, line: str) -> None:
        """As if somebody typed it, and pressed Enter."""
        self.run("send-keys", "-t", _SESSION, "-l", line)
        self.press("Enter")

    def press(self, key: str) -> None:
        """A key by tmux's name: ``C-c``, ``Enter``."""
        self.run("send-keys", "-t", _SESSION, key)

    def resize(self, columns: int, rows: int) -> None:
        """Change the size, as a user drags the corner of a window."""
        self.run("resize-window", "-t", _SESSION, "-x", str(columns), "-y", str(rows))

    def screen(self) -> list[str]:
        """What can be seen, row by row, without trailing spaces."""
        return [line.rstrip() for line in self.run("capture-pane", "-p", "-t", _SESSION).split("\n")[:-1]]

    def history(self) -> list[str]:
        """Everything since the start: what has scrolled off, then the screen."""
        return [line.rstrip() for line in self.run("capture-pane", "-p", "-S", "-", "-t", _SESSION).split("\n")[:-1]]

    def tell(self, what: str) -> str:
        """One of tmux's variables: ``cursor_y``, ``cursor_flag``, ``scroll_region_lower``."""
        return self.run("display-message", "-p", "-t", _SESSION, f"#{{{what}}}").strip()

    def wait(self, holds: Callable[[list[str]], object], what: str) -> list[str]:
        """The first screen for which it holds; AssertionError with the last one if none comes."""
        deadline = time.monotonic() + _PATIENCE_S
        while not holds(screen := self.screen()):
            if time.monotonic() > deadline:
                raise AssertionError(f"{what}: not within {_PATIENCE_S:g} s; the screen is\n" + "\n".join(screen))
            time.sleep(_POLL_S)
        return screen

    def wait_for(self, text: str) -> list[str]:
        """The first screen with this text."""
        return self.wait(lambda screen: any(text in line for line in screen), f"{text!r} on the screen")

    def wait_printed(self, line: str) -> list[str]:
        """The first screen after this line was printed, which may have scrolled off it."""
        return self.wait(lambda _: line in self.history(), f"a line {line!r}")


@contextmanager
def tmux(columns: int, rows: int, environ: Sequence[str] = ()) -> Iterator[Tmux]:
    """A shell in a terminal of this size, for the length of the block. Its prompt is `PROMPT`."""
    program = need_tmux()
    folder = Path(tempfile.mkdtemp(prefix="rltel"))  # short: the path of a socket may have about 100 characters
    terminal = Tmux(program, folder / "s")
    unset = ["-u" + name for name in os.environ if name.startswith(("RLTEL_", "OTEL_")) or name in {"CI", "NO_COLOR"}]
    shell = ["env", *(part for name in unset for part in ("-u", name[2:])), f"PS1={PROMPT}", "ENV=", *environ, "sh"]
    size = ("-x", str(columns), "-y", str(rows))
    try:
        terminal.run("-f", os.devnull, "new-session", "-d", "-s", _SESSION, *size, *shell)
        terminal.wait_for(PROMPT.strip())
        yield terminal
    finally:
        subprocess.run(
            [str(program), "-S", str(terminal.socket), "kill-server"], capture_output=True, timeout=30, check=False
        )
        shutil.rmtree(folder, ignore_errors=True)
