"""A plain line per interval: no escape codes, so that it is as good in a file as on a screen.

Of a robot's run it has the catalogue's headlines, of an LLM's run a first look in a fixed order, as much of it as fits
into the terminal's width. On request every value is shown: as AReaL's table on a terminal, and in the line where there
is none.
"""

import math
import os
from collections.abc import Callable, Mapping, Sequence
from typing import TextIO

from rltel.core.undisturbed import undisturbed
from rltel.core.wording import printable
from rltel.export.commit import Commit
from rltel.export.commit_table import print_table
from rltel.export.panel.llm.headlines import Headline, headlines
from rltel.export.panel.llm.keys import is_llm_run, place_of
from rltel.export.points import Point
from rltel.export.tracking.expert_loads import without_experts
from rltel.names.catalogue import Catalogue, catalogue

_FEW = 6
_SEPARATOR = " | "
_THOUSAND, _MANY = 1e3, 1e7


class ConsoleSink:
    """Prints the latest commit every interval, and the last one at the end."""

    name = "console"
    takes_points = False

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
        self._printed_steps: dict[str, tuple[int, int]] = {}  # of each axis: the step, and when it was made

    def describe(self) -> str:
        """Where the lines go, and how often."""
        return f"a {'table' if self._draws() else 'line'} every {self._interval_ns / 1e9:g} s"

    def write(self, commit: Commit, points: Sequence[Point]) -> None:
        """Remember the commit, and print if it is time."""
        self._pending[commit.axis] = commit
        self._latest.setdefault(commit.axis, {}).update(without_experts(commit.values))
        if self._now() - self._printed_ns >= self._interval_ns:
            self._print_pending()

    def flush(self) -> None:
        """Lines wait for their interval."""

    def close(self) -> None:
        """The last commit of each axis, if it was not printed."""
        self._print_pending()

    def _print_pending(self) -> None:
        """Every axis that has something new: one that stopped since does not wait for the end."""
        pending, self._pending = self._pending, {}
        self._printed_ns = self._now()
        for commit in sorted(pending.values(), key=lambda each: each.number):
            self._print(commit)

    def _print(self, commit: Commit) -> None:
        now, latest = commit.time_ns, self._latest[commit.axis]  # when it was made: a line may come much later
        axis = "" if commit.axis == "train" else f"{printable(commit.axis)} "
        parts = [f"{axis}step {commit.step}"]
        if commit.env_steps is not None:
            parts.append(f"env steps {commit.env_steps}")
        step, then = self._printed_steps.get(commit.axis, (commit.step, now))
        if commit.step > step and now > then:
            parts.append(f"{(commit.step - step) / (now - then) * 1e9:.1f} it/s")
        if self._draws():
            print_table(latest, _SEPARATOR.join(parts), self._stream)
        else:
            print(self._line(parts, latest), file=self._stream, flush=True)
        self._printed_steps[commit.axis] = commit.step, now

    def _draws(self) -> bool:
        """Whether a table is wanted and there is a terminal to draw it on (`FORCE_COLOR` makes a file none)."""
        return self._table and self._stream.isatty() and os.environ.get("TERM") != "dumb"

    def _line(self, parts: list[str], latest: Mapping[str, float]) -> str:
        if not self._table and is_llm_run(latest):
            shown = [f"{printable(each.text)} {_short(each.value)}" for each in _first_look(latest)]
            return _fitted(parts, shown, self._columns())
        chosen = latest if self._table else self._headlines(latest)
        return _SEPARATOR.join([*parts, *(f"{printable(label)} {value:.4g}" for label, value in chosen.items())])

    def _columns(self) -> float:
        """How wide a line may be: what the terminal has; in a file there is no end."""
        try:
            return os.get_terminal_size(self._stream.fileno()).columns or math.inf
        except (OSError, ValueError, AttributeError):  # no terminal, closed, or an object that only writes
            return math.inf

    def _headlines(self, values: Mapping[str, float]) -> dict[str, float]:
        """What the catalogue calls a headline; without any, the first few keys, timings last."""
        found: dict[str, float] = {}
        for key, value in values.items():
            match = self._catalogue.find(key.removesuffix("/avg"))
            if match is not None and match.headline is not None:
                found[match.headline] = value
        return found or dict(_own_first(values)[:_FEW])


def _first_look(values: Mapping[str, float]) -> list[Headline]:
    """The headlines that there are; where they are few, the first of the other keys beside them."""
    found = headlines(values)
    said = tuple(each.key.removesuffix("/avg") + "/" for each in found)
    others = [
        Headline(key, value, key)
        for key, value in _own_first(values)
        if place_of(key) is None and not key.startswith(said)
    ]
    return [*found, *others[: max(0, _FEW - len(found))]]


def _own_first(values: Mapping[str, float]) -> list[tuple[str, float]]:
    """Timings last."""
    return sorted(values.items(), key=lambda item: "timeperf/" in item[0])


def _fitted(parts: list[str], shown: list[str], columns: float) -> str:
    """As much as fits, from the left; what says which step it is always stays."""
    line = _SEPARATOR.join(parts)
    for each in shown:
        longer = f"{line}{_SEPARATOR}{each}"
        if len(longer) > columns:
            break
        line = longer
    return line


def _short(value: float) -> str:
    """Four digits; thousands without an exponent, as one says them."""
    return f"{value:.0f}" if _THOUSAND <= abs(value) < _MANY else f"{value:.4g}"
