"""A run's record, file by file: whose commits are where, without decoding what they hold."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from rltel.core import claims
from rltel.core.errors import RltelError
from rltel.core.identity import Identity
from rltel.export.commit import Commit
from rltel.export.jsonl import Line, read_jsonl


class _Head(msgspec.Struct):
    """What of a line is read first: the rest, which is long, is passed over."""

    type: str = ""
    process: str = ""
    n: int = -1
    time_ns: int = 0


_decode = msgspec.json.Decoder(_Head).decode


@dataclass(slots=True)
class Recorded:
    """One process's commits in one file: their numbers, in its order, and the time of the first."""

    path: Path
    process: str
    header: Mapping[str, Any]
    numbers: list[int] = field(default_factory=list)
    started_ns: int = 0

    @property
    def is_whole(self) -> bool:
        """Whether the file says whose commits these are."""
        return bool(self.header)

    def identity(self, run_dir: Path) -> Identity:
        """The process, as it knew itself. That it was the writer is for the caller to know."""
        names = ("run", "role", "rank", "world_size", "index", "incarnation")
        try:
            run, role, *numbers = (self.header[name] for name in names)
            rank, world_size, index, incarnation = map(int, numbers)
        except (KeyError, TypeError, ValueError) as error:
            raise RltelError(f"{self.path}: the line about process {self.process} lacks one of {names}") from error
        return Identity(str(run), run_dir, str(role), rank, world_size, index, incarnation, False)

    def commits(self, run_dir: Path) -> Iterator[Commit]:
        """The commits, with all that they hold, in the order in which they were made."""
        identity = self.identity(run_dir)
        for line in read_jsonl(self.path):
            if line.process.get("process") == self.process:
                yield commit_of(identity, line)


def commit_of(identity: Identity, line: Line) -> Commit:
    """A line of the record as the commit that it was."""
    return Commit(
        identity,
        line.number,
        line.time_ns,
        line.step,
        line.axis,
        line.snapshot,
        line.env_steps,
        line.epoch,
        line.epoch_step,
    )


def recorded(run_dir: Path, files: list[Path] | None = None) -> list[Recorded]:
    """Every process's commits, those that began first coming first.

    ``files``: where they are, if not in the run directory (`jsonl.path`). Raises `RltelError` if there are none.
    """
    paths = sorted((run_dir / "metrics").glob("*.jsonl")) if files is None else files
    found = [each for path in paths for each in _of_file(path) if each.numbers]
    if not found:
        where = run_dir / "metrics" if files is None else ", ".join(map(str, paths))
        raise RltelError(f"{where}: expected a run's record (*.jsonl) with commits in it, found none")
    return sorted(found, key=lambda each: each.started_ns)


def _of_file(path: Path) -> list[Recorded]:
    of_process: dict[str, Recorded] = {}
    with path.open("rb") as file:
        for raw in file:
            try:
                head = _decode(raw)
            except (msgspec.DecodeError, msgspec.ValidationError):
                continue  # cut short by a crash; `read_jsonl` passes over it, too
            if head.type == "process":
                header = msgspec.json.decode(raw)
                of_process.setdefault(head.process, Recorded(path, head.process, header)).header = header
            elif head.type == "commit" and head.n >= 0:
                found = of_process.setdefault(head.process, Recorded(path, head.process, {}))
                found.started_ns = found.started_ns or head.time_ns
                found.numbers.append(head.n)
    return list(of_process.values())


def is_running(run_dir: Path, process: str) -> bool:
    """Whether the process still delivers by itself. One on another host counts as running until it says it ended."""
    claim = run_dir / "claims" / f"{process}.json"
    return claim.exists() and claims.is_held(claim, rank_is_unique=False)
