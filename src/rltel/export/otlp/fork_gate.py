"""Keeps forks and gRPC calls apart: a child that is forked in the middle of a call cannot use gRPC, which aborts it."""

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager

_PATIENCE_S = 0.05  # how long a fork waits for calls to end: a training must not wait for a receiver that is silent


class ForkGate:
    """Counts the calls that are under way. A fork waits a moment for them; else its child is told not to use gRPC."""

    def __init__(self) -> None:
        self.is_usable = True
        """Whether gRPC may be used in this process."""
        self._changed = threading.Condition()
        self._under_way = 0

    @contextmanager
    def call(self) -> Iterator[None]:
        """While a call runs."""
        with self._changed:
            self._under_way += 1
        try:
            yield
        finally:
            with self._changed:
                self._under_way -= 1
                self._changed.notify_all()

    def before_fork(self) -> None:
        """Wait for calls, and let none begin until the fork is done."""
        self._changed.acquire()
        self._changed.wait_for(lambda: not self._under_way, _PATIENCE_S)

    def after_fork_in_parent(self) -> None:
        """Calls may begin again."""
        self._changed.release()

    def after_fork_in_child(self) -> None:
        """The threads that made calls are not here."""
        self.is_usable = self.is_usable and not self._under_way
        self._changed = threading.Condition()
        self._under_way = 0


gate = ForkGate()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=gate.before_fork,
        after_in_parent=gate.after_fork_in_parent,
        after_in_child=gate.after_fork_in_child,
    )
