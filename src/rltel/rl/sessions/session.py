"""One rollout's life: submitted, running through its phases, and ended in one of a few ways."""

import asyncio
import threading
from collections.abc import Mapping
from contextlib import suppress
from contextvars import ContextVar, Token
from typing import Any, Literal, NoReturn, Protocol, Self, get_args

from rltel.core.errors import RecordError
from rltel.core.redact import redact
from rltel.record.recorder import Recorder
from rltel.record.records import Site
from rltel.record.slices import Raised
from rltel.record.spans import Span, spelled
from rltel.rl.sessions.numbers import RESERVED, SessionNumbers
from rltel.rl.sessions.phase import SessionPhase
from rltel.rl.sessions.said import amount, as_version, kept, text_of
from rltel.rl.sessions.ticket import Ticket
from rltel.rl.sessions.times import OverlappingTime

End = Literal["accepted", "rejected", "dropped", "failed", "cancelled", "abandoned", "unfinished"]
ENDS: tuple[str, ...] = get_args(End)
MAX_CALLS = 64
"""Of one session whose begin and end are kept; all of them count in the phases' times."""
_SITE = Site("rollout", "rollout", "rl.rollout")
_here: ContextVar["Session | None"] = ContextVar("rltel.session", default=None)


class Home(Protocol):
    """Where a session is under way (`rltel.rl.sessions.registry.Sessions`)."""

    recorder: Recorder
    lock: "threading.RLock"

    def site_of(self, phase: str) -> Site:
        """Where slices of this phase are drawn."""

    def has(self, session: "Session") -> bool:
        """Whether it is under way here: not ended, and not left in a parent process."""

    def end(self, session: "Session", status: End) -> bool:
        """It has ended. False if it had before."""


class Session:
    """One rollout. Made by `rltel.rl.sessions.submit`.

    Inside ``with session:`` it runs: a span, with a real OpenTelemetry context in place. Its phases may overlap, be
    timed from any task or thread, and lie outside of the ``with`` (as when a server handles a session's requests one by
    one). It ends when it leaves the ``with``, or is told how, whichever is later; see `accept`.
    """

    def __init__(
        self,
        home: Home,
        ticket: Ticket,
        numbers: SessionNumbers,
        *,
        submitted_at_ns: int,
        judged_later: bool,
        attributes: Mapping[str, Any],
    ) -> None:
        self.id = ticket.id
        self.numbers = numbers
        self.attributes: dict[str, Any] = kept(attributes)
        """What its caller says about it."""
        self.counters: dict[str, float] = {}
        self.submitted_at_ns = submitted_at_ns
        """When, on the wall clock."""
        self.submitted_ns = home.recorder.now()
        self.started_ns: int | None = None
        """When it began to run: entered, or in its first phase."""
        self.ended_ns: int | None = None
        self.times: dict[str, OverlappingTime] = {}
        self.covered = OverlappingTime()
        """Any phase at all."""
        self.calls: list[tuple[str, int, int]] = []
        """Phases, their begins and ends: of the first `MAX_CALLS` that ended."""
        self.open_at_end: list[str] = []
        """Phases that were open when it ended."""
        self.reason: str | None = None
        self.error: str | None = None
        self.staleness: int | None = None
        self.trace: tuple[int, int] | None = None
        """Trace and span id."""
        self._home = home
        self._flow = ticket.flow
        self._first_version = ticket.policy_version
        self._versions: dict[int, None] = {}  # in the order of their use
        self._oldest_version: int | None = None
        self._judged_later = judged_later
        self._end: End | None = None
        self._is_running = False
        self._span: Span | None = None
        self._token: Token[Session | None] | None = None

    # --- what it is ---------------------------------------------------------------------------------------------------

    @property
    def status(self) -> str:
        """``submitted``, ``running``, ``waiting`` (for somebody to say how it ended), or how it ended."""
        if self.ended_ns is not None:
            return self._end or "unfinished"
        if self._is_running:
            return "running"
        return "submitted" if self.started_ns is None else "waiting"

    @property
    def doing(self) -> list[str]:
        """The phases that are open now."""
        with self._home.lock:
            return [name for name, times in self.times.items() if times.open]

    @property
    def policy_versions(self) -> list[int]:
        """The policies that generated it, in the order of their use; before any did, the one it was submitted with."""
        if self._versions:
            return list(self._versions)
        return [] if self._first_version is None else [self._first_version]

    @property
    def policy_version(self) -> int | None:
        """The oldest of them, which the session's staleness is counted from. None if nobody said any."""
        return self._first_version if self._oldest_version is None else self._oldest_version

    def ticket(self) -> Ticket:
        """What stands for it in the process of the update: send it along with the result."""
        return Ticket(self.id, self._flow, self.policy_version)

    def __reduce__(self) -> NoReturn:
        raise TypeError(f"session {self.id} stays in its process: send session.ticket() to another")

    # --- what happens in it -------------------------------------------------------------------------------------------

    def phase(self, name: str, *, policy_version: int | None = None, **attributes: Any) -> SessionPhase:
        """Time what runs inside the ``with``, and draw it: ``generate``, ``reward``, ``tool_call``, or any name.

        ``policy_version``: the policy that this call generates with, read before it begins: weights may change
        meanwhile. Raises `RecordError` for a name that is none.
        """
        if policy_version is not None:
            self.used_policy(policy_version)
            attributes["rl.policy.version"] = policy_version
        return SessionPhase(self, self._home.site_of(checked_phase(name)), self._home.recorder, kept(attributes))

    def used_policy(self, version: int) -> None:
        """Another policy generates from here on (weights were loaded in the middle of a generation)."""
        found = as_version("policy_version", version)
        with self._home.lock:
            if len(self._versions) < MAX_CALLS:
                self._versions.setdefault(found)
            self._oldest_version = found if self._oldest_version is None else min(found, self._oldest_version)

    def add(self, **amounts: float) -> None:
        """Add to the session's own counters (``output_tokens=17``): they stand in its line.

        Raises `RecordError`, and adds nothing, for what is no number on the host.
        """
        numbers = {name: amount(name, given) for name, given in amounts.items()}
        with self._home.lock:
            for name, number in numbers.items():
                self.counters[name] = self.counters.get(name, 0) + number

    def set(self, **attributes: Any) -> None:
        """Say more about it: in its line and, while it runs, on its span. Of tensors only their shape is kept."""
        said = kept(attributes)
        with self._home.lock:
            self.attributes.update(said)
        if self._span is not None:
            self._span.set(**said)

    def phase_begins(self, name: str, now_ns: int) -> None:
        """See `phase`."""
        with self._home.lock:
            if self.ended_ns is None:
                if self.started_ns is None:
                    self.started_ns = now_ns
                self.times.setdefault(name, OverlappingTime()).begin(now_ns)
                self.covered.begin(now_ns)

    def phase_ends(self, name: str, begun_ns: int, now_ns: int) -> None:
        """See `phase`."""
        record_call = self.numbers.call_timing(name)
        with self._home.lock:
            if self.ended_ns is None:
                self.times[name].end(begun_ns, now_ns)
                self.covered.end(begun_ns, now_ns)
                if len(self.calls) < MAX_CALLS:
                    self.calls.append((name, begun_ns, now_ns))
        record_call(now_ns - begun_ns)

    # --- how it ends --------------------------------------------------------------------------------------------------

    def accept(self, *, current_version: int | None = None) -> bool:
        """Its result is good. Where nobody says so, leaving the ``with`` does, unless it is to be judged later.

        ``current_version``: the last published policy, if known here: the line then has the session's staleness.
        Inside the ``with`` this takes effect at its end, and an exception that comes until then makes it ``failed``.
        False if it had ended before (it was too old, say): the first end stays.
        """
        return self._decide("accepted", None, current_version)

    def reject(self, reason: str | None = None, *, current_version: int | None = None) -> bool:
        """Its result was looked at, and is not wanted. As `accept`, but it stays whatever exception comes."""
        return self._decide("rejected", reason, current_version)

    def drop(self, reason: str | None = None, *, current_version: int | None = None) -> bool:
        """Nobody looks at it: it came too late, or is not needed any more. As `reject`."""
        return self._decide("dropped", reason, current_version)

    def fail(self, error: BaseException | str) -> bool:
        """It went wrong, where no exception leaves the ``with``. As `reject`."""
        if isinstance(error, BaseException):
            self.error = described(error)
            return self._decide("failed", None, None)
        return self._decide("failed", error, None)

    def _decide(self, end: End, reason: str | None, current_version: int | None) -> bool:
        oldest = self.policy_version
        with self._home.lock:
            if self.ended_ns is not None or not self._home.has(self):
                return False
            if current_version is not None and oldest is not None:
                self.staleness = as_version("current_version", current_version) - oldest
            self._end, self.reason = end, None if reason is None else text_of(reason)
            if self._is_running:
                return True
        return self._home.end(self, end)

    def close(self, status: End, now_ns: int) -> None:
        """Called by its home, once, when it ends."""
        self._end, self.ended_ns = status, now_ns
        self.open_at_end = [name for name, times in self.times.items() if times.open]

    # --- running ------------------------------------------------------------------------------------------------------

    def __enter__(self) -> Self:
        with self._home.lock:
            if self._span is not None:
                raise RecordError(f"session {self.id}: entered for a second time; submit one for each rollout")
            self._span = Span(self._home.recorder, _SITE, (self._flow,), self._said_at_begin())
            self._is_running = True
        self._span.__enter__()
        if self.started_ns is None:
            self.started_ns = self._span.begin_ns
        if self._span.context is not None:
            self.trace = self._span.context.trace_id, self._span.context.span_id
        self._token = _here.set(self)
        return self

    def __exit__(self, kind: Raised, error: BaseException | None, trace: object) -> None:
        token, self._token = self._token, None
        if token is not None:
            with suppress(ValueError):  # a generator that is closed in another task's context
                _here.reset(token)
        end = self._end_by(kind)
        if error is not None and end != "abandoned":
            self.error = described(error)
        span = self._span
        assert span is not None
        if end is not None:
            span.set(**self.said_at_end(end))
        self._is_running = False
        span.__exit__(kind, error, trace)
        if end is not None:
            self._home.end(self, end)

    def _end_by(self, kind: Raised) -> End | None:
        """How it ends by leaving its ``with`` like this; None if somebody will say later."""
        if kind is not None and self._end in (None, "accepted"):
            return _end_of(kind)
        if self._end is None and not self._judged_later:
            return "accepted"
        return self._end

    def _said_at_begin(self) -> dict[str, Any]:
        version = {} if self._first_version is None else {"rl.policy.version": self._first_version}
        return {"rl.session.id": self.id, **version, **self.attributes}

    def said_at_end(self, end: str) -> dict[str, Any]:
        """What its slice says when it is over."""
        said: dict[str, Any] = {"rl.session.status": end, **self.counters}
        if self.reason is not None:
            said["rl.session.reason"] = self.reason
        return said

    def draw(self, status: End) -> None:
        """Draw what has no span of its own: it never ran in a ``with``, or was judged after that."""
        recorder = self._home.recorder
        if not recorder.on or self.ended_ns is None:
            return
        if self._span is None:
            said = {**self._said_at_begin(), **self.said_at_end(status)}
            begin_ns = self.submitted_ns if self.started_ns is None else self.started_ns
            recorder.place(
                "sessions", _SITE.name, begin_ns, max(begin_ns, self.ended_ns), _SITE.category,
                flow=self._flow, attributes=said,
            )  # fmt: skip
        elif self._judged_later:
            recorder.instant(
                "session_judged", "rollout", attributes={"rl.session.id": self.id, **self.said_at_end(status)}
            )


def current() -> Session | None:
    """The session that runs here: in this task, or what created it. None if there is none."""
    return _here.get()


def _end_of(kind: type[BaseException]) -> End:
    if issubclass(kind, GeneratorExit):
        return "abandoned"  # nobody runs its coroutine to the end
    return "cancelled" if issubclass(kind, asyncio.CancelledError) else "failed"


def described(error: BaseException) -> str:
    """An exception in one line, without secrets."""
    said = spelled(error)
    return text_of(f"{type(error).__name__}: {redact(said)}" if said else type(error).__name__)


def checked_phase(name: Any) -> str:
    """A phase's name. Raises `RecordError` for what cannot be one."""
    if not isinstance(name, str) or not name.strip("/"):
        raise RecordError(f"session: phase: expected a name, got {name!r:.60}")
    if name in RESERVED:
        raise RecordError(f"session: phase: {', '.join(RESERVED)} are times of the session itself, got {name!r}")
    return name
