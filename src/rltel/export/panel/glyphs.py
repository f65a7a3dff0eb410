"""The characters that a panel is drawn with: lines where the terminal can show them, else ASCII."""

from dataclasses import dataclass

from rltel.export.panel.history import Trend


@dataclass(frozen=True, slots=True)
class Glyphs:
    """Borders and marks. Each is one cell wide."""

    across: str
    down: str
    top: str
    """Left corner, and right corner."""
    bottom: str
    rule: str
    """Left end, and right end."""
    opens: str
    """Where a rule begins a column, ends one, and both."""
    closes: str
    crosses: str
    cut: str
    """What stands for what had no room."""
    trends: dict[Trend, str]


LINES = Glyphs("─", "│", "╭╮", "╰╯", "├┤", "┬", "┴", "┼", "…", {"up": "▲", "down": "▼", "flat": "▬"})
ASCII = Glyphs("-", "|", "++", "++", "++", "+", "+", "+", "~", {"up": "^", "down": "v", "flat": "="})


def glyphs_for(encoding: str | None) -> Glyphs:
    """Those that this encoding has."""
    try:
        "─│╭┼…▲▬".encode(encoding or "ascii")
    except (LookupError, UnicodeEncodeError):
        return ASCII
    return LINES
