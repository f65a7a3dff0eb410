"""Texts, tables, files, videos and images: what some destinations can hold beside numbers.

A `Media` is data. Texts and tables are copied when it is made. A path stays a path: it is opened, and copied, by the
thread of the destination that takes it, so what it names must still be there by then (a loss is counted).
"""

import os
import stat
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol, get_args, runtime_checkable

from rltel.core.errors import RecordError, RltelError
from rltel.core.wording import writable

Kind = Literal["text", "table", "file", "video", "image"]
Cell = str | int | float | bool | None

_CELL_BYTES = 60  # about what a cell of a table holds in memory; the queue's bound need not be exact
_SMALL = 1_000


@dataclass(frozen=True, slots=True)
class Table:
    """Named columns, and rows of as many cells."""

    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]


@dataclass(frozen=True, slots=True)
class Media:
    """One thing to show. ``payload`` is a string for a text, a `Table` for a table, else the path of a file.

    ``time_ns`` is the wall clock; ``step`` counts on ``axis``, as a commit's does. Made by `media`.
    """

    kind: Kind
    key: str
    step: int
    axis: str
    time_ns: int
    payload: str | Table | Path
    env_steps: int | None = None

    def position(self, step_axis: str) -> int:
        """Where it stands on the x axis, as `Commit.position`."""
        return self.env_steps if step_axis == "env_steps" and self.env_steps is not None else self.step

    @property
    def size_bytes(self) -> int:
        """About what it holds in memory while it waits."""
        if isinstance(self.payload, Table):
            return _SMALL + _CELL_BYTES * len(self.payload.rows) * len(self.payload.columns)
        return _SMALL + (len(self.payload) if isinstance(self.payload, str) else 0)

    def text(self) -> str:
        """The payload of a text."""
        assert isinstance(self.payload, str)
        return self.payload

    def table(self) -> Table:
        """The payload of a table."""
        assert isinstance(self.payload, Table)
        return self.payload

    def path(self) -> Path:
        """The file, if it can be read. Raises `MediaLostError` if it is gone, or no file with an end."""
        assert isinstance(self.payload, Path)
        try:
            if not stat.S_ISREG(self.payload.stat().st_mode):  # a pipe would hold up all others, a device fill the disk
                raise MediaLostError(f"{self.key}: expected a plain file, got {self.payload}", "unreadable")
            with self.payload.open("rb") as file:
                file.read(1)
        except OSError as error:
            raise MediaLostError(f"{self.key}: cannot read {self.payload}: {error.strerror}", "unreadable") from error
        except ValueError as error:  # a NUL in its name
            raise MediaLostError(f"{self.key}: cannot read {self.payload!s:.100}: {error}", "unreadable") from error
        return self.payload


@runtime_checkable
class MediaSink(Protocol):
    """A destination that holds more than numbers."""

    def write_media(self, media: Media) -> None:
        """Take one. Raises `MediaLostError` for what it cannot hold or cannot read."""


class MediaLostError(RltelError):
    """A destination could not take this. ``reason``: ``unsupported`` or ``unreadable``, as the loss is counted."""

    def __init__(self, message: str, reason: str) -> None:
        super().__init__(message)
        self.reason = reason


def unsupported(name: str, media: Media) -> MediaLostError:
    """What a destination raises that has no place for this."""
    what: str = media.kind
    if isinstance(media.payload, Path):
        what += f" ({media.payload.suffix or 'no suffix'})"
    return MediaLostError(f"{media.key}: {name} cannot hold a {what}", "unsupported")


def media(
    kind: Kind, key: str, payload: Any, *, step: int, axis: str, time_ns: int, env_steps: int | None = None
) -> Media:
    """A `Media` of what a caller gave: a string, a table (see `table`), or a path, as the kind needs.

    Touches no disk. Raises `RecordError`, which names the key, for a payload of another type.
    """
    kinds: tuple[str, ...] = get_args(Kind)
    if kind not in kinds:
        raise RecordError(f"{key}: expected a kind of {', '.join(kinds)}, got {kind!r}")
    if kind == "text":
        made: str | Table | Path = _text(key, payload)
    elif kind == "table":
        made = table(key, payload)
    else:
        made = _path(key, payload)
    return Media(kind, writable(key), step, writable(axis), time_ns, made, env_steps)


def table(key: str, given: Any) -> Table:
    """A table of a `Table`, of columns by name, of records by column, or of anything with ``to_dict`` (a DataFrame).

    Cells that are no plain value become their text. Raises `RecordError` for columns of different lengths.
    """
    if isinstance(given, Table):
        return _checked(key, given.columns, given.rows)
    if hasattr(given, "to_dict") and hasattr(given, "columns"):
        given = {name: given[name].tolist() for name in given.columns}
    if isinstance(given, Mapping):
        return _of_columns(key, given)
    if isinstance(given, Sequence) and given and all(isinstance(record, Mapping) for record in given):
        return _of_records(key, given)
    raise RecordError(
        f"{key}: expected a table: columns by name, a list of records or a DataFrame, got {type(given).__name__}"
    )


def _of_columns(key: str, columns: Mapping[Any, Any]) -> Table:
    lists = {str(name): list(cells) for name, cells in columns.items()}
    lengths = {name: len(cells) for name, cells in lists.items()}
    if len(set(lengths.values())) > 1:
        raise RecordError(f"{key}: expected columns of one length, got {lengths}")
    return _checked(key, tuple(lists), zip(*lists.values(), strict=True))


def _of_records(key: str, records: Sequence[Mapping[Any, Any]]) -> Table:
    names = list(dict.fromkeys(name for record in records for name in record))
    return _checked(key, tuple(map(str, names)), ([record.get(name) for name in names] for record in records))


def _checked(key: str, columns: tuple[str, ...], rows: Iterable[Iterable[Any]]) -> Table:
    made = tuple(tuple(map(_cell, row)) for row in rows)
    wrong = next((row for row in made if len(row) != len(columns)), None)
    if wrong is not None:
        raise RecordError(f"{key}: expected rows of {len(columns)} cells ({', '.join(columns)}), got {len(wrong)}")
    return Table(tuple(map(writable, columns)), made)


def _cell(value: Any) -> Cell:
    if value is None or isinstance(value, (bool, int, float)):
        return value
    item = getattr(value, "item", None)  # NumPy's and torch's single numbers
    if callable(item) and getattr(value, "size", None) == 1:
        return _cell(item())
    return writable(str(value))


def _text(key: str, given: Any) -> str:
    if not isinstance(given, str):
        raise RecordError(f"{key}: expected a text (a string), got {type(given).__name__}")
    return writable(given)


def _path(key: str, given: Any) -> Path:
    if not isinstance(given, (str, os.PathLike)):
        raise RecordError(f"{key}: expected the path of a file, got {type(given).__name__}")
    return Path(os.path.abspath(given))  # noqa: PTH100  # now, as the program may change its directory; touches no disk
