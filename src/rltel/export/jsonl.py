"""The run's own record: one line a commit, in the kernel before ``commit`` returns.

A line holds the merged states, not only numbers: enough to merge runs, to rebuild histograms and to replay what a
destination missed. JSON has no NaN and no infinity, and needs none here: non-finite values are *counted* in the state
(the last three of an average's numbers), and an extreme of nothing is null. `docs/jsonl.md` has the format.
"""

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from weakref import WeakSet

import msgspec

from rltel.core.errors import ConfigError, PayloadError, RltelError
from rltel.core.identity import Identity
from rltel.export.commit import Commit
from rltel.export.jsonl_metrics import plain_groups, read_groups
from rltel.export.sink import Destination
from rltel.reduce.snapshot import Snapshot

VERSION = 2
_READ = (1, VERSION)
_encode = msgspec.json.Encoder().encode


class JsonlFile:
    """One process's file. Each line is one write(2) on an O_APPEND descriptor, with no fsync."""

    def __init__(self, path: Path, identity: Identity, destination: Destination) -> None:
        self.path = path
        self._destination = destination
        self._descriptor = -1
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._torn = _ends_torn(path)
            self._descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
            _files.add(self)
            self._write_line(_encode(_header(identity)))
        except OSError as error:
            self.close()
            raise ConfigError(f"jsonl.path: cannot write {path}: {error.strerror}") from error

    def write(self, commit: Commit) -> None:
        """Append the commit's line. A full or broken disk costs a count and one log line, never the training."""
        try:
            self._write_line(_encode(line_of(commit)))
        except OSError as error:
            self._destination.failed(error, reason="disk")
        else:
            self._destination.exported()

    def _write_line(self, line: bytes) -> None:
        data = b"\n" + line + b"\n" if self._torn else line + b"\n"
        self._torn = True
        written = os.write(self._descriptor, data)
        if written != len(data):
            raise OSError(None, f"only {written} of {len(data)} bytes written", str(self.path))
        self._torn = False

    def close(self) -> None:
        """Close the file. What is written afterwards is lost, and counted: the descriptor's number may be another's."""
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)


_files: WeakSet[JsonlFile] = WeakSet()


def _let_go() -> None:
    """In a forked child: a line of the parent's file that the parent did not write would be a lie."""
    for file in _files:
        file.close()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_let_go)


def _ends_torn(path: Path) -> bool:
    """Whether the file ends inside a line, which the next one must not continue."""
    try:
        with path.open("rb") as file:
            file.seek(-1, os.SEEK_END)
            return file.read(1) != b"\n"
    except OSError:  # not there yet, or empty
        return False


def _header(identity: Identity) -> dict[str, Any]:
    return {
        "v": VERSION,
        "type": "process",
        "process": identity.name,
        "run": identity.run_id,
        "role": identity.role,
        "rank": identity.rank,
        "world_size": identity.world_size,
        "index": identity.index,
        "incarnation": identity.incarnation,
        "writer": identity.is_writer,
    }


def line_of(commit: Commit) -> dict[str, Any]:
    """A commit as the plain data of its line."""
    line: dict[str, Any] = {
        "v": VERSION,
        "type": "commit",
        "process": commit.identity.name,
        "n": commit.number,
        "time_ns": commit.time_ns,
        "axis": commit.axis,
        "step": commit.step,
    }
    for name in ("env_steps", "epoch", "epoch_step"):
        value = getattr(commit, name)
        if value is not None:
            line[name] = value
    line["metrics"] = plain_groups(commit.snapshot)
    return line


@dataclass(frozen=True, slots=True)
class Line:
    """One commit read back. ``process`` is the header of its file (run, role, rank, index, incarnation)."""

    process: Mapping[str, Any]
    number: int
    time_ns: int
    axis: str
    step: int
    env_steps: int | None
    epoch: int | None
    epoch_step: int | None
    snapshot: Snapshot

    @property
    def values(self) -> dict[str, float]:
        """The flat numbers, NaN and infinities in their places."""
        return self.snapshot.flat()


def read_jsonl(path: str | os.PathLike[str]) -> Iterator[Line]:
    """Every commit of a file, or of all files of a run directory, in the order of their times.

    A last line that was cut short by a crash, or one torn by a full disk, is skipped. Raises `RltelError` for a version
    that this release does not read.
    """
    where = Path(path)
    if not where.is_dir():
        yield from _read_file(where)
        return
    lines = [line for file in sorted((where / "metrics").glob("*.jsonl")) for line in _read_file(file)]
    yield from sorted(lines, key=lambda line: line.time_ns)


def read_jsonl_end(path: Path, size: int) -> Iterator[Line]:
    """The commits in the last ``size`` bytes of one file. Of a process whose header is not among them only the name
    (``process``) is known.

    Raises OSError for a file that cannot be read, `RltelError` as `read_jsonl` does.
    """
    yield from _read_file(path, size)


def _read_file(path: Path, last: int | None = None) -> Iterator[Line]:
    processes: dict[Any, Mapping[str, Any]] = {}  # several may share one file (`jsonl.path`)
    with path.open("rb") as file:
        if last is not None and file.seek(0, os.SEEK_END) > last:
            file.seek(-last - 1, os.SEEK_END)
            file.readline()  # the rest of a line
        elif last is not None:
            file.seek(0)
        for number, raw in enumerate(file, start=1):
            try:
                found = msgspec.json.decode(raw)
            except msgspec.DecodeError:
                continue
            if not isinstance(found, dict) or found.get("v") not in _READ:
                raise RltelError(f"{path}:{number}: expected a line of version {VERSION}, got {raw[:60]!r}")
            if found.get("type") == "process":
                processes[found.get("process")] = found
            elif found.get("type") == "commit":
                name = found.get("process")
                yield _line(processes.get(name, {"process": name}), found, f"{path}:{number}")


def _line(process: Mapping[str, Any], found: Mapping[str, Any], where: str) -> Line:
    try:
        snapshot = read_groups(found["metrics"])
    except PayloadError as error:
        raise RltelError(f"{where}: {error}") from error
    return Line(
        process,
        found["n"],
        found["time_ns"],
        found["axis"],
        found["step"],
        found.get("env_steps"),
        found.get("epoch"),
        found.get("epoch_step"),
        snapshot,
    )
