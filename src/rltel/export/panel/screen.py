"""The panel as lines of text, by a model and the size of a terminal: a pure function."""

from collections.abc import Sequence

from rich.cells import cell_len, set_cell_size
from rich.text import Text

from rltel.core.wording import printable
from rltel.export.panel.blocks import BOLD, DIM, GREEN, PLAIN, Block, Row
from rltel.export.panel.glyphs import LINES, Glyphs
from rltel.export.panel.layout import MEDIUM, Band, arrange, fit
from rltel.export.panel.model import Header, Model
from rltel.export.panel.wording import age, amount, duration

SMALLEST = (24, 4)
"""Columns and rows below which nothing can be drawn."""

_TITLE_STYLE = f"{BOLD} {GREEN}"
_READABLE = 58  # a value that stands further from its label than this is hard to assign to it
_GAP = "  "
_NAME = "rltel"


def draw(model: Model, width: int, height: int | None = None, glyphs: Glyphs = LINES) -> list[Text]:
    """The panel's lines, each exactly `width` cells wide, at most `height` of them.

    Where the terminal is too low the least important rows go, and the last line says how many.
    """
    inner = width - 2
    header = _header_lines(model.header, inner - 2, is_narrow=width < MEDIUM)
    bands = arrange(model, width, glyphs)
    hidden = 0
    if height is not None:
        header = header[: max(height - 2, 1)]
        bands, hidden = fit(bands, height - 2 - len(header))
    lines = [_titled(_title(model.header, inner - 4, glyphs), width, glyphs)]
    lines += [_framed([Text(f" {line}")], [inner], glyphs) for line in header]
    before: set[int] = set()
    for band in bands:
        lines.append(_rule(band, before, width, glyphs))
        lines += _band_lines(band, glyphs)
        before = _edges(band)
    lines.append(_bottom(hidden, before, width, glyphs))
    return lines if height is None else lines[:height]


def _title(header: Header, room: int, glyphs: Glyphs) -> str:
    """Whose run this is and how far it is. The task's name is what gives way."""
    of = f"/{header.max_iterations}" if header.max_iterations is not None else ""
    fixed = [printable(header.algo or ""), f"GPUs {header.gpus}", f"iter {header.iteration}{of}"]
    task = printable(header.task or "")
    for start in ([_NAME], []):
        parts = [*start, fixed[0], task, *fixed[1:]]
        text = " | ".join(part for part in parts if part)
        if cell_len(text) <= room:
            return text
    rest = " | ".join(part for part in fixed if part)
    left = room - cell_len(rest) - 3
    if task and left >= 4:
        shown = set_cell_size(task, left - 1).rstrip() + glyphs.cut
        return " | ".join(part for part in (fixed[0], shown, *fixed[1:]) if part)
    return set_cell_size(rest, room).rstrip()


def _header_lines(header: Header, room: int, *, is_narrow: bool) -> list[str]:
    """The run's figures, as many lines as they need."""
    gap = _GAP if is_narrow else _GAP + " "
    lines = [""]
    for item in _header_items(header):
        joined = f"{lines[-1]}{gap}{item}" if lines[-1] else item
        if cell_len(joined) <= room or not lines[-1]:
            lines[-1] = joined
        else:
            lines.append(item)
    return lines


def _header_items(header: Header) -> list[str]:
    samples = f"n={header.n}" + (f", {age(header.age_s)} ago" if header.age_s is not None else "")
    items = [f"Elapsed {duration(header.elapsed_s)}"]
    if header.max_iterations is not None:
        items.append(f"ETA {duration(header.eta_s)}")
    if header.episode_length is not None:
        items.append(f"Ep Len {header.episode_length:,.1f}")
    if header.steps_per_s is not None:
        items.append(f"Steps/s {amount(header.steps_per_s)}")
    if header.rows_per_s is not None:
        items.append(f"Rows/s {amount(header.rows_per_s)}")
    items.append(f"Avg {header.window_s:g}s ({samples})")
    if header.status:
        items.append(printable(header.status))
    return items


def _titled(title: str, width: int, glyphs: Glyphs) -> Text:
    left, right = glyphs.top[0], glyphs.top[1]
    line = Text.assemble((f"{left}{glyphs.across} ", DIM), (title, _TITLE_STYLE), " ")
    line.append(glyphs.across * (width - line.cell_len - 1) + right, DIM)
    return line


def _bottom(hidden: int, before: set[int], width: int, glyphs: Glyphs) -> Text:
    left, right = glyphs.bottom[0], glyphs.bottom[1]
    text = list(left + glyphs.across * (width - 2) + right)
    for edge in before:
        text[edge] = glyphs.closes
    note = f" {hidden} more row{'s' if hidden > 1 else ''}: the terminal is too low "
    if not hidden or len(note) > width - 4:
        return Text.assemble(("".join(text), DIM))
    start = width - 2 - len(note)
    return Text.assemble(("".join(text[:start]), DIM), note, ("".join(text[start + len(note) :]), DIM))


def _edges(band: Band) -> set[int]:
    """Where lines between its blocks stand, counted from the panel's left border."""
    edges, position = set(), 0
    for width in band.widths[:-1]:
        position += width + 1
        edges.add(position)
    return edges


def _rule(band: Band, before: set[int], width: int, glyphs: Glyphs) -> Text:
    """The line above a band, with the blocks' titles and columns in it."""
    line = Text.assemble((glyphs.rule[0], DIM))
    position = 0
    for index, (block, room) in enumerate(zip(band.blocks, band.widths, strict=True)):
        line.append_text(_block_title(block, room, position + 1, before, glyphs))
        position += room + 1
        if index < len(band.blocks) - 1:
            line.append(glyphs.crosses if position in before else glyphs.opens, DIM)
    line.append(glyphs.rule[1], DIM)
    return line


def _block_title(block: Block, room: int, start: int, before: set[int], glyphs: Glyphs) -> Text:
    """A block's part of the line above it."""
    dashes = [glyphs.closes if start + i in before else glyphs.across for i in range(room)]
    names = [(1, f" {block.title} ", _TITLE_STYLE)] if block.title else []
    end = min(room, _READABLE)
    for name, wide in reversed(list(zip(block.columns, _cell_widths(block), strict=True))):
        if name and end - len(name) - 1 > len(block.title) + 3:
            names.append((end - len(name) - 2, f" {name} ", PLAIN))
        end -= wide + len(_GAP)
    line, position = Text(), 0
    for begin, text, style in sorted(names):
        line.append("".join(dashes[position:begin]), DIM)
        line.append(text, style)
        position = begin + len(text)
    line.append("".join(dashes[position:room]), DIM)
    line.truncate(room)
    return line


def _band_lines(band: Band, glyphs: Glyphs) -> list[Text]:
    columns = [_block_lines(block, room, glyphs) for block, room in zip(band.blocks, band.widths, strict=True)]
    height = max(len(column) for column in columns)
    return [
        _framed([column[i] if i < len(column) else Text() for column in columns], band.widths, glyphs)
        for i in range(height)
    ]


def _block_lines(block: Block, room: int, glyphs: Glyphs) -> list[Text]:
    widths = _cell_widths(block)
    return [
        _title_line(row.text, room, glyphs) if row.is_title else _row_line(row, widths, min(room, _READABLE), glyphs)
        for row in block.rows
    ]


def _title_line(title: str, room: int, glyphs: Glyphs) -> Text:
    """The title of a group that stands below another one."""
    line = Text.assemble(" ", (title, _TITLE_STYLE), " ")
    line.append(glyphs.across * (room - line.cell_len - 1), DIM)
    return line


def _cell_widths(block: Block) -> list[int]:
    """Of each column of values: what its widest one needs."""
    return [
        max([len(name), *(len(row.cells[i]) for row in block.rows if i < len(row.cells))])
        for i, name in enumerate(block.columns)
    ]


def _row_line(row: Row, widths: Sequence[int], room: int, glyphs: Glyphs) -> Text:
    cells = "".join(f"{_GAP}{cell:>{wide}}" for cell, wide in zip(row.cells, widths, strict=True))
    left = room - len(cells) - 2
    text = ("  " if row.indent else "") + row.text
    if cell_len(text) > left:
        text = _cut(text, left, glyphs) if row.may_be_cut else set_cell_size(text, max(left, 0))
    line = Text(" ")
    line.append(text + " " * (left - cell_len(text)), row.label_style)
    line.append(cells, row.style)
    return line


def _cut(text: str, room: int, glyphs: Glyphs) -> str:
    """The end of a key that is too long: paths differ there."""
    kept = text
    while kept and cell_len(kept) > room - 1:
        kept = kept[1:]
    return glyphs.cut + kept if room > 0 else ""


def _framed(parts: Sequence[Text], widths: Sequence[int], glyphs: Glyphs) -> Text:
    """Parts of a line, each in its width, between borders."""
    line = Text.assemble((glyphs.down, DIM))
    for part, width in zip(parts, widths, strict=True):
        part.truncate(width)
        line.append_text(part)
        line.append(" " * (width - part.cell_len))
        line.append(glyphs.down, DIM)
    return line
