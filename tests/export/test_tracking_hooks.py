"""What packages hook into the process comes after our own end, not before it."""

import atexit
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from export.making import run_python
from rltel.export.tracking_hooks import HeldHooks, outcome

TESTS = str(Path(__file__).parent.parent)

PROGRAM = f"""
import atexit, sys, time
sys.path.insert(0, {TESTS!r})
from export.making import commit
from export.test_tracking import Scripted
from realparts.tracking import worker_of

class Package(Scripted):
    def open(self):
        atexit.register(print, "hook of the package")
        sys.excepthook = lambda *error: print("the package's")
        super().open()
    def finish(self, how):
        print("finish", how, self.calls[1:])

worker = worker_of(Package())
atexit.register(lambda: worker.close(time.monotonic() + 30))
worker.wait_empty(time.monotonic() + 30)
worker.put(commit(step=1), [])
"""


class TestProgram:
    def test_the_last_commit_comes_before_the_package_s_own_hook(self) -> None:
        ran = run_python(PROGRAM)
        assert ran.stdout.splitlines() == ["finish finished ['log 1']", "hook of the package"], ran.stderr

    def test_an_exception_is_shown_by_python_and_told_to_the_service(self) -> None:
        ran = run_python(PROGRAM + "raise ValueError('diverged')\n")
        assert ran.stdout.splitlines() == ["finish failed ['log 1']", "hook of the package"]
        assert "ValueError: diverged" in ran.stderr

    def test_an_interrupt_is_told_as_such(self) -> None:
        ran = run_python(PROGRAM + "raise KeyboardInterrupt\n")
        assert ran.stdout.splitlines()[0] == "finish interrupted ['log 1']"

    def test_a_run_that_ends_before_the_program_leaves_the_hook_to_its_end(self) -> None:
        code = PROGRAM + "worker.close(time.monotonic() + 30)\nprint('more training')\n"
        ran = run_python(code)
        assert ran.stdout.splitlines() == ["finish finished ['log 1']", "more training", "hook of the package"]


class TestHolding:
    def test_other_threads_hooks_are_theirs(self, monkeypatch: pytest.MonkeyPatch) -> None:
        registered: list[Callable[..., Any]] = []
        monkeypatch.setattr(atexit, "register", registered.append)
        with HeldHooks().holding():
            thread = threading.Thread(target=lambda: atexit.register(fail))
            thread.start()
            thread.join()
        assert registered == [fail]

    def test_all_is_as_before_also_after_an_error(self) -> None:
        before = atexit.register, sys.exit, sys.excepthook

        def meddle() -> None:
            with HeldHooks().holding():
                sys.excepthook = lambda *_: None
                sys.exit = fail  # type: ignore[assignment]
                raise RuntimeError

        with pytest.raises(RuntimeError):
            meddle()
        assert (atexit.register, sys.exit, sys.excepthook) == before

    def test_an_old_exception_is_no_failure_while_the_program_runs(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(sys, "last_value", ValueError(), raising=False)
        assert outcome() == "finished"


def fail() -> None:
    raise AssertionError("a hook of a test ran")
