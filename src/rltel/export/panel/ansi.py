"""Lines of text with their styles as control codes, in the sixteen colours that every terminal has."""

from collections.abc import Iterable
from functools import lru_cache

from rich.color import ColorSystem
from rich.console import Console
from rich.style import Style
from rich.text import Text

_CONSOLE = Console(width=80, color_system=None)  # only to look styles up


def encoded(lines: Iterable[Text]) -> list[str]:
    """Each line as a string."""
    return ["".join(_coded(segment.text, segment.style) for segment in line.render(_CONSOLE)) for line in lines]


def _coded(text: str, style: Style | str | None) -> str:
    codes = _codes(style) if isinstance(style, Style) else ""
    return f"\x1b[{codes}m{text}\x1b[0m" if codes else text


@lru_cache(64)
def _codes(style: Style) -> str:
    """The numbers of its control code."""
    return style.render("x", color_system=ColorSystem.STANDARD).partition("m")[0].removeprefix("\x1b[") if style else ""
