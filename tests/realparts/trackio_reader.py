"""Reads Trackio's store with Trackio's own storage class, in a process of its own: it knows one store a process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

_CODE = """
import json, sys
from trackio.sqlite_storage import SQLiteStorage
project, run = sys.argv[1:]
print(json.dumps({
    "runs": SQLiteStorage.get_runs(project),
    "rows": SQLiteStorage.get_logs(project, run),
    "config": SQLiteStorage.get_run_config(project, run),
}))
"""


class StoredRun(NamedTuple):
    """A project's runs, and of one of them the rows (in their order) and the config."""

    runs: list[str]
    rows: list[dict[str, Any]]
    config: dict[str, Any]

    def series(self, key: str) -> list[tuple[int, Any]]:
        """The points of one key."""
        return [(row["step"], row[key]) for row in self.rows if key in row]


def read_store(folder: Path, project: str, run: str) -> StoredRun:
    """One run of a store."""
    ran = subprocess.run(
        [sys.executable, "-c", _CODE, project, run],
        env={**os.environ, "TRACKIO_DIR": str(folder)},
        capture_output=True,
        text=True,
        timeout=240,
        check=True,
    )
    return StoredRun(**json.loads(ran.stdout))
