"""Who am I: role, rank, world size, run id, run directory, and my place among the processes of the run.

Arguments come first, then ``RLTEL_*``, then torch.distributed, torchrun and SLURM. Collectors inherit a learner's RANK,
so a rank alone does not tell processes apart: each *claims* its place (role, index, incarnation) in the run directory.
"""

import logging
import operator
import os
import sys
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rltel.core.claims import Claim, claim_place, start_of
from rltel.core.config import RunConfig
from rltel.core.errors import IdentityError
from rltel.core.rundir import Run, find_run

_log = logging.getLogger("rltel")
_NAMESPACE = uuid.UUID("4d63009a-8d0f-11ee-aad7-4c796ed8e320")  # OpenTelemetry's, for service.instance.id
_TORCH = "torch.distributed"
# Who knows (rank, world size), strongest first; arguments are stronger than all of them.
_SOURCES = (("RLTEL_RANK", "RLTEL_WORLD_SIZE"), _TORCH, ("RANK", "WORLD_SIZE"), ("SLURM_PROCID", "SLURM_NTASKS"))
_LAUNCHERS = 2  # where those of _SOURCES begin that set the environment of every process that they start
_STEP_IDS = range(1 << 31)  # SLURM gives its batch script and its interactive shells step ids above


@dataclass(frozen=True, slots=True)
class Place:
    """Where the launcher put this process: its role, and its rank among the processes of that role's group."""

    role: str
    rank: int
    world_size: int
    is_told: bool = False
    """Whether anybody said this rank, so that no other process of the group has it."""


@dataclass(frozen=True, slots=True)
class Identity:
    """This process in its run. ``index`` is the claimed place; it equals the rank unless that was taken."""

    run_id: str
    run_dir: Path | None
    role: str
    rank: int
    world_size: int
    index: int
    incarnation: int
    is_writer: bool

    @property
    def name(self) -> str:
        """Unique among the run's processes and restarts, fit for a file name: ``learner-0.1``."""
        return f"{self.role}-{self.index}.{self.incarnation}"

    @property
    def instance_id(self) -> str:
        """``service.instance.id``: stable over restarts of the same run, role and index."""
        return str(uuid.uuid5(_NAMESPACE, f"{self.run_id}/{self.role}/{self.index}"))


def find_place(
    run: RunConfig,
    environ: Mapping[str, str],
    role: str | None = None,
    rank: int | None = None,
    world_size: int | None = None,
) -> Place:
    """Role, rank and world size: the argument, ``RLTEL_*``, torch.distributed, torchrun, SLURM, else a world of one."""
    found_rank, rank_source = _find(environ, 0, "rank", rank)
    found_size, size_source = _find(environ, 1, "world_size", world_size)
    if found_rank is None:
        found_rank = 0
        if size_source >= _LAUNCHERS:
            found_size = 1  # a shell in an allocation: the launcher did not start this process
    is_inherited = size_source >= _LAUNCHERS and rank_source < size_source
    if found_size is None or (is_inherited and found_rank >= found_size):
        found_size = found_rank + 1  # nobody knows, or a learner's launcher left it to a collector
    found_role = role or environ.get("RLTEL_ROLE") or run.primary_role
    if not isinstance(found_role, str) or not found_role.replace("_", "").replace("-", "").isalnum():
        raise IdentityError(f'role: expected letters, digits, "_" and "-", got "{found_role}"')
    if found_rank < 0:
        raise IdentityError(f"rank: expected a whole number >= 0, got {found_rank}")
    if found_size < 1:
        raise IdentityError(f"world size: expected a whole number >= 1, got {found_size}")
    if not 0 <= found_rank < found_size:
        raise IdentityError(f"rank: expected 0 <= rank < world size ({found_size}), got {found_rank}")
    return Place(found_role, found_rank, found_size, is_told=rank_source < len(_SOURCES))


def identify(
    run: RunConfig, place: Place, environ: Mapping[str, str], *, claim: bool = True
) -> tuple[Identity, Claim | None]:
    """Find (or make) the run and claim a place in it.

    With ``claim=False`` nothing touches the disk: the identity has no run directory (nothing is switched on).
    """
    shared = run.id or launcher_run_id(environ, place)
    if not claim:
        run_id = shared or Run.new_id()
        return Identity(run_id, None, place.role, place.rank, place.world_size, place.rank, 1, False), None
    if shared is None and place.world_size > 1:
        raise IdentityError(
            f"run id: {place.world_size} ranks need one that they share, and the launcher gave none; set run.id in the "
            "config or RLTEL_RUN_ID in the environment to the same value everywhere (torchrun: --rdzv-id)"
        )
    is_writer = _is_writer(run, place)
    found = find_run(run, shared, place.world_size if place.role == run.primary_role else 1)
    held = _claim(run, place, found.dir)
    if is_writer and held.index != place.rank:
        is_writer = False
        _log.warning(
            "%s %d, the writer, is taken by another process (it holds %s): this one is %s %d and not the writer. "
            "Give it a role of its own; or, if it follows one that died on another host, its rank (RLTEL_RANK)",
            *(place.role, place.rank, held.path.with_name(f"{place.role}-{place.rank}.*"), held.role, held.index),
        )
    identity = Identity(
        found.id, found.dir, place.role, place.rank, place.world_size, held.index, held.incarnation, is_writer
    )
    return identity, held


def _is_writer(run: RunConfig, place: Place) -> bool:
    if place.role != run.primary_role:
        return False
    writer = place.world_size - 1 if run.writer == "last" else run.writer
    if writer >= place.world_size:
        raise IdentityError(f'run.writer: expected "last" or a rank < world size ({place.world_size}), got {writer}')
    return place.rank == writer


def _claim(run: RunConfig, place: Place, run_dir: Path) -> Claim:
    is_primary = place.role == run.primary_role
    is_unique = is_primary and (place.is_told or place.world_size > 1)
    try:
        held = claim_place(run_dir, place.role, place.rank, rank_is_unique=is_unique)
    except OSError as error:
        raise IdentityError(f"run directory {error.filename}: {error.strerror}; set run.dir or run.log_root") from error
    if run.resume == "never" and is_primary and held.incarnation > 1:  # others join what the primary role continues
        held.release()
        raise IdentityError(f"run directory {run_dir} already holds a run of {place.role}, and run.resume is never")
    return held


def _find(environ: Mapping[str, str], column: int, name: str, given: Any) -> tuple[int | None, int]:
    """A rank (column 0) or world size (1), and which of `_SOURCES` had it (-1: the argument)."""
    if given is not None:
        return _index(name, given), -1
    for depth, source in enumerate(_SOURCES):
        found = _torch_distributed(column) if source == _TORCH else _whole(environ, source[column])
        if found is not None:
            return found, depth
    return None, len(_SOURCES)


def _index(name: str, given: Any) -> int:
    try:
        return operator.index(given)
    except TypeError:
        raise IdentityError(f"{name}: expected a whole number, got {given!r}") from None


def _torch_distributed(column: int) -> int | None:
    """Rank or world size if the program has already started torch.distributed. Never imports torch."""
    distributed = sys.modules.get("torch.distributed")
    if distributed is None or not distributed.is_available() or not distributed.is_initialized():
        return None
    return int((distributed.get_rank, distributed.get_world_size)[column]())


def _whole(environ: Mapping[str, str], variable: str) -> int | None:
    text = environ.get(variable)
    if text is None or not text.strip():
        return None
    try:
        return int(text)
    except ValueError:
        raise IdentityError(f'{variable}: expected a whole number, got "{text}"') from None


def launcher_run_id(environ: Mapping[str, str], place: Place) -> str | None:
    """The id that the launcher gave to all that it started together."""
    return _torchrun_id(environ) or _slurm_id(environ, place)


def _torchrun_id(environ: Mapping[str, str]) -> str | None:
    """The id of torchrun; its ``none`` is no id."""
    given = environ.get("TORCHELASTIC_RUN_ID", "").strip()
    if given.lower() not in ("", "none"):
        return given
    sizes = environ.get("LOCAL_WORLD_SIZE"), environ.get("WORLD_SIZE")
    if not given or None in sizes or sizes[0] != sizes[1]:
        return None
    # All ranks are on this host, children of one agent. Its folder for error files, <id>_<random>/attempt_<n>/<rank>/,
    # names it; else its pid and start do (a pid alone comes again, in containers every time).
    folders = Path(environ.get("TORCHELASTIC_ERROR_FILE", "")).parts[:-3]
    if folders and folders[-1].startswith("none_"):
        return f"torchrun-{folders[-1].removeprefix('none_')}"
    return f"torchrun-{environ.get('MASTER_PORT', '0')}-{os.getppid()}-{start_of(os.getppid())}"


def _slurm_id(environ: Mapping[str, str], place: Place) -> str | None:
    """Job and step: what one ``srun`` started, and starts again when the job is requeued."""
    job = environ.get("SLURM_JOB_ID")
    step = environ.get("SLURM_STEP_ID", "")
    if job and step.isdecimal() and int(step) in _STEP_IDS:
        return f"slurm-{job}.{step}"
    # Without a step the job alone would join whatever runs in it one after the other.
    return f"slurm-{job}" if job and place.world_size > 1 else None
