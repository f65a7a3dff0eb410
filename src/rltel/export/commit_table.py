"""AReaL's commit table: keys and values side by side, read down the columns, as many as fit."""

from collections.abc import Mapping
from typing import TextIO

from rltel.core.wording import printable

_COLUMNS = 4
_BORDERS = 6  # what rich puts around a key and its value


def rows_of(values: Mapping[str, float], columns: int) -> list[list[tuple[str, str]]]:
    """Pairs of key and text, row by row. The keys' order goes down the columns, so that what belongs together stays."""
    items = [(printable(key), f"{value:.4e}") for key, value in values.items()]
    height = -(-len(items) // columns)
    return [items[row::height] for row in range(height)]


def columns_for(values: Mapping[str, float], width: int) -> int:
    """How many columns of pairs fit into so many characters: at most AReaL's four, at least one."""
    for columns in range(_COLUMNS, 1, -1):
        rows = rows_of(values, columns)
        needed = sum(
            max(len(key) + len(text) for key, text in (row[column] for row in rows if column < len(row))) + _BORDERS
            for column in range(len(rows[0]) if rows else 0)
        )
        if needed < width:
            return columns
    return 1


def print_table(values: Mapping[str, float], title: str, stream: TextIO, width: int | None = None) -> None:
    """Draw the table on a terminal. `width`: in characters; default: what the terminal has."""
    from rich import box  # only where there is a terminal to draw on
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console(file=stream, width=width, highlight=False)
    columns = columns_for(values, console.width)
    table = Table(box=box.SQUARE, show_header=False)
    for _ in range(min(columns, len(values))):
        table.add_column(overflow="fold")
        table.add_column(justify="right", no_wrap=True)
    for row in rows_of(values, columns):
        table.add_row(*(Text(text) for pair in row for text in pair))
    print(title, file=stream)
    console.print(table)
    stream.flush()
