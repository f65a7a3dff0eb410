"""Which blocks stand where, by the width of the terminal; and which rows go, if it is too low."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import combinations, pairwise

from rltel.export.panel.blocks import (
    Block,
    Row,
    group_blocks,
    joined,
    metrics_block,
    others_blocks,
    rewards_block,
    rows_of,
    stacked,
    system_block,
    timing_block,
)
from rltel.export.panel.families import LEARNER
from rltel.export.panel.glyphs import Glyphs
from rltel.export.panel.model import Model
from rltel.export.panel.timing import column_title

MEDIUM, WIDE = 96, 120
"""From how many columns sections stand side by side, and from how many System is a column of its own."""
GROUPED = 76
"""From how many columns an LLM run's sections stand side by side: its labels are short, and its rows many."""

_SYSTEM_WIDTH = 30


@dataclass(frozen=True, slots=True)
class Band:
    """Blocks side by side, with the width of each, and nothing but lines between them."""

    blocks: tuple[Block, ...]
    widths: tuple[int, ...]


def arrange(model: Model, width: int, glyphs: Glyphs) -> list[Band]:
    """All blocks that have rows, for a terminal so many columns wide."""
    inner = width - 2
    if width < (GROUPED if model.groups else MEDIUM):
        bands = [_even([block], inner) for block in _narrow(model, glyphs)]
    else:
        bands = [
            _even(_columns(group_blocks(model, glyphs), 3 if width >= WIDE else 2), inner),
            _metrics_band(model, inner, glyphs),
            _timing_band(model, inner, is_wide=width >= WIDE),
            _even(others_blocks(model, inner), inner),
        ]
    return [band for band in bands if rows_of(band.blocks)]


def fit(bands: Sequence[Band], lines: int) -> tuple[list[Band], int]:
    """The bands in at most so many lines, their titles included, and how many rows had to go.

    The least important go first, of those that make their band as high as it is.
    """
    left = [Band(band.blocks, band.widths) for band in bands]
    hidden = 0
    while sum(rows_of(band.blocks) + 1 for band in left) > lines:
        candidates = [
            (row.importance, -row.weight, position, i, j)
            for i, band in enumerate(left)
            for j, block in enumerate(band.blocks)
            if len(block.rows) == rows_of(band.blocks)
            for position, row in enumerate(block.rows)
            if not row.is_title
        ]
        if not candidates:
            break
        _, _, position, i, j = max(candidates)
        left[i] = _without(left[i], j, position)
        hidden += 1
        left = [band for band in left if rows_of(band.blocks)]
    return left, hidden


def _without(band: Band, index: int, position: int) -> Band:
    block = band.blocks[index]
    rows = _without_bare_titles((*block.rows[:position], *block.rows[position + 1 :]))
    title = block.title
    if rows and rows[0].is_title:  # nothing is left of the first group
        title, rows = rows[0].text, rows[1:]
    shorter = replace(block, title=title, rows=rows)
    return Band((*band.blocks[:index], shorter, *band.blocks[index + 1 :]), band.widths)


def _without_bare_titles(rows: Sequence[Row]) -> tuple[Row, ...]:
    """Rows without titles that have none below them."""
    below = [*rows, None][1:]
    return tuple(row for row, after in zip(rows, below, strict=True) if not (row.is_title and _ends(after)))


def _ends(after: Row | None) -> bool:
    return after is None or after.is_title


def _narrow(model: Model, glyphs: Glyphs) -> list[Block]:
    blocks = [*group_blocks(model, glyphs), metrics_block(model), rewards_block(model, glyphs, is_narrow=True)]
    timings = [timing_block(timing, is_narrow=True) for timing in model.timings]
    if timings:
        name = replace(stacked(timings, has_titles=bool(model.groups)), title=f"Timing: {timings[0].title}")
        blocks.append(name)
    return [*blocks, *others_blocks(model, 0)]


def _columns(blocks: Sequence[Block], columns: int) -> list[Block]:
    """Groups side by side, read down, then across; of all ways to share them out the one that is lowest."""
    count = min(columns, len(blocks))
    if count < 2:
        return [joined(blocks)] if blocks else []
    cuts = ((0, *inner, len(blocks)) for inner in combinations(range(1, len(blocks)), count - 1))
    shared = ([joined(blocks[start:end]) for start, end in pairwise(cut)] for cut in cuts)
    return min(shared, key=rows_of)


def _metrics_band(model: Model, inner: int, glyphs: Glyphs) -> Band:
    """Metrics beside rewards; of a run with groups, which has its rewards there, the metrics alone."""
    rewards = [] if model.groups else [rewards_block(model, glyphs, is_narrow=False)]
    return _even([metrics_block(model), *rewards], inner)


def _timing_band(model: Model, inner: int, *, is_wide: bool) -> Band:
    """The learner, whatever runs beside it, and System where there is room for three."""
    of_learner = [timing for timing in model.timings if timing.timeline.role == LEARNER]
    beside = [timing for timing in model.timings if timing.timeline.role != LEARNER]
    blocks = []
    for group in (of_learner, beside):
        if group:
            made = [
                timing_block(timing, is_narrow=False, title=column_title(timing.timeline.role, is_short=not is_wide))
                for timing in group
            ]
            blocks.append(stacked(made, has_titles=bool(model.groups)))
    if not is_wide or not model.system:
        return _even(blocks, inner)
    system = min(_SYSTEM_WIDTH, inner // 3)
    rest = _even(blocks, inner - system - 1) if blocks else Band((), ())
    if not blocks:
        return Band((system_block(model),), (inner,))
    return Band((*rest.blocks, system_block(model)), (*rest.widths, system))


def _even(blocks: Sequence[Block], inner: int) -> Band:
    """Blocks of equal width; the first ones get what is left over."""
    if not blocks:
        return Band((), ())
    room = inner - (len(blocks) - 1)
    each, over = divmod(room, len(blocks))
    return Band(tuple(blocks), tuple(each + (i < over) for i in range(len(blocks))))
