"""Sessions read back from a run directory, each with the updates that consumed it."""

import os
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from rltel.core.errors import RltelError
from rltel.rl.sessions.lines import VERSION

_FIELDS = ("step", "policy_version", "time_ns")


def read_sessions(path: str | os.PathLike[str]) -> Iterator[dict[str, Any]]:
    """Every session of a run directory (or of one file), in the order in which they were submitted.

    Each is its line (`docs/sessions.md`) with ``process``, and ``consumed``: a list of the updates that consumed it, of
    whichever process, with ``step``, ``policy_version``, ``time_ns``, ``staleness`` and ``process``.

    A line that was cut short by a crash is skipped. Raises `RltelError` for a version that this release does not read.
    """
    where = Path(path)
    files = sorted((where / "sessions").glob("*.jsonl")) if where.is_dir() else [where]
    found: list[dict[str, Any]] = []
    consumed: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for line in (line for file in files for line in _lines(file)):
        if line["type"] == "session":
            found.append(line)
        elif line["type"] == "update":
            _note(line, consumed)
    for line in sorted(found, key=lambda line: line["submitted_ns"]):
        del line["v"], line["type"]
        yield {**line, "consumed": consumed.get(line["id"], [])}


def _note(update: dict[str, Any], consumed: dict[str, list[dict[str, Any]]]) -> None:
    about = {name: update[name] for name in _FIELDS} | {"process": update["process"]}
    for session, staleness in zip(update["sessions"], update["staleness"], strict=True):
        consumed[session].append({**about, "staleness": staleness})


def _lines(path: Path) -> Iterator[dict[str, Any]]:
    process = None
    with path.open("rb") as file:
        for number, raw in enumerate(file, start=1):
            try:
                line = msgspec.json.decode(raw)
            except msgspec.DecodeError:
                continue
            if not isinstance(line, dict) or line.get("v") != VERSION:
                raise RltelError(f"{path}:{number}: expected a line of version {VERSION}, got {raw[:60]!r}")
            if line.get("type") == "process":
                process = line["process"]
            else:
                yield {**line, "process": process}
