"""Sessions: the life of each rollout, from submission to the update that consumes it (docs/sessions.md).

A session leaves one span on the timeline, one line in the run directory (``sessions/<process>.jsonl``), and numbers
in the tracker ``rollout`` (``eval-rollout`` inside `rltel.eval_scope`): how many ended how, how long their phases took,
how many are under way, how stale they were when they were consumed.
"""

from collections.abc import Iterable
from typing import Any

from rltel.record.tracker import Tracker
from rltel.rl.sessions.phase import SessionPhase
from rltel.rl.sessions.reading import read_sessions as read
from rltel.rl.sessions.registry import Consumed, process_sessions
from rltel.rl.sessions.said import kept
from rltel.rl.sessions.session import ENDS, Session, checked_phase, current
from rltel.rl.sessions.ticket import Ticket

__all__ = [
    "ENDS", "Consumed", "Session", "SessionPhase", "Ticket",
    "consume", "current", "find", "in_flight", "phase", "read", "submit",
]  # fmt: skip


def submit(
    policy_version: int | None = None,
    *,
    judged_later: bool = False,
    flow: int | None = None,
    tracker: Tracker | None = None,
    **attributes: Any,
) -> Session:
    """A new session: submitted now, running inside ``with session:``.

    Args:
        policy_version: of the policy that generates it, unless its phases say otherwise.
        judged_later: leaving the ``with`` does not accept it: `Session.accept` or `Session.reject` will, from wherever
            (in this process). One that nobody judges is abandoned when it is old (6 hours), or 100 000 are open.
        flow: the arrow to the update that consumes it (`rltel.new_flow`); None makes one.
        tracker: where its numbers go; None is ``rltel.get(rltel.stat_scope())``.
        attributes: what you say about it, for its span and its line: ``task="gsm8k/17"``, ``group=3``. Texts are cut at
            500 characters, of tensors and arrays only single numbers on the host are kept. No prompts, unless you may
            write them down.

    Raises `RecordError` for a version that is no whole number, or a flow that is none.
    """
    return process_sessions.submit(policy_version, attributes, judged_later=judged_later, flow=flow, tracker=tracker)


def phase(name: str, *, policy_version: int | None = None, **attributes: Any) -> SessionPhase:
    """`Session.phase` of the session that runs here. Outside of any it is drawn, and counts for no session."""
    here = current()
    if here is not None:
        return here.phase(name, policy_version=policy_version, **attributes)
    if policy_version is not None:
        attributes["rl.policy.version"] = policy_version
    site = process_sessions.site_of(checked_phase(name))
    return SessionPhase(None, site, process_sessions.recorder, kept(attributes))


def consume(
    sessions: Iterable[Session | Ticket | Any],
    *,
    policy_version: int | None = None,
    step: int | None = None,
    tracker: Tracker | None = None,
) -> Consumed:
    """An update consumes these sessions: records their staleness, and gives the arrows for the update's slice.

    ``with clock.phase("train", flow=consume(tickets, policy_version=v, step=k).flows): ...``

    Args:
        sessions: sessions of this process, or `Session.ticket` of another's (as such, as a list or a mapping). One that
            several samples bring counts once.
        policy_version: the last published one, that the update starts from. A session is ``policy_version`` minus its
            oldest policy's version old.
        step: which update this is.
        tracker: None is ``rltel.get(rltel.stat_scope())``.

    Raises `PayloadError` for what is no session, `RecordError` for a version or step that is no whole number; nothing
    is recorded then.
    """
    return process_sessions.consume(sessions, policy_version, step, tracker)


def find(session_id: str) -> Session | None:
    """The session of this id, if it is under way in this process."""
    return process_sessions.find(session_id)


def in_flight() -> list[Session]:
    """The sessions that are under way in this process, the oldest first; `Session.doing` says what they are at."""
    return process_sessions.in_flight()
