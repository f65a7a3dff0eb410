"""Ctrl+C and SIGTERM to the monitor are noted, so that it can still end the command and write its artifact."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

_NOTED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextmanager
def noted() -> Iterator[list[int]]:
    """Signals that have come while inside, in order. In a thread other than the main one none are noted."""
    received: list[int] = []

    def note(number: int, _: FrameType | None) -> None:
        received.append(number)

    if threading.current_thread() is not threading.main_thread():
        yield received  # the interpreter lets only the main thread set handlers
        return
    before = {number: signal.signal(number, note) for number in _NOTED}
    try:
        yield received
    finally:
        for number, handler in before.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)
