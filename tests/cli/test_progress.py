"""How far long work is, shown."""

import io
from pathlib import Path

import pytest
from rich.console import Console

from rltel.cli import progress
from rltel.cli.progress import shown

A, B = Path("a" * 200 + ".pftrace"), Path("b.pftrace")


def test_agentscope_trinity_rft_167_a_file_gets_plain_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    """Progress bars ruin redirected logs: there, one line a file, and one now and then; no control codes."""
    now = [0.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    out = io.StringIO()
    with shown("merging", Console(file=out, width=40)) as tell:
        for path, at, done in ((A, 0, 0), (A, 1, 10), (A, 9, 20), (A, 10, 30), (A, 11, 40), (B, 12, 50), (B, 30, 60)):
            now[0] = at
            tell(path, done, 100)
    assert out.getvalue().splitlines() == [f"  {A}", f"  {A}: 30% of all", f"  {B}", f"  {B}: 60% of all"]


def test_a_terminal_gets_a_bar_that_goes_away() -> None:
    out = io.StringIO()
    with shown("merging", Console(file=out, force_terminal=True, width=100)) as tell:
        tell(B, 500_000, 1_000_000)
    assert "merging b.pftrace" in out.getvalue()
    assert "\x1b[2K" in out.getvalue(), "it erases itself"


def test_names_are_no_markup(monkeypatch: pytest.MonkeyPatch) -> None:
    """A file may be called anything."""
    out = io.StringIO()
    with shown("merging", Console(file=out, force_terminal=True, width=100)) as tell:
        tell(Path("[bold]x.pftrace"), 1, 2)
    assert "[bold]x.pftrace" in out.getvalue()
