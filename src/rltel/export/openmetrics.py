"""What OpenMetrics does not allow, and Prometheus's own text format does: said so that both can be read.

OpenMetrics knows no sum of a histogram that may fall (one with bounds below 0), and no two families of which one's
series have the other's name (a counter ``x``, which is ``x_total``, beside a gauge ``x``). Such a family goes as plain
series of unknown type: Prometheus stores the same series, and only its type is not told.
"""

from collections import Counter
from collections.abc import Iterable

from prometheus_client.core import Metric

_SUFFIXES = {
    "counter": ("_total", "_created"),
    "histogram": ("_bucket", "_count", "_sum", "_created"),
    "gaugehistogram": ("_bucket", "_gcount", "_gsum"),
    "summary": ("_count", "_sum", "_created"),
    "info": ("_info",),
}


def openmetrics(families: Iterable[Metric]) -> list[Metric]:
    """The families, with those taken apart that OpenMetrics has no form for."""
    families = list(families)
    claims = Counter(name for family in families for name in _claimed(family))
    kept: list[Metric] = []
    plain: dict[str, Metric] = {}
    for family in families:
        if family.type == "unknown" or _may_fall(family) or any(claims[name] > 1 for name in _claimed(family)):
            _take_apart(family, plain)
        else:
            kept.append(family)
    return [*kept, *plain.values()]


def _claimed(family: Metric) -> set[str]:
    """The names that nobody else may have."""
    return {family.name, *(family.name + suffix for suffix in _SUFFIXES.get(family.type, ()))}


def _may_fall(family: Metric) -> bool:
    if family.type != "histogram":
        return False
    return any(sample.labels.get("le", "").startswith("-") for sample in family.samples)


def _take_apart(family: Metric, plain: dict[str, Metric]) -> None:
    for sample in family.samples:
        found = plain.get(sample.name)
        if found is None:
            found = plain[sample.name] = type(family)(sample.name, family.documentation, "unknown")
        found.samples.append(sample)
