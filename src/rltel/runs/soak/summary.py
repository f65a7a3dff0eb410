"""The ``run_summary.json`` that the command leaves: that of this run, and no earlier one's."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rltel.runs.soak.finding import Finding

_NAME = "run_summary.json"


@dataclass(frozen=True, slots=True)
class Summary:
    """What was found: the summary, or why there is none."""

    content: dict[str, Any] | None
    finding: Finding | None = None


class Summaries:
    """Those below a folder. Whatever stood there before is of another run."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._at_start = self._stamps()

    def read(self) -> Summary:
        """The one that was written since the begin."""
        now = self._stamps()
        fresh = sorted(path for path, stamp in now.items() if self._at_start.get(path) != stamp)
        if not fresh:
            old = " (one from before the start does not count)" if now else ""
            return Summary(None, Finding(f"{_NAME}: none was written in {self._folder}{old}", "missing_run_summary"))
        if len(fresh) > 1:
            paths = ", ".join(map(str, fresh))
            return Summary(None, Finding(f"{_NAME}: expected one, got {paths}", "invalid_run_summary"))
        return _read(fresh[0])

    def _stamps(self) -> dict[Path, tuple[int, int, int]]:
        found = {}
        for path in self._folder.rglob(_NAME):
            try:
                state = path.stat()
            except OSError:
                continue  # replaced just now: the next look finds it
            found[path] = state.st_ino, state.st_size, state.st_mtime_ns
        return found


def _read(path: Path) -> Summary:
    try:
        content = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError) as error:
        return Summary(None, Finding(f"{path}: cannot be read as JSON: {error}", "invalid_run_summary"))
    if not isinstance(content, dict):
        found = type(content).__name__
        return Summary(None, Finding(f"{path}: expected a JSON object, got {found}", "invalid_run_summary"))
    return Summary(content)


def manifest_of(summary: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
    """A summary's runtime manifest, if it is a mapping at all."""
    return _mapping(summary, "runtime_manifest")


def shutdown_of(summary: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
    """The manifest's ``shutdown``, if it is a mapping at all."""
    return _mapping(manifest_of(summary), "shutdown")


def _mapping(around: Mapping[str, Any] | None, name: str) -> Mapping[str, Any] | None:
    found = None if around is None else around.get(name)
    return found if isinstance(found, Mapping) else None
