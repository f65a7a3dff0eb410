"""What a phase is, and a set of phases: data that a clock goes by."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import get_args

from rltel.core.errors import PhaseError
from rltel.names.phases import LOOP, PhaseKind, PhaseLabel, RlPart, is_text
from rltel.record.kinds import PHASE_MS, PHASE_S, TIMING, Kind, phase_kind

_KINDS = get_args(PhaseKind)
_PARTS = (*get_args(RlPart), None)


@dataclass(frozen=True, slots=True)
class Phase:
    """One phase of a loop.

    ``exclusive`` phases add up to the iteration; ``nested`` ones are children of one (``parent``); ``background`` ones
    run elsewhere and are never added. The time is recorded in seconds; a key in ms is a view of it (``metric``:
    `TIMING`, `PHASE_S` or `PHASE_MS`).
    """

    name: str
    kind: PhaseKind
    key: str
    metric: Kind
    parent: str | None = None
    """Where a nested phase belongs. It is drawn, and may be entered, inside any other phase too; None: several."""
    rl: RlPart | None = None
    """The part of the ``rl.*`` proposal that it is, if any: its times also leave as ``rl.<part>.duration``."""
    per_call: bool = False
    """Each call is one observation, not the sum over the iteration. (So it is for every background phase.)"""


@dataclass(frozen=True, slots=True)
class PhaseSet:
    """The phases of one role of an algorithm family, and the key of the whole loop's time (None: not persisted).

    Raises `PhaseError` for an empty name, two times under one key (they would be averaged together), a parent that is
    not listed before its child, or a kind or part that there is not.
    """

    name: str
    role: str
    loop: str
    loop_key: str | None
    phases: tuple[Phase, ...]
    loop_rl: RlPart | None = LOOP
    by_name: dict[str, Phase] = field(init=False, repr=False, compare=False)
    metrics: Mapping[str, Kind] = field(init=False, repr=False, compare=False)
    """By phase, the kind that its times are recorded as: the phase's own view, with role, kind and part going along."""
    loop_metric: Kind | None = field(init=False, repr=False, compare=False)
    """The same for the whole loop; None where it is not persisted."""

    def __post_init__(self) -> None:
        self._check()
        metrics = {phase.name: phase_kind(phase.metric, self.label(phase)) for phase in self.phases}
        loop = PhaseLabel(self.role, self.loop, LOOP, self.loop_rl)
        object.__setattr__(self, "by_name", {phase.name: phase for phase in self.phases})
        object.__setattr__(self, "metrics", metrics)
        object.__setattr__(self, "loop_metric", phase_kind(view_of(self.loop_key), loop) if self.loop_key else None)

    def label(self, phase: Phase) -> PhaseLabel:
        """What goes along with a phase's times."""
        return PhaseLabel(self.role, phase.name, phase.kind, phase.rl)

    def _check(self) -> None:
        where = f'phases: set "{self.name}"'
        if not self.role or ":" in self.role or not is_text(self.role):
            raise PhaseError(f"{where}: role: expected text without a colon, got {self.role!r}")
        for name in (*(phase.name for phase in self.phases), self.loop):
            if not isinstance(name, str) or not name.strip("/") or not is_text(name):
                raise PhaseError(f"{where}: expected names that are not empty, got {name!r}")
        _check_once(where, "key", [phase.key for phase in self.phases] + ([self.loop_key] if self.loop_key else []))
        _check_once(where, "name", [phase.name for phase in self.phases])
        if self.loop_rl not in _PARTS:
            raise PhaseError(f"{where}: loop_rl: expected one of {_listed(_PARTS)}, got {self.loop_rl!r}")
        for position, phase in enumerate(self.phases):
            _check_phase(f'{where}: "{phase.name}"', phase, {each.name: each for each in self.phases[:position]})


def view_of(key: str) -> Kind:
    """How a key shows seconds: ``timeperf/`` with its count, as `record_timing` does; ``_ms`` in milliseconds."""
    if key.startswith("timeperf/"):
        return TIMING
    return PHASE_MS if key.endswith("_ms") else PHASE_S


def _check_phase(where: str, phase: Phase, before: Mapping[str, Phase]) -> None:
    if phase.kind not in _KINDS:
        raise PhaseError(f"{where}: kind: expected one of {_listed(_KINDS)}, got {phase.kind!r}")
    if phase.rl not in _PARTS:
        raise PhaseError(f"{where}: rl: expected one of {_listed(_PARTS)}, got {phase.rl!r}")
    if not phase.metric.clocked or phase.metric.phase is not None:
        raise PhaseError(f"{where}: metric: expected TIMING, PHASE_S or PHASE_MS, got {phase.metric}")
    if phase.parent is None:
        return
    if phase.kind != "nested":
        raise PhaseError(f"{where}: parent: expected none for a phase that is {phase.kind}, got {phase.parent!r}")
    parent = before.get(phase.parent)
    if parent is None or parent.kind == "background":
        outer = [name for name, each in before.items() if each.kind != "background"]
        raise PhaseError(
            f"{where}: parent: expected a phase listed before it that is not background, got {phase.parent!r}; "
            f"have {', '.join(outer) or 'none'}"
        )


def _check_once(where: str, what: str, texts: list[str]) -> None:
    twice = sorted({text for text in texts if texts.count(text) > 1})
    if twice:
        raise PhaseError(f"{where}: expected each {what} once, got twice: {', '.join(twice)}")


def _listed(values: tuple[object, ...]) -> str:
    return ", ".join(map(str, values))
