"""A summary of traces as text."""

from collections.abc import Iterable, Sequence

from rltel.traces.clocks import spell_ns
from rltel.traces.sources import spell_files
from rltel.traces.summary import Loop, Meanwhile, Overlap, Row, Summary, Wait

_OVERLAPS, _MEANWHILE = 20, 3  # lines that are shown; --json has all
_COLUMNS = ("", "kind", "count", "total", "mean", "p50", "p99", "share")
_INDENT = "  "


def summary_lines(made: Summary) -> Iterable[str]:
    """Line by line."""
    yield f"{spell_files(len(made.files), made.runs)}; {made.uncertainty}"
    for path in made.left_out:
        yield f"{_INDENT}left out {path}: a merged trace already"
    if not made.rows:
        yield "no slices in it: nothing was drawn, or none of it was written before the process was killed"
    if made.unmatched_ends:
        yield f"{made.unmatched_ends} ends of slices have no begin: see rltel trace validate"
    for process in dict.fromkeys(row.process for row in made.rows):
        yield ""
        yield process
        yield from _process(made, process)
    if made.overlaps:
        yield ""
        yield "at once, in different processes"
        yield from _overlaps(made)
    for wait in made.waits:
        yield ""
        yield from _wait(wait)


def _process(made: Summary, process: str) -> Iterable[str]:
    loops = [loop for loop in made.loops if loop.process == process and loop.count]
    rows = [_cells(row, of_loop=len(loops) > 1) for row in made.rows if row.process == process]
    rows += [_other(loop, loop.other_ns) for loop in loops if loop.other_ns is not None]
    yield from _table([_COLUMNS, *rows])


def _cells(row: Row, *, of_loop: bool) -> Sequence[str]:
    times = (row.mean_ns, row.p50_ns, row.p99_ns)
    name = f"{row.name} ({row.still_open} open)" if row.still_open else row.name
    kind = f"{row.category} of {row.loop}" if of_loop and row.loop else row.category
    total = spell_ns(row.total_ns) if row.count else ""
    return (
        name,
        kind,
        str(row.count),
        total,
        *("" if each is None else spell_ns(each) for each in times),
        _share(row.share),
    )


def _other(loop: Loop, other_ns: int) -> Sequence[str]:
    return ("Other", f"of {loop.name}", "", spell_ns(other_ns), "", "", "", _share(loop.other_share))


def _overlaps(made: Summary) -> Iterable[str]:
    yield from _table([_overlap(each) for each in made.overlaps[:_OVERLAPS]])
    if len(made.overlaps) > _OVERLAPS:
        yield f"{_INDENT}and {len(made.overlaps) - _OVERLAPS} shorter ones (--json has all)"


def _overlap(each: Overlap) -> Sequence[str]:
    return (
        f"{each.process} {each.phase}",
        f"{each.other_process} {each.other_phase}",
        "",
        spell_ns(each.both_ns),
        f"{_share(each.share)} of the first",
        f"{_share(each.other_share)} of the second",
    )


def _wait(wait: Wait) -> Iterable[str]:
    share = f", {_share(wait.share)} of the iterations" if wait.share is not None else ""
    yield f"{wait.process} waits in {wait.phase}: {spell_ns(wait.total_ns)}{share}; meanwhile {_others(wait.meanwhile)}"
    for each in wait.longest:
        at = f"+{each.start_ns / 1e9:.6f} s"
        yield f"{_INDENT}{spell_ns(each.duration_ns)} at {at}; meanwhile {_others(each.meanwhile)}"


def _others(meanwhile: Sequence[Meanwhile]) -> str:
    shown = [f"{each.process} {each.phase} {spell_ns(each.both_ns)}" for each in meanwhile[:_MEANWHILE]]
    return ", ".join(shown) or "nothing of another process"


def _share(share: float | None) -> str:
    return "" if share is None else f"{share:.1%}"


def _table(rows: Sequence[Sequence[str]]) -> Iterable[str]:
    """Aligned: words to the left, what follows the second column to the right."""
    widths = [max(len(cell) for cell in column) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = (
            cell.ljust(width) if number < 2 else cell.rjust(width)
            for number, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        yield f"{_INDENT}{_INDENT.join(cells)}".rstrip()
