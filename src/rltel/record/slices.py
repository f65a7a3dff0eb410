"""Slices: what a program opens and closes. The hot path: as little as can be in each."""

import functools
import inspect
from asyncio import _get_running_loop as running_loop
from collections.abc import Callable, Iterable, Mapping
from operator import index
from threading import local
from types import TracebackType
from typing import Any, NoReturn, ParamSpec, Protocol, Self, SupportsIndex, TypeVar, cast

from rltel.core.errors import RecordError
from rltel.record.lane import Lane, Open
from rltel.record.records import Attributes, End, Flows, FreeEnd, Site

P = ParamSpec("P")
R = TypeVar("R")
Raised = type[BaseException] | None


class Keeper(Protocol):
    """What slices need of the recorder that keeps them."""

    now: Callable[[], int]

    def thread_lane(self) -> Lane:
        """This thread's lane."""

    def enter(
        self, span: Open, site: Site, time_ns: int, flows: Flows | None = None, attributes: Attributes | None = None
    ) -> None:
        """Open `span` here."""

    def unheard(self) -> None:
        """A slice was opened in a process that never called init."""

    def leave(self, span: Open, time_ns: int, raised: Raised) -> None:
        """Close `span`, wherever it was opened."""

    def slice(
        self,
        name: str,
        category: str = "",
        *,
        flow: int | Iterable[int] | None = None,
        attributes: Attributes | None = None,
    ) -> Any:
        """One slice."""


class SliceSite(Site):
    """A site with all that opening a slice there needs at hand."""

    __slots__ = ("lanes", "now", "recorder")

    def __init__(self, name: str, category: str, recorder: Keeper, lanes: local) -> None:
        super().__init__(name, category)
        self.recorder = recorder
        self.lanes = lanes
        self.now = recorder.now


class _Decorates:
    """Lets a slice be used as a decorator: every call of the function is a slice."""

    __slots__ = ()

    def again(self) -> Any:
        """One more of the same."""
        raise NotImplementedError

    def __call__(self, function: Callable[P, R]) -> Callable[P, R]:
        """The function, every call of which (of an ``async`` one, or a generator: until it is done) is a slice.

        Raises `RecordError` for an asynchronous generator.
        """
        if inspect.isasyncgenfunction(function):
            raise RecordError(f"slice: cannot decorate {function!r}, an asynchronous generator: use with inside it")
        if inspect.isgeneratorfunction(function):

            @functools.wraps(function)
            def sliced_generator(*args: P.args, **kwargs: P.kwargs) -> Any:
                with self.again():
                    return (yield from function(*args, **kwargs))

            return cast("Callable[P, R]", sliced_generator)
        if inspect.iscoroutinefunction(function):

            @functools.wraps(function)
            async def sliced_coroutine(*args: P.args, **kwargs: P.kwargs) -> Any:
                with self.again():
                    return await function(*args, **kwargs)

            return cast("Callable[P, R]", sliced_coroutine)

        @functools.wraps(function)
        def sliced(*args: P.args, **kwargs: P.kwargs) -> R:
            with self.again():
                return function(*args, **kwargs)

        return sliced


class Slice(Open, _Decorates):
    """A bare slice, from ``with`` to its end. An exception that passes through is noted on it."""

    __slots__ = ("site",)

    def __init__(self, site: SliceSite) -> None:
        self.site = site
        self.lane = None

    def __enter__(self) -> Self:
        if self.lane is not None:
            _refuse(self.site)
        site = self.site
        if running_loop() is not None:
            site.recorder.enter(self, site, site.now())
            return self
        try:
            lane = site.lanes.lane
        except AttributeError:
            lane = site.recorder.thread_lane()
        records = lane.records
        if len(records) >= lane.limit:
            lane.dropped += 1
            return self
        # From the reading on nothing is called that could be interrupted (by a signal, garbage collection, a thread).
        self.begin_ns = begin_ns = site.now()
        self.lane = lane
        self.outer = lane.top
        self.plain = True
        lane.top = self
        records.append(site)
        records.append(begin_ns)
        return self

    def __exit__(self, kind: Raised, error: BaseException | None, trace: TracebackType | None) -> None:
        end = self.site.now()
        lane = self.lane
        if lane is not None:
            if lane.top is self and self.plain and kind is None:
                self.lane = None
                lane.top = self.outer
                lane.records.append(end)
            else:
                self.site.recorder.leave(self, end, kind)

    def again(self) -> Any:
        """One more of the same."""
        return self.site.recorder.slice(self.site.name, self.site.category)


class RichSlice(Open, _Decorates):
    """A slice with arrows through it or attributes."""

    __slots__ = ("attributes", "flows", "site")

    def __init__(self, site: SliceSite, flows: Flows | None, attributes: Attributes | None) -> None:
        self.site = site
        self.flows = flows
        self.attributes = as_attributes(attributes)
        self.lane = None

    def __enter__(self) -> Self:
        site = self.site
        if self.lane is not None:
            _refuse(site)
        site.recorder.enter(self, site, site.now(), self.flows, self.attributes)
        return self

    def __exit__(self, kind: Raised, error: BaseException | None, trace: TracebackType | None) -> None:
        self.site.recorder.leave(self, self.site.now(), kind)

    def again(self) -> Any:
        """One more of the same."""
        return self.site.recorder.slice(self.site.name, self.site.category, flow=self.flows, attributes=self.attributes)


class Handle:
    """A slice that was begun explicitly, and may end anywhere: in another function, task or thread."""

    __slots__ = ("_lane", "_now", "number")

    def __init__(self, now: Callable[[], int], lane: Lane, number: int) -> None:
        self._now = now
        self._lane = lane
        self.number = number

    def end(self, *, error: str | None = None, **attributes: Any) -> None:
        """End it. ``error``: that it failed, and why. A second call does nothing."""
        number, self.number = self.number, 0
        if number:
            self._lane.records.append(FreeEnd(number, End(self._now(), attributes or None, error)))


class Quiet(_Decorates):
    """What stands for a slice while the timeline is off. As a decorator it records once the timeline is on."""

    __slots__ = ("_attributes", "_category", "_flows", "_name", "_recorder")

    def __init__(
        self, recorder: Keeper, name: str, category: str, flows: Flows | None, attributes: Attributes | None
    ) -> None:
        self._recorder = recorder
        self._name = name
        self._category = category
        self._flows = flows
        self._attributes = attributes

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: Raised, error: BaseException | None, trace: object) -> None:
        return None  # (three parameters cost less than a tuple of them)

    def set(self, **attributes: Any) -> None:
        """Nothing to say it about."""

    def again(self) -> Any:
        """One more, by now maybe not so quiet."""
        return self._recorder.slice(self._name, self._category, flow=self._flows, attributes=self._attributes)


class Unheard(Quiet):
    """What stands for a slice in a process that never called init: it is counted, and said once."""

    __slots__ = ()

    def __enter__(self) -> Self:
        self._recorder.unheard()
        return self


def _refuse(site: Site) -> NoReturn:
    raise RecordError(f"slice({site.name!r}): entered again before its end; call slice again")


def as_flows(flow: int | Iterable[int] | None) -> Flows | None:
    """Flow ids as a tuple. Raises `RecordError` for what is neither an id nor several."""
    if flow is None:
        return None
    if isinstance(flow, int):
        return (flow,)
    if isinstance(flow, SupportsIndex):  # NumPy's integers
        return (index(flow),)
    if isinstance(flow, Iterable) and not isinstance(flow, (str, bytes)):
        return tuple(flow)
    raise RecordError(f"flow: expected an id, as rltel.new_flow() gives, or several, got {flow!r}")


def as_attributes(attributes: Mapping[str, Any] | None) -> Attributes | None:
    """A copy: the caller may change its own. Raises `RecordError` for what is no mapping."""
    if attributes is None:
        return None
    try:
        return dict(attributes)
    except (TypeError, ValueError):
        raise RecordError(f"attributes: expected a mapping of names to values, got {attributes!r}") from None
