"""What OpenMetrics does not allow, and Prometheus's own text format does.

OpenMetrics knows no sum of a histogram that may fall (one with bounds below 0), and no two families of which one's
series have the other's name (a counter ``x``, which is ``x_total``, beside a gauge ``x``). Such a family goes as plain
series of unknown type: Prometheus stores the same series, and only its type is not told.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import NamedTuple

_SUFFIXES = {
    "counter": ("_total", "_created"),
    "histogram": ("_bucket", "_count", "_sum", "_created"),
    "gaugehistogram": ("_bucket", "_gcount", "_gsum"),
    "summary": ("_count", "_sum", "_created"),
    "info": ("_info",),
}
_BELOW_ZERO = '{le="-'  # a bound comes first: before any name of ours


class Written(NamedTuple):
    """A family put into words."""

    name: str
    kind: str
    about: str
    lines: Mapping[str, str]
    """By the name of the samples."""
    together: str = ""
    """In their own order, if their names are several: those of one label set must stand together."""

    def whole(self) -> str:
        """As one family."""
        return head(self.name, self.kind, self.about) + (self.together or "".join(self.lines.values()))

    def has_no_form(self) -> bool:
        """Whether it cannot stand as it is, whatever stands beside it."""
        if self.kind == "histogram":
            return any(_BELOW_ZERO in lines for lines in self.lines.values())
        return self.kind == "unknown"


class Claims:
    """Which names families take for themselves: no two may have the same."""

    def __init__(self) -> None:
        self._counts: dict[str, int] = {}

    def add(self, name: str, kind: str, samples: Collection[str]) -> None:
        """A family of this name and kind, with samples of these names."""
        for each in _claimed(name, kind, samples):
            self._counts[each] = self._counts.get(each, 0) + 1

    def clash(self, name: str, kind: str, samples: Collection[str]) -> bool:
        """Whether another family has a name of this one."""
        return any(self._counts[each] > 1 for each in _claimed(name, kind, samples))


def head(name: str, kind: str, about: str) -> str:
    """What comes before the lines of a family."""
    return f"# HELP {name} {about}\n# TYPE {name} {kind}\n"


def _claimed(name: str, kind: str, samples: Collection[str]) -> Collection[str]:
    suffixes = _SUFFIXES.get(kind)
    if suffixes is None and len(samples) == 1 and name in samples:
        return samples  # a gauge: thousands of them are the usual case
    return {name, *(name + suffix for suffix in suffixes or ()), *samples}


def allowed(families: Iterable[Written], claims: Claims) -> Iterator[str]:
    """The words of all families, with those taken apart that OpenMetrics has no form for.

    Args:
        families: all that were put into words.
        claims: theirs, and those of the families that others write.
    """
    plain: dict[str, tuple[str, list[str]]] = {}
    for family in families:
        if family.has_no_form() or claims.clash(family.name, family.kind, family.lines.keys()):
            for name, lines in family.lines.items():
                plain.setdefault(name, (family.about, []))[1].append(lines)
        else:
            yield family.whole()
    for name, (about, each) in plain.items():
        yield head(name, "unknown", about) + "".join(each)
