"""A snapshot as a line of the record has it: metrics of one kind together, each with the numbers of its state.

A line is written on the training thread, so it says nothing twice: what metrics share stands once, a state leaves out
the zeros at its end (nobody saw a NaN), and a single observation is one number.
"""

import math
from collections.abc import Mapping, Sequence
from math import inf
from typing import Any

from rltel.core.errors import PayloadError
from rltel.record.kinds import GAUGE_MEAN, Kind, find_kind
from rltel.reduce.snapshot import Metric, Snapshot
from rltel.reduce.workers import read_metric

Group = dict[str, Any]
_AVERAGE = (0, 1, 4, 5, 6)  # sum, count and what is not finite: the state of whatever is a mean


def plain_groups(snapshot: Snapshot) -> list[Group]:
    """The snapshot as plain data, for `read_groups` (`docs/jsonl.md` has the format)."""
    numbers = snapshot.numbers
    if numbers is not None and math.isfinite(sum(numbers.values())):  # then every number is finite
        return [{"kind": GAUGE_MEAN.name, "states": numbers}] if numbers else []
    groups: dict[tuple[Kind, str, bool], Group] = {}
    place: tuple[Kind, str, bool] | None = None
    for key, (state, tracker, reduced) in snapshot.items():
        if place is None or place[0] is not state.kind or place[1] != tracker or place[2] != reduced:
            place = (state.kind, tracker, reduced)
            group = groups.get(place) or groups.setdefault(place, _group(*place))
            states, is_average = group["states"], state.kind.positions == _AVERAGE
        total, count, _, _, nan, positive, negative = state.moments
        if is_average and not (nan or positive or negative) and -inf < total < inf:
            states[key] = total if count == 1.0 else (total, count)
            continue
        states[key] = _numbers(state.kind, state.moments)
        if state.buckets:
            group["buckets"][key] = sorted(state.buckets.items())
    return list(groups.values())


def _group(kind: Kind, tracker: str, reduced: bool) -> Group:
    group: Group = {"kind": kind.name}
    if tracker:
        group["tracker"] = tracker
    if reduced:
        group["reduced"] = True
    group["states"] = {}
    if kind.bucketed:
        group["buckets"] = {}
    return group


def _numbers(kind: Kind, moments: Sequence[float]) -> list[float | None]:
    """A state's numbers. Null stands for an extreme of nothing, and for a sum that float64 could not hold."""
    kept = [value if math.isfinite(value) else None for value in (moments[place] for place in kind.positions)]
    while len(kept) > 1 and kept[-1] == 0.0 and math.copysign(1.0, kept[-1]) > 0:
        kept.pop()
    return kept


def read_groups(groups: Any) -> Snapshot:
    """A snapshot from a line's plain data, checked. Raises `PayloadError`."""
    if isinstance(groups, Mapping):  # lines of version 1: each metric for itself
        return Snapshot({key: read_metric(key, plain) for key, plain in groups.items()})
    if not isinstance(groups, list) or not all(isinstance(group, Mapping) for group in groups):
        raise PayloadError(f"metrics: expected a list of groups, got {type(groups).__name__}")
    return Snapshot({key: metric for group in groups for key, metric in _read_group(group)})


def _read_group(group: Mapping[str, Any]) -> list[tuple[str, Metric]]:
    name, states, buckets = group.get("kind"), group.get("states"), group.get("buckets", {})
    kind = find_kind(name) if isinstance(name, str) else None
    if kind is None:
        raise PayloadError(f"metrics: kind: expected a known one, got {name!r}")
    if not isinstance(states, Mapping) or not isinstance(buckets, Mapping):
        raise PayloadError(f"metrics: {kind}: expected states and buckets by key")
    about = {what: group[what] for what in ("tracker", "reduced") if what in group}
    return [
        (key, read_metric(key, {"kind": name, "state": _whole(kind, given), "buckets": buckets.get(key, ()), **about}))
        for key, given in states.items()
    ]


def _whole(kind: Kind, given: Any) -> Any:
    """The numbers with what was left out put back."""
    if isinstance(given, (int, float)) and kind.positions == _AVERAGE:
        given = [given, 1.0]
    return [*given, *[0.0] * (len(kind.positions) - len(given))] if isinstance(given, list) else given
