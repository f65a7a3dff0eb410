"""What a check found, and what to do about it."""

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, TypeVar

Status = Literal["ok", "warning", "problem"]
Answer = TypeVar("Answer")


@dataclass(frozen=True)
class Finding:
    """One line of the doctor's report. Holds no secrets."""

    area: str
    """What was looked at: ``config``, ``prometheus.port`` ..."""
    status: Status
    what: str
    do: str = ""
    """What to do about it; "" if there is nothing to do."""


def ok(area: str, what: str) -> Finding:
    """As it should be."""
    return Finding(area, "ok", what)


def warning(area: str, what: str, do: str) -> Finding:
    """Works, and may not be what was meant."""
    return Finding(area, "warning", what, do)


def problem(area: str, what: str, do: str) -> Finding:
    """Will not work."""
    return Finding(area, "problem", what, do)


def within(seconds: float, ask: Callable[[], Answer]) -> Answer:
    """The answer, or TimeoutError: what is asked may hang where no time-out of its own reaches (a name server, NFS)."""
    answers: list[Answer] = []
    errors: list[Exception] = []

    def run() -> None:
        try:
            answers.append(ask())
        except Exception as error:
            errors.append(error)

    thread = threading.Thread(target=run, name="rltel-doctor", daemon=True)
    thread.start()
    thread.join(seconds)
    if errors:
        raise errors[0]
    if not answers:
        raise TimeoutError(f"no answer within {seconds:g} s")
    return answers[0]
