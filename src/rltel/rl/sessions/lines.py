"""The line of a session, and of an update that consumed some: one JSON object each (docs/sessions.md)."""

import math
from collections.abc import Mapping
from typing import Any

import msgspec

from rltel.core.identity import Identity
from rltel.rl.sessions.registry import Update, session_times
from rltel.rl.sessions.said import text_of
from rltel.rl.sessions.session import MAX_CALLS, End, Session

VERSION = 1
_MAX_ATTRIBUTES = 64
_encode = msgspec.json.Encoder().encode


def header(identity: Identity) -> bytes:
    """The first line of a file: whose it is."""
    return _line(
        "process",
        process=identity.name,
        run=identity.run_id,
        role=identity.role,
        rank=identity.rank,
        world_size=identity.world_size,
    )


def line_of(ended: tuple[Session, End] | Update) -> bytes:
    """A session that has ended, or an update."""
    if isinstance(ended, Update):
        return _line("update", **ended._asdict())
    return _line("session", **_session(*ended))


def _line(kind: str, **fields: Any) -> bytes:
    return _encode({"v": VERSION, "type": kind, **fields}) + b"\n"


def _session(session: Session, status: End) -> dict[str, Any]:
    now_ns = session.submitted_ns if session.ended_ns is None else session.ended_ns
    line: dict[str, Any] = {"id": session.id, "status": status, "submitted_ns": session.submitted_at_ns}
    line.update({f"{name}_s": ns / 1e9 for name, ns in session_times(session, now_ns).items()})
    versions = session.policy_versions
    if versions:
        line.update(policy_version=session.policy_version, policy_versions=versions)
    for name in ("staleness", "reason", "error"):
        value = getattr(session, name)
        if value is not None:
            line[name] = value
    line["phases"] = {
        name: {"calls": times.calls, "wall_s": times.wall_ns(now_ns) / 1e9, "busy_s": times.busy_ns(now_ns) / 1e9}
        for name, times in session.times.items()
    }
    line.update(_calls(session))
    line.update(_plain("counters", session.counters))
    line.update(_plain("attributes", session.attributes))
    if session.trace is not None:
        line.update(trace_id=f"{session.trace[0]:032x}", span_id=f"{session.trace[1]:016x}")
    return line


def _calls(session: Session) -> dict[str, Any]:
    """When each call was, in seconds since it was submitted."""
    at = session.submitted_ns
    found: dict[str, Any] = {"calls": [[name, (b - at) / 1e9, (e - at) / 1e9] for name, b, e in session.calls]}
    left_out = session.covered.calls - session.covered.open - len(session.calls)
    if left_out > 0 and len(session.calls) >= MAX_CALLS:
        found["calls_left_out"] = left_out
    if session.open_at_end:
        found["open_at_end"] = session.open_at_end
    return found


def _plain(what: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """Values that JSON holds, of bounded length, and how many there would have been besides."""
    if not given:
        return {}
    shown = {text_of(name): _value(value) for name, value in list(given.items())[:_MAX_ATTRIBUTES]}
    left_out = len(given) - _MAX_ATTRIBUTES
    return {what: shown, **({f"{what}_left_out": left_out} if left_out > 0 else {})}


def _value(value: Any) -> Any:
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int) and abs(value) < 1 << 63:
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)  # JSON has no NaN
    return text_of(value).encode(errors="backslashreplace").decode()
