"""The run and its directory: found if somebody made it already, else made.

Layout as in UniLab: ``<log_root>/<algo>/<task>/<YYYY-MM-DD_HH-MM-SS>_<backend>``; parts that are not set are left out.
A run whose id a launcher gave is named by that id, so that every rank comes to the same directory.
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
from rltel.core.files import publish

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


def find_run(run: RunConfig, shared_id: str | None) -> Run:
    """The run that this process belongs to. Makes the directory and its ``run.json`` if nobody has yet.

    A directory that was asked for keeps the id of the run that it holds, whatever a launcher names this start of it.
    Raises `IdentityError` if the directory belongs to another run, or is empty and ``run.resume`` is ``must``.
    """
    try:
        if run.dir:
            return _join(Path(run.dir), run, shared_id, run.id)
        return _join_named(run, shared_id)
    except OSError as error:
        raise IdentityError(f"run directory {error.filename}: {error.strerror}; set run.dir or run.log_root") from error


def _join_named(run: RunConfig, shared_id: str | None) -> Run:
    parent = Path(run.log_root, *(_fit(part) for part in (run.algo, run.task) if part))
    if shared_id is not None:
        return _join(parent / _fit(shared_id), run, shared_id, shared_id)
    if run.resume == "must":
        raise IdentityError("run directory: run.resume is must, so run.dir or run.id has to say which run to continue")
    stem = "_".join(part for part in (f"{datetime.now():%Y-%m-%d_%H-%M-%S}", run.backend and _fit(run.backend)) if part)
    parent.mkdir(parents=True, exist_ok=True)
    for attempt in range(1, 1000):
        made = parent / (stem if attempt == 1 else f"{stem}-{attempt}")
        try:
            made.mkdir()
        except FileExistsError:
            continue  # another run of the same second
        return _join(made, run, None, None)
    raise IdentityError(f"run directory {parent / stem}: 999 runs of the same second exist; set run.dir")


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
