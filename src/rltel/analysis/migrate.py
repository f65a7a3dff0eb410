"""A copy of an old run under today's names. The original is only read."""

import hashlib
import json
import os
import shutil
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rltel.analysis.event_copy import EventCopy
from rltel.analysis.plan import Plan, plan_of
from rltel.analysis.run_files import SUMMARY, RunFiles, algorithm_of, event_files, read_object
from rltel.analysis.scalars import read_events
from rltel.analysis.schema_gate import KEY
from rltel.core.errors import RltelError
from rltel.names.schema import METRIC_SCHEMA_VERSION
from rltel.version import VERSION


@dataclass(slots=True)
class Migrated:
    """What became of each tag. ``points`` counts the old ones; ``unknown`` were carried as they are."""

    path: Path
    algo: str | None
    renamed: dict[str, str] = field(default_factory=dict)
    left_out: dict[str, str] = field(default_factory=dict)
    canonical: set[str] = field(default_factory=set)
    unknown: set[str] = field(default_factory=set)
    points: Counter[str] = field(default_factory=Counter)
    notes: list[str] = field(default_factory=list)

    def add(self, plan: Plan) -> None:
        """A file's plan."""
        self.renamed.update((old, found.tag) for old, found in plan.renamed.items())
        self.left_out.update(plan.left_out)
        self.canonical |= plan.canonical
        self.unknown |= plan.unknown


def migrate(log_dir: str | os.PathLike[str], new_dir: str | os.PathLike[str], *, algo: str | None = None) -> Migrated:
    """Copy a run's folder, with canonical tags and units in its event files and the version in its summary.

    Args:
        log_dir: the folder of one run without ``metric_schema_version``.
        new_dir: the copy, which appears whole or not at all; may be there if it is empty.
        algo: who wrote the run, for names that had several meanings; else as its ``run_config.json`` says.

    Raises `RltelError` for what is not certainly such a run, or would touch the original; OSError for files that cannot
    be read or written.
    """
    files, path = _files_of(Path(log_dir)), Path(new_dir).absolute()
    _check_target(files.log_dir, path)
    summary = _unstamped(files)
    algo = algo or algorithm_of(files)
    plans = {each: _plan(each, algo) for each in files.events}
    made = Migrated(path, algo)
    for plan in plans.values():
        made.add(plan)
    if not made.renamed and not made.left_out and not made.canonical:
        raise RltelError(f"{log_dir}: expected old or canonical tags of unilab-rl, found none; nothing to migrate")
    _write(files, plans, summary, made)
    return made


def _files_of(log_dir: Path) -> RunFiles:
    events = event_files(log_dir)
    folders = sorted({str(path.parent) for path in events})
    if len(folders) != 1:
        raise RltelError(
            f"{log_dir}: expected the event files of one run at or below it, in one folder; found "
            f"{', '.join(folders) or 'none'}"
        )
    return RunFiles(log_dir, events)


def _check_target(log_dir: Path, new_dir: Path) -> None:
    if new_dir.exists() and (not new_dir.is_dir() or any(new_dir.iterdir())):
        raise RltelError(f"{new_dir}: expected a folder that is not there yet, or empty; give another one")
    if new_dir.resolve().is_relative_to(log_dir.resolve()):
        raise RltelError(f"{new_dir}: expected a folder outside of the original ({log_dir}), which is never touched")


def _unstamped(files: RunFiles) -> dict[str, Any]:
    path = files.beside(SUMMARY)
    summary = read_object(path) or {}
    if KEY in summary:
        raise RltelError(f"{path}: expected a run without {KEY}, got {summary[KEY]!r}: it has today's names already")
    return summary


def _plan(path: Path, algo: str | None) -> Plan:
    return plan_of(read_events([path], (), lambda tag: False).tags, algo, str(path))


def _write(files: RunFiles, plans: Mapping[Path, Plan], summary: Mapping[str, Any], made: Migrated) -> None:
    """All of it into a draft beside the copy's place, and then there."""
    made.path.parent.mkdir(parents=True, exist_ok=True)
    draft = made.path.parent / f".{made.path.name}.{os.getpid()}"
    try:
        # What is new comes first: the folders of the original may be read-only, and the copies are then, too.
        for path, plan in plans.items():
            _copy_events(path, _moved(path, files, draft), plan, made)
        stamped = _moved(_stamp_at(files), files, draft)
        stamped.write_text(json.dumps(_stamped(summary, files, made), indent=2) + "\n")
        _copy_rest(files, draft)
        draft.rename(made.path)
    except BaseException:
        shutil.rmtree(draft, ignore_errors=True)
        raise


def _moved(path: Path, files: RunFiles, into: Path) -> Path:
    return into / path.relative_to(files.log_dir)


def _stamp_at(files: RunFiles) -> Path:
    """Where the summary is, if that is within the run's folder; else beside the event file."""
    found = files.beside(SUMMARY)
    is_inside = found is not None and found.is_relative_to(files.log_dir)
    return found if is_inside and found is not None else files.events[0].parent / SUMMARY


def _copy_events(source: Path, target: Path, plan: Plan, made: Migrated) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    copy = EventCopy(plan)
    copy.write(source, target)
    shutil.copystat(source, target)
    made.points += copy.points
    if copy.damage is not None:
        made.notes.append(copy.damage)


def _copy_rest(files: RunFiles, draft: Path) -> None:
    done = {*files.events, _stamp_at(files)}
    shutil.copytree(
        files.log_dir,
        draft,
        symlinks=True,
        ignore=lambda folder, names: [name for name in names if Path(folder, name) in done],
        dirs_exist_ok=True,
    )


def _stamped(summary: Mapping[str, Any], files: RunFiles, made: Migrated) -> dict[str, Any]:
    came_from = {
        "by": f"rltel {VERSION}",
        "from": str(files.log_dir.absolute()),
        "algorithm": made.algo,
        "event_files": {path.name: _sha256(path) for path in files.events},
        "renamed": made.renamed,
        "left_out": made.left_out,
        "notes": made.notes,
    }
    return {**summary, KEY: METRIC_SCHEMA_VERSION, "migrated": came_from}


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
