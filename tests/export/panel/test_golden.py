"""Whole screens as text. ``RLTEL_WRITE_GOLDEN=1 pytest tests/export/panel/test_golden.py`` writes them anew."""

import os
from pathlib import Path

import pytest

from export.panel.making import RUNS

GOLDEN = Path(__file__).parent / "golden"
SIZES = [(width, height) for width in (60, 95, 96, 119, 120, 200) for height in (10, 50)]
SIZES_OF_GROUPS = [(80, 21), (80, 50), (140, 21)]
"""Beside those, of the runs that have groups: a terminal of 80 x 24 as people have it, and their own columns."""
SCREENS = [(name, size) for name in RUNS for size in (SIZES + SIZES_OF_GROUPS if name in ("llm", "async") else SIZES)]


@pytest.mark.parametrize(("name", "size"), SCREENS, ids=[f"{name}-{size[0]}x{size[1]}" for name, size in SCREENS])
def test_screen(name: str, size: tuple[int, int]) -> None:
    width, height = size
    drawn = "".join(f"{line}\n" for line in RUNS[name]().lines(width, height))
    file = GOLDEN / f"{name}-{width}x{height}.txt"
    if os.environ.get("RLTEL_WRITE_GOLDEN"):
        file.write_text(drawn, encoding="utf-8")
    assert drawn == file.read_text(encoding="utf-8")


def test_no_screen_is_forgotten() -> None:
    expected = {f"{name}-{width}x{height}.txt" for name, (width, height) in SCREENS}
    assert {file.name for file in GOLDEN.iterdir()} == expected


def test_the_page_shows_what_a_terminal_of_80_by_24_does() -> None:
    page = (Path(__file__).parents[3] / "docs" / "panel.md").read_text(encoding="utf-8")
    assert (GOLDEN / "async-80x21.txt").read_text(encoding="utf-8") in page
