"""Runs as trainers leave them: event files by TensorBoard's own writer, and a summary."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.compat.tensorflow_stub.pywrap_tensorflow import masked_crc32c
from tensorboard.summary.writer.event_file_writer import EventFileWriter

VECTORS = Path(__file__).parents[1] / "vectors"
STAMP = {"metric_schema_version": 1}
WALL_TIME = 1_700_000_000.0
STEP = 1024


def vector(name: str) -> dict[str, Any]:
    """One of the worked examples, by the beginning of its id."""
    found = json.loads((VECTORS / "unilab_vectors.json").read_text())["vectors"]
    return next(each for each in found if each["id"].startswith(name))


def schema() -> dict[str, Any]:
    """What UniLab's schema says."""
    return json.loads((VECTORS / "unilab_schema.json").read_text())


def scalar(tag: str, number: float) -> Summary.Value:
    return Summary.Value(tag=tag, simple_value=number)


def scalar_events(scalars: Mapping[str, Sequence[float]], first_step: int = 0) -> Iterable[Event]:
    """One event a point, as PyTorch's writer makes them: steps 1024 apart, a second each."""
    for tag, numbers in scalars.items():
        for place, number in enumerate(numbers):
            step = first_step + place * STEP
            yield Event(wall_time=WALL_TIME + place, step=step, summary=Summary(value=[scalar(tag, number)]))


def write_events(folder: Path, events: Iterable[Event], suffix: str = "") -> Path:
    """An event file of these."""
    before = {*folder.glob("*tfevents*")} if folder.exists() else set()
    writer = EventFileWriter(str(folder), max_queue_size=100_000, flush_secs=3600, filename_suffix=suffix)
    for event in events:
        writer.add_event(event)
    writer.close()
    (path,) = {*folder.glob("*tfevents*")} - before
    return path


def write_run(
    folder: Path, scalars: Mapping[str, Sequence[float]] | Iterable[str], summary: Any = None, first_step: int = 0
) -> Path:
    """A run: its event file, which is returned, and ``run_summary.json`` if there is to be one.

    Tags without numbers have a single 1.0.
    """
    given = scalars if isinstance(scalars, Mapping) else {tag: [1.0] for tag in scalars}
    path = write_events(folder, scalar_events(given, first_step))
    if summary is not None:
        (folder / "run_summary.json").write_text(json.dumps(summary))
    return path


def records(path: Path) -> list[bytes]:
    """The records of an event file as they stand there, heads and checksums included."""
    data, found = path.read_bytes(), []
    while data:
        size = 16 + int.from_bytes(data[:8], "little")
        assert int.from_bytes(data[8:12], "little") == masked_crc32c(data[:8])
        found.append(data[:size])
        data = data[size:]
    return found


def digest(folder: Path) -> dict[str, Any]:
    """Everything of a tree: contents, kinds, modes and times of change."""
    return {
        str(path.relative_to(folder)): (
            path.lstat().st_mode,
            path.lstat().st_mtime_ns,
            str(path.readlink()) if path.is_symlink() else path.read_bytes() if path.is_file() else None,
        )
        for path in [folder, *sorted(folder.rglob("*"))]
    }
