"""How far each axis of a folder has got: what a restart on one of them would void of the others."""

import json
import os
from contextlib import suppress
from pathlib import Path


class Axes:
    """The last step of each axis. Kept at ``path`` if there is one, with the kernel at once: a kill loses nothing.

    Written over in place, since a new file for each commit would cost ten times as much.
    """

    def __init__(self, path: Path | None = None) -> None:
        self._path = path
        self._last = {} if path is None else _read(path)
        self._descriptor = -1
        self._size = 0

    def in_the_way(self, axis: str, step: int) -> list[str]:
        """The other axes that have points from this step on."""
        return sorted(other for other, last in self._last.items() if other != axis and last >= step)

    def goes_back(self, axis: str, step: int) -> bool:
        """Whether this axis has been there before."""
        return self._last.get(axis, -1) >= step

    def reached(self, axis: str, step: int) -> None:
        """A point at this step."""
        if not self.goes_back(axis, step):
            self._set(axis, step)

    def voided(self, axis: str, step: int) -> None:
        """What the axis had from this step on is gone."""
        if self.goes_back(axis, step):
            self._set(axis, step - 1)

    def close(self) -> None:
        """Close the file. A second call does nothing."""
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)

    def _set(self, axis: str, step: int) -> None:
        self._last[axis] = step
        if self._path is not None:
            with suppress(OSError):  # a full disk: the next one has it too
                self._write(self._path)

    def _write(self, path: Path) -> None:
        if self._descriptor < 0:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._descriptor = os.open(path, os.O_WRONLY | os.O_CREAT, 0o644)
            self._size = os.fstat(self._descriptor).st_size
        data = json.dumps(self._last).encode()
        self._size = max(self._size, len(data))
        os.pwrite(self._descriptor, data.ljust(self._size), 0)


def _read(path: Path) -> dict[str, int]:
    try:
        return {str(axis): int(step) for axis, step in json.loads(path.read_text()).items()}
    except (OSError, ValueError, AttributeError, TypeError):  # none yet
        return {}
