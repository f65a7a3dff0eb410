"""Which phases an algorithm family has, and under which keys their times leave. Data, no behaviour."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Literal

from rltel.core.errors import PhaseError
from rltel.record.kinds import PHASE_MS, PHASE_S, TIMING, Kind

PhaseKind = Literal["exclusive", "nested", "background"]


@dataclass(frozen=True, slots=True)
class Phase:
    """One phase of a loop.

    ``exclusive`` phases add up to the iteration; ``nested`` ones are children of one (``parent``); ``background`` ones
    run elsewhere and are never added. The time is recorded in seconds; a key in ms is a view of it.
    """

    name: str
    kind: PhaseKind
    key: str
    metric: Kind
    parent: str | None = None


@dataclass(frozen=True, slots=True)
class PhaseSet:
    """The phases of one role of an algorithm family, and the key of the whole loop's time (None: not persisted).

    Raises `PhaseError` for an empty name, or two times under one key: they would be averaged together.
    """

    name: str
    role: str
    loop: str
    loop_key: str | None
    phases: tuple[Phase, ...]
    by_name: dict[str, Phase] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "by_name", {phase.name: phase for phase in self.phases})
        keys = [phase.key for phase in self.phases] + ([self.loop_key] if self.loop_key else [])
        for name in (*(phase.name for phase in self.phases), self.loop):
            if not name.strip("/"):
                raise PhaseError(f'phases: set "{self.name}": expected names that are not empty, got {name!r}')
        twice = sorted({key for key in keys if keys.count(key) > 1})
        if twice:
            raise PhaseError(f'phases: set "{self.name}": expected each key once, got twice: {", ".join(twice)}')


def _millis(prefix: str, kind: PhaseKind, names: Iterable[str], parent: str | None = None) -> tuple[Phase, ...]:
    return tuple(Phase(name, kind, f"Perf/{prefix}{name}_ms", PHASE_MS, parent) for name in names)


_LEARNING = Phase("learning", "exclusive", "Perf/learning_time", PHASE_S)
_ENV_STEP_PARTS = tuple(
    Phase(name, "nested", f"Perf/collector_env_step_{part}_ms", PHASE_MS, "env_step")
    for name, part in (
        ("action_validate", "action_validate"),
        ("apply_action", "apply_action"),
        ("action_backend", "action_backend"),
        ("backend_step", "backend"),
        ("update_state", "update_state"),
        ("reset_done", "reset_done"),
    )
)

SAC_LEARNER = PhaseSet(
    "sac",
    "learner",
    "iteration",
    "Perf/iteration_time",
    (
        *_millis("learner_", "exclusive", ("collector_wait", "inference", "collector_release")),
        *_millis("learner_", "exclusive", ("replay_batch_wait", "replay_sample")),
        _LEARNING,
        *_millis("learner_", "nested", ("inference_h2d", "inference_forward", "inference_d2h"), "inference"),
        *_millis("", "background", ("replay_ingress_h2d_submit",)),
    ),
)
SAC_COLLECTOR = PhaseSet(
    "sac",
    "collector",
    "cycle",
    None,
    (
        *_millis("collector_", "exclusive", ("inference_request", "learner_action_wait", "env_step")),
        *_millis("collector_", "exclusive", ("transition_extract", "replay_write", "metrics_publish")),
        *_ENV_STEP_PARTS,
    ),
)

_SETS = {(each.name, each.role): each for each in (SAC_LEARNER, SAC_COLLECTOR)}


def phase_set(phases: "str | PhaseSet | Iterable[str]", role: str) -> PhaseSet:
    """A set by its family's name, a set of one's own, or exclusive phases by their names (``timeperf/<phase>``)."""
    if isinstance(phases, PhaseSet):
        return phases
    if isinstance(phases, str):
        found = _SETS.get((phases, role))
        if found is None:
            have = ", ".join(sorted(name for name, of_role in _SETS if of_role == role)) or "none"
            raise PhaseError(
                f'phases: no set "{phases}" for the role {role}; have {have}, or give the names of your own'
            )
        return found
    loop = "cycle" if role == "collector" else "iteration"
    own = tuple(Phase(name, "exclusive", f"timeperf/{name}", TIMING) for name in phases)
    return PhaseSet("own", role, loop, f"timeperf/{loop}", own)
