"""A timeline's rows: milliseconds an iteration, shares of what is 100%, and what no phase accounts for."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from rltel.export.panel.families import LEARNER
from rltel.export.panel.labels import COLLECTOR_WAIT
from rltel.export.panel.lines import Line, Timeline
from rltel.export.panel.plain_times import PLAIN
from rltel.export.panel.sample import Fraction
from rltel.export.panel.window import View

_MATERIAL = 0.01  # quiet rows are shown from this share
_TOLERANCE = 1e-3  # trainers log rounded milliseconds: their sum may exceed the wall by that
_LONG_WAIT_MS = 1.0


class TimeRow(NamedTuple):
    """One line of a timeline."""

    text: str
    ms: float
    share: float | None = None
    """Of the loop; None where there is nothing to be a share of."""
    indent: bool = False
    is_red: bool = False
    quiet: bool = False


@dataclass(frozen=True, slots=True)
class Timing:
    """A timeline at one moment."""

    timeline: Timeline
    rows: tuple[TimeRow, ...]
    loop: TimeRow | None
    """The whole loop; None if it is not known."""
    accounted: float | None = None
    """Where exclusive phases take more than the wall time: their sum over it. They overlap, or a clock is wrong."""


def timing_of(timeline: Timeline, view: View) -> Timing | None:
    """A timeline's rows by the window; None if there is nothing to show."""
    made = {"wall": _by_wall, "cycle": _by_cycle, "parts": _by_parts, "none": _plain}[timeline.basis](timeline, view)
    return made if made.rows or made.loop else None


def _by_wall(timeline: Timeline, view: View) -> Timing:
    """Exclusive phases and the rest add up to the wall: an iteration that did not enter a phase spent none there."""
    wall_key = timeline.loop_key
    wall = view.fraction(wall_key) if wall_key is not None else None
    is_measured = wall is not None and wall[0] > 0
    given = wall_key if is_measured else None
    times = [(line, time) for line in timeline.lines if (time := view.fraction(line.key, given)) is not None]
    exclusive = [time for line, time in times if line.kind == "exclusive"]
    if not exclusive and not is_measured:
        return Timing(timeline, (), None)
    accounted = math.fsum(seconds for seconds, _ in exclusive)
    # Without a measured wall, the phases are all that is known of it.
    seconds, loops = wall if wall is not None and is_measured else (accounted, max(count for _, count in exclusive))
    per_loop = 1e3 / loops if loops else math.nan
    rows = _rows(times, seconds, per_loop)
    if is_measured:
        other = seconds - accounted
        other = 0.0 if other < 0 else other
        rows.insert(_main_rows(times, rows), TimeRow("Other", other * per_loop, _share(other, seconds)))
    over = accounted / seconds if is_measured and accounted > seconds * (1 + _TOLERANCE) else None
    return Timing(timeline, tuple(rows), TimeRow(timeline.loop_text, seconds * per_loop, 1.0), over)


def _by_cycle(timeline: Timeline, view: View) -> Timing:
    """The exclusive phases make up the cycle. If one of them was never reported there is none, and all rows show."""
    needed = [line.key for line in timeline.exclusive()]
    if not all(key in view.latest_fractions for key in needed):
        return _plain(timeline, view)
    in_window = {key: time for key in needed if (time := view.fraction(key)) is not None}
    # Sums over the window and over one report are of different numbers of cycles: all of them from one or the other.
    is_fresh = len(in_window) == len(needed)
    found = (
        (line, view.fraction(line.key) if is_fresh else view.latest_fractions.get(line.key)) for line in timeline.lines
    )
    times = [(line, time) for line, time in found if time is not None]
    cycle = math.fsum(time[0] for line, time in times if line.kind == "exclusive")
    cycles = max(time[1] for line, time in times if line.kind == "exclusive")
    per_cycle = 1e3 / cycles if cycles else math.nan
    rows = _rows(times, cycle, per_cycle)
    return Timing(timeline, tuple(rows), TimeRow(timeline.loop_text, cycle * per_cycle, 1.0))


def _by_parts(timeline: Timeline, view: View) -> Timing:
    """What an average session spends in each phase. Phases may overlap, and so exceed the whole: nothing is wrong."""
    assert timeline.loop_key is not None  # what has no total is no timeline
    given = timeline.loop_key if view.fraction(timeline.loop_key) else None
    whole = view.fraction(timeline.loop_key) or view.latest_fractions.get(timeline.loop_key)
    if whole is None or not whole[1]:
        return Timing(timeline, (), None)
    found = (
        (line, view.fraction(line.key, given) if given else view.latest_fractions.get(line.key))
        for line in timeline.lines
    )
    times = [(line, time) for line, time in found if time is not None]
    per_session = 1e3 / whole[1]
    rows = _rows(times, whole[0], per_session)
    return Timing(timeline, tuple(rows), TimeRow(timeline.loop_text, whole[0] * per_session, 1.0))


def _plain(timeline: Timeline, view: View) -> Timing:
    """Times that are no shares of one loop (APPO's are of one step): milliseconds only, and every row."""
    rows = [
        TimeRow(line.text, ms, indent=line.kind != "exclusive", quiet=line.kind != "exclusive")
        for line in timeline.lines
        if (ms := _mean_ms(line.key, view)) is not None
    ]
    whole = _mean_ms(timeline.loop_key, view) if timeline.loop_key is not None else None
    return Timing(timeline, tuple(rows), None if whole is None else TimeRow(timeline.loop_text, whole))


def _rows(times: Sequence[tuple[Line, Fraction]], whole: float, per_loop: float) -> list[TimeRow]:
    rows = []
    for line, (seconds, count) in times:
        share = _share(seconds, whole)
        if line.quiet and share < _MATERIAL:  # a share that is not a number is shown
            continue
        if line.kind == "background":  # it runs beside the loop: the time of one call, and no part of the loop's
            ms, shown = (seconds / count * 1e3 if count else math.nan), None
        else:
            ms, shown = seconds * per_loop, share
        is_red = line.key == COLLECTOR_WAIT and ms > _LONG_WAIT_MS
        rows.append(TimeRow(line.text, ms, shown, line.kind != "exclusive", is_red, line.quiet))
    return rows


def _main_rows(times: Sequence[tuple[Line, Fraction]], rows: Sequence[TimeRow]) -> int:
    """How many rows come before those of the background."""
    background = {line.text for line, _ in times if line.kind == "background"}
    return next((i for i, row in enumerate(rows) if row.share is None and row.text in background), len(rows))


def _share(seconds: float, whole: float) -> float:
    return seconds / whole if whole else math.nan


def _mean_ms(key: str, view: View) -> float | None:
    fraction = view.fraction(key) or view.latest_fractions.get(key)
    return fraction[0] / fraction[1] * 1e3 if fraction and fraction[1] else None


def column_title(role: str, *, is_short: bool) -> str:
    """What stands above a timeline. Its clock goes along where there is room: columns are never added up."""
    name = role.capitalize()
    if is_short:
        return name
    clock = "Iter Wall" if role == LEARNER else "a call" if role.endswith(PLAIN) else "own clock"
    return f"{name} ({clock})"
