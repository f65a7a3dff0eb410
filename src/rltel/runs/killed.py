"""A start that was killed could not say how far it got. Its record can: that lost no commit."""

from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

from rltel.core.errors import RltelError
from rltel.core.identity import Identity
from rltel.export.jsonl import Line, read_jsonl_end
from rltel.runs.progress import Progress
from rltel.runs.recorded import commit_of

_TAIL_BYTES = 1 << 20  # of the record: a summary lags some seconds behind it, and `init` waits for this
_NOBODY = Identity("", None, "", 0, 1, 0, 1, False)


def made_up_for(start: Mapping[str, Any], record: Path) -> tuple[dict[str, Any], Progress]:
    """The entry of a killed start in the summary's list, with what its record knows better; and what that has shown.

    Without its ``record`` (a JSONL) only the mark is new.
    """
    seen = _whole(start.get("commits"))
    lines = _lines(record, str(start.get("process")), seen)
    progress = Progress(start.get("axis"))
    for line in lines:
        progress.observe(commit_of(_NOBODY, line), line.time_ns)
    newer: dict[str, Any] = {"last_step": progress.last_step, "last_env_steps": progress.last_env_steps}
    if lines:
        newer |= {"commits": lines[-1].number + 1, "wall_time_sec": _wall_time(start, lines[-1].time_ns)}
    if lines and lines[0].number == seen == 0:
        newer |= {"first_step": progress.first_step, "first_env_steps": progress.first_env_steps}
    known = {name: value for name, value in newer.items() if value is not None}
    return {**start, **known, "axis": progress.axis, "status": "interrupted", "killed": True}, progress


def _lines(record: Path, process: str, seen: int) -> list[Line]:
    """The commits that the summary has not seen, as far as the record's end has them."""
    try:
        found = list(read_jsonl_end(record, _TAIL_BYTES))
    except (OSError, RltelError):  # none, or another version's
        return []
    return [line for line in found if line.process.get("process") == process and line.number >= seen]


def _wall_time(start: Mapping[str, Any], last_ns: int) -> float | None:
    """Until the last commit, in seconds; what the summary says, if that is later."""
    said = start.get("wall_time_sec")
    known = float(said) if isinstance(said, (int, float)) else 0.0
    try:
        began_s = datetime.fromisoformat(str(start.get("started_at_utc"))).timestamp()
    except ValueError:
        return known
    return max(known, last_ns / 1e9 - began_s)


def _whole(value: Any) -> int:
    return value if isinstance(value, int) else 0
