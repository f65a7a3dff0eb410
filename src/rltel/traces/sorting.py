"""Sorts more records than fit into memory: sorted runs in a temporary file, merged as they are read."""

import heapq
import marshal
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

Sortable = tuple[Any, ...]
_RUN = 1 << 16  # records that are held in memory
_CHUNK = 128  # records that are read at once of each run
_LENGTH = 8  # bytes


class Sorter:
    """Takes tuples of plain data in any order and hands them out sorted.

    Their first fields have to be numbers that no two of them share. In memory are at most 65,536 records, and 128 of
    each run when reading; the rest is in an unnamed file in ``folder``, about as long as the input.
    """

    def __init__(self, folder: Path, run: int = _RUN) -> None:
        self._held: list[Sortable] = []
        self._run = run
        self._file = tempfile.TemporaryFile(dir=folder, prefix=".rltel-")  # noqa: SIM115  # closed by close()
        self._runs: list[tuple[int, int]] = []

    def __enter__(self) -> "Sorter":
        return self

    def __exit__(self, *exception: object) -> None:
        self._file.close()

    def add(self, record: Sortable) -> None:
        """One more."""
        self._held.append(record)
        if len(self._held) >= self._run:
            self._write_run()

    def sorted(self) -> Iterator[Sortable]:
        """All of them, in order; for one use."""
        self._held.sort()
        held, self._held = self._held, []
        if not self._runs:
            return iter(held)
        return heapq.merge(held, *(self._read(begin, end) for begin, end in self._runs))

    def _write_run(self) -> None:
        self._held.sort()
        begin = self._file.tell()
        for at in range(0, len(self._held), _CHUNK):
            data = marshal.dumps(self._held[at : at + _CHUNK])
            self._file.write(len(data).to_bytes(_LENGTH, "little") + data)
        self._runs.append((begin, self._file.tell()))
        self._held = []

    def _read(self, at: int, end: int) -> Iterator[Sortable]:
        while at < end:
            self._file.seek(at)
            length = int.from_bytes(self._file.read(_LENGTH), "little")
            chunk = marshal.loads(self._file.read(length))  # noqa: S302  # our own file, which nobody else can open
            at += _LENGTH + length
            yield from chunk
