"""What is asked may hang; the answer comes in time all the same."""

import threading

import pytest

from rltel.cli.checks.finding import within


def test_an_answer_is_passed_on() -> None:
    assert within(5.0, lambda: 7) == 7


def test_an_error_is_passed_on() -> None:
    with pytest.raises(ZeroDivisionError):
        within(5.0, lambda: 1 / 0)


def test_what_hangs_is_given_up() -> None:
    release = threading.Event()
    with pytest.raises(TimeoutError, match=r"no answer within 0\.05 s"):
        within(0.05, release.wait)
    release.set()
