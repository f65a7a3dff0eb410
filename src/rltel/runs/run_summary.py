"""``run_summary.json``: how a run went, over all of its starts. UniLab's names where it has one."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from rltel.core.errors import RecordError
from rltel.core.identity import Identity
from rltel.core.rundir import placed
from rltel.names.schema import METRIC_SCHEMA_VERSION
from rltel.runs.atomic import read_json
from rltel.runs.diagnostics import diagnostics_problems
from rltel.runs.ending import checked_status
from rltel.runs.killed import made_up_for
from rltel.runs.layout import RUN_SUMMARY
from rltel.runs.manifest import check_manifest
from rltel.runs.plain import plain
from rltel.runs.processes import End, ends, of_entry, text_of, told, type_of
from rltel.runs.progress import Progress, better
from rltel.runs.recorded import is_running
from rltel.runs.run_config import ns_of, utc

RUNNING = "running"
_MAX_STARTS = 100
TRAINERS = frozenset(
    {"final_mean_reward", "best_mean_reward", "mean_episode_length", "last_checkpoint", "trace_path", "wandb_run_url"}
    | {"completed_iterations", "total_env_steps"}
)
"""What the trainer may know better than the commits do."""


@dataclass(frozen=True, slots=True)
class Before:
    """What earlier starts of the run did: a resumed run goes on with it."""

    starts: tuple[Mapping[str, Any], ...] = ()
    count: int = 0
    wall_time_s: float = 0.0
    best_reward: float | None = None
    env_steps: int | None = None
    step: int | None = None
    started: str | None = None


@dataclass(slots=True)
class Now:
    """What is known of this start: times (``started_ns``, ``now_ns``: since the epoch), and how it ended, if it has."""

    identity: Identity
    started_ns: int
    now_ns: int
    wall_time_s: float
    status: str = RUNNING
    error: BaseException | str | None = None
    told: Mapping[str, Any] = field(default_factory=dict)
    """What its processes say of the end (`processes.told`)."""


def run_summary(now: Now, before: Before, progress: Progress, about: Mapping[str, Any]) -> dict[str, Any]:
    """The content of the file. ``about``: what the trainer said, and what the destinations know. It comes last."""
    identity = now.identity
    is_over = now.status != RUNNING
    env_steps = before.env_steps if progress.last_env_steps is None else progress.last_env_steps
    summary = {
        "status": now.status,
        "error_type": type_of(now.error),
        "error": text_of(now.error),
        "error_process": None if now.error is None else identity.name,
        "processes": [],
        "run_id": identity.run_id,
        "process": identity.name,
        "incarnations": before.count + 1,
        "started_at_utc": before.started or utc(now.started_ns),
        "updated_at_utc": utc(now.now_ns),
        "ended_at_utc": utc(now.now_ns) if is_over else None,
        "training_wall_time_sec": before.wall_time_s + now.wall_time_s,
        "completed_iterations": before.step if progress.last_step is None else progress.last_step,
        "total_env_steps": env_steps,
        **progress.rates(),
        "final_mean_reward": progress.reward,
        "best_mean_reward": better(before.best_reward, progress.best_reward),
        "mean_episode_length": progress.episode_length,
        "last_checkpoint": None,
        "trace_path": None,
        "wandb_run_url": None,
        "dropped": {},
        "metric_schema_version": METRIC_SCHEMA_VERSION,
        **{name: value for name, value in about.items() if value is not None},
        "starts": [*before.starts, _start(now, progress)][-_MAX_STARTS:],
        **now.told,
    }
    made: dict[str, Any] = plain(summary, "summary", lenient=True)
    return made


def _start(now: Now, progress: Progress) -> dict[str, Any]:
    """One start of the run, for the list of them."""
    return {
        "process": now.identity.name,
        "status": now.status,
        "killed": False,
        "started_at_utc": utc(now.started_ns),
        "wall_time_sec": now.wall_time_s,
        "commits": progress.commits,
        "axis": progress.axis,
        "first_step": progress.first_step,
        "last_step": progress.last_step,
        "first_env_steps": progress.first_env_steps,
        "last_env_steps": progress.last_env_steps,
    }


_RESERVED = frozenset(run_summary(Now(Identity("", None, "", 0, 1, 0, 1, True), 0, 0, 0.0), Before(), Progress(), {}))


def checked_fields(fields: Mapping[str, Any]) -> dict[str, Any]:
    """What a trainer adds to its summary, as plain data. ``status`` and ``error`` are among it.

    Raises `RecordError` for a name that is ours, a status that is none, or what JSON cannot hold; `ManifestError` for a
    runtime manifest that breaks its contract.
    """
    made: dict[str, Any] = {}
    for name, value in fields.items():
        if name == "status":
            made[name] = checked_status(value)
        elif name == "error":
            made[name] = value if isinstance(value, BaseException) else str(value)
        elif name in _RESERVED - TRAINERS or name == "written_by":
            raise RecordError(f"summary: {name}: rltel itself writes this; expected another name")
        else:
            made[name] = plain(value, f"summary: {name}")
    if made.get("runtime_manifest") is not None:
        check_manifest(made["runtime_manifest"])
    wrong = diagnostics_problems(made.get("backend_diagnostics"))
    if wrong:
        raise RecordError("\n".join(f"summary: {line}" for line in wrong))
    return made


def earlier_starts(run_dir: Path, record: str | None = None) -> Before:
    """What the summary of a run that is continued says; nothing, if there is none.

    A start that was going on is over, since there is another writer: it was killed. How far it got is in its record;
    ``record`` says where that is (``jsonl.path``), if not in the run directory.
    """
    found = read_json(run_dir / RUN_SUMMARY)
    if found is None:
        return Before()
    listed = found.get("starts")
    starts = tuple(each for each in listed if isinstance(each, dict)) if isinstance(listed, list) else ()
    before = Before(
        starts,
        _whole(found.get("incarnations")) or len(starts),
        _number(found.get("training_wall_time_sec")) or 0.0,
        _number(found.get("best_mean_reward")),
        _whole(found.get("total_env_steps")),
        _whole(found.get("completed_iterations")),
        str(found["started_at_utc"]) if found.get("started_at_utc") else None,
    )
    return _with_killed(before, run_dir, record) if found.get("status") == RUNNING and starts else before


def _with_killed(before: Before, run_dir: Path, record: str | None) -> Before:
    """As it is with what the last start did after its last summary."""
    last = before.starts[-1]
    record = record or f"{{run_dir}}/metrics/{last.get('process')}.jsonl"
    made, progress = made_up_for(last, placed(record, run_dir))
    more_s = (_number(made.get("wall_time_sec")) or 0.0) - (_number(last.get("wall_time_sec")) or 0.0)
    return replace(
        before,
        starts=(*before.starts[:-1], made),
        wall_time_s=before.wall_time_s + more_s,
        best_reward=better(before.best_reward, progress.best_reward),
        env_steps=before.env_steps if progress.last_env_steps is None else progress.last_env_steps,
        step=before.step if progress.last_step is None else progress.last_step,
    )


def read_run_summary(run_dir: Path) -> dict[str, Any] | None:
    """A run's summary; None if it has none of ours.

    A run whose process is gone though the file says ``running`` was killed: its status reads ``interrupted``. On
    another host than its own it counts as running until it has ended cleanly.

    Where it was killed, or its own error says only that another rank is gone, the processes' own words about their end
    complete it: they may have come later.
    """
    found = read_json(run_dir / RUN_SUMMARY)
    if found is None:
        return None
    process = str(found.get("process"))
    if found.get("status") == RUNNING:
        if is_running(run_dir, process):
            return found
        found["status"] = "interrupted"
        return {**found, **told(End(process, "interrupted", killed=True), _others(run_dir, found))}
    own = _own_entry(found)
    if own is None or not own.lost_peer or found.get("error_process") != process:
        return found
    return {**found, **told(own, _others(run_dir, found))}


def _own_entry(found: Mapping[str, Any]) -> End | None:
    """The writer's own end, as the list has it."""
    listed = found.get("processes")
    for entry in listed if isinstance(listed, list) else ():
        if isinstance(entry, dict) and entry.get("process") == found.get("process"):
            return of_entry(entry)
    return None


def _others(run_dir: Path, found: Mapping[str, Any]) -> list[End]:
    """How the others of the last start ended."""
    listed = found.get("starts")
    starts = [each for each in listed if isinstance(each, dict)] if isinstance(listed, list) else []
    began_ns = ns_of(starts[-1].get("started_at_utc")) if starts else 0
    return ends(run_dir, str(found.get("process")), end_ns(starts[:-1]), began_ns)


def end_ns(starts: Sequence[Mapping[str, Any]]) -> int:
    """When the last of these starts was over (ns since the epoch); 0 without any."""
    if not starts:
        return 0
    return ns_of(starts[-1].get("started_at_utc")) + int((_number(starts[-1].get("wall_time_sec")) or 0.0) * 1e9)


def _number(value: Any) -> float | None:
    return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else None


def _whole(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None
