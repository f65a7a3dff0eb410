"""Reads wandb's offline files with wandb's own protobuf classes (its Python reader is gone from the package)."""

from __future__ import annotations

import json
import struct
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from google.protobuf.message import DecodeError
from wandb.proto import wandb_internal_pb2 as pb

_FILE_HEADER, _BLOCK, _HEADER = 7, 32768, 7
_FULL, _LAST = 1, 4


@dataclass
class OfflineRun:
    """What one ``.wandb`` file says. Rows are in the order of the file; their numbers are as JSON has them."""

    run: Any = None
    config: dict[str, Any] = field(default_factory=dict)
    rows: list[dict[str, Any]] = field(default_factory=list)
    metrics: dict[str, Any] = field(default_factory=dict)
    files: list[str] = field(default_factory=list)
    exit_code: int | None = None

    def series(self, key: str, axis: str) -> list[tuple[Any, Any]]:
        """The points of one key over one axis."""
        return [(row.get(axis), row[key]) for row in self.rows if key in row]


def read_offline(folder: Path, timeout: float = 60.0) -> OfflineRun:
    """The only run below a folder, once its end is there: W&B's own process writes it after ``finish`` returned."""
    (path,) = folder.glob("wandb/offline-run-*/run-*.wandb")
    deadline = time.monotonic() + timeout
    while (found := read_file(path)).exit_code is None and time.monotonic() < deadline:
        time.sleep(0.01)
    return found


def read_file(path: Path) -> OfflineRun:
    """One file."""
    found = OfflineRun()
    for record in records(path):
        _take(found, record)
    return found


def _take(found: OfflineRun, record: Any) -> None:
    kind = record.WhichOneof("record_type")
    if kind == "run":
        found.run = record.run
        found.config.update({item.key: json.loads(item.value_json) for item in record.run.config.update})
    elif kind == "history":
        found.rows.append({_key(item): json.loads(item.value_json) for item in record.history.item})
    elif kind == "metric":
        found.metrics[record.metric.name or record.metric.glob_name] = record.metric
    elif kind == "files":
        found.files += [file.path for file in record.files.files]
    elif kind == "exit":
        found.exit_code = record.exit.exit_code


def _key(item: Any) -> str:
    return item.key or ".".join(item.nested_key)


def records(path: Path) -> Iterator[Any]:
    """Every record of a file, up to one that is torn: LevelDB's log format, in blocks of 32 KiB."""
    content = path.read_bytes()
    position, part = _FILE_HEADER, b""
    while position + _HEADER <= len(content):
        left = _BLOCK - position % _BLOCK
        if left < _HEADER:
            position += left
            continue
        _, length, kind = struct.unpack("<IHB", content[position : position + _HEADER])
        part += content[position + _HEADER : position + _HEADER + length]
        position += _HEADER + length
        if kind in (_FULL, _LAST):
            record = pb.Record()
            try:
                record.ParseFromString(part)
            except DecodeError:
                if position < len(content):
                    raise
                return  # the file's last one, of a disk that was full
            part = b""
            yield record
