"""How far long work on many files is."""

from collections.abc import Callable, Iterable
from pathlib import Path

Progress = Callable[[Path, int, int], None]
"""Called with the file at work, the bytes that are done, and the bytes in all; at the begin of each file, too."""


class Meter:
    """Adds up the bytes of the files."""

    def __init__(self, files: Iterable[Path], progress: Progress | None) -> None:
        self._progress = progress
        self._total = sum(path.stat().st_size for path in files)
        self._done = 0

    def begin(self, path: Path, shown: Path | None = None) -> Callable[[int], None]:
        """A file begins (to be shown as another); what to tell how far in it the work is (bytes)."""
        before = self._done
        self._done += path.stat().st_size

        def passed(offset: int) -> None:
            if self._progress is not None:
                self._progress(shown or path, before + offset, self._total)

        passed(0)
        return passed
