"""The model as blocks of text rows: what can be placed beside and below one another, and left out row by row."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from rich.cells import cell_len

from rltel.core.wording import printable
from rltel.export.panel.glyphs import Glyphs
from rltel.export.panel.llm.groups import GroupRow, Section
from rltel.export.panel.model import Fact, MetricRow, Model, RewardRow
from rltel.export.panel.timing import TimeRow, Timing, column_title
from rltel.export.panel.wording import amount, millis, number, percent, signed

# How soon a row goes when there is no room: the highest first.
_ALWAYS, _HEADLINE, _TIMES, _LOSS, _TERM, _DETAIL, _TRAINING, _INGRESS, _SYSTEM, _REST, _UNKNOWN = range(11)
_IMPORTANCE = {"metrics.loss_policy": _LOSS, "metrics.training": _TRAINING, "metrics.ingress": _INGRESS}

_MORE_THAN_A_LOOP = 2.0  # whose weight is its share, 1: the mean reward is what stays longest of all

PLAIN, DIM, BOLD, RED, GREEN = "", "dim", "bold", "red", "green"
"""Styles, by rich's names."""


class Row(NamedTuple):
    """A label and the texts of its columns."""

    text: str
    cells: tuple[str, ...]
    importance: int
    """0 stays longest."""
    indent: bool = False
    style: str = PLAIN
    label_style: str = PLAIN
    weight: float = 0.0
    """Of rows that are equally important the lightest goes first."""
    may_be_cut: bool = False
    """Whether the label may lose its beginning where it is too long: a user's own key, never a name of ours."""
    is_title: bool = False
    """Whether it is the title of the rows below it, and goes with the last of them."""


@dataclass(frozen=True, slots=True)
class Block:
    """Rows below a title, each with the same columns."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[Row, ...]


def metrics_block(model: Model) -> Block:
    """Losses and policy state, training, ingress, other."""
    return Block("Metrics", ("",), tuple(_metric(row) for row in model.metrics))


def rewards_block(model: Model, glyphs: Glyphs, *, is_narrow: bool) -> Block:
    """The mean return with its peak, and the terms. Where there is no room the peak has fewer decimals."""
    return Block("Rewards", ("Mean", "Peak"), tuple(_reward(row, glyphs, is_narrow) for row in model.rewards))


def group_blocks(model: Model, glyphs: Glyphs) -> list[Block]:
    """The groups of an LLM run."""
    return [_group(section, glyphs) for section in model.groups]


def joined(blocks: Sequence[Block]) -> Block:
    """Several groups as one column: each but the first below its title."""
    first, *others = blocks
    rows = list(first.rows)
    for block in others:
        rows.append(Row(block.title, ("",), _ALWAYS, is_title=True))
        rows.extend(block.rows)
    return Block(first.title, first.columns, tuple(rows))


def timing_block(timing: Timing, *, is_narrow: bool, title: str | None = None) -> Block:
    """A timeline."""
    has_shares = timing.loop is not None and timing.loop.share is not None
    rows = [_time(row, has_shares) for row in timing.rows]
    if timing.loop is not None:
        rows.append(_time(timing.loop, has_shares)._replace(importance=_ALWAYS, label_style=BOLD))
    if timing.accounted is not None:
        rows.append(Row("Phases overlap", ("", percent(timing.accounted)), _ALWAYS, style=RED, label_style=RED))
    name = title or column_title(timing.timeline.role, is_short=is_narrow)
    return Block(name, ("ms", "%") if has_shares else ("ms",), tuple(rows))


def stacked(blocks: Sequence[Block], *, has_titles: bool = False) -> Block:
    """Several timelines as one column: each but the first below a row with its name, or a title as groups have it."""
    first, *others = blocks
    width = max(len(block.columns) for block in blocks)
    rows = [_widened(row, width) for row in first.rows]
    for block in others:
        rows.append(Row(block.title, ("",) * width, _ALWAYS, label_style=BOLD, is_title=has_titles))
        rows.extend(_widened(row, width) for row in block.rows)
    columns = max((block.columns for block in blocks), key=len)
    return Block(first.title, columns, tuple(rows))


def system_block(model: Model) -> Block:
    """Sizes and settings of the run."""
    return Block("System", ("",), tuple(Row(fact.text, (_fact(fact),), _SYSTEM) for fact in model.system))


def others_blocks(model: Model, width: int) -> list[Block]:
    """Keys that the schema does not have, in as many columns as fit side by side; read down, then across."""
    rows = [_metric(row)._replace(importance=_UNKNOWN, may_be_cut=True) for row in model.others]
    if not rows:
        return []
    needed = max(cell_len(row.text) for row in rows) + max(len(row.cells[0]) for row in rows) + 5
    columns = max(1, min(3, width // needed, len(rows)))
    height = -(-len(rows) // columns)
    parts = [tuple(rows[start : start + height]) for start in range(0, len(rows), height)]
    return [Block("Other" if i == 0 else "", ("",), part) for i, part in enumerate(parts)]


def _metric(row: MetricRow) -> Row:
    style = RED if row.is_red else PLAIN
    text = amount(row.value) if row.is_count else number(row.value)
    return Row(printable(row.text), (text,), _IMPORTANCE.get(row.section, _REST), row.indent, style)


def _reward(row: RewardRow, glyphs: Glyphs, is_narrow: bool) -> Row:
    if row.peak is None:
        style = GREEN if row.value > 0 else RED if row.value != 0 else PLAIN  # NaN is red
        return Row(printable(row.text), (signed(row.value, 4), ""), _TERM, indent=True, style=style, may_be_cut=True)
    mark = f" {glyphs.trends[row.trend]}" if row.trend else ""
    cells = signed(row.value, 3), signed(row.peak, 2 if is_narrow else 3)
    return Row(f"{row.text}{mark}", cells, _ALWAYS, style=BOLD, label_style=BOLD)


def _group(section: Section, glyphs: Glyphs) -> Block:
    return Block(section.title, ("",), tuple(_of_group(row, glyphs) for row in section.rows))


def _of_group(row: GroupRow, glyphs: Glyphs) -> Row:
    return Row(
        printable(row.text) + (f" {glyphs.trends[row.trend]}" if row.trend else ""),
        (amount(row.value) if row.is_count else number(row.value),),
        _importance(row),
        indent=row.is_term,
        style=RED if row.is_red else PLAIN,
        label_style=BOLD if row.urgency == 0 else PLAIN,
        weight=_MORE_THAN_A_LOOP - (row.urgency or 0),
        may_be_cut=row.has_own_text,
    )


def _importance(row: GroupRow) -> int:
    """Headlines stay longest, the first of them to the end, and so does what is wrong. Details go before phases do."""
    if row.urgency == 0:
        return _ALWAYS
    if row.is_red or row.urgency is not None:
        return _HEADLINE
    return _TERM if row.is_term else _TRAINING


def _time(row: TimeRow, has_shares: bool) -> Row:
    cells = (millis(row.ms), percent(row.share)) if has_shares else (millis(row.ms),)
    importance = _DETAIL if row.quiet or row.indent else _TIMES
    weight = row.share if row.share is not None and math.isfinite(row.share) else 0.0
    return Row(printable(row.text), cells, importance, row.indent, RED if row.is_red else PLAIN, weight=weight)


def _widened(row: Row, width: int) -> Row:
    return row._replace(cells=(*row.cells, *[""] * (width - len(row.cells))))


def _fact(fact: Fact) -> str:
    if isinstance(fact.value, str):
        return fact.value
    return number(fact.value) if isinstance(fact.value, float) else amount(fact.value)


def rows_of(blocks: Iterable[Block]) -> int:
    """How many lines blocks need that stand side by side."""
    return max((len(block.rows) for block in blocks), default=0)
