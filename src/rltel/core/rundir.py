"""The run and its directory: found if somebody made it already, else made.

Layout as in UniLab: ``<log_root>/<algo>/<task>/<YYYY-MM-DD_HH-MM-SS>_<backend>[_gpux<ranks>]``; parts that are not set
are left out. A run with a given id is named by that id. So is one whose id a launcher gave, unless algo, task and
backend are all set: then the first rank names it by the time, and a note beside it leads the others there.
"""

import contextlib
import json
import os
import re
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from rltel.core.config import RunConfig
from rltel.core.errors import IdentityError
from rltel.core.files import one_at_a_time, publish

_RUN_FILE = "run.json"
_UNFIT = re.compile(r"[^A-Za-z0-9._=+-]+")


@dataclass(frozen=True, slots=True)
class Run:
    """One run: its id and where its files are."""

    id: str
    dir: Path

    @staticmethod
    def new_id() -> str:
        """A run id: the local time, for people, and 32 random bits, to be unique."""
        return f"{datetime.now():%Y%m%d-%H%M%S}-{os.urandom(4).hex()}"


def placed(path: str, run_dir: Path) -> Path:
    """A path of the config, with ``{run_dir}`` filled in."""
    return Path(path.replace("{run_dir}", str(run_dir)))


def find_run(run: RunConfig, shared_id: str | None, ranks: int = 1) -> Run:
    """The run that this process belongs to. Makes the directory and its ``run.json`` if nobody has yet.

    ``shared_id``: the id that all its processes were given; ``ranks``: how many they are, of the primary role.
    A directory that was asked for keeps the id of the run that it holds, whatever a launcher names this start of it.
    Raises `IdentityError` if the directory belongs to another run, or is empty and ``run.resume`` is ``must``.
    """
    try:
        if run.dir:
            return _join(Path(run.dir), run, shared_id, run.id)
        return _join_named(run, shared_id, ranks)
    except OSError as error:
        raise IdentityError(f"run directory {error.filename}: {error.strerror}; set run.dir or run.log_root") from error


def _join_named(run: RunConfig, shared_id: str | None, ranks: int) -> Run:
    parent = Path(run.log_root, *(_fit(part) for part in (run.algo, run.task) if part))
    if shared_id is not None:
        folder = _led_to(parent, run, shared_id, ranks) if _is_unilabs(run) else _fit(shared_id)
        return _join(parent / folder, run, shared_id, shared_id)
    if run.resume == "must":
        raise IdentityError("run directory: run.resume is must, so run.dir or run.id has to say which run to continue")
    return _join(_made(parent, run, ranks), run, None, None)


def _is_unilabs(run: RunConfig) -> bool:
    """Whether the folder is named by the time though its id is known: as UniLab does, which knows all three."""
    return run.id is None and bool(run.algo and run.task and run.backend)


def _made(parent: Path, run: RunConfig, ranks: int) -> Path:
    """A new directory that is named by the time."""
    backend = _fit(run.backend) if run.backend else None
    parts = f"{datetime.now():%Y-%m-%d_%H-%M-%S}", backend, f"gpux{ranks}" if ranks > 1 else None
    stem = "_".join(part for part in parts if part)
    parent.mkdir(parents=True, exist_ok=True)
    for attempt in range(1, 1000):
        made = parent / (stem if attempt == 1 else f"{stem}-{attempt}")
        try:
            made.mkdir()
        except FileExistsError:
            continue  # another run of the same second
        return made
    raise IdentityError(f"run directory {parent / stem}: 999 runs of the same second exist; set run.dir")


def _led_to(parent: Path, run: RunConfig, shared_id: str, ranks: int) -> str:
    """The folder of a run whose ranks know its id and not when the first of them started."""
    by_id = _fit(shared_id)
    note = parent / f".{by_id}.json"
    if not note.exists():
        if run.resume == "must" or (parent / by_id / _RUN_FILE).exists():
            return by_id  # a run that its id named, to be continued
        parent.mkdir(parents=True, exist_ok=True)
        with one_at_a_time(parent):  # else a rank that comes second may have been the first to make a folder
            if not note.exists():
                _lead(note, parent, run, shared_id, ranks)
    with contextlib.suppress(ValueError):
        match json.loads(note.read_text()):
            case {"folder": str(folder)} if folder and folder == _UNFIT.sub("_", folder).strip("."):
                return folder
    raise IdentityError(f"{note}: expected the name of a run's folder in it, got a broken file; set run.dir")


def _lead(note: Path, parent: Path, run: RunConfig, shared_id: str, ranks: int) -> None:
    made = _made(parent, run, ranks)
    if not publish(note, {"id": shared_id, "folder": made.name}):
        made.rmdir()  # a rank of another host was first


def _join(directory: Path, run: RunConfig, new_id: str | None, needed_id: str | None) -> Run:
    """Make ``run.json`` if it is not there (exactly one process wins), then read it."""
    if run.resume == "must" and not (directory / _RUN_FILE).exists():
        raise IdentityError(f"run directory {directory} holds no run to continue, and run.resume is must")
    directory.mkdir(parents=True, exist_ok=True)
    publish(directory / _RUN_FILE, {"id": new_id or Run.new_id(), "name": run.name})
    found = _id_in(directory / _RUN_FILE)
    if needed_id is not None and found != needed_id:
        raise IdentityError(f'run directory {directory} belongs to run "{found}", and this process to "{needed_id}"')
    return Run(found, directory.absolute())


def _id_in(file: Path) -> str:
    with contextlib.suppress(ValueError):
        match json.loads(file.read_text()):
            case {"id": str(found)}:
                return found
    raise IdentityError(
        f"{file}: expected a run's \"id\" in it, got another program's file, or a broken one; set run.dir"
    )


def _fit(part: str) -> str:
    """A name from the user as one folder name: data, never a path."""
    fit = _UNFIT.sub("_", part).strip(".")
    if not fit:
        raise IdentityError(f'run directory: "{part}" has no character that a folder name can hold')
    return fit
