"""The first look at an LLM run: what a line of its console says, in the order in which one would ask for it."""

import math
from collections.abc import Mapping
from typing import NamedTuple

from rltel.export.panel.llm.keys import Place, place_of
from rltel.export.panel.llm.rows import HEADLINES, MOE


class Headline(NamedTuple):
    """A number, what the line calls it, and under which key it was recorded."""

    text: str
    value: float
    key: str


def headlines(values: Mapping[str, float]) -> list[Headline]:
    """One number for each headline that some key says: the policy's own before a critic's or a test's."""
    best: dict[str, tuple[tuple[object, ...], Headline]] = {}
    for key, value in values.items():
        place = place_of(key)
        text = place.measure.headline if place is not None else ""
        if place is None or not text:
            continue
        rank = _rank(key, place, value)
        if text not in best or rank < best[text][0]:
            best[text] = rank, Headline(text, value, key)
    return [best[text][1] for text in HEADLINES if text in best]


def _rank(key: str, place: Place, value: float) -> tuple[object, ...]:
    """The lowest is shown. Of MoE layers that is the one whose experts are least in balance."""
    badness = (not math.isnan(value), -value) if place.group is MOE else (False, 0.0)
    return not place.is_of_the_policy, place.order, bool(place.scope), place.rank, *badness, len(key), key
