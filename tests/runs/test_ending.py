"""How a program ended is seen from inside: real programs, each ended its own way."""

import signal
import subprocess
import sys

import pytest

from export.making import environment
from rltel.core.errors import RecordError
from rltel.runs.ending import STATUSES, Ending, Outcome, checked_status, of_exit_code

WATCH = """
import atexit, os, signal, sys, threading
from rltel.runs.ending import Ending
ending = Ending()
ending.watch()
def say():
    seen = ending.outcome()
    print("SEEN", seen.status, type(seen.error).__name__, seen.error, seen.uncaught, flush=True)
"""
AT_EXIT = WATCH + "atexit.register(say)\n"


def ended(code: str, *options: str, given: str | None = None) -> str:
    """What was seen, of a program run to its end."""
    ran = subprocess.run(
        [sys.executable, *options, *([] if given else ["-c", code])],
        input=given,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    (seen,) = [line for line in ran.stdout.splitlines() if line.startswith("SEEN")] or [ran.stderr]
    return seen.removeprefix("SEEN ")


@pytest.mark.parametrize(
    ("code", "seen"),
    [
        ("", "completed NoneType None False"),
        ("sys.exit()", "completed NoneType None False"),
        ("sys.exit(0)", "completed NoneType None False"),
        ("raise ValueError('no loss')", "failed ValueError no loss True"),
        ("raise KeyboardInterrupt", "interrupted KeyboardInterrupt  True"),
        ("os.kill(os.getpid(), signal.SIGINT)", "interrupted KeyboardInterrupt  True"),
        ("sys.exit(3)", "failed str sys.exit(3) False"),
        ("sys.exit('no GPU')", "failed str no GPU False"),
        ("sys.exit(143)", "interrupted NoneType None False"),
        ("sys.exit(130)", "interrupted NoneType None False"),
    ],
)
def test_at_exit(code: str, seen: str) -> None:
    assert ended(AT_EXIT + code) == seen


def test_a_framework_that_prints_the_error_and_exits_hides_nothing() -> None:
    """Hydra's way, and that of many command lines."""
    code = "try:\n    raise RuntimeError('diverged')\nexcept Exception:\n    sys.exit(1)"
    assert ended(AT_EXIT + code) == "failed RuntimeError diverged False"


def test_ctrl_c_that_ends_in_an_exit_code_is_an_interrupt() -> None:
    code = "try:\n    raise KeyboardInterrupt\nexcept KeyboardInterrupt:\n    sys.exit(1)"
    assert ended(AT_EXIT + code).startswith("interrupted KeyboardInterrupt")


def test_an_exit_that_was_caught_ended_nothing() -> None:
    code = "try:\n    sys.exit(1)\nexcept SystemExit:\n    pass\nending.goes_on()"
    assert ended(AT_EXIT + code) == "completed NoneType None False"


def test_another_thread_s_exit_ends_only_that() -> None:
    code = "thread = threading.Thread(target=lambda: sys.exit(3))\nthread.start()\nthread.join()"
    assert ended(AT_EXIT + code) == "completed NoneType None False"


def test_an_exception_of_another_thread_ends_only_that() -> None:
    code = "thread = threading.Thread(target=lambda: 1 / 0)\nthread.start()\nthread.join()"
    assert ended(AT_EXIT + code) == "completed NoneType None False"


@pytest.mark.parametrize(
    ("error", "seen"),
    [
        ("ValueError('x')", "failed ValueError x False"),
        ("KeyboardInterrupt", "interrupted KeyboardInterrupt  False"),
        ("SystemExit(4)", "failed str sys.exit(4) False"),
        ("SystemExit(0)", "completed NoneType None False"),
    ],
)
def test_in_a_finally_clause_what_is_on_its_way_is_seen(error: str, seen: str) -> None:
    assert ended(f"{WATCH}try:\n    raise {error}\nfinally:\n    say()") == seen


def test_an_error_that_was_handled_before_is_none() -> None:
    code = "try:\n    1 / 0\nexcept ZeroDivisionError:\n    pass\nsay()"
    assert ended(WATCH + code) == "completed NoneType None False"


def test_a_prompt_s_last_mistake_ends_nothing() -> None:
    lines = f"exec({AT_EXIT!r})\n1 / 0\nx = 1\n"
    assert ended("", "-i", "-q", given=lines) == "completed NoneType None False"


def test_ctrl_c_that_a_trainer_turns_into_a_good_end_is_an_interrupt_all_the_same() -> None:
    ending = Ending()
    ending.noticed(ValueError("handled"))
    assert ending.outcome().status == "completed"
    ending.noticed(KeyboardInterrupt())
    assert ending.outcome().status == "interrupted"
    ending.goes_on()
    assert ending.outcome() == Outcome("completed")


def test_sys_exit_is_as_it_was_afterwards() -> None:
    before = sys.exit
    ending = Ending()
    ending.watch()
    ending.watch()
    assert sys.exit is not before
    with pytest.raises(SystemExit) as raised:
        sys.exit("why")
    assert raised.value.code == "why"
    ending.unwatch()
    assert sys.exit is before


def test_what_somebody_put_before_ours_stays() -> None:
    """W&B, say, has one of its own."""
    before = sys.exit
    ending = Ending()
    ending.watch()
    ours = sys.exit
    try:
        sys.exit = theirs = lambda code=None, /: ours(code)  # type: ignore[assignment]  # never returns, either
        ending.unwatch()
        assert sys.exit is theirs
        with pytest.raises(SystemExit):
            sys.exit(3)
    finally:
        sys.exit = before


def test_the_signals_that_ask_to_stop() -> None:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        assert of_exit_code(128 + number).status == "interrupted"
    assert of_exit_code(128 + signal.SIGSEGV).status == "failed"
    assert of_exit_code(True) == Outcome("failed", "sys.exit(True)")


def test_a_status_is_one_of_four() -> None:
    assert [checked_status(each) for each in STATUSES] == list(STATUSES)
    with pytest.raises(RecordError, match=r"summary: status: expected one of completed, failed, .*, got 'running'"):
        checked_status("running")
