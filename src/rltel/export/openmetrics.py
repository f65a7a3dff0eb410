"""What OpenMetrics does not allow, and Prometheus's own text format does.

OpenMetrics knows no sum of a histogram that may fall (one with bounds below 0), and no two families of which one's
series have the other's name (a counter ``x``, which is ``x_total``, beside a gauge ``x``). Such a family goes as plain
series of unknown type: Prometheus stores the same series, and only its type is not told.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

_SUFFIXES = {
    "counter": ("_total", "_created"),
    "histogram": ("_bucket", "_count", "_sum", "_created"),
    "gaugehistogram": ("_bucket", "_gcount", "_gsum"),
    "summary": ("_count", "_sum", "_created"),
    "info": ("_info",),
}
_BELOW_ZERO = '{le="-'  # a bound comes first: before any name of ours


@dataclass(slots=True)
class Written:
    """A family put into words: its head, and the lines of each sample name."""

    name: str
    kind: str
    about: str
    lines: dict[str, str]

    def whole(self) -> str:
        """As one family."""
        return head(self.name, self.kind, self.about) + "".join(self.lines.values())

    def claimed(self) -> set[str]:
        """The names that nobody else may have."""
        return claimed(self.name, self.kind, self.lines)

    def has_no_form(self) -> bool:
        """Whether it cannot stand as it is, whatever stands beside it."""
        is_histogram = self.kind == "histogram"
        return self.kind == "unknown" or (is_histogram and any(_BELOW_ZERO in lines for lines in self.lines.values()))


def head(name: str, kind: str, about: str) -> str:
    """What comes before the lines of a family."""
    return f"# HELP {name} {about}\n# TYPE {name} {kind}\n"


def claimed(name: str, kind: str, samples: Iterable[str]) -> set[str]:
    """The names that a family takes for itself."""
    return {name, *(name + suffix for suffix in _SUFFIXES.get(kind, ())), *samples}


def allowed(families: Iterable[Written], claims: Counter[str]) -> Iterator[str]:
    """The words of all families, with those taken apart that OpenMetrics has no form for.

    Args:
        families: all that were put into words.
        claims: how many families claim each name, these and others.
    """
    plain: dict[str, Written] = {}
    for family in families:
        if family.has_no_form() or any(claims[name] > 1 for name in family.claimed()):
            for name, lines in family.lines.items():
                made = plain.setdefault(name, Written(name, "unknown", family.about, {}))
                made.lines[name] = made.lines.get(name, "") + lines
        else:
            yield family.whole()
    for family in plain.values():
        yield family.whole()
