"""Whether the launcher's variables agree with one another, and whether the ranks share a run id."""

import os
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from rltel.cli.checks.finding import Finding, ok, problem, warning
from rltel.core import identity
from rltel.core.config import RunConfig
from rltel.core.errors import IdentityError

_PAIRS = (
    ("RLTEL_RANK", "RLTEL_WORLD_SIZE"),
    ("RANK", "WORLD_SIZE"),
    ("LOCAL_RANK", "LOCAL_WORLD_SIZE"),
    ("SLURM_PROCID", "SLURM_NTASKS"),
)
_SAME = (("RLTEL_RANK", "RANK"), ("RANK", "SLURM_PROCID"), ("RLTEL_WORLD_SIZE", "WORLD_SIZE"))


def check_launcher(run: RunConfig, environ: Mapping[str, str] | None = None) -> Iterator[Finding]:
    """Findings on rank, world size and run id."""
    environ = os.environ if environ is None else environ
    numbers, findings = _numbers(environ)
    findings += [*_pairs(numbers), *_local_in_world(numbers), *_contradictions(numbers)]
    yield from findings
    if any(finding.status == "problem" for finding in findings):
        return
    try:
        place = identity.find_place(run, environ)
        shared = run.id or identity.launcher_run_id(environ, place)
    except IdentityError as error:
        yield problem("launcher", str(error), "correct what it names")
        return
    if place.world_size > 1 and shared is None:
        yield problem(
            "launcher",
            f"{place.world_size} ranks and no run id that they share",
            "set run.id, or RLTEL_RUN_ID to the same value everywhere (torchrun: --rdzv-id)",
        )
        return
    yield _writer(run, place)
    yield ok("launcher", f"{place.role}, rank {place.rank} of {place.world_size}, run id {shared or 'a new one'}")


def _writer(run: RunConfig, place: Any) -> Finding:
    if run.writer != "last" and run.writer >= place.world_size:
        return problem(
            "run.writer",
            f"rank {run.writer} of a world of {place.world_size}",
            f'set it to "last" or to a rank below {place.world_size}: nobody would write',
        )
    return ok("run.writer", f"{run.primary_role} {run.writer}")


def _numbers(environ: Mapping[str, str]) -> tuple[dict[str, int], list[Finding]]:
    numbers: dict[str, int] = {}
    findings: list[Finding] = []
    for name in dict.fromkeys(name for pair in _PAIRS for name in pair):
        text = environ.get(name, "").strip()
        if not text:
            continue
        if text.isdecimal():
            numbers[name] = int(text)
        else:
            findings.append(problem(name, f'expected a whole number >= 0, got "{text}"', f"correct {name} or unset it"))
    return numbers, findings


def _pairs(numbers: Mapping[str, int]) -> Iterable[Finding]:
    for rank, size in _PAIRS:
        if rank in numbers and size in numbers and numbers[rank] >= numbers[size]:
            yield problem(
                rank,
                f"{rank}={numbers[rank]} is not below {size}={numbers[size]}",
                "start it by one launcher, or unset one",
            )
        elif (rank in numbers) != (size in numbers):
            there, absent = (rank, size) if rank in numbers else (size, rank)
            yield warning(there, f"{there}={numbers[there]} is set, and {absent} is not", f"set {absent}, too")


def _local_in_world(numbers: Mapping[str, int]) -> Iterable[Finding]:
    if numbers.get("LOCAL_WORLD_SIZE", 0) > numbers.get("WORLD_SIZE", numbers.get("LOCAL_WORLD_SIZE", 0)):
        yield problem(
            "LOCAL_WORLD_SIZE",
            f"LOCAL_WORLD_SIZE={numbers['LOCAL_WORLD_SIZE']} is above WORLD_SIZE={numbers['WORLD_SIZE']}",
            "unset what another launcher left in the environment",
        )


def _contradictions(numbers: Mapping[str, int]) -> Iterable[Finding]:
    for first, second in _SAME:
        if first in numbers and second in numbers and numbers[first] != numbers[second]:
            yield warning(
                first,
                f"{first}={numbers[first]} and {second}={numbers[second]}: {first} wins",
                f"unset {first} if that is not meant",
            )
