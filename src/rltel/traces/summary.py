"""What the timelines of a run say in numbers: where the iterations went, what overlapped, what waited for what."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import combinations
from pathlib import Path

import numpy as np

from rltel.traces.clocks import Alignment
from rltel.traces.overlap import Intervals, Times, overlap, union, within
from rltel.traces.progress import Meter, Progress
from rltel.traces.skim import Skimmed
from rltel.traces.slices import LOOP, PHASE_KINDS, WORK, Group, Key, Slices
from rltel.traces.sources import gathered

_LONGEST = 3  # single waits that are shown


@dataclass
class Row:
    """Slices of one process and name. Times in ns; of slices that have ended."""

    process: str
    loop: str
    category: str
    name: str
    count: int
    total_ns: int
    mean_ns: float | None
    p50_ns: float | None
    p99_ns: float | None
    share: float | None
    """Of the time of its loop's iterations (for phases): within them, or beside them if it runs in none."""
    still_open: int


@dataclass
class Loop:
    """The iterations of one loop of a process, and what no exclusive phase of them covered.

    None: it has no phases of its own, as one that is only around another loop.
    """

    process: str
    name: str
    count: int
    total_ns: int
    other_ns: int | None
    other_share: float | None


@dataclass
class Overlap:
    """How long work of two processes (phases, rollouts or timings of one name) went on at once.

    Several rollouts of one process at a time count once.
    """

    process: str
    phase: str
    other_process: str
    other_phase: str
    both_ns: int
    share: float
    """Of the time for which the first went on."""
    other_share: float


@dataclass
class Meanwhile:
    """What another process did during a wait, and for how long of it."""

    process: str
    phase: str
    both_ns: int


@dataclass
class LongWait:
    """One single wait. ``start_ns`` counts from the first slice of all."""

    start_ns: int
    duration_ns: int
    meanwhile: list[Meanwhile]


@dataclass
class Wait:
    """A phase that waits: its row, its longest slices, and what ran in other processes during all of them."""

    process: str
    phase: str
    total_ns: int
    share: float | None
    longest: list[LongWait]
    meanwhile: list[Meanwhile]


@dataclass
class Summary:
    """All of it. Processes go by their names, with a pid or number where names are equal."""

    files: list[str]
    start_ns: int | None
    """Where the first slice begins: since the epoch, if the files have anchors."""
    uncertainty: str
    loops: list[Loop] = field(default_factory=list)
    rows: list[Row] = field(default_factory=list)
    overlaps: list[Overlap] = field(default_factory=list)
    waits: list[Wait] = field(default_factory=list)
    unmatched_ends: int = 0
    runs: int = 1
    """Of how many runs the files are."""
    left_out: list[str] = field(default_factory=list)
    """Traces of the folder that are merged already."""


@dataclass
class _Work:
    """Slices of one name that are work, ready to be compared with those of other processes."""

    row: Row
    intervals: Intervals
    longest: list[tuple[int, int]]


def summarize(source: Path, progress: Progress | None = None) -> Summary:
    """Sum up a file (merged or not), a run directory, or all traces below another folder.

    A folder's merged traces are left out. Raises `TraceError` if there are none, one is damaged, or several cannot be
    put on one clock.
    """
    given = gathered(source)
    files, paths = given.files, given.paths
    alignment = _alignment(files)
    slices = Slices()
    slices.read(files, alignment, Meter(paths, progress))
    start = min((min(group.starts) for group in slices.groups.values() if group.starts), default=None)
    words = alignment.uncertainty(slices.last_ns) if alignment else _alone(files[0])
    made = Summary([str(path) for path in paths], start, words, unmatched_ends=slices.unmatched, runs=given.runs)
    made.left_out = [str(path) for path in given.merged_before]
    _fill(made, slices)
    return made


def _alignment(files: list[Skimmed]) -> Alignment | None:
    """None for a single file that has no anchors, or needs none because it is merged."""
    (first, *others) = files
    if not others and (first.is_merged or not (first.snapshot or first.anchors)):
        return None
    return Alignment(files)


def _alone(file: Skimmed) -> str:
    if not file.has_packets:
        return "empty"
    return "merged before" if file.is_merged else "no anchor: its own clock"


def _fill(made: Summary, slices: Slices) -> None:
    names = _distinct(slices.names)
    loops = {(key.process, key.name): _loop(key, group, slices, names) for key, group in _loops(slices)}
    made.loops = list(loops.values())
    works: list[_Work] = []
    for key in sorted(slices.groups, key=lambda key: (names[key.process], key.loop, key.category)):
        group = slices.groups.pop(key)  # what is summed up needs no memory any more
        row = _row(key, group, _iterations(key, loops), names)
        made.rows.append(row)
        if key.category in WORK and row.count:
            starts, ends = group.times()
            works.append(_Work(row, union(starts, ends), _longest(starts, ends) if _waits(row) else []))
    made.rows.sort(key=lambda row: (row.process, row.category not in (LOOP, *PHASE_KINDS), -row.total_ns))
    both = _overlaps(works)
    made.overlaps = sorted((_named(one, other, time) for one, other, time in both), key=lambda each: -each.both_ns)
    made.waits = sorted((_wait(each, works, both, made.start_ns or 0) for each in works if each.longest), key=_weight)


def _distinct(names: dict[str, str]) -> dict[str, str]:
    """Names by key, numbered where several have the same."""
    taken: dict[str, int] = {}
    out = {}
    for key, name in names.items():
        taken[name] = taken.get(name, 0) + 1
        out[key] = name if taken[name] == 1 else f"{name} #{taken[name]}"
    return out


def _loops(slices: Slices) -> Iterable[tuple[Key, Group]]:
    return [(key, group) for key, group in slices.groups.items() if key.category == LOOP]


def _loop(key: Key, group: Group, slices: Slices, names: dict[str, str]) -> Loop:
    starts, ends = group.times()
    total = int((ends - starts).sum())
    has_phases = any((each.process, each.loop) == (key.process, key.name) for each in slices.groups)
    other = slices.other.get((key.process, key.name), 0) if has_phases else None
    share = other / total if total and other is not None else None
    return Loop(names[key.process], key.name, len(starts), total, other, share)


def _iterations(key: Key, loops: dict[tuple[str, str], Loop]) -> Loop | None:
    """The loop that a phase's share is of: the one it is in; for those in none, the longest of the process."""
    if key.category not in PHASE_KINDS:
        return None
    if key.loop:
        return loops.get((key.process, key.loop))
    own = [loop for (process, _), loop in loops.items() if process == key.process]
    return max(own, key=lambda loop: loop.total_ns, default=None)


def _row(key: Key, group: Group, loop: Loop | None, names: dict[str, str]) -> Row:
    starts, ends = group.times()
    lasted = ends - starts
    count, total = len(lasted), int(lasted.sum())
    p50, p99 = (float(each) for each in np.percentile(lasted, (50, 99))) if count else (None, None)
    share = (group.in_iterations if key.loop else total) / loop.total_ns if loop and loop.total_ns else None
    mean = total / count if count else None
    return Row(
        process=names[key.process],
        loop=key.loop,
        category=key.category,
        name=key.name,
        count=count,
        total_ns=total,
        mean_ns=mean,
        p50_ns=p50,
        p99_ns=p99,
        share=share,
        still_open=group.still_open,
    )


def _waits(row: Row) -> bool:
    return row.category in PHASE_KINDS and (row.name == "wait" or row.name.endswith("_wait"))


def _longest(starts: Times, ends: Times) -> list[tuple[int, int]]:
    at = np.argsort(starts - ends, kind="stable")[:_LONGEST]
    return [(int(starts[each]), int(ends[each])) for each in at]


def _overlaps(works: list[_Work]) -> list[tuple[_Work, _Work, int]]:
    pairs = ((one, other) for one, other in combinations(works, 2) if one.row.process != other.row.process)
    timed = ((one, other, overlap(one.intervals, other.intervals)) for one, other in pairs)
    return [(one, other, time) for one, other, time in timed if time]


def _named(one: _Work, other: _Work, time: int) -> Overlap:
    shares = time / one.intervals.total, time / other.intervals.total
    return Overlap(one.row.process, one.row.name, other.row.process, other.row.name, time, *shares)


def _wait(phase: _Work, works: list[_Work], both: list[tuple[_Work, _Work, int]], zero: int) -> Wait:
    during = [(other, time) for one, other, time in both if one is phase]
    during += [(one, time) for one, other, time in both if other is phase]
    others = [each for each in works if each.row.process != phase.row.process]
    longest = [
        LongWait(start - zero, end - start, _meanwhile((each, within(each.intervals, start, end)) for each in others))
        for start, end in phase.longest
    ]
    row = phase.row
    return Wait(row.process, row.name, row.total_ns, row.share, longest, _meanwhile(during))


def _meanwhile(during: Iterable[tuple[_Work, int]]) -> list[Meanwhile]:
    found = [Meanwhile(each.row.process, each.row.name, time) for each, time in during if time]
    return sorted(found, key=lambda each: -each.both_ns)


def _weight(wait: Wait) -> float:
    return -wait.total_ns
