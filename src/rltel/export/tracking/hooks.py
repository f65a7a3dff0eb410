"""What a tracking package hooks into the process when it opens, kept from acting before we are done.

Such packages end their runs in hooks at exit and on exceptions. Hooks run in the reverse order of their making, so
theirs would come before our own shutdown: what still waits in a queue would find a run that has ended, and a client
that hangs would hold up the end of the program without bound.
"""

import atexit
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Literal

Outcome = Literal["finished", "failed", "interrupted"]
Hook = Callable[[], Any]

GUESTS = frozenset({"wandb", "swanlab", "trackio"})


class _Opening(threading.local):
    """Where the hooks go that this thread makes; None: to `atexit`."""

    hooks: list[Hook] | None = None


_opening = _Opening()
_lock = threading.Lock()  # held for a few instructions only
_at_exit = atexit.register
_openings = 0  # how many threads are opening a package just now; one that hangs stays among them
_own: dict[str, Any] = {}  # sys.exit and sys.excepthook as they were when no package had put its own there


class HeldHooks:
    """Hooks that a package made while it opened, to be run when its run has ended."""

    def __init__(self) -> None:
        self._held: list[Hook] = []

    @contextmanager
    def holding(self) -> Iterator[None]:
        """While a package opens on this thread. Hooks of other threads are theirs; two may be opening at a time."""
        before = _enter()
        _opening.hooks = self._held
        try:
            yield
        finally:
            _opening.hooks = None
            _leave(before)

    def release(self) -> None:
        """The run has ended: at the end of the program they run now, before that they wait for it."""
        held, self._held = self._held, []
        if not _is_ending():
            for hook in held:
                atexit.register(hook)
            return
        for hook in reversed(held):
            hook()


def outcome() -> Outcome:
    """How the program ends, as far as one can tell: an exception that nobody caught is in ``sys.last_value``."""
    error = getattr(sys, "last_value", None) if _is_ending() else None
    if error is None:
        return "finished"
    return "interrupted" if isinstance(error, KeyboardInterrupt) else "failed"


def _enter() -> dict[str, Any]:
    """Take the place of ``atexit.register``. What ``sys`` is to have again afterwards."""
    global _openings, _at_exit  # noqa: PLW0603  # what they stand for is one a process, too
    with _lock:
        if not _openings:
            _at_exit = atexit.register
            setattr(atexit, "register", _register)  # noqa: B010  # mypy refuses a plain assignment
        _openings += 1
        for name in ("exit", "excepthook"):
            if not _is_guest(getattr(sys, name)):
                _own[name] = getattr(sys, name)
        return dict(_own)


def _leave(before: dict[str, Any]) -> None:
    global _openings  # noqa: PLW0603  # as above
    with _lock:
        _openings -= 1
        if not _openings:
            setattr(atexit, "register", _at_exit)  # noqa: B010
        for name, hook in before.items():
            setattr(sys, name, hook)


def _register(hook: Callable[..., Any], *args: Any, **kwargs: Any) -> Callable[..., Any]:
    if _opening.hooks is None:
        return _at_exit(hook, *args, **kwargs)
    _opening.hooks.append(lambda: hook(*args, **kwargs))
    return hook


def _is_guest(hook: Any) -> bool:
    """Whether a package put this there, as one that is opening on another thread just now."""
    return (getattr(hook, "__module__", None) or "").partition(".")[0] in GUESTS


def at_end(hook: Callable[[], Any]) -> None:
    """Run this when the main thread has ended, before the hooks of `atexit`.

    It comes while threads can still start and packages can still be imported, which neither is so in those hooks: a
    program that ends before a package has opened would lose all that it sent.
    """
    import concurrent.futures.process  # these have such hooks too, which they could not make later
    import concurrent.futures.thread  # noqa: F401

    register = getattr(threading, "_register_atexit", atexit.register)  # concurrent.futures uses it as we do
    register(hook)


def _is_ending() -> bool:
    """Whether the main thread is past its last statement."""
    return bool(getattr(threading, "_SHUTTING_DOWN", False)) or not threading.main_thread().is_alive()
