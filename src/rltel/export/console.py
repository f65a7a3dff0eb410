"""A plain line per interval: no escape codes, so that it is as good in a file as on a screen.

On request every value is shown: as AReaL's table on a terminal, and in the line where there is none.
"""

import os
from collections.abc import Callable, Mapping, Sequence
from typing import TextIO

from rltel.core.undisturbed import undisturbed
from rltel.core.wording import printable
from rltel.export.commit import Commit
from rltel.export.commit_table import print_table
from rltel.export.points import Point
from rltel.export.tracking.expert_loads import without_experts
from rltel.names.catalogue import Catalogue, catalogue

_SHOWN_WITHOUT_HEADLINES = 6


class ConsoleSink:
    """Prints the latest commit every interval, and the last one at the end."""

    name = "console"

    def __init__(
        self,
        stream: TextIO,
        interval_s: float,
        now: Callable[[], int],
        entries: Catalogue | None = None,
        *,
        table: bool = False,
    ) -> None:
        self._stream = stream
        self._interval_ns = int(interval_s * 1e9)
        self._now = now
        self._catalogue = entries or catalogue()
        self._table = table
        if self._draws():
            with undisturbed():
                import rich.table  # noqa: F401  # it draws from `random`, so not later on the pipeline's thread
        self._latest: dict[str, dict[str, float]] = {}  # of each axis
        self._pending: dict[str, Commit] = {}
        self._printed_ns = now()
        self._printed_steps: dict[str, tuple[int, int]] = {}  # of each axis: the step, and when

    def describe(self) -> str:
        """Where the lines go, and how often."""
        return f"a {'table' if self._draws() else 'line'} every {self._interval_ns / 1e9:g} s"

    def write(self, commit: Commit, points: Sequence[Point]) -> None:
        """Remember the commit, and print if it is time."""
        self._pending[commit.axis] = commit
        self._latest.setdefault(commit.axis, {}).update(without_experts(commit.values))
        if self._now() - self._printed_ns >= self._interval_ns:
            self._print(commit)

    def flush(self) -> None:
        """Lines wait for their interval."""

    def close(self) -> None:
        """The last commit of each axis, if it was not printed."""
        for commit in list(self._pending.values()):
            self._print(commit)

    def _print(self, commit: Commit) -> None:
        now, latest = self._now(), self._latest[commit.axis]
        axis = "" if commit.axis == "train" else f"{printable(commit.axis)} "
        parts = [f"{axis}step {commit.step}"]
        if commit.env_steps is not None:
            parts.append(f"env steps {commit.env_steps}")
        step, then = self._printed_steps.get(commit.axis, (commit.step, now))
        if commit.step > step and now > then:
            parts.append(f"{(commit.step - step) / (now - then) * 1e9:.1f} it/s")
        if self._draws():
            print_table(latest, " | ".join(parts), self._stream)
        else:
            chosen = latest if self._table else self._headlines(latest)
            parts.extend(f"{printable(label)} {value:.4g}" for label, value in chosen.items())
            print(" | ".join(parts), file=self._stream, flush=True)
        self._printed_steps[commit.axis] = commit.step, now
        self._printed_ns = now
        self._pending.pop(commit.axis, None)

    def _draws(self) -> bool:
        """Whether a table is wanted and there is a terminal to draw it on (`FORCE_COLOR` makes a file none)."""
        return self._table and self._stream.isatty() and os.environ.get("TERM") != "dumb"

    def _headlines(self, values: Mapping[str, float]) -> dict[str, float]:
        """What the catalogue calls a headline; without any, the first few keys, timings last."""
        found: dict[str, float] = {}
        for key, value in values.items():
            match = self._catalogue.find(key.removesuffix("/avg"))
            if match is not None and match.headline is not None:
                found[match.headline] = value
        own_first = sorted(values.items(), key=lambda item: "timeperf/" in item[0])
        return found or dict(own_first[:_SHOWN_WITHOUT_HEADLINES])
