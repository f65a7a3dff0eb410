"""Phase sets by name: of algorithm families, and users' own."""

from collections.abc import Iterable, Mapping
from typing import Any, get_args

from rltel.core.errors import PhaseError
from rltel.names.phases import PhaseKind, RlPart
from rltel.record.kinds import TIMING
from rltel.record.llm_phases import LLM_CONTROLLER, LLM_LEARNER, LLM_ROLLOUT, LLM_SETS
from rltel.record.phase import Phase, PhaseSet
from rltel.record.robot_phases import (
    APPO_COLLECTOR,
    APPO_LEARNER,
    FLASHSAC_COLLECTOR,
    FLASHSAC_LEARNER,
    PPO_LEARNER,
    ROBOT_SETS,
    SAC_COLLECTOR,
    SAC_LEARNER,
)

Given = str | PhaseSet | Iterable[str | Phase] | Mapping[str, str]
"""What `phase_set` takes."""

ALL_SETS = (*ROBOT_SETS, *LLM_SETS)
_SETS = {(each.name, each.role): each for each in ALL_SETS} | {("llm", "collector"): LLM_ROLLOUT}
_KINDS = get_args(PhaseKind)
_PARTS = tuple(part for part in get_args(RlPart) if part not in ("loop", "step"))  # those are whole loops
_LOOPS: dict[str, tuple[str, RlPart]] = {"collector": ("cycle", "sample"), "rollout": ("session", "sample")}


def phase_set(phases: Given, role: str) -> PhaseSet:
    """The phases that a clock of this role goes by.

    Args:
        phases: the name of a family (``sac``, ``flashsac``, ``appo``, ``ppo``, ``llm``; a collector of ``llm`` is its
            rollout); a set of one's own; or names. Names become exclusive phases with the key ``timeperf/<name>``,
            unless a mapping says what each is: ``exclusive``, ``nested`` or ``background``; or ``sample``, ``reward``,
            ``train`` or ``sync`` for an exclusive phase that is this part of the ``rl.*`` names. A `Phase` may stand in
            place of a name.
        role: whose loop it is.

    Raises `PhaseError` for anything else.
    """
    if isinstance(phases, PhaseSet):
        return phases
    if isinstance(phases, str):
        return _of_family(phases, role)
    loop, part = _LOOPS.get(role, ("iteration", "loop"))
    own = _own(phases)
    if any(phase.rl == part for phase in own):
        return PhaseSet("own", role, loop, f"timeperf/{loop}", own, None)  # a phase is it, not the whole loop
    return PhaseSet("own", role, loop, f"timeperf/{loop}", own, part)


def _of_family(name: str, role: str) -> PhaseSet:
    found = _SETS.get((name, role))
    if found is None:
        have = ", ".join(sorted(each for each, of_role in _SETS if of_role == role)) or "none"
        raise PhaseError(f'phases: no set "{name}" for the role {role}; have {have}, or give the names of your own')
    return found


def _own(phases: Any) -> tuple[Phase, ...]:
    if isinstance(phases, Mapping):
        return tuple(_of_kind(name, what) for name, what in phases.items())
    try:
        each = tuple(phases)
    except TypeError:
        raise PhaseError(
            "phases: expected the name of a set, a PhaseSet, names of phases, or a mapping of names to kinds, "
            f"got {type(phases).__name__}"
        ) from None
    return tuple(phase if isinstance(phase, Phase) else _of_kind(phase, "exclusive") for phase in each)


def _of_kind(name: Any, what: Any) -> Phase:
    if not isinstance(name, str) or not name.strip("/"):
        raise PhaseError(f"phases: expected names that are not empty, got {name!r}")
    if what not in (*_KINDS, *_PARTS):
        raise PhaseError(f'phases: "{name}": expected one of {", ".join((*_KINDS, *_PARTS))}, got {what!r}')
    key = f"timeperf/{name}"
    return Phase(name, "exclusive", key, TIMING, rl=what) if what in _PARTS else Phase(name, what, key, TIMING)


__all__ = [
    "ALL_SETS", "APPO_COLLECTOR", "APPO_LEARNER", "FLASHSAC_COLLECTOR", "FLASHSAC_LEARNER", "LLM_CONTROLLER",
    "LLM_LEARNER", "LLM_ROLLOUT", "PPO_LEARNER", "SAC_COLLECTOR", "SAC_LEARNER", "Given", "Phase", "PhaseSet",
    "phase_set",
]  # fmt: skip
