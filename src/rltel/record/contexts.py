"""The context managers that a tracker hands out: scopes and timings. The hot path: as little as can be in each."""

from collections.abc import Callable
from contextvars import ContextVar, Token
from types import TracebackType
from typing import Self

from rltel.core.errors import RecordError
from rltel.record.entries import FOLD_AT, Entry
from rltel.record.recorder import Recorder, ThreadBuffer


class Scope:
    """A place in the tree of keys. ``scalars`` is the hot path's cache: key as given -> list to append to."""

    __slots__ = ("children", "path", "scalars")

    def __init__(self, path: str) -> None:
        self.path = path
        self.scalars: dict[str, list[float]] = {}
        self.children: dict[str, Scope] = {}


class Scoped:
    """The context manager that `Tracker.scope` returns."""

    __slots__ = ("_buffer", "_current", "_name", "_recorder", "_scope", "_token")

    def __init__(self, current: ContextVar[Scope], scope: Scope, name: str, recorder: Recorder) -> None:
        self._current = current
        self._scope = scope
        self._name = name
        self._recorder = recorder

    def __enter__(self) -> Self:
        self._token: Token[Scope] = self._current.set(self._scope)
        recorder = self._recorder
        self._buffer = recorder.begin((recorder.now(), self._name, "scope", None, None)) if recorder.on else None
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._current.reset(self._token)
        if self._buffer is not None:
            self._buffer.records.append(self._recorder.now())


class Timing:
    """The context manager that `Tracker.record_timing` returns: for one use, then it waits to be handed out again."""

    __slots__ = ("_begin", "_buffer", "_entry", "_name", "_now", "_numbers", "_pool", "_recorder", "_too_many", "spent")

    def __init__(
        self,
        entry: Entry,
        name: str,
        recorder: Recorder,
        pool: "list[Timing]",
        too_many: Callable[[Entry], None],
    ) -> None:
        self._recorder = recorder
        self._now = recorder.now
        self._too_many = too_many
        self._entry = entry
        self._numbers = entry.pending
        self._name = name
        self._pool = pool
        self._buffer: ThreadBuffer | None = None
        self.spent = False

    def __enter__(self) -> Self:
        if self.spent:
            raise RecordError(f"record_timing({self._name!r}): used for a second time; call record_timing again")
        self.spent = True
        self._begin = begin = self._now()
        if self._recorder.on:
            self._buffer = self._recorder.begin((begin, self._name, "timing", None, None))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        end = self._now()
        numbers = self._numbers
        numbers.append(end - self._begin)
        if self._buffer is not None:
            self._buffer.records.append(end)
            self._buffer = None
        if len(numbers) >= FOLD_AT:
            self._too_many(self._entry)
        self._pool.append(self)
