"""Reads SwanLab's own store with SwanLab's own reader and protobuf classes."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from swanlab.proto.swanlab.record.v1.record_pb2 import Record
from swanlab.sdk.internal.core_python.store import DataStoreReader


@dataclass
class StoredRun:
    """What one ``.swanlab`` file says: who the run is, points of every key, media by key, saved files, its end."""

    start: Any = None
    series: dict[str, list[tuple[int, float]]] = field(default_factory=dict)
    media: dict[str, list[str]] = field(default_factory=dict)
    saved: list[str] = field(default_factory=list)
    finish: Any = None


def read_run(folder: Path) -> StoredRun:
    """The only run below a folder."""
    (path,) = folder.glob("run-*/run-*.swanlab")
    found = StoredRun()
    reader = DataStoreReader()
    reader.open(path)
    for data in reader:
        record = Record()
        record.ParseFromString(data)
        _take(found, record)
    return found


def _take(found: StoredRun, record: Any) -> None:
    kind = record.WhichOneof("record_type")
    content = getattr(record, kind)
    if kind == "scalar":
        found.series.setdefault(content.key, []).append((content.step, content.value.number))
    elif kind == "media":
        found.media.setdefault(content.key, []).extend(item.filename for item in content.value.items)
    elif kind == "save":
        found.saved.append(content.name)
    elif kind in ("start", "finish"):
        setattr(found, kind, content)
