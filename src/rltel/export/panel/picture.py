"""The panel of a recorded run as a picture: what stood on the terminal at its end."""

import io
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.text import Text

from rltel.core.errors import RltelError
from rltel.export.jsonl import Line, read_jsonl
from rltel.export.panel.history import History
from rltel.export.panel.model import model_of
from rltel.export.panel.sample import sample
from rltel.export.panel.screen import draw
from rltel.export.panel.window import Window

COLUMNS = 140
_FONTS = re.compile(r"\s*@font-face \{.*?\}", re.DOTALL)


def last_screen(
    run_dir: Path,
    columns: int = COLUMNS,
    *,
    algo: str | None = None,
    task: str | None = None,
    window_s: float = 2.0,
    facts: Mapping[str, Any] | None = None,
) -> list[Text]:
    """The screen after the last of the learner's commits, by the times that they were made at.

    Raises `RltelError` if the run has none.
    """
    lines = [line for line in read_jsonl(run_dir) if line.process.get("role") in ("learner", None)]
    if not lines:
        raise RltelError(f"{run_dir}: expected a run directory with the commits of a learner, found none")
    clock = _Recorded()
    window, history = Window(window_s, clock), History()
    for line in lines:
        clock.goes_to(line)
        taken = sample(
            line.snapshot,
            axis=line.axis,
            step=line.step,
            env_steps=line.env_steps,
            world_size=_ranks(line),
        )
        window.add(taken)
        if taken.is_learners:
            history.add(taken, clock.now)
    view = window.view()
    assert view is not None
    told = dict(facts or {})
    progress = history.progress(clock.now, told.get("max_iterations"))
    return draw(model_of(view, progress, told, window_s=window_s, algo=algo, task=task), columns)


def svg(lines: Sequence[Text], title: str = "") -> str:
    """Lines as an SVG. The same lines give the same text."""
    columns = max(line.cell_len for line in lines)
    console = Console(record=True, file=io.StringIO(), width=columns, force_terminal=True, color_system="truecolor")
    for line in lines:
        console.print(line, no_wrap=True, crop=False)
    drawn = console.export_svg(title=title, unique_id="rltel-panel")
    return _FONTS.sub("", drawn)  # a picture fetches nothing from anywhere: the viewer's own monospace font will do


class _Recorded:
    """The time of the line that is being read, less what lay between the end of a process and its next start."""

    def __init__(self) -> None:
        self.now = 0
        self._read_ns = self._down_ns = self._incarnation = 0

    def goes_to(self, line: Line) -> None:
        """The next line. Of several ranks the first to come back ends the gap."""
        incarnation = int(line.process.get("incarnation") or 1)
        if incarnation > self._incarnation:
            self._down_ns += line.time_ns - self._read_ns if self._incarnation else 0
            self._incarnation = incarnation
        self._read_ns = line.time_ns
        self.now = line.time_ns - self._down_ns

    def __call__(self) -> int:
        return self.now


def _ranks(line: Line) -> int:
    told = line.process.get("world_size")
    return told if isinstance(told, int) and told > 0 else 1
