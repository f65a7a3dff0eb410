"""Whose folder it is: TensorBoard shows a folder as one run, and reads on only in the newest of its files.

So two runs, or two writers at once, never share one: who comes second has a folder of its own inside it.
"""

import json
from dataclasses import dataclass
from pathlib import Path

from rltel.core.claims import Claim, claim_place
from rltel.core.errors import ConfigError
from rltel.core.files import publish
from rltel.export.tensorboard.axes import Axes
from rltel.export.tracking.labels import fit_id

_OURS = ".rltel"
_OWNER, _AXES = "run.json", "axes.json"


@dataclass(slots=True)
class Folder:
    """The folder of a run's writer."""

    path: Path
    claim: Claim | None = None

    def axes(self) -> Axes:
        """How far the axes got of what was written here, by this writer or those before it."""
        return Axes(self.path / _OURS / _AXES)

    def release(self) -> None:
        """The writer has ended."""
        if self.claim is not None:
            self.claim.release()


def claim_folder(wanted: Path, run_id: str) -> Folder:
    """The run's folder for its writer: ``wanted``, or one in it if that is another run's, or another writer's.

    Raises `ConfigError` if it cannot be written.
    """
    try:
        folder = take_folder(wanted, run_id)
        # Who may write for a run is decided elsewhere, so a holder that cannot be seen from here has died.
        claim = claim_place(folder / _OURS, "writer", 0, rank_is_unique=True)
    except OSError as error:
        raise ConfigError(f"tensorboard.path: cannot write {error.filename or wanted}: {error.strerror}") from error
    return Folder(folder / f"writer-{claim.index}" if claim.index else folder, claim)


def take_folder(wanted: Path, run_id: str) -> Path:
    """The run's folder, which is its own from now on."""
    folder = folder_of_run(wanted, run_id)
    (folder / _OURS).mkdir(parents=True, exist_ok=True)
    publish(folder / _OURS / _OWNER, {"run": run_id})
    return folder_of_run(wanted, run_id)  # another run may have been quicker


def folder_of_run(wanted: Path, run_id: str) -> Path:
    """The folder that this run has at ``wanted``, or would get. Makes nothing."""
    try:
        owner = json.loads((wanted / _OURS / _OWNER).read_text()).get("run")
    except (OSError, ValueError, AttributeError):
        is_other_s = not (wanted / _OURS).exists() and any(wanted.glob("*tfevents*"))
        owner = None if is_other_s else run_id
    return wanted if owner == run_id else wanted / fit_id(run_id)
