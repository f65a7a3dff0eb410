"""What a process makes of the values that it gives one gauge: the last of them, unless told otherwise.

Across ranks a gauge merges by another rule (`GAUGES`); this one is applied before.
"""

import math
from collections.abc import Callable, Iterable, Mapping, MutableMapping
from typing import NamedTuple

RULES = ("last", "max", "min", "cumulative", "ema")


class Running(NamedTuple):
    """What is remembered of one gauge between calls."""

    value: float
    rule: str


def applied(rule: str, alpha: float, new: float, key: str, memory: MutableMapping[str, Running]) -> float:
    """The value to record for this call, by the rule:

    ``max``, ``min``: the extreme since the last export; ``cumulative``: the total since the start; ``ema``: the
    exponential moving average ``alpha * new + (1 - alpha) * before``, which starts at the first value.

    A value that is not finite is recorded as it is, and not remembered: it is seen once, and poisons nothing.
    """
    if not math.isfinite(new):
        return new
    before = memory.get(key)
    value = new if before is None else _COMBINE[rule](before.value, new, alpha)
    memory[key] = Running(value, rule)
    return value


def ended(keys: Iterable[str], memory: MutableMapping[str, Running]) -> dict[str, Running]:
    """Remove and return the extremes of these keys: they are being exported, and begin anew."""
    if not memory:
        return {}
    return {key: memory.pop(key) for key in keys if key in memory and memory[key].rule in ("max", "min")}


def resumed(before: Mapping[str, Running], memory: MutableMapping[str, Running]) -> dict[str, float]:
    """The export came to nothing: extremes go on. What each key has now that was recorded again meanwhile."""
    again = {key: applied(old.rule, 1.0, old.value, key, memory) for key, old in before.items() if key in memory}
    memory.update({key: old for key, old in before.items() if key not in memory})
    return again


_COMBINE: dict[str, Callable[[float, float, float], float]] = {
    "max": lambda before, new, _: max(before, new),
    "min": lambda before, new, _: min(before, new),
    "cumulative": lambda before, new, _: before + new,
    "ema": lambda before, new, alpha: alpha * new + (1.0 - alpha) * before,
}
