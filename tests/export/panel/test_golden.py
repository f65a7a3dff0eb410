"""Whole screens as text. ``RLTEL_WRITE_GOLDEN=1 pytest tests/export/panel/test_golden.py`` writes them anew."""

import os
from pathlib import Path

import pytest

from export.panel.making import RUNS

GOLDEN = Path(__file__).parent / "golden"
WIDTHS = [60, 95, 96, 119, 120, 200]
HEIGHTS = [10, 50]


@pytest.mark.parametrize("name", RUNS)
@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("height", HEIGHTS)
def test_screen(name: str, width: int, height: int) -> None:
    drawn = "".join(f"{line}\n" for line in RUNS[name]().lines(width, height))
    file = GOLDEN / f"{name}-{width}x{height}.txt"
    if os.environ.get("RLTEL_WRITE_GOLDEN"):
        file.write_text(drawn, encoding="utf-8")
    assert drawn == file.read_text(encoding="utf-8")


def test_no_screen_is_forgotten() -> None:
    expected = {f"{name}-{width}x{height}.txt" for name in RUNS for width in WIDTHS for height in HEIGHTS}
    assert {file.name for file in GOLDEN.iterdir()} == expected
