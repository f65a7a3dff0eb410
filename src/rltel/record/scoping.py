"""Where a tracker records: scopes, which are paths that lead its keys, one for each thread or asyncio task."""

import functools
import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, ParamSpec, TypeVar, cast

from rltel.core.errors import RecordError
from rltel.record.contexts import Scope, Scoped
from rltel.record.recorder import Recorder
from rltel.record.records import Site

P = ParamSpec("P")
R = TypeVar("R")


class Scoping:
    """The part of a tracker that knows the current scope. Scopes live in a ContextVar: tasks inherit theirs."""

    def __init__(self, name: str, recorder: Recorder) -> None:
        self.name = name.strip("/")
        self._recorder = recorder
        self._scopes: dict[str, Scope] = {}
        root = self._scope_at(self.name)
        self._scope: ContextVar[Scope] = ContextVar(f"rltel.scope.{self.name}", default=root)

    @property
    def path(self) -> str:
        """The current scope, led by the tracker's name; empty at the default tracker's root."""
        return self._scope.get().path

    def scope(self, name: str) -> Scoped:
        """Record under ``<current scope>/name`` inside the ``with``; drawn as a slice when the timeline is on."""
        path = name.strip("/")
        current = self._scope.get()
        try:
            child, site = current.children[path]
        except KeyError:
            child, site = self._child_scope(current, path)
        return Scoped(self._scope, child, site, self._recorder)

    @contextmanager
    def disable_scope(self) -> Iterator[None]:
        """Record at the tracker's root inside the ``with``, whatever scopes are around it."""
        token = self._scope.set(self._scope_at(self.name))
        try:
            yield
        finally:
            self._scope.reset(token)

    def scope_func_wrapper(self, name: str) -> Callable[[Callable[P, R]], Callable[P, R]]:
        """Decorator: every call of the function, also of an ``async`` one, runs in this scope."""

        def decorate(function: Callable[P, R]) -> Callable[P, R]:
            if inspect.iscoroutinefunction(function):

                @functools.wraps(function)
                async def scoped_coroutine(*args: P.args, **kwargs: P.kwargs) -> Any:
                    with self.scope(name):
                        return await function(*args, **kwargs)

                return cast("Callable[P, R]", scoped_coroutine)

            @functools.wraps(function)
            def scoped_function(*args: P.args, **kwargs: P.kwargs) -> R:
                with self.scope(name):
                    return function(*args, **kwargs)

            return scoped_function

        return decorate

    def _child_scope(self, parent: Scope, path: str) -> tuple[Scope, Site]:
        if not path:
            raise RecordError(f"scope: expected a name, got only slashes under {parent.path or 'the root'!r}")
        child = self._scope_at(f"{parent.path}/{path}" if parent.path else path)
        parent.children[path] = child, Site(path, "scope")
        return parent.children[path]

    def _scope_at(self, path: str) -> Scope:
        return self._scopes.setdefault(path, Scope(path))

    def _key(self, key: str) -> str:
        if not isinstance(key, str) or not key.strip("/"):
            raise RecordError(f"key: expected a non-empty string, got {key!r}")
        path = self._scope.get().path
        return f"{path}/{key.strip('/')}" if path else key.strip("/")
