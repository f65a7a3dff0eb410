"""Numbers that are computed from other merged numbers, after reduction: a ratio of sums, never a mean of ratios.

Tokens per second, say, is the sum of all ranks' tokens over the slowest rank's seconds: two keys with their own merge
operations, and a finish that sees only what was merged.
"""

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from rltel.reduce.snapshot import Metric, Snapshot, gauge_of

_log = logging.getLogger("rltel")
_said: set[str] = set()
Finish = Callable[..., float | None]


@dataclass(frozen=True, slots=True)
class Derived:
    """One such number: ``finish(**arguments)``, each argument the value of a key of the flat dict."""

    key: str
    finish: Finish
    arguments: Mapping[str, str]


def with_derived(snapshot: Snapshot, derived: Mapping[str, Derived]) -> Snapshot:
    """The snapshot and what is derived from it, as gauges.

    What lacks an argument, finishes as None or raises is left out: the numbers that it comes from must still arrive, on
    every rank alike.
    """
    if not derived or not snapshot:
        return snapshot
    flat = snapshot.flat()
    reduced = any(metric.reduced for metric in snapshot.values())
    found: dict[str, Metric] = {}
    for each in derived.values():
        if all(key in flat for key in each.arguments.values()):
            value = _finished(each, {name: flat[key] for name, key in each.arguments.items()})
            if value is not None:
                found[each.key] = Metric(gauge_of(value), reduced=reduced)
    return Snapshot({**snapshot, **found})


def _finished(derived: Derived, arguments: Mapping[str, float]) -> float | None:
    try:
        value = derived.finish(**arguments)
        return None if value is None else float(value)
    except Exception as error:  # the user's own code, long after the call that gave it to us
        if derived.key not in _said:
            _said.add(derived.key)
            _log.warning("%s: left out: its finish raised %s: %s (said once)", derived.key, type(error).__name__, error)
        return None
