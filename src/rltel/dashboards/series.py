"""Which series a key of the catalogue is in a store, and which labels a dashboard tells it apart by."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from rltel.core.errors import RltelError
from rltel.names.catalogue import Entry, catalogue
from rltel.names.prometheus import label_name, prometheus_name

RUN, ROLE, RANK = "rl_run_id", "rl_role", "rl_rank"
CHOSEN = f'{RUN}=~"$run",{ROLE}=~"$role",{RANK}=~"$rank",job=~"$job"'
"""What the variables at the top of every dashboard chose; their "All" also takes series without the label."""

_PART = re.compile(r"\{\w+\}")


@dataclass(frozen=True, slots=True)
class Series:
    """The series of one metric: a Prometheus name, what its labels have to be, and by which labels they differ."""

    name: str
    key: str
    """As recorded, a pattern for a family; empty where no key makes it."""
    where: tuple[str, ...] = ()
    """Matchers, beside those of the variables."""
    by: tuple[str, ...] = (RUN,)
    """The labels that an answer keeps, the run first."""
    wanted: Mapping[str, str] = field(default_factory=dict)
    """The labels of the matchers that ask for one value."""
    stat: str = "avg"
    """Which statistic the gauge of this name shows."""

    def __str__(self) -> str:
        return self.part("")

    def part(self, suffix: str) -> str:
        """The selector of one of its names: ``_bucket``, ``_numerator``, or none."""
        return f"{self.name}{suffix}{{{','.join((CHOSEN, *self.where))}}}"

    def only(self, *matchers: str, **labels: str) -> "Series":
        """Those of them whose labels have these values, or for which these matchers hold."""
        made = tuple(f'{name}="{value}"' for name, value in labels.items())
        by = tuple(label for label in self.by if label not in labels)
        return replace(self, where=(*self.where, *matchers, *made), by=by, wanted={**self.wanted, **labels})

    def also_by(self, *labels: str) -> "Series":
        """The same, told apart by more labels."""
        return replace(self, by=(*self.by, *labels))


def series(key: str, **labels: str) -> Series:
    """Of a key of the catalogue, as it stands there (``Loss/{loss}``).

    Args:
        key: the entry's own.
        labels: what labels have to be, where one of a family is meant.

    Raises:
        RltelError: the catalogue has no such entry.
    """
    entry = next((each for each in catalogue().entries if each.key == key), None)
    if entry is None:
        raise RltelError(f'dashboards: expected a key of the catalogue, got "{key}"')
    fixed = {label_name(name): text for name, text in entry.attributes.items() if not _PART.search(text)}
    free = tuple(label_name(name) for name, text in entry.attributes.items() if _PART.search(text))
    found = Series(prometheus_name(entry.name, entry.unit, _shown(entry)), key, by=(RUN, *free))
    return found.only(*_not_the_others(entry), **{**fixed, **labels})


def _not_the_others(entry: Entry) -> Iterator[str]:
    """Matchers that leave out other keys of the same name: the reward over time is no second reward."""
    for other in catalogue().entries:
        if other.name == entry.name and other.unit == entry.unit:
            for name, text in other.attributes.items():
                if name not in entry.attributes and not _PART.search(text):
                    yield f'{label_name(name)}=""'


def named(name: str, *by: str, key: str = "", unit: str = "") -> Series:
    """Of an OpenTelemetry name that is no entry's own: phases, the step, accounts of destinations."""
    return Series(prometheus_name(name, unit, "gauge"), key, by=(RUN, *by))


def _shown(entry: Entry) -> Literal["gauge", "counter"]:
    return "counter" if entry.kind == "counter" else "gauge"
