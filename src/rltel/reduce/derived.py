"""Numbers that are computed from other merged numbers, after reduction: a ratio of sums, never a mean of ratios.

Tokens per second, say, is the sum of all ranks' tokens over the slowest rank's seconds: two keys with their own merge
operations, and a finish that sees only what was merged.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from rltel.reduce.snapshot import Metric, Snapshot, gauge_of

Finish = Callable[..., float | None]


@dataclass(frozen=True, slots=True)
class Derived:
    """One such number: ``finish(**arguments)``, each argument the value of a key of the flat dict."""

    key: str
    finish: Finish
    arguments: Mapping[str, str]


def with_derived(snapshot: Snapshot, derived: Mapping[str, Derived]) -> Snapshot:
    """The snapshot and what is derived from it, as gauges. What lacks an argument, or finishes as None, is left out."""
    if not derived or not snapshot:
        return snapshot
    flat = snapshot.flat()
    found: dict[str, Metric] = {}
    for each in derived.values():
        if all(key in flat for key in each.arguments.values()):
            value = each.finish(**{name: flat[key] for name, key in each.arguments.items()})
            if value is not None:
                reduced = any(metric.reduced for metric in snapshot.values())
                found[each.key] = Metric(gauge_of(float(value)), reduced=reduced)
    return Snapshot({**snapshot, **found})
