"""Live denominators: named masks, and who finds which.

A task or thread finds what it defined itself (or inherited) first, then what anyone defined last under that path:
autograd runs hooks on threads that see no ContextVar.
"""

import sys
import threading
import weakref
from collections.abc import Collection, Iterable, Mapping
from contextvars import ContextVar
from types import MappingProxyType
from typing import Any


class Mask:
    """A live denominator. Its mask is dropped when it is exported or redefined."""

    __slots__ = ("__weakref__", "mask", "owner")

    def __init__(self, mask: Any, owner: "weakref.ref[Any]") -> None:
        self.mask = mask
        self.owner = owner


_NONE: Mapping[str, Mask] = MappingProxyType({})


class Masks:
    """The denominators of one tracker. Whoever changes it holds the tracker's lock."""

    def __init__(self, name: str) -> None:
        self._by_path: dict[str, Mask] = {}
        # Every mask that somebody can still find, also those of other tasks under a path that was redefined since.
        self._live: weakref.WeakSet[Mask] = weakref.WeakSet()
        self._own: ContextVar[Mapping[str, Mask]] = ContextVar(f"rltel.masks.{name}", default=_NONE)

    def define(self, path: str, mask: Any) -> None:
        """Name a mask. It replaces the one that this task or thread defined before, not another's of the same name."""
        holder = Mask(mask, _here())
        mine = self._own.get()
        old = mine.get(path)
        if old is not None and old.owner == holder.owner:
            old.mask = None  # functions that were carried away with it find the new one
        alive = {name: held for name, held in mine.items() if held.mask is not None}
        self._own.set({**alive, path: holder})
        self._by_path[path] = holder
        self._live.add(holder)

    def find(self, scope: str, name: str) -> Any | None:
        """The mask of this name in the scope of this path, then outwards; None if there is none."""
        for table in (self._own.get(), self._by_path):
            for where in _outwards(scope):
                held = table.get(f"{where}/{name}" if where else name)
                mask = None if held is None else held.mask  # read once: an export may drop it meanwhile
                if mask is not None:
                    return mask
        return None

    def paths(self) -> list[str]:
        """The paths that are defined, in alphabetical order."""
        return sorted(path for path, held in list(self._by_path.items()) if held.mask is not None)

    def live(self) -> list[Mask]:
        """Everything that is defined now."""
        if not self._live:  # most trackers have none, and walking a weak set costs more than all their rest
            return []
        return [held for held in self._live if held.mask is not None]

    def drop(self, masks: Collection[Mask]) -> None:
        """Forget these: they were exported."""
        if not masks:
            return
        for held in masks:
            held.mask = None
        self._by_path = {path: held for path, held in self._by_path.items() if held.mask is not None}


def _here() -> "weakref.ref[Any]":
    """The asyncio task that runs this, else the thread."""
    asyncio = sys.modules.get("asyncio")
    if asyncio is not None:
        try:
            task = asyncio.current_task()
        except RuntimeError:  # no loop runs here
            task = None
        if task is not None:
            return weakref.ref(task)
    return weakref.ref(threading.current_thread())


def _outwards(path: str) -> Iterable[str]:
    """A scope's path, its parent's, and so on to the root."""
    while path:
        yield path
        path = path.rpartition("/")[0]
    yield ""
