"""Where a run's numbers and its summary are. A folder that may hold several runs is refused, never guessed about."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rltel.core.errors import RltelError
from rltel.runs.recorded import recorded

SUMMARY, CONFIG = "run_summary.json", "run_config.json"
_EVENTS = "events.out.tfevents.*"
_OURS = Path(".rltel", "run.json")  # says that the folder's files are all of one run: see export/tensorboard/folder.py
_LATE = "out_of_order*"
_TB = "tb"  # where unilab-rl's on-policy logger has them
_SHOWN = 3
_NUMBERS = re.compile(r"(\d+)")


@dataclass(frozen=True, slots=True)
class RunFiles:
    """Event files in their order; ``late``: those with values that came late; ``record``: else the JSONL."""

    log_dir: Path
    events: tuple[Path, ...] = ()
    late: tuple[Path, ...] = ()
    record: tuple[Path, ...] = ()

    @property
    def paths(self) -> tuple[Path, ...]:
        """All of them."""
        return self.events + self.late + self.record

    def beside(self, name: str) -> Path | None:
        """A file beside the event file.

        Or above it, where the event file lies in the folder that a run has for such files, not in a run directory.
        """
        folder = self.events[0].parent if self.events else self.log_dir
        is_part = bool(self.events) and ((folder / _OURS).is_file() or folder.absolute().name == _TB)
        candidates = [folder / name, *([folder.absolute().parent / name] if is_part else [])]
        return next((path for path in candidates if path.is_file()), None)


def find_run(log_dir: Path) -> RunFiles:
    """The files of the one run at or below a folder.

    Raises `RltelError` if there is none, or more than one event file that does not say it is of the same run.
    """
    events = event_files(log_dir)
    if not events:
        record = tuple(sorted((log_dir / "metrics").glob("*.jsonl")))
        if not record:
            raise RltelError(
                f"{log_dir}: expected an event file ({_EVENTS}) at or below it, or metrics/*.jsonl; found neither"
            )
        return RunFiles(log_dir, record=record)
    if len(events) == 1:
        return RunFiles(log_dir, events)
    return _ours(log_dir, events)


def event_files(log_dir: Path) -> tuple[Path, ...]:
    """All event files at or below a folder, in the order in which TensorBoard reads them."""
    if not log_dir.is_dir():
        raise RltelError(f"{log_dir}: expected a run's folder, found {'a file' if log_dir.exists() else 'nothing'}")
    return tuple(sorted((path for path in log_dir.rglob(_EVENTS) if path.is_file()), key=_in_order))


def _ours(log_dir: Path, events: Sequence[Path]) -> RunFiles:
    late = tuple(path for path in events if path.parent.match(_LATE))
    first = tuple(path for path in events if path not in late)
    folders = {path.parent for path in first} | {path.parent.parent for path in late}
    if len(folders) > 1 or not first or not (next(iter(folders)) / _OURS).is_file():
        raise RltelError(
            f"{log_dir}: expected one event file at or below it, found {len(events)} ({_shown(log_dir, events)}); "
            "give the folder of one run"
        )
    return RunFiles(log_dir, first, late)


def _shown(log_dir: Path, events: Sequence[Path]) -> str:
    names = [str(path.relative_to(log_dir)) for path in events[:_SHOWN]]
    return ", ".join([*names, *(["..."] if len(events) > _SHOWN else [])])


def read_object(path: Path | None) -> dict[str, Any] | None:
    """A JSON file's object; None if there is no file. NaN and infinity, which JSON does not have, are None.

    Raises `RltelError` for anything else.
    """
    if path is None:
        return None
    try:
        found = json.loads(path.read_bytes(), parse_constant=lambda name: None)
    except (OSError, ValueError, RecursionError) as error:
        raise RltelError(f"{path}: cannot be read: {error}") from error
    if not isinstance(found, dict):
        raise RltelError(f"{path}: expected a JSON object, got {type(found).__name__}")
    return found


def algorithm_of(files: RunFiles) -> str | None:
    """The algorithm, as the run's own config names it; None if it does not."""
    run = (read_object(files.beside(CONFIG)) or {}).get("run")
    algo = run.get("algo") if isinstance(run, dict) else None
    return algo if isinstance(algo, str) else None


def points_of_record(files: RunFiles) -> Iterator[tuple[int, int, Mapping[str, float]]]:
    """Of each commit of the run's writer: the number of its process, the step, and the numbers."""
    for part, found in enumerate(each for each in recorded(files.log_dir) if each.header.get("writer") is True):
        for commit in found.commits(files.log_dir):
            yield part, commit.step, commit.values


def _in_order(path: Path) -> list[list[tuple[int, str]]]:
    """Numbers in names by their value: a process's tenth writer of one second comes after its ninth."""
    return [
        [(int(part), "") if part.isdecimal() else (0, part) for part in _NUMBERS.split(name)] for name in path.parts
    ]
