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


class HeldHooks:
    """Hooks that a package made on this thread, to be run when its run has ended."""

    def __init__(self) -> None:
        self._held: list[Callable[[], Any]] = []

    @contextmanager
    def holding(self) -> Iterator[None]:
        """While the package opens on this thread. Other threads' hooks are theirs."""
        thread, register = threading.get_ident(), atexit.register
        leave, excepthook = sys.exit, sys.excepthook

        def hold(hook: Callable[..., Any], *args: Any, **kwargs: Any) -> Callable[..., Any]:
            if threading.get_ident() != thread:
                return register(hook, *args, **kwargs)
            self._held.append(lambda: hook(*args, **kwargs))
            return hook

        setattr(atexit, "register", hold)  # noqa: B010  # a plain assignment is one that mypy refuses
        try:
            yield
        finally:
            setattr(atexit, "register", register)  # noqa: B010
            setattr(sys, "exit", leave)  # noqa: B010
            sys.excepthook = excepthook

    def release(self) -> None:
        """The run has ended: at the end of the program they run now, before that they wait for it."""
        held, self._held = self._held, []
        for hook in reversed(held) if _is_ending() else held:
            if _is_ending():
                hook()
            else:
                atexit.register(hook)


def outcome() -> Outcome:
    """How the program ends, as far as one can tell: an exception that nobody caught is in ``sys.last_value``."""
    error = getattr(sys, "last_value", None) if _is_ending() else None
    if error is None:
        return "finished"
    return "interrupted" if isinstance(error, KeyboardInterrupt) else "failed"


def _is_ending() -> bool:
    """Whether the main thread is past its last statement (hooks at exit come after that)."""
    return not threading.main_thread().is_alive()
