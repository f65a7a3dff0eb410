"""The context managers that a tracker hands out: scopes and timings. The hot path: as little as can be in each."""

from collections.abc import Callable
from contextvars import ContextVar, Token
from typing import Self

from rltel.core.errors import RecordError
from rltel.record.entries import FOLD_AT, Entry
from rltel.record.lane import Open
from rltel.record.recorder import Recorder
from rltel.record.records import Site
from rltel.record.slices import Raised


class Scope:
    """A place in the tree of keys. ``scalars`` is the hot path's cache: key as given -> list to append to."""

    __slots__ = ("children", "path", "scalars")

    def __init__(self, path: str) -> None:
        self.path = path
        self.scalars: dict[str, list[float]] = {}
        self.children: dict[str, tuple[Scope, Site]] = {}  # by name as given, with what their slices are called


class Scoped(Open):
    """The context manager that `Tracker.scope` returns."""

    __slots__ = ("_current", "_recorder", "_reset", "_scope", "_site")

    def __init__(self, current: ContextVar[Scope], scope: Scope, site: Site, recorder: Recorder) -> None:
        self._current = current
        self._scope = scope
        self._site = site
        self._recorder = recorder

    def __enter__(self) -> Self:
        self._reset: Token[Scope] = self._current.set(self._scope)
        recorder = self._recorder
        if recorder.on:
            recorder.enter(self, self._site, recorder.now())
        else:
            self.lane = None
        return self

    def __exit__(self, kind: Raised, error: BaseException | None, trace: object) -> None:
        if self.lane is not None:
            self._recorder.leave(self, self._recorder.now(), kind)
        try:  # noqa: SIM105 - suppress() costs more than all the rest
            self._current.reset(self._reset)
        except ValueError:  # an abandoned generator, closed in another task's context: there its scope is not in place
            pass


class Timing(Open):
    """The context manager that `Tracker.record_timing` returns: for one use, then it waits to be handed out again."""

    __slots__ = ("_entry", "_name", "_now", "_numbers", "_pool", "_recorder", "_site", "_too_many", "spent")

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
        self._site = Site(name, "timing")
        self._pool = pool
        self.lane = None
        self.spent = False

    def __enter__(self) -> Self:
        if self.spent:
            raise RecordError(f"record_timing({self._name!r}): used for a second time; call record_timing again")
        self.spent = True
        self.begin_ns = begin = self._now()
        if self._recorder.on:
            self._recorder.enter(self, self._site, begin)
        return self

    def __exit__(self, kind: Raised, error: BaseException | None, trace: object) -> None:
        end = self._now()
        numbers = self._numbers
        numbers.append(end - self.begin_ns)
        if self.lane is not None:
            self._recorder.leave(self, end, kind)
        if len(numbers) >= FOLD_AT:
            self._too_many(self._entry)
        self._pool.append(self)
