"""What a process makes of the values that it gives one gauge: the last of them, unless told otherwise.

Across ranks a gauge merges by another rule (`GAUGES`); this one is applied before.
"""

import math
from collections.abc import Callable, Iterable, MutableMapping
from typing import NamedTuple

RULES = ("last", "max", "min", "cumulative", "ema")


class Running(NamedTuple):
    """What is remembered of one gauge between calls."""

    value: float
    until_export: bool
    """Whether an export of the key ends what is remembered."""


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
    memory[key] = Running(value, until_export=rule in ("max", "min"))
    return value


def exported(keys: Iterable[str], memory: MutableMapping[str, Running]) -> None:
    """These keys were exported: their extremes begin anew."""
    if memory:
        for key in keys:
            if key in memory and memory[key].until_export:
                del memory[key]


_COMBINE: dict[str, Callable[[float, float, float], float]] = {
    "max": lambda before, new, _: max(before, new),
    "min": lambda before, new, _: min(before, new),
    "cumulative": lambda before, new, _: before + new,
    "ema": lambda before, new, alpha: alpha * new + (1.0 - alpha) * before,
}
