"""How a program ends, as far as it can be seen from inside: what a run's status is made of.

An exception that nobody caught is in ``sys.last_value`` by the time hooks at exit run. Frameworks of command lines
(Hydra, say) print it themselves and call ``sys.exit(1)``, of which nothing is left then: so that call is watched.
"""

import signal
import sys
import threading
from dataclasses import dataclass
from typing import Any, Literal, NoReturn, get_args

from rltel.core.errors import RecordError

Status = Literal["completed", "failed", "interrupted", "collector_died"]
STATUSES: tuple[Status, ...] = get_args(Status)
_ASKED_TO_STOP = {
    128 + number for name in ("SIGHUP", "SIGINT", "SIGTERM") if (number := getattr(signal, name, None)) is not None
}


@dataclass(frozen=True, slots=True)
class Outcome:
    """The status that can be seen, and the exception or the words that go with it.

    ``uncaught``: the exception ended the program, so nobody can have called it completed.
    """

    status: Status
    error: BaseException | str | None = None
    uncaught: bool = False


class Ending:
    """Watches how the program ends, from `watch` to `unwatch`."""

    def __init__(self) -> None:
        self._exit: Outcome | None = None
        self._interrupt: KeyboardInterrupt | None = None
        self._own_exit: Any = None
        self._their_exit: Any = None

    def watch(self) -> None:
        """Put a note-taker before ``sys.exit``. It changes nothing about it."""
        if self._own_exit is not None:
            return
        self._their_exit = their_exit = sys.exit

        def exit(status: Any = None, /) -> NoReturn:
            if threading.current_thread() is threading.main_thread():  # in any other it ends only that
                self._exit = of_exit_code(status, sys.exc_info()[1])
            their_exit(status)

        self._own_exit = exit
        setattr(sys, "exit", exit)  # noqa: B010  # mypy refuses a plain assignment

    def unwatch(self) -> None:
        """Take it away again, unless somebody has put theirs before it since: then it stays, and does no harm."""
        if self._own_exit is not None and sys.exit is self._own_exit:
            setattr(sys, "exit", self._their_exit)  # noqa: B010  # as above
        self._own_exit = self._their_exit = None

    def noticed(self, error: BaseException) -> None:
        """An exception came out of a step. Ctrl+C means the run was interrupted, even if the trainer then ends well."""
        if isinstance(error, KeyboardInterrupt):
            self._interrupt = error

    def goes_on(self) -> None:
        """Training goes on, whatever was noticed before."""
        self._exit = self._interrupt = None

    def outcome(self) -> Outcome:
        """How it ends, if it ends now."""
        uncaught = _uncaught()
        if uncaught is not None:
            return of_error(uncaught, uncaught=True)
        in_flight = sys.exc_info()[1]
        if in_flight is not None and not isinstance(in_flight, (GeneratorExit, SystemExit)):
            return of_error(in_flight)
        if isinstance(in_flight, SystemExit):
            return self._exit or of_exit_code(in_flight.code, in_flight.__context__)
        if self._exit is not None:
            return self._exit
        return Outcome("completed") if self._interrupt is None else of_error(self._interrupt)


def of_error(error: BaseException, *, uncaught: bool = False) -> Outcome:
    """What an exception makes of a run: failed, or interrupted by Ctrl+C."""
    return Outcome("interrupted" if isinstance(error, KeyboardInterrupt) else "failed", error, uncaught)


def of_exit_code(code: Any, error: BaseException | None = None) -> Outcome:
    """What ``sys.exit(code)`` makes of a run; ``error`` is what was being handled then."""
    if code is None or code == 0:
        return Outcome("completed")
    if code in _ASKED_TO_STOP or isinstance(error, KeyboardInterrupt):
        return Outcome("interrupted", error)
    if isinstance(code, int):
        return Outcome("failed", error or f"sys.exit({code})")
    return Outcome("failed", error or str(code))


def checked_status(status: Any) -> Status:
    """One of `STATUSES`. Raises `RecordError` for another."""
    for known in STATUSES:
        if status == known:
            return known
    raise RecordError(f"summary: status: expected one of {', '.join(STATUSES)}, got {status!r}")


def _uncaught() -> BaseException | None:
    """The exception that ends the program. A prompt keeps its last mistake in the same place, which ends nothing."""
    is_prompt = hasattr(sys, "ps1") or bool(sys.flags.interactive)
    is_over = bool(getattr(threading, "_SHUTTING_DOWN", False)) or not threading.main_thread().is_alive()
    return getattr(sys, "last_value", None) if is_over and not is_prompt else None
