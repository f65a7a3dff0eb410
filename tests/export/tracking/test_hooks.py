"""What packages hook into the process comes after our own end, not before it."""

import atexit
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from export.making import run_python
from rltel.export.tracking.hooks import HeldHooks, outcome

TESTS = str(Path(__file__).parents[2])

PROGRAM = f"""
import atexit, sys, time
sys.path.insert(0, {TESTS!r})
from export.making import commit
from export.tracking.test_service import Scripted
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


SHORT_PROGRAM = f"""
import sys, threading, time
sys.path.insert(0, {TESTS!r})
from export.making import commit
from export.tracking.test_service import Scripted
from realparts.tracking import worker_of
from rltel.export.tracking.hooks import at_end

class Package(Scripted):
    def open(self):
        while not threading._SHUTTING_DOWN:
            time.sleep(0.001)
        from concurrent.futures import ThreadPoolExecutor  # as packages do when they are imported
        ThreadPoolExecutor().submit(super().open).result()
    def finish(self, how):
        print("finish", how, self.calls)

worker = worker_of(Package())
at_end(lambda: worker.close(time.monotonic() + 30))
worker.put(commit(step=1), [])
"""


class TestShortProgram:
    def test_one_that_ends_before_its_package_has_opened_loses_nothing(self) -> None:
        ran = run_python(SHORT_PROGRAM)
        assert ran.stdout.splitlines() == ["finish finished ['open', 'log 1']"], ran.stderr

    def test_its_exception_is_told(self) -> None:
        ran = run_python(SHORT_PROGRAM + "raise ValueError('diverged')\n")
        assert ran.stdout.splitlines() == ["finish failed ['open', 'log 1']"]


class TestHolding:
    def test_other_threads_hooks_are_theirs(self, monkeypatch: pytest.MonkeyPatch) -> None:
        registered: list[Callable[..., Any]] = []
        monkeypatch.setattr(atexit, "register", registered.append)
        with HeldHooks().holding():
            thread = threading.Thread(target=lambda: atexit.register(fail))
            thread.start()
            thread.join()
        assert registered == [fail]

    def test_two_packages_that_open_at_a_time_leave_all_as_it_was(self) -> None:
        before = atexit.register, sys.exit, sys.excepthook
        first, second = HeldHooks().holding(), HeldHooks().holding()
        meddled, done = threading.Event(), threading.Event()

        def open_first() -> None:
            with first:
                sys.excepthook = guest
                meddled.set()
                done.wait()

        thread = threading.Thread(target=open_first)
        thread.start()
        meddled.wait()
        with second:  # finds what the first one put there
            sys.excepthook = guest
            done.set()
            thread.join()
        assert (atexit.register, sys.exit, sys.excepthook) == before

    def test_one_that_hangs_while_it_opens_holds_no_hook_of_others(self, monkeypatch: pytest.MonkeyPatch) -> None:
        registered: list[Callable[..., Any]] = []
        monkeypatch.setattr(atexit, "register", registered.append)
        held, over = threading.Event(), threading.Event()

        def hang() -> None:
            with HeldHooks().holding():
                held.set()
                over.wait()

        thread = threading.Thread(target=hang)
        thread.start()
        held.wait()
        atexit.register(fail)
        over.set()
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


def guest(*_: object) -> None:
    """Put there by a package."""


guest.__module__ = "swanlab.sdk.internal.run"


def fail() -> None:
    raise AssertionError("a hook of a test ran")
