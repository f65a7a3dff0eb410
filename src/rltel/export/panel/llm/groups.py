"""The groups of an LLM run's panel at one moment: one row for each measure and scope, whatever keys say it."""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from rltel.export.panel.history import Trend
from rltel.export.panel.llm.keys import Place, place_of, reward_key
from rltel.export.panel.llm.rows import GROUPS, HEADLINES, MOE, TERM, Form
from rltel.export.panel.window import View

_COUNTS: frozenset[Form] = frozenset({"count", "state", "notice"})
_NONE_AT_ZERO: frozenset[Form] = frozenset({"notice", "alarm"})


class GroupRow(NamedTuple):
    """A number with its label."""

    text: str
    value: float
    urgency: int | None = None
    """Its place among the headlines, the first is 0; None: a detail."""
    is_count: bool = False
    is_red: bool = False
    is_term: bool = False
    """Whether it is a part of the reward."""
    has_own_text: bool = False
    """Whether a user's text is in the label, which may be long."""
    trend: Trend | None = None


@dataclass(frozen=True, slots=True)
class Section:
    """A title and its rows."""

    title: str
    rows: tuple[GroupRow, ...]


class _Found(NamedTuple):
    key: str
    place: Place


class _Valued(NamedTuple):
    key: str
    place: Place
    value: float


def sections(view: View, trend: Trend | None) -> tuple[Section, ...]:
    """All groups that have rows. `trend`: of the mean reward."""
    chosen = _chosen(view.latest)
    marked = reward_key(tuple(view.latest))
    has_unscoped = any(not each.place.scope for each in chosen)
    said: set[int] = set()
    made = []
    for group in GROUPS:
        valued = _valued((each for each in chosen if each.place.group is group), view)
        rows = []
        for key, row in _rows(_worst(valued) if group is MOE else valued, has_unscoped=has_unscoped):
            is_first = row.urgency not in said  # a second row of a headline (a critic's, a test's) is a detail
            rows.append(row._replace(trend=trend if key == marked else None, urgency=row.urgency if is_first else None))
            said.update(() if row.urgency is None else (row.urgency,))
        made.append(Section(group.title, tuple(rows)))
    return tuple(section for section in made if section.rows)


def unplaced(keys: Iterable[str]) -> list[str]:
    """The keys that no group shows: unknown ones, and those that say again what another key says for the same scope.

    What `rltel.rl` records for the persistent destinations alone is not among them.
    """
    keys = list(keys)
    shown = {found.key for found in _chosen(keys)}
    return [key for key in keys if key not in shown and not _is_ours(key)]


def _is_ours(key: str) -> bool:
    place = place_of(key)
    return place is not None and (place.is_ours or place.group is None)


def _chosen(keys: Iterable[str]) -> list[_Found]:
    """Of the keys that say the same for one scope, the one that says it best; in the order of the rows."""
    best: dict[tuple[int, str, str, str], _Found] = {}
    for key in keys:
        place = place_of(key)
        if place is None or place.group is None:
            continue
        found = _Found(key, place)
        slot = place.order, place.measure.text, place.scope, place.number
        if slot not in best or _rank(found) < _rank(best[slot]):
            best[slot] = found
    return sorted(best.values(), key=lambda each: _position(each.place))


def _rank(found: _Found) -> tuple[int, int, str]:
    return found.place.rank, len(found.key), found.key


def _position(place: Place) -> tuple[int, str, bool, int, str]:
    """By rows; terms by name; the policy's own before a critic's or a test's; 2 before 10."""
    return place.order, place.measure.text, not place.is_of_the_policy, int(place.number or 0), place.scope


def _valued(chosen: Iterable[_Found], view: View) -> list[_Valued]:
    """Those that have a value, and are worth a row."""
    with_value = ((key, place, _value(key, place.measure.form, view)) for key, place in chosen)
    return [
        _Valued(key, place, value)
        for key, place, value in with_value
        if value is not None and not (value == 0 and place.measure.form in _NONE_AT_ZERO)
    ]


def _value(key: str, form: Form, view: View) -> float | None:
    if form == "state":
        return view.latest.get(key)
    return view.rate(key)


def _worst(valued: Iterable[_Valued]) -> list[_Valued]:
    """Of each model's layers the one whose experts are least in balance: a row for each would leave no room."""
    worst: dict[str, _Valued] = {}
    for each in valued:
        before = worst.get(each.place.scope)
        if before is None or _badness(each) > _badness(before):
            worst[each.place.scope] = each
    return list(worst.values())


def _badness(valued: _Valued) -> tuple[bool, float]:
    return math.isnan(valued.value), valued.value


def _rows(valued: Sequence[_Valued], *, has_unscoped: bool) -> Iterator[tuple[str, GroupRow]]:
    """Rows with their keys. What two scopes have says whose it is, and what is not the policy's always does.

    Args:
        valued: of one group.
        has_unscoped: whether the run has keys of no scope. Then those are the policy's, and a scope that nobody knows
            (``warmup``) is another one; else it may be the trainer's own name for it.
    """
    texts = [_text(place) for _, place, _ in valued]
    for (key, place, value), text in zip(valued, texts, strict=True):
        is_another = not place.is_of_the_policy or (has_unscoped and place.scope != "rollout")
        says_whose = bool(place.scope) and (is_another or texts.count(text) > 1)
        is_term = place.measure.endings == TERM.endings
        headline = place.measure.headline
        yield (
            key,
            GroupRow(
                f"{text} ({place.scope})" if says_whose else text,
                value,
                urgency=HEADLINES.index(headline) if headline else None,
                is_count=place.measure.form in _COUNTS or (place.measure.form == "alarm" and value.is_integer()),
                is_red=place.measure.form == "alarm" or not math.isfinite(value),
                is_term=is_term,
                has_own_text=is_term or says_whose,
            ),
        )


def _text(place: Place) -> str:
    text = place.measure.text
    if "*" in text:
        return text.replace("*", place.number)
    return f"{text}, layer {place.number}" if place.number else text
