"""What the queries of the dashboards should answer, worked out from the JSONL of a run alone."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce

from rltel.dashboards.series import Series
from rltel.export.jsonl import Line
from rltel.names.catalogue import Entry, catalogue
from rltel.names.prometheus import label_name
from rltel.record.kinds import COUNTER, State


@dataclass(frozen=True)
class Part:
    """What one line added to one key."""

    time: float
    incarnation: int
    state: State

    @property
    def total(self) -> float:
        """The sum of what was recorded."""
        return self.state.moments[0]

    @property
    def count(self) -> float:
        """How much was recorded, or its weight."""
        return self.state.moments[1]


def parts(lines: Sequence[Line], key: str) -> list[Part]:
    """Every line's part of a key, in the order of their times."""
    return [
        Part(line.time_ns / 1e9, int(line.process["incarnation"]), line.snapshot[key].state)
        for line in lines
        if key in line.snapshot
    ]


def key_of(keys: Iterable[str], series: Series, labels: Mapping[str, str]) -> str:
    """Which of these keys a series of the answer shows, from its labels: several keys may share a name.

    Raises AssertionError where it is none of them, or not one alone.
    """
    entry = next(each for each in catalogue().entries if each.key == series.key)
    given = {**series.wanted, **labels}
    tracker = f"{given['rl_tracker']}/" if given.get("rl_tracker") else ""
    found = [key for key in keys if key.startswith(tracker) and _is_of(key.removeprefix(tracker), entry, given)]
    assert len(found) == 1, (entry.key, given, found)
    return found[0]


def _is_of(key: str, entry: Entry, given: Mapping[str, str]) -> bool:
    found = catalogue().find(key)
    if found is None or (found.entry.name, found.entry.unit) != (entry.name, entry.unit):
        return False
    has = {label_name(name): value for name, value in found.attributes.items()}
    alike = (each for each in catalogue().entries if each.name == entry.name)
    told_apart = {label_name(name) for each in alike for name in each.attributes}
    return has == {label: value for label, value in given.items() if label in told_apart and value}


def phase_keys(lines: Sequence[Line], role: str, kind: str) -> dict[str, str]:
    """Phase to key, of a role's phases of one kind (``loop`` for the loop itself)."""
    found = {}
    for line in lines:
        for key, metric in line.snapshot.items():
            label = metric.state.kind.phase
            if label is not None and (label.role, label.kind) == (role, kind):
                found[label.phase] = key
    return found


def average(of: Sequence[Part]) -> float:
    """Weighted."""
    return sum(part.total for part in of) / sum(part.count for part in of)


def shown(lines: Sequence[Line], key: str) -> list[tuple[float, float]]:
    """When a line was written, and the number that a gauge of it shows: of every line that has one."""
    numbers = ((line.time_ns / 1e9, line.values) for line in lines)
    found = ((at, values.get(key, values.get(f"{key}/avg"))) for at, values in numbers)
    return [(at, value) for at, value in found if value is not None]


def merged(of: Sequence[Part]) -> State:
    """All as one state."""

    def add(into: State, part: Part) -> State:
        into.add(part.state.moments, part.state.buckets)
        return into

    return reduce(add, of, State(of[0].state.kind))


def increments(of: Sequence[Part], seen_first: float) -> list[Part]:
    """Without those that a store had when it first saw the series: it counts from there."""
    held = 0.0
    for position, part in enumerate(of):
        held += part.total if part.state.kind is COUNTER else part.count
        if held >= seen_first - 1e-6:
            return list(of[position + 1 :])
    return []


def increase_by_victoria(steps: Sequence[float]) -> float:
    """What VictoriaMetrics's ``increase`` makes of a series that began in the window, from what it grew by each time.

    A first value that is far above the next step was there before, it says: a first iteration that took long.
    """
    next_step = steps[1] if len(steps) > 1 else 0.0
    is_old = abs(steps[0]) >= 10 * (abs(next_step or 10) + 1)
    return sum(steps[is_old:])


def prefixes(of: Sequence[Part], make: Callable[[Sequence[Part]], float], until: float) -> Iterator[float]:
    """The value after each line that may have been the last that a scrape saw; the latest first."""
    for end in range(len(of), 0, -1):
        if of[end - 1].time <= until:
            yield make(of[:end])
