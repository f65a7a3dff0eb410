"""Whether the command gets on: the files that it writes grow.

Bytes, and no step numbers: they are there for every trainer, and need no reader.
"""

import os
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

from rltel.runs.soak.finding import Finding

_BY_THE_CLOCK = frozenset({"run.json", "run_config.json", "run_summary.json"})
"""Written at the start, or by a thread every few seconds: they come from a trainer that hangs as well."""
_SET_UP = frozenset({"claims", "ledger", "prometheus_sd"})


class Progress:
    """Sizes of the files below a folder, against those at the begin."""

    def __init__(self, folder: Path, own: Collection[Path]) -> None:
        """``own``: the monitor's own files, which are no progress."""
        self._folder = folder
        self._own = {path.absolute() for path in own}
        self._at_start = self._sizes()

    def sizes(self) -> dict[str, int]:
        """The files that are there now and differ from what was there at the begin, with their bytes."""
        return {path: size for path, size in self._sizes().items() if self._at_start.get(path) != size}

    def _sizes(self) -> dict[str, int]:
        return dict(_files(self._folder, self._own))

    @staticmethod
    def sample(sizes: Mapping[str, int]) -> dict[str, Any]:
        """A sample's ``progress``."""
        return {"file_count": len(sizes), "bytes_total": sum(sizes.values()), "max_mtime": _newest(sizes)}


def _files(folder: Path, own: Collection[Path]) -> Iterator[tuple[str, int]]:
    try:
        entries = list(os.scandir(folder))
    except OSError:
        return  # not there yet, or not any more
    for entry in entries:
        if entry.name.startswith(".") or entry.name in _BY_THE_CLOCK or Path(entry.path).absolute() in own:
            continue
        try:
            if entry.is_dir(follow_symlinks=False):
                if entry.name not in _SET_UP:
                    yield from _files(Path(entry.path), own)
            elif entry.is_file(follow_symlinks=False):
                yield entry.path, entry.stat(follow_symlinks=False).st_size
        except OSError:
            continue  # replaced or deleted meanwhile


def _newest(paths: Collection[str]) -> float | None:
    times = []
    for path in paths:
        try:
            times.append(Path(path).stat().st_mtime)
        except OSError:
            continue
    return max(times, default=None)


class Liveness:
    """Time-outs over `Progress`: one for the first, one from each to the next. Times are seconds of any one clock."""

    def __init__(self, startup_s: float, stale_s: float, now: float) -> None:
        self._startup_s = startup_s
        self._stale_s = stale_s
        self._since = now
        self._sizes: Mapping[str, int] = {}

    def look(self, now: float, sizes: Mapping[str, int]) -> Finding | None:
        """What is wrong, if anything is by now."""
        if sizes != self._sizes:
            self._sizes, self._since = dict(sizes), now
            return None
        waited = now - self._since
        if not self._sizes and waited > self._startup_s:
            return Finding(f"no progress: no file has grown in the first {waited:.1f} s", "timeout/startup")
        if self._sizes and waited > self._stale_s:
            return Finding(f"no progress: no file has grown for {waited:.1f} s", "timeout/stale_tick")
        return None
