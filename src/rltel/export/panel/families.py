"""The timelines that a panel can show: of the algorithm families, and of phases that only a user knows."""

from collections.abc import Collection, Iterable, Iterator, Mapping

from rltel.export.panel.labels import HIDDEN, OTHER, label_of, words
from rltel.export.panel.lines import Basis, Line, Timeline
from rltel.export.panel.session_times import session_timelines
from rltel.names.phases import LOOP, PhaseLabel
from rltel.record.kinds import PHASE_MS
from rltel.record.phase import Phase, PhaseSet
from rltel.record.phase_sets import ALL_SETS

LEARNER = "learner"


def timeline_of(phases: PhaseSet) -> Timeline:
    """A phase set as a timeline. What the metric schema shows elsewhere, or nowhere, is not in it."""
    ordered = sorted(phases.phases, key=lambda phase: _position(phases, phase))
    lines = tuple(_line(phases.role, phase) for phase in ordered if _belongs(phase.key))
    return Timeline(phases.role, phases.loop_key, _loop_text(phases), _basis(phases), lines)


def timelines(seen: Collection[str], labels: Mapping[str, PhaseLabel], algo: str | None = None) -> list[Timeline]:
    """Those that have something to show: the learner's first, then the others.

    Args:
        seen: all keys that were ever reported. The family that has most of them is the run's; of several, the
            smallest.
        labels: what is known of keys whose phases were recorded by a clock, of a user's own set too.
        algo: what the run calls its algorithm; decides first between families that fit alike.
    """
    family = max(_FAMILIES, key=lambda name: (_coverage(name, seen), _is_called(name, algo), -len(_KEYS[name])))
    of_family = _FAMILIES[family] if _coverage(family, seen) else ()
    known = {line.key for timeline in of_family for line in timeline.lines} | _LOOPS
    own = _own({key: label for key, label in labels.items() if key not in known and label_of(key).section == OTHER})
    every = (*of_family, *own, *session_timelines(seen))
    found = [timeline for timeline in every if any(line.key in seen for line in timeline.lines)]
    return sorted(found, key=lambda timeline: timeline.role != LEARNER)


def is_timed(key: str, labels: Mapping[str, PhaseLabel]) -> bool:
    """Whether a key is a timeline's, and so no row among the metrics."""
    return key in labels or key in _LOOPS or key in SCALES


def _own(labels: Mapping[str, PhaseLabel]) -> Iterator[Timeline]:
    """A user's phases by role. Which phase a nested one belongs to does not travel: they come after all others."""
    for role in dict.fromkeys(label.role for label in labels.values()):
        mine = [(key, label) for key, label in labels.items() if label.role == role]
        loop = next((key for key, label in mine if label.kind == LOOP), None)
        phases = [(key, label) for key, label in mine if label.kind != LOOP]
        lines = [
            Line(key, words(label.phase), kind, quiet=kind != "exclusive")
            for kind in ("exclusive", "nested", "background")
            for key, label in phases
            if label.kind == kind
        ]
        text = "Iter Wall" if role == LEARNER else f"{words(role)} Wall"
        yield Timeline(role, loop, text, "cycle" if loop is None else "wall", tuple(lines))


def _position(phases: PhaseSet, phase: Phase) -> tuple[int, int]:
    """Nested phases right below their parent; background ones last."""
    names = [each.name for each in phases.phases]
    if phase.kind == "background":
        return len(names), names.index(phase.name)
    outer = phase
    while outer.parent is not None:
        outer = phases.by_name[outer.parent]
    return names.index(outer.name), names.index(phase.name)


def _line(role: str, phase: Phase) -> Line:
    label = label_of(phase.key)
    if label.section == f"timing.{role}":
        return Line(phase.key, label.text, phase.kind, label.quiet)
    is_labelled = label.section.startswith("timing.") and phase.key not in _LOOPS  # PPO's collection is APPO's loop
    text = label.text if is_labelled else words(phase.name)
    return Line(phase.key, text, phase.kind, quiet=phase.kind != "exclusive")


def _belongs(key: str) -> bool:
    """Whether the schema puts the key into a timeline, or does not know it."""
    label = label_of(key)
    return label.section != HIDDEN and (label.section.startswith("timing.") or not label.is_known)


def _basis(phases: PhaseSet) -> Basis:
    if any(phase.per_call and phase.kind == "exclusive" for phase in phases.phases):
        return "none"
    return "cycle" if phases.loop_key is None else "wall"


def _loop_text(phases: PhaseSet) -> str:
    if phases.loop_key is None:
        return words(phases.loop)
    label = label_of(phases.loop_key)
    if label.section.startswith("timing."):
        return label.text
    return "Iter Wall" if phases.role == LEARNER else f"{words(phases.loop)} Wall"


def _coverage(family: str, seen: Collection[str]) -> int:
    return sum(key in seen for key in _KEYS[family])


def _is_called(family: str, algo: str | None) -> bool:
    return algo is not None and algo.lower().replace("_", "") == family


def _grouped(sets: Iterable[PhaseSet]) -> dict[str, tuple[Timeline, ...]]:
    groups: dict[str, list[Timeline]] = {}
    for phases in sets:
        groups.setdefault(phases.name, []).append(timeline_of(phases))
    return {name: tuple(found) for name, found in groups.items()}


_LOOPS = frozenset(phases.loop_key for phases in ALL_SETS if phases.loop_key is not None)
_FAMILIES = _grouped(ALL_SETS)
_KEYS = {
    name: {line.key for timeline in found for line in timeline.lines}
    | {timeline.loop_key for timeline in found if timeline.loop_key is not None}
    for name, found in _FAMILIES.items()
}
SCALES: Mapping[str, float] = {
    **{phase.key: 1e-3 if phase.metric is PHASE_MS else 1.0 for phases in ALL_SETS for phase in phases.phases},
    **dict.fromkeys(_LOOPS, 1.0),
}
"""By key of a known phase or loop: seconds in one of its units. For trainers that log the numbers themselves."""
