"""How the run's processes ended: each leaves it where it marks its end, and the run's summary names the cause.

Where ranks depend on each other, the first that fails takes the others down: their errors say only that it is gone.
"""

import json
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rltel.core.claims import is_held
from rltel.reduce.lost_peers import is_lost_peer
from rltel.runs.ending import Outcome
from rltel.runs.run_config import ns_of, utc
from rltel.runs.scrub import Scrub

_CLAIM = re.compile(r"(?P<role>.+)-(?P<index>\d+)\.(?P<incarnation>\d+)\.json")
_MAX_TEXT = 10_000
_PATIENCE_S = 0.5  # of one look at the claims: of a thousand ranks on a slow disk some may be missing


@dataclass(frozen=True, slots=True)
class End:
    """How one process ended. ``ended_ns``: when its end began (since the epoch); None if it was killed.

    ``lost_peer``: its error says only that another rank is gone.
    """

    process: str
    status: str
    error_type: str | None = None
    error: str | None = None
    ended_ns: int | None = None
    lost_peer: bool = False
    killed: bool = False

    @property
    def role(self) -> str:
        """The process's role."""
        return self.process.rpartition("-")[0]

    def entry(self) -> dict[str, Any]:
        """As the summary lists it."""
        made = asdict(self)
        ended_ns = made.pop("ended_ns")
        return {**made, "ended_at_utc": None if ended_ns is None else utc(ended_ns)}


def end_of(process: str, outcome: Outcome, ended_ns: int, scrub: Scrub | None = None) -> End:
    """This process's own end, without secrets."""
    kind, text = type_of(outcome.error), text_of(outcome.error)
    shown = text if scrub is None or text is None else str(scrub(text))
    lost_peer = isinstance(outcome.error, BaseException) and is_lost_peer(outcome.error)
    return End(process, outcome.status, kind, shown, ended_ns, lost_peer)


def type_of(error: BaseException | str | None) -> str | None:
    """An exception's type; None for words."""
    return type(error).__name__ if isinstance(error, BaseException) else None


def text_of(error: BaseException | str | None) -> str | None:
    """What an error says, as much of it as a file about a run has room for."""
    try:
        text = None if error is None else str(error)
    except Exception:  # an exception whose text cannot be made must not cost the end
        text = f"<{type(error).__name__} without a text>"
    return text if text is None or len(text) <= _MAX_TEXT else f"{text[:_MAX_TEXT]}... ({len(text)} characters)"


def ends(run_dir: Path, but: str, claimed_ns: int, ended_ns: int) -> list[End]:
    """How the run's processes of one start ended, but for one, in the order of time; those that were killed come last.

    Those that ended well, that go on, that are followed by another incarnation, and of which nobody knows (an earlier
    version's) are left out.

    Args:
        run_dir: the run's directory.
        but: the process to leave out.
        claimed_ns, ended_ns: of this start are processes that began after the one, or ended after the other time (ns
            since the epoch).
    """
    found: list[End] = []
    deadline = time.monotonic() + _PATIENCE_S
    for process, claim in _last_claims(run_dir / "claims"):
        end = None if process == but else _end(process, claim)
        if end is not None and (_changed_ns(claim) >= claimed_ns or (end.ended_ns or 0) >= ended_ns):
            found.append(end)
        if time.monotonic() > deadline:
            break
    return sorted(found, key=lambda each: (each.killed, each.ended_ns or 0, each.process))


def cause(own: End, others: Sequence[End]) -> End | None:
    """The failure that the run ended from: the earliest that says more than that a peer is gone.

    None if it is its own. Where the own process was killed, only a rank of its own role counts: others' errors may as
    well follow from that.
    """
    failed = [each for each in others if each.status == "failed" and not each.lost_peer]
    if own.killed:
        failed = [each for each in failed if each.role == own.role]
    elif not own.lost_peer:
        failed = [each for each in failed if (each.ended_ns or 0) < (own.ended_ns or 0)]
    return min(failed, key=lambda each: each.ended_ns or 0, default=None)


def told(own: End, others: Sequence[End], *, keeps_status: bool = False, keeps_error: bool = False) -> dict[str, Any]:
    """What the summary of a run that is over says about its processes, and about its error.

    Args:
        own: the writer's end.
        others: those of the others.
        keeps_status, keeps_error: the trainer said what it is.
    """
    listed = sorted([own, *others], key=lambda each: (each.killed, each.ended_ns or 0))
    made: dict[str, Any] = {"processes": [each.entry() for each in listed if each.status != "completed"]}
    first = None if own.status == "completed" else cause(own, others)
    if first is not None and own.status == "interrupted" and first.role == own.role and not keeps_status:
        made["status"] = "failed"  # the launcher stopped the writer because another rank had failed
    if first is None or keeps_error:
        return {**made, "error_process": own.process if own.error is not None else None}
    return {**made, "error_type": first.error_type, "error": first.error, "error_process": first.process}


def _last_claims(folder: Path) -> Iterator[tuple[str, Path]]:
    """Of each place the process that came last."""
    last: dict[tuple[str, int], tuple[int, Path]] = {}
    with suppress(OSError):
        for path in folder.iterdir():
            match = _CLAIM.fullmatch(path.name)
            if match is not None:
                place = match["role"], int(match["index"])
                last[place] = max(last.get(place, (0, path)), (int(match["incarnation"]), path))
    for _, (_, path) in sorted(last.items()):
        yield path.name.removesuffix(".json"), path


def _end(process: str, claim: Path) -> End | None:
    """None if it goes on, ended well, or left nothing."""
    try:
        text = claim.with_suffix(".ended").read_text(encoding="utf-8")
    except OSError:
        return None if is_held(claim, rank_is_unique=False) else End(process, "interrupted", killed=True)
    try:
        return _read(process, json.loads(text))
    except ValueError:
        return None


def _read(process: str, left: Any) -> End | None:
    if not isinstance(left, Mapping) or left.get("status") in (None, "completed"):
        return None
    ended_ns = left.get("ended_ns")
    return End(
        process,
        str(left["status"]),
        _text(left.get("error_type")),
        _text(left.get("error")),
        ended_ns if isinstance(ended_ns, int) else 0,
        left.get("lost_peer") is True,
    )


def of_entry(entry: Mapping[str, Any]) -> End:
    """A process as a summary lists it."""
    return End(
        str(entry.get("process")),
        str(entry.get("status")),
        _text(entry.get("error_type")),
        _text(entry.get("error")),
        ns_of(entry.get("ended_at_utc")),
        entry.get("lost_peer") is True,
        entry.get("killed") is True,
    )


def _text(value: Any) -> str | None:
    return None if value is None else str(value)


def _changed_ns(path: Path) -> int:
    try:
        return path.stat().st_mtime_ns
    except OSError:
        return 0
