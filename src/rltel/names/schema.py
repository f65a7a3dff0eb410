"""The metric schema of robot RL: what the values under each canonical tag mean. The data is in ``robot_rl.toml``."""

import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from importlib.resources import files
from typing import Any, Final, Literal, NamedTuple

METRIC_SCHEMA_VERSION: Final = 1
"""Stands in ``run_summary.json``. It changes when a published tag's meaning does, never for an additional tag."""

ALGORITHMS: Final = ("sac", "flashsac", "appo", "ppo")

_AS_FOLDERS = {"rsl_rl_ppo": "ppo", "flash_sac": "flashsac"}  # what their log folders are called
_SHOWN = {"section": "", "label": "", "indent": False, "quiet": False, "percent_of": ""}
_REMEMBERED = 4096

Ranks = Literal["mean", "sum", "writer"]


@dataclass(frozen=True, slots=True)
class Terminal:
    """Where and how the terminal panel shows a tag."""

    section: str
    """``title``, ``header``, ``rewards``, ``metrics.<group>`` or ``timing.<column>``."""
    label: str
    order: int
    """Position among all that is shown; within a section, from the top."""
    indent: bool = False
    quiet: bool = False
    """Hidden below 1% of ``percent_of``."""
    percent_of: str | None = None
    """The tag that is 100%; None: no percentage."""


@dataclass(frozen=True, slots=True)
class Tag:
    """One canonical tag, or a family of them (``reward/<term>``)."""

    name: str
    unit: str
    """Of the persisted value, in words."""
    owner: str
    """Who measures it."""
    local: str
    """What one process makes of its values: a key of `locals_`."""
    ranks: Ranks
    """How ranks merge: ``mean`` of those that have it, ``sum``, ``writer`` (rank 0 alone)."""
    kind: str
    """What it is: coordinate, return, loss, exclusive, nested, background, gauge ... (listed in ``robot_rl.toml``)."""
    algorithms: tuple[str, ...]
    """Of `ALGORITHMS`, those that have it."""
    about: str
    parent: str | None = None
    """The tag that its time is a part of."""
    clock: Literal["learner", "collector"] | None = None
    """Whose loop a time belongs to."""
    omitted: str = ""
    """When nothing is written; empty: every report has it. Nothing stands in for a missing value: no zero, no NaN."""
    zero_is_absent: bool = False
    """Whether a value of 0 means that there is none, and is omitted."""
    persisted: bool = True
    """False where only the terminal shows it."""
    terminal: Terminal | None = None
    """None where the terminal does not show it."""
    never: tuple[str, ...] = ()
    """Of a family: parts that it does not have."""
    family: str | None = None
    """Of a member: the name of its family."""
    term: str | None = None
    """Of a member: what stands in the place of the family's ``<part>``."""

    @property
    def is_family(self) -> bool:
        """Whether it stands for many tags."""
        return "<" in self.name

    @property
    def rule(self) -> "GaugeRule":
        """What `rltel.gauge` does with its values if the caller does not say."""
        local = locals_()[self.local]
        return GaugeRule(self.ranks, local.gauge, local.alpha)

    @property
    def prefix(self) -> str:
        """What every member of a family begins with; of a tag that is none, its name."""
        return self.name.partition("<")[0]


class GaugeRule(NamedTuple):
    """The rules of `rltel.gauge`: how ranks merge, and what this process makes of several values."""

    ranks: str = "mean"
    local: str = "last"
    alpha: float = 0.1


_PLAIN = GaugeRule()


class Local(NamedTuple):
    """One way in which a process makes one value of several, and the gauge rule for it."""

    about: str
    gauge: str
    alpha: float = 0.1


class Removed(NamedTuple):
    """Tags that are not emitted any more: all that begin with ``prefix``."""

    prefix: str
    instead: str
    about: str


def tags() -> Iterable[Tag]:
    """Every tag and family, also those that only the terminal has, in the terminal's order."""
    return _schema().tags


def persisted_tags() -> list[Tag]:
    """Those that are written to destinations."""
    return [each for each in tags() if each.persisted]


def tag(name: str, algorithm: str | None = None) -> Tag | None:
    """The tag of this name, or None. A member of a family (``reward/upright``) has its own name and label.

    A family is only open to the algorithms that have it, if one is named: SAC has no ``Loss/<name>``, so that its
    misspelt losses are none.
    """
    found = _schema().exact.get(name)
    if found is not None:
        return found
    for family in _schema().families:
        term = name.removeprefix(family.prefix)
        if term and term != name and term not in family.never and _open_to(family, algorithm):
            return _member(family, name, term)
    return None


def allowed(name: str, algorithm: str | None = None) -> bool | None:
    """Whether the schema has this key for data: None where its first part is none of the schema's namespaces."""
    if name.partition("/")[0] not in _schema().namespaces or "/" not in name:
        return None
    found = tag(name, algorithm)
    return found is not None and found.persisted


def removed(name: str) -> Removed | None:
    """Why this tag is not emitted any more, and what has its meaning now; None if it is no such tag."""
    return next((each for each in _schema().removed if name.startswith(each.prefix)), None)


def removed_tags() -> Iterable[Removed]:
    """What is not emitted any more."""
    return _schema().removed


@lru_cache(_REMEMBERED)
def gauge_rule(name: str) -> GaugeRule:
    """What `rltel.gauge` does with this key if the caller does not say: the tag's rule, else mean and last value."""
    found = tag(name) if "/" in name else None
    return _PLAIN if found is None else found.rule


def algorithm_named(text: str) -> str | None:
    """The one of `ALGORITHMS` that this is, by its name or its log folder's (``flash_sac``, ``rsl_rl_ppo``)."""
    plain = text.strip().lower()
    plain = _AS_FOLDERS.get(plain, plain)
    return plain if plain in ALGORITHMS else None


def locals_() -> Mapping[str, Local]:
    """What the values of `Tag.local` mean."""
    return _schema().locals


class _Schema(NamedTuple):
    tags: tuple[Tag, ...]
    exact: Mapping[str, Tag]
    families: tuple[Tag, ...]
    namespaces: frozenset[str]
    locals: Mapping[str, Local]
    removed: tuple[Removed, ...]


@cache
def _schema() -> _Schema:
    loaded = tomllib.loads(files("rltel.names").joinpath("robot_rl.toml").read_text(encoding="utf-8"))
    if loaded["metric_schema_version"] != METRIC_SCHEMA_VERSION:
        raise RuntimeError(f"robot_rl.toml has version {loaded['metric_schema_version']}, not {METRIC_SCHEMA_VERSION}")
    every = [
        _tag({**{name: value for name, value in group.items() if name != "tags"}, **line}, order)
        for order, (group, line) in enumerate((group, line) for group in loaded["group"] for line in group["tags"])
    ]
    gone = tuple(Removed(**line) for line in loaded["removed"])
    return _Schema(
        tags=tuple(every),
        exact={each.name: each for each in every if not each.is_family},
        # The longest prefix first, so that the narrower family wins.
        families=tuple(sorted((each for each in every if each.is_family), key=lambda each: -len(each.prefix))),
        namespaces=frozenset(
            each.partition("/")[0]
            for each in (*(one.name for one in every if one.persisted), *(one.prefix for one in gone))
        ),
        locals={name: Local(**line) for name, line in loaded["local"].items()},
        removed=gone,
    )


def _tag(line: dict[str, Any], order: int) -> Tag:
    """From the fields of its line. TOML has no null: an empty parent or percent_of is none."""
    shown = {name: line.pop(name, default) for name, default in _SHOWN.items()}
    line["parent"] = line.get("parent") or None
    line["algorithms"], line["never"] = tuple(line["algorithms"]), tuple(line.get("never", ()))
    return Tag(**line, terminal=_terminal(order=order, **shown) if shown["section"] else None)


def _terminal(*, percent_of: str, **shown: Any) -> Terminal:
    return Terminal(percent_of=percent_of or None, **shown)


def _open_to(family: Tag, algorithm: str | None) -> bool:
    return algorithm is None or algorithm in family.algorithms


def _member(family: Tag, name: str, term: str) -> Tag:
    shown = family.terminal
    if shown is not None:
        before, _, after = shown.label.partition("<")
        shown = replace(shown, label=f"{before}{term}{after.partition('>')[2]}")
    return replace(family, name=name, terminal=shown, family=family.name, term=term, never=())
