"""Ends a whole tree: asks, and then does not ask any more."""

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Callable

from rltel.runs.soak.tree import Tree

_KILL_WAIT_S = 10.0  # for the kernel to take apart what SIGKILL has ended; one that waits for a device may outlast it
_LOOK_S = 0.05


def stop(
    tree: Tree, command: subprocess.Popen[bytes], first: int, grace_s: float, is_urgent: Callable[[], bool]
) -> None:
    """Send ``first``, then SIGTERM, then SIGKILL to all that run, each after ``grace_s``, until nothing does.

    ``is_urgent`` ends the asking at once: somebody pressed Ctrl+C again.
    """
    for number in dict.fromkeys((first, signal.SIGTERM)):
        tree.signal(number)
        if wait_for_end(tree, command, grace_s, is_urgent):
            return
        if is_urgent():
            break
    kill(tree, command)


def kill(tree: Tree, command: subprocess.Popen[bytes]) -> None:
    """SIGKILL to all that run, and to those that they start meanwhile."""
    deadline = time.monotonic() + _KILL_WAIT_S
    while tree.signal(signal.SIGKILL) and time.monotonic() < deadline:
        command.poll()
        time.sleep(_LOOK_S)
    command.poll()


def reaped(command: subprocess.Popen[bytes]) -> int | None:
    """The exit code of a command that has ended or is about to: its last threads may still be on their way out."""
    with contextlib.suppress(subprocess.TimeoutExpired):
        command.wait(_KILL_WAIT_S)
    return command.poll()


def kill_group(command: subprocess.Popen[bytes]) -> None:
    """SIGKILL to what stayed in the command's group: what can be done where the tree cannot be read."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(command.pid, signal.SIGKILL)
    reaped(command)


def wait_for_end(
    tree: Tree, command: subprocess.Popen[bytes], limit_s: float, is_urgent: Callable[[], bool] = lambda: False
) -> bool:
    """Wait until nothing of the tree runs; False if some still does after ``limit_s``."""
    deadline = time.monotonic() + limit_s
    while True:
        command.poll()
        if not tree.alive():
            return True
        if time.monotonic() >= deadline or is_urgent():
            return False
        time.sleep(_LOOK_S)
