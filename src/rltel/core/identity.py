"""Who am I: role, rank, world size, run id, run directory, and my place among the processes of the run.

Arguments come first, then ``RLTEL_*``, then torch.distributed, torchrun and SLURM. Collectors inherit a learner's RANK,
so a rank alone does not tell processes apart: each *claims* its place (role, index, incarnation) in the run directory.
"""

import os
import sys
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from rltel.core.claims import Claim, claim_place
from rltel.core.config import RunConfig
from rltel.core.errors import IdentityError
from rltel.core.rundir import Run, find_run

_NAMESPACE = uuid.UUID("4d63009a-8d0f-11ee-aad7-4c796ed8e320")  # OpenTelemetry's, for service.instance.id


@dataclass(frozen=True, slots=True)
class Place:
    """Where the launcher put this process: its role, and its rank among the processes of that role's group."""

    role: str
    rank: int
    world_size: int


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
    group = _torch_distributed()
    found_rank = _first(
        rank,
        _whole(environ, "RLTEL_RANK"),
        group[0] if group else None,
        _whole(environ, "RANK"),
        _whole(environ, "SLURM_PROCID"),
        0,
    )
    found_size = _first(
        world_size,
        _whole(environ, "RLTEL_WORLD_SIZE"),
        group[1] if group else None,
        _whole(environ, "WORLD_SIZE"),
        _whole(environ, "SLURM_NTASKS"),
        found_rank + 1,
    )
    found_role = role or environ.get("RLTEL_ROLE") or run.primary_role
    if not found_role.replace("_", "").replace("-", "").isalnum():
        raise IdentityError(f'role: expected letters, digits, "_" and "-", got "{found_role}"')
    if not 0 <= found_rank < found_size:
        raise IdentityError(f"rank: expected 0 <= rank < world size ({found_size}), got {found_rank}")
    return Place(found_role, found_rank, found_size)


def identify(
    run: RunConfig, place: Place, environ: Mapping[str, str], *, claim: bool = True
) -> tuple[Identity, Claim | None]:
    """Find (or make) the run and claim a place in it.

    With ``claim=False`` nothing touches the disk: the identity has no run directory (nothing is switched on).
    """
    shared = run.id or _launcher_run_id(environ)
    if shared is None and place.world_size > 1:
        raise IdentityError(
            f"run id: {place.world_size} ranks need one that they share, and the launcher gave none; set run.id in the "
            "config or RLTEL_RUN_ID in the environment to the same value everywhere (torchrun: --rdzv-id)"
        )
    if not claim:
        identity = Identity(
            shared or Run.new_id(), None, place.role, place.rank, place.world_size, place.rank, 1, False
        )
        return identity, None
    found = find_run(run, shared)
    primary = place.role == run.primary_role
    held = claim_place(found.dir, place.role, place.rank, rank_is_unique=primary and place.world_size > 1)
    if run.resume == "never" and held.incarnation > 1:
        held.release()
        raise IdentityError(f"run directory {found.dir} already holds a run of {place.role}, and run.resume is never")
    writes = primary and place.rank == _writer_rank(run.writer, place.world_size) and held.index == place.rank
    identity = Identity(
        found.id, found.dir, place.role, place.rank, place.world_size, held.index, held.incarnation, writes
    )
    return identity, held


def _writer_rank(writer: int | Literal["last"], world_size: int) -> int:
    return world_size - 1 if writer == "last" else writer


def _torch_distributed() -> tuple[int, int] | None:
    """(rank, world size) if the program has already started torch.distributed. Never imports torch."""
    distributed = sys.modules.get("torch.distributed")
    if distributed is None or not distributed.is_available() or not distributed.is_initialized():
        return None
    return distributed.get_rank(), distributed.get_world_size()


def _whole(environ: Mapping[str, str], variable: str) -> int | None:
    text = environ.get(variable)
    if text is None or not text.strip():
        return None
    try:
        return int(text)
    except ValueError:
        raise IdentityError(f'{variable}: expected a whole number, got "{text}"') from None


def _first(*candidates: int | None) -> int:
    return next(candidate for candidate in candidates if candidate is not None)


def _launcher_run_id(environ: Mapping[str, str]) -> str | None:
    """The id that the launcher gave all ranks. torchrun's ``none`` is no id."""
    finders: tuple[Callable[[Mapping[str, str]], str | None], ...] = (_torchrun_id, _slurm_id)
    return next((found for find in finders if (found := find(environ))), None)


def _torchrun_id(environ: Mapping[str, str]) -> str | None:
    given = environ.get("TORCHELASTIC_RUN_ID")
    if given is None:
        return None
    if given.strip().lower() not in ("", "none"):
        return given
    if environ.get("LOCAL_WORLD_SIZE") == environ.get("WORLD_SIZE"):
        # All ranks on this host: they are children of one agent, which names the run as well as an id would.
        return f"torchrun-{environ.get('MASTER_PORT', '0')}-{os.getppid()}"
    return None


def _slurm_id(environ: Mapping[str, str]) -> str | None:
    job = environ.get("SLURM_JOB_ID")
    return f"slurm-{job}" if job else None
