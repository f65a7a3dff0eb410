"""Orphans of the command come to the monitor, not to init, so that no double fork or new session leaves the tree."""

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager

_SET_CHILD_SUBREAPER = 36  # prctl's, since Linux 3.4
_GET_CHILD_SUBREAPER = 37


@contextmanager
def adopting() -> Iterator[None]:
    """While inside, orphaned descendants become this process's children, where the system can do that.

    Where it cannot, an orphan is known only if a sample has seen it before.
    """
    prctl = _prctl()
    before = ctypes.c_int(0)
    if prctl is None or prctl(_GET_CHILD_SUBREAPER, ctypes.byref(before), 0, 0, 0) != 0:
        yield
        return
    prctl(_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    try:
        yield
    finally:
        prctl(_SET_CHILD_SUBREAPER, before.value, 0, 0, 0)


def _prctl() -> "ctypes._NamedFuncPointer | None":
    try:
        return ctypes.CDLL(None).prctl
    except (OSError, AttributeError):
        return None
