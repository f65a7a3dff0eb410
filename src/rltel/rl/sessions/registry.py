"""The sessions that are under way in this process, within bounds, and those that ended and wait to be written."""

import logging
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple
from weakref import WeakSet

from rltel.core.context import new_flow, new_id
from rltel.core.errors import PayloadError
from rltel.record.inputs import summary
from rltel.record.recorder import Recorder, timeline
from rltel.record.records import Site
from rltel.record.tracker import Tracker
from rltel.reduce.scopes import stat_scope
from rltel.rl.inputs import process_trackers
from rltel.rl.sessions.numbers import SessionNumbers
from rltel.rl.sessions.said import as_flow, as_version
from rltel.rl.sessions.session import End, Session
from rltel.rl.sessions.ticket import Ticket, as_ticket

_log = logging.getLogger("rltel")
MAX_OPEN = 100_000
MAX_AGE_S = 6 * 3600.0
MAX_WAITING = 50_000
"""Ended sessions that wait to be written; some 100 MB."""
MAX_PHASES = 256
"""Names of phases that a process keeps apart; the others are ``other``."""


class Update(NamedTuple):
    """An update that consumed sessions."""

    time_ns: int
    step: int | None
    policy_version: int | None
    sessions: list[str]
    staleness: list[int | None]


class Consumed(NamedTuple):
    """What an update consumes. ``flows``: arrows, to be given to the slice of the update; one of each session."""

    flows: list[int]
    staleness: list[int | None]
    """In versions, one for each of what was given; None where a session's or the update's version is not known."""


class Sessions:
    """The sessions of one process. Never waits for a disk; what has ended is not kept, but to be written.

    A session that nobody ends is ended here, as ``abandoned``: after ``max_age_s``, or when there are more than
    ``max_open``, the oldest first.
    """

    def __init__(
        self,
        recorder: Recorder = timeline,
        *,
        max_open: int = MAX_OPEN,
        max_age_s: float = MAX_AGE_S,
        max_waiting: int = MAX_WAITING,
        wall_ns: Callable[[], int] = time.time_ns,
    ) -> None:
        self.recorder = recorder
        self._max_open = max_open
        self._max_age_ns = round(max_age_s * 1e9)
        self._max_waiting = max_waiting
        self._wall_ns = wall_ns
        self._numbers: dict[int, tuple[Tracker, SessionNumbers]] = {}
        self._sites: dict[str, Site] = {}
        self.reset()
        _all.add(self)

    def reset(self) -> None:
        """Forget everything (in a forked child: the sessions are the parent's, who will end them)."""
        self.lock = threading.RLock()  # held for a few instructions; garbage collection may end a session inside them
        self._open: dict[str, Session] = {}  # in the order in which they were submitted
        self._ended: deque[tuple[Session, End] | Update] = deque()
        self._is_kept = False
        self._lost = 0
        for _, numbers in self._numbers.values():
            numbers.in_flight = 0

    # --- use ----------------------------------------------------------------------------------------------------------

    def submit(
        self,
        policy_version: int | None,
        attributes: dict[str, Any],
        *,
        judged_later: bool = False,
        flow: int | None = None,
        tracker: Tracker | None = None,
    ) -> Session:
        """See `rltel.rl.sessions.submit`."""
        version = None if policy_version is None else as_version("policy_version", policy_version)
        ticket = Ticket(f"{new_id():016x}", new_flow() if flow is None else as_flow(flow), version)
        numbers = self._numbers_of(tracker)
        session = Session(
            self, ticket, numbers,
            submitted_at_ns=self._wall_ns(), judged_later=judged_later, attributes=attributes,
        )  # fmt: skip
        with self.lock:
            self._open[session.id] = session
            numbers.in_flight += 1
        numbers.show_in_flight()
        self.end_old()
        return session

    def find(self, session_id: str) -> Session | None:
        """A session that is under way, by its id."""
        with self.lock:
            return self._open.get(session_id)

    def in_flight(self) -> list[Session]:
        """Those that are under way, the oldest first."""
        with self.lock:
            return list(self._open.values())

    def has(self, session: Session) -> bool:
        """Whether it is under way here: not ended, and not left in a parent process."""
        return self._open.get(session.id) is session

    def consume(
        self,
        sessions: Iterable[Any],
        policy_version: int | None,
        step: int | None,
        tracker: Tracker | None = None,
    ) -> Consumed:
        """See `rltel.rl.sessions.consume`."""
        tickets = [each.ticket() if isinstance(each, Session) else as_ticket(each) for each in _several(sessions)]
        current = None if policy_version is None else as_version("policy_version", policy_version)
        number = None if step is None else as_version("step", step)
        once = {ticket.id: ticket for ticket in tickets}  # samples of one session may each bring its ticket
        ages = {name: _age(ticket, current) for name, ticket in once.items()}
        self._numbers_of(tracker).consumed(len(once), [age for age in ages.values() if age is not None])
        self._keep(Update(self._wall_ns(), number, current, list(ages), list(ages.values())))
        return Consumed([ticket.flow for ticket in once.values()], [ages[ticket.id] for ticket in tickets])

    def _numbers_of(self, tracker: Tracker | None) -> SessionNumbers:
        tracker = process_trackers().get(stat_scope()) if tracker is None else tracker
        found = self._numbers.get(id(tracker))
        if found is None:
            found = self._numbers.setdefault(id(tracker), (tracker, SessionNumbers(tracker)))
        return found[1]

    def site_of(self, phase: str) -> Site:
        """Where slices of this phase are drawn. Names made up on the way end up as ``other``: they are metrics, too."""
        found = self._sites.get(phase)
        if found is None:
            if len(self._sites) >= MAX_PHASES:
                if "other" not in self._sites:
                    _log.warning("session: more than %d names of phases: %r is other (said once)", MAX_PHASES, phase)
                phase = "other"
            found = self._sites.setdefault(phase, Site(phase, "session"))
        return found

    # --- ends ---------------------------------------------------------------------------------------------------------

    def end(self, session: Session, status: End) -> bool:
        """It has ended. False if it had before, or is not of this process."""
        with self.lock:
            if self._open.get(session.id) is not session:
                return False
            del self._open[session.id]
            session.numbers.in_flight -= 1
            now_ns = self.recorder.now()
            session.close(status, now_ns)
        session.draw(status)
        _record(session, now_ns, status)
        self._keep((session, status))
        return True

    def end_old(self) -> None:
        """End those that are too old, or too many."""
        while True:
            with self.lock:
                oldest = next(iter(self._open.values()), None)
                if oldest is None:
                    return
                age_ns = self.recorder.now() - oldest.submitted_ns
                if len(self._open) > self._max_open:
                    oldest.reason = f"more than {self._max_open} are open"
                elif age_ns > self._max_age_ns:
                    oldest.reason = f"older than {self._max_age_ns // 10**9} s"
                else:
                    return
            self.end(oldest, "abandoned")

    def end_all(self) -> None:
        """The process ends: those that are under way stay unfinished."""
        for session in self.in_flight():
            self.end(session, "unfinished")

    # --- what has ended -----------------------------------------------------------------------------------------------

    def keep_ended(self, keep: bool) -> None:
        """Whether somebody writes what has ended; else it is not kept."""
        self._is_kept = keep

    def take(self) -> list[tuple[Session, End] | Update]:
        """Remove and return what has ended."""
        return [self._ended.popleft() for _ in range(len(self._ended))]

    def take_lost(self) -> int:
        """How many were not kept, as nobody wrote what waited, since the last time."""
        with self.lock:
            lost, self._lost = self._lost, 0
        return lost

    def _keep(self, ended: tuple[Session, End] | Update) -> None:
        if not self._is_kept:
            return
        if len(self._ended) >= self._max_waiting:
            with self.lock:
                self._lost += 1
            return
        self._ended.append(ended)


def _several(sessions: Any) -> Iterable[Any]:
    """What was given to be consumed; one session or ticket by itself is one."""
    if isinstance(sessions, (Session, Ticket)):
        return [sessions]
    if isinstance(sessions, (str, bytes, Mapping)) or not isinstance(sessions, Iterable):
        raise PayloadError(f"consume: expected a list of sessions or their tickets, got {summary(sessions)}")
    return sessions


def _age(ticket: Ticket, current: int | None) -> int | None:
    return None if current is None or ticket.policy_version is None else current - ticket.policy_version


def _record(session: Session, now_ns: int, status: End) -> None:
    """The session's numbers: how it ended, and how long it took."""
    numbers = session.numbers
    numbers.ended(status)
    numbers.show_in_flight()
    for name, duration_ns in session_times(session, now_ns).items():
        numbers.session_time(name, duration_ns)
    for name, times in session.times.items():
        numbers.session_time(name, times.wall_ns(now_ns))


def session_times(session: Session, now_ns: int) -> dict[str, int]:
    """The session's own times, in nanoseconds: the whole, waiting for its start, and in no phase after that."""
    started_ns = now_ns if session.started_ns is None else session.started_ns
    running_ns = now_ns - started_ns
    return {
        "total": now_ns - session.submitted_ns,
        "queue": started_ns - session.submitted_ns,
        "idle": max(running_ns - session.covered.wall_ns(now_ns), 0),
    }


_all: WeakSet[Sessions] = WeakSet()


def _forget() -> None:
    for sessions in _all:
        sessions.reset()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)

process_sessions = Sessions()
"""Those that the functions of `rltel.rl.sessions` act on."""
