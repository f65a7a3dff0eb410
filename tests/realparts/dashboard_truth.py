"""What the queries of the dashboards should answer, worked out from the JSONL of a run alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce

from rltel.dashboards.series import Series
from rltel.export.jsonl import Line
from rltel.names.catalogue import catalogue
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


def key_of(series: Series, labels: Mapping[str, str]) -> str:
    """The key that a series of the answer has, from its labels."""
    entry = next(each for each in catalogue().entries if each.key == series.key)
    key = entry.key
    given = {**series.wanted, **labels}
    for attribute, text in entry.attributes.items():
        if text.startswith("{"):
            key = key.replace(text, given[label_name(attribute)])
    tracker = given.get("rl_tracker")
    return f"{tracker}/{key}" if tracker else key


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


def shown(part: Part) -> float:
    """The number that a gauge of it shows."""
    return next(value.value for value in part.state.values() if value.suffix in ("", "/avg"))


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


def prefixes(of: Sequence[Part], make: Callable[[Sequence[Part]], float], until: float) -> Iterator[float]:
    """The value after each line that may have been the last that a scrape saw; the latest first."""
    for end in range(len(of), 0, -1):
        if of[end - 1].time <= until:
            yield make(of[:end])
