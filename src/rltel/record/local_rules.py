"""What a process makes of the values that it gives one gauge: the last one, unless the caller or the schema says else.

Across ranks a gauge merges by another rule (`GAUGES`); this one is applied before.
"""

import math
from collections.abc import Callable, Iterable, Mapping, MutableMapping
from typing import Any, NamedTuple

from rltel.core.errors import RecordError
from rltel.names.schema import GaugeRule, gauge_rule
from rltel.record.kinds import GAUGES

RULES = ("last", "mean", "max", "min", "cumulative", "ema")

_OF_AN_INTERVAL = ("mean", "max", "min")


class Running(NamedTuple):
    """What is remembered of one gauge between calls. ``n``: how many values a mean is of."""

    value: float
    rule: str
    n: int = 1


def by_rule(
    numbers: Mapping[str, Any], tracker: str, ranks: str | None, local: str | None, alpha: float | None
) -> dict[GaugeRule, dict[str, Any]]:
    """The values of one call, by their full keys, grouped by the rule that each goes by.

    What the caller leaves out (None) is as the metric schema says of the key, without its tracker's name. A value that
    is not on the host counts as the last one then: any other rule would have to wait for it, and `RecordError` is
    raised if one is asked for.
    """
    waiting = [key for key, number in numbers.items() if type(number) is not float]
    if waiting and local not in (None, "last"):
        raise RecordError(f"{', '.join(waiting)}: gauge: local={local!r}: expected numbers on the host, got a device's")
    groups: dict[GaugeRule, dict[str, Any]] = {}
    own = len(tracker) + 1 if tracker else 0
    told = ranks is not None or local is not None or alpha is not None
    last, group = None, {}
    for key, number in numbers.items():
        rule = gauge_rule(key[own:])
        if type(number) is not float and rule.local != "last":
            rule = rule._replace(local="last")
        if told:
            rule = GaugeRule(ranks or rule.ranks, local or rule.local, rule.alpha if alpha is None else alpha)
        if rule is not last:  # neighbours mostly share theirs: hashing it each time would double the cost
            last, group = rule, groups.setdefault(rule, {})
        group[key] = number
    return groups


def check_rules(ranks: str | None, local: str | None, alpha: float | None) -> None:
    """Raise `RecordError` for what is none of the rules of a gauge. None: as the schema says."""
    if ranks is not None and ranks not in GAUGES:
        raise RecordError(f"gauge: ranks: expected one of {', '.join(GAUGES)}, got {ranks!r}")
    if local is not None and local not in RULES:
        raise RecordError(f"gauge: local: expected one of {', '.join(RULES)}, got {local!r}")
    if alpha is not None and not 0.0 < alpha <= 1.0:
        raise RecordError(f"gauge: alpha: expected a number above 0 and at most 1, got {alpha!r}")


def applied(rule: str, alpha: float, new: float, key: str, memory: MutableMapping[str, Running]) -> float:
    """The value to record for this call, by the rule:

    ``mean``, ``max``, ``min``: of the values since the last export; ``cumulative``: the total since the start; ``ema``:
    the exponential moving average ``alpha * new + (1 - alpha) * before``, which starts at the first value.

    A value that is not finite makes the mean of its interval so. By any other rule it is recorded as it is, and not
    remembered: it is seen once, and poisons nothing.
    """
    if rule != "mean" and not math.isfinite(new):
        return new
    return _remembered(Running(new, rule), alpha, key, memory)


def ended(keys: Iterable[str], memory: MutableMapping[str, Running]) -> dict[str, Running]:
    """Remove and return the means and extremes of these keys: they are being exported, and begin anew."""
    if not memory:
        return {}
    return {key: memory.pop(key) for key in keys if key in memory and memory[key].rule in _OF_AN_INTERVAL}


def resumed(before: Mapping[str, Running], memory: MutableMapping[str, Running]) -> dict[str, float]:
    """The export came to nothing: its interval goes on. What each key has now that was recorded again meanwhile."""
    again = {key: _remembered(old, 1.0, key, memory) for key, old in before.items() if key in memory}
    memory.update({key: old for key, old in before.items() if key not in memory})
    return again


def _remembered(new: Running, alpha: float, key: str, memory: MutableMapping[str, Running]) -> float:
    before = memory.get(key)
    if before is None:
        memory[key] = new
        return new.value
    value = _COMBINE[new.rule](before, new, alpha)
    memory[key] = Running(value, new.rule, before.n + new.n)
    return value


def _mean(before: Running, new: Running, _: float) -> float:
    if not (math.isfinite(before.value) and math.isfinite(new.value)):
        return before.value + new.value
    return before.value + (new.value - before.value) * (new.n / (before.n + new.n))


_COMBINE: dict[str, Callable[[Running, Running, float], float]] = {
    "mean": _mean,
    "max": lambda before, new, _: max(before.value, new.value),
    "min": lambda before, new, _: min(before.value, new.value),
    "cumulative": lambda before, new, _: before.value + new.value,
    "ema": lambda before, new, alpha: alpha * new.value + (1.0 - alpha) * before.value,
}
