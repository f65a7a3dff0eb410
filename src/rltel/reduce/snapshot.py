"""The Snapshot: merged states, not numbers. What an export yields, and what everything downstream is derived from.

Because it holds states, two snapshots merge exactly; the flat dict, histograms, cumulative pairs and a replay from disk
all come from the same thing.
"""

import math
from collections.abc import ItemsView, Iterable, Iterator, KeysView, Mapping, Sequence, ValuesView
from typing import NamedTuple

from rltel.core.errors import RecordError
from rltel.record.kinds import GAUGE_MEAN, State, Value, mean_state

_new = tuple.__new__  # what a named tuple's own constructor calls, at half the cost


class Metric(NamedTuple):
    """One metric of a snapshot: its state, the tracker that recorded it, and whether ranks were reduced into it.

    Not to be changed: `Snapshot.merged` makes new ones.
    """

    state: State
    tracker: str = ""
    reduced: bool = False


class Snapshot(Mapping[str, Metric]):
    """Metrics by key, in the order of their recording. Immutable.

    One of plain numbers keeps them as they are until somebody asks for states: that is then not the training thread.
    """

    __slots__ = ("_made", "_numbers")

    def __init__(self, metrics: Mapping[str, Metric] | None = None) -> None:
        self._made: dict[str, Metric] | None = dict(metrics or {})
        self._numbers: dict[str, float] | None = None

    @classmethod
    def of_states(cls, states: Mapping[str, State], tracker: str = "") -> "Snapshot":
        """A snapshot of what one tracker recorded."""
        return cls({key: _new(Metric, (state, tracker, False)) for key, state in states.items()})

    @classmethod
    def of_numbers(cls, numbers: Mapping[str, float]) -> "Snapshot":
        """Plain numbers as gauges."""
        snapshot = cls.__new__(cls)
        snapshot._made, snapshot._numbers = None, dict(numbers)
        return snapshot

    @property
    def numbers(self) -> Mapping[str, float] | None:
        """What it was made of, if that was plain numbers; else None."""
        return self._numbers

    @property
    def _metrics(self) -> dict[str, Metric]:
        made = self._made
        if made is None:  # two threads may both come here: they make the same
            numbers = self._numbers or {}
            made = self._made = {key: _new(Metric, (gauge_of(value), "", False)) for key, value in numbers.items()}
        return made

    @property
    def _keys(self) -> Mapping[str, object]:
        return self._metrics if self._numbers is None else self._numbers

    def __getitem__(self, key: str) -> Metric:
        return self._metrics[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._keys)

    def __len__(self) -> int:
        return len(self._keys)

    def keys(self) -> KeysView[str]:
        """As of a dict: the general view's set operations are loops in Python."""
        return self._keys.keys()

    def items(self) -> ItemsView[str, Metric]:
        """As of a dict: the general view looks every key up."""
        return self._metrics.items()

    def values(self) -> ValuesView[Metric]:
        """As of a dict."""
        return self._metrics.values()

    def merged(self, other: "Snapshot") -> "Snapshot":
        """Both together; the states of keys that both have are merged.

        Raises `RecordError` if a key has two kinds.
        """
        return merged((self, other))

    def values_of(self, key: str) -> Sequence[Value]:
        """The numbers of one metric."""
        return self._metrics[key].state.values()

    def flat(self) -> dict[str, float]:
        """Every number of every metric under its key with the statistic's suffix."""
        return {
            key + suffix: number for key, metric in self._metrics.items() for suffix, _, number in metric.state.values()
        }


def merged(snapshots: Iterable[Snapshot]) -> Snapshot:
    """Any number of snapshots as one: those of a process's trackers, as a rule, which have no key in common.

    Raises `RecordError` if a key has two kinds.
    """
    found = [snapshot for snapshot in snapshots if snapshot]
    if len(found) < 2:
        return found[0] if found else Snapshot()
    metrics: dict[str, Metric] = {}
    for snapshot in found:
        if metrics.keys().isdisjoint(snapshot._metrics):
            metrics.update(snapshot._metrics)
            continue
        for key, metric in snapshot.items():
            mine = metrics.get(key)
            metrics[key] = metric if mine is None else _merged(key, mine, metric)
    return Snapshot(metrics)


def succeeded(earlier: Snapshot, later: Snapshot) -> Snapshot:
    """Two snapshots of one process, one after the other: as `Snapshot.merged`, but a gauge's later value stays, and
    time adds up.
    """
    replaced = {key for key, metric in later.items() if metric.state.kind.replaces}
    both = Snapshot({key: metric for key, metric in earlier.items() if key not in replaced}).merged(later)
    added = {key: earlier[key] for key, m in later.items() if m.state.kind.adds_up and key in earlier}
    return (
        Snapshot({**both, **{key: _prolonged(metric, later[key]) for key, metric in added.items()}}) if added else both
    )


def _prolonged(earlier: Metric, later: Metric) -> Metric:
    state = State(later.state.kind, earlier.state.moments)
    state.prolong(later.state.moments)
    return later._replace(state=state)


def gauge_of(value: float) -> State:
    """A plain number as the state of a gauge."""
    if math.isfinite(value):
        return mean_state(GAUGE_MEAN, value, 1.0)
    nan, positive = float(math.isnan(value)), float(value == math.inf)
    return State(GAUGE_MEAN, (0.0, 0.0, math.inf, -math.inf, nan, positive, 1.0 - nan - positive))


def _merged(key: str, mine: Metric, other: Metric) -> Metric:
    if mine.state.kind is not other.state.kind:
        kinds = f"{mine.state.kind} and {other.state.kind}"
        raise RecordError(f"{key}: cannot merge two kinds, {kinds}")
    state = State(mine.state.kind, mine.state.moments, mine.state.buckets)
    state.add(other.state.moments, other.state.buckets)
    return Metric(state, mine.tracker, mine.reduced and other.reduced)
