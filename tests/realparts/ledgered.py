"""A run's record and ledger, made as the pipeline makes them."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from export.making import identity
from rltel.core.identity import Identity
from rltel.export.commit import Commit
from rltel.export.jsonl import JsonlFile
from rltel.export.ledger import Ledger
from rltel.export.points import Point
from rltel.export.sink import Destination, Sink


class Remembered:
    """A sink whose deliveries stand in the ledger."""

    def __init__(self, sink: Sink, of: Identity, about: Mapping[str, Any] | None = None) -> None:
        assert of.run_dir is not None
        self.name = sink.name
        self._sink = sink
        self._ledger = Ledger(of.run_dir, of.name, sink.name, sink.describe(), about=about)

    def describe(self) -> str:
        return self._sink.describe()

    def write(self, commit: Commit, points: Sequence[Point]) -> None:
        self._sink.write(commit, points)
        self._ledger.sent(commit.number)

    def flush(self) -> None:
        self._sink.flush()

    def close(self) -> None:
        self._sink.close()
        self._ledger.close()


def keep_record(run_dir: Path, commits: Iterable[Commit], of: Identity | None = None) -> Path:
    """The record of one process in a run directory."""
    of = of or identity(run_dir)
    path = run_dir / "metrics" / f"{of.name}.jsonl"
    file = JsonlFile(path, of, Destination("jsonl"))
    for commit in commits:
        file.write(commit)
    file.close()
    return path
