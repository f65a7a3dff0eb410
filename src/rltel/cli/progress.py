"""Shows how far long work is: a bar on a terminal, plain lines where the output goes to a file."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bar

from rltel.core.wording import printable
from rltel.traces.progress import Progress

_EVERY_S = 10.0


@contextmanager
def shown(what: str, console: Console | None = None) -> Iterator[Progress]:
    """What to tell about the files at work, until the block ends. Goes to stderr: results stand on stdout."""
    console = console or Console(stderr=True)
    if not console.is_terminal:
        yield _Lines(console)
        return
    columns = TextColumn("{task.description}", markup=False), BarColumn(), DownloadColumn(), TimeRemainingColumn()
    with Bar(*columns, console=console, transient=True) as bar:
        task = bar.add_task(what, total=None)
        yield lambda path, done, total: bar.update(
            task, description=f"{what} {printable(path.name)}", completed=done, total=total
        )


class _Lines:
    """A line at the begin of each file, and one now and then while it takes long."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._path: Path | None = None
        self._said = 0.0

    def __call__(self, path: Path, done: int, total: int) -> None:
        now = time.monotonic()
        if path != self._path:
            self._print(f"  {path}")
        elif now - self._said >= _EVERY_S:
            self._print(f"  {path}: {done / total:.0%} of all")
        else:
            return
        self._path, self._said = path, now

    def _print(self, line: str) -> None:
        print(printable(line), file=self._console.file, flush=True)  # as it is: rich would wrap a long path
