"""The panel as a destination: a window that commits go into, and a thread that draws it at its own pace."""

import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TextIO

from rich.text import Text

from rltel.export.commit import Commit
from rltel.export.console import ConsoleSink
from rltel.export.panel.drawing import Drawing
from rltel.export.panel.glyphs import glyphs_for
from rltel.export.panel.history import History
from rltel.export.panel.model import model_of
from rltel.export.panel.sample import sample_of
from rltel.export.panel.screen import SMALLEST, draw
from rltel.export.panel.terminal import ROWS_ABOVE, is_screen
from rltel.export.panel.window import Window
from rltel.export.points import Point
from rltel.export.sink import Sink

_CLOSE_S = 1.0

Facts = Callable[[], Mapping[str, Any]]
"""Says what `rltel.system` was told."""


def no_facts() -> Mapping[str, Any]:
    """Nothing was told."""
    return {}


@dataclass(frozen=True, slots=True)
class PanelSettings:
    """What a panel is made from: the config's ``terminal`` section, and ``run.algo`` and ``run.task``."""

    refresh_hz: float = 2.0
    window_s: float = 2.0
    algo: str | None = None
    task: str | None = None


def open_panel(
    stream: TextIO,
    settings: PanelSettings,
    *,
    environ: Mapping[str, str],
    facts: Facts = no_facts,
    now: Callable[[], int] = time.monotonic_ns,
    interval_s: float = 10.0,
) -> Sink:
    """The panel, if `stream` is a terminal that can show it; else plain lines, one every `interval_s` seconds."""
    if is_screen(stream, environ):
        return PanelSink(stream, settings, facts=facts, now=now)
    return PlainPanel(stream, interval_s, now)


class PlainPanel(ConsoleSink):
    """Where there is no terminal: plain lines, without a control code."""

    name = "terminal"


class PanelSink:
    """Draws on a terminal. ``write`` costs the same however long the window, and never waits for the terminal.

    Nothing is drawn before the first commit.
    """

    name = "terminal"
    takes_every_commit = True
    """Averages are over all iterations, whatever `run.log_interval` keeps from the other destinations."""

    def __init__(
        self,
        stream: TextIO,
        settings: PanelSettings,
        *,
        facts: Facts = no_facts,
        now: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        self._settings = settings
        self._facts = facts
        self._now = now
        self._stream = stream
        self._encoding = stream.encoding or "ascii"
        self._glyphs = glyphs_for(self._encoding)
        self._window = Window(settings.window_s, now)
        self._history = History()
        self._lock = threading.Lock()  # held while a sample goes in, or the window is summed up
        self._pid = os.getpid()
        self._drawing: Drawing | None = None
        self._is_closed = False

    @property
    def failures(self) -> int:
        """Frames that could not be drawn."""
        return self._drawing.failures if self._drawing is not None else 0

    def describe(self) -> str:
        """How often it is drawn, of which window."""
        return f"a panel at {self._settings.refresh_hz:g} Hz, averages over {self._settings.window_s:g} s"

    def write(self, commit: Commit, points: Sequence[Point]) -> None:
        """One more sample."""
        if self._is_closed or os.getpid() != self._pid:  # a forked child has neither the thread nor the run
            return
        sample = sample_of(commit)
        with self._lock:
            self._window.add(sample)
            if sample.is_learners:
                self._history.add(sample, self._now())
        if self._drawing is None:
            self._drawing = Drawing(self._stream, self._encoding, 1 / self._settings.refresh_hz, self._lines)

    def flush(self) -> None:
        """Raises what went wrong with frames since the last time, so that it is in the destination's account."""
        if self._drawing is not None:
            self._drawing.raise_error()

    def close(self) -> None:
        """The last frame stays on the screen.

        Raises TimeoutError if the terminal takes nothing (Ctrl+S), and what else went wrong since the last `flush`.
        """
        if self._is_closed or self._drawing is None or os.getpid() != self._pid:
            return
        self._is_closed = True
        if not self._drawing.end(_CLOSE_S):
            raise TimeoutError(f"the terminal did not take the last frame within {_CLOSE_S:g} s")
        self._drawing.raise_error()

    def _lines(self, size: os.terminal_size) -> list[Text]:
        height = size.lines - ROWS_ABOVE
        if size.columns < SMALLEST[0] or height < SMALLEST[1]:
            return []
        facts = self._facts()
        with self._lock:
            view = self._window.view()
            progress = self._history.progress(self._now(), facts.get("max_iterations"))
        if view is None:
            return []
        settings = self._settings
        model = model_of(view, progress, facts, window_s=settings.window_s, algo=settings.algo, task=settings.task)
        return draw(model, size.columns, height, self._glyphs)
