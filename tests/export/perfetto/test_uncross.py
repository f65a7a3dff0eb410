"""Slices of one lane that cross are told apart, and nothing else changes."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from realparts.lane_making import STEPS, Drawn, cut, made
from rltel.export.perfetto.uncross import crosses, uncrossed
from rltel.record.records import Attached, Begin, End, FreeBegin, FreeEnd, Ids, Record, Site

A, B, C = (Site(name, "") for name in "abc")


def shapes(records: list[Record]) -> list[Any]:
    """Records as short words."""
    out: list[Any] = []
    for record in records:
        if isinstance(record, FreeBegin):
            out.append(f"free {record.begin.site.name}")
        elif isinstance(record, FreeEnd):
            out.append("free end")
        elif isinstance(record, Begin):
            out.append(record.site.name)
        elif isinstance(record, End):
            out.append(f"end {record.depth}")
        else:
            out.append(type(record).__name__)
    return out


def test_what_nests_does_not_cross() -> None:
    assert not crosses([A, 1, Begin(2, B), End(3, {"a": 1}), 4])


def test_the_one_that_began_later_leaves_whole() -> None:
    """A generator's slice (a) ends while one of its caller's, begun later, is open."""
    records: list[Record] = [A, 1, B, 2, End(3, depth=1), 4]
    assert crosses(records)
    found = uncrossed(records, None)
    assert shapes(found) == ["a", "free b", "end 0", "free end"]
    free, end = found[1], found[3]
    assert isinstance(free, FreeBegin)
    assert isinstance(end, FreeEnd)
    assert (free.number, free.begin.time_ns, end.end.time_ns) == (end.number, 2, 4)


def test_one_that_goes_on_after_the_drain_stays() -> None:
    """Its end would not find it."""
    assert shapes(uncrossed([A, 1, B, 2, C, 2, End(3, depth=2), 4], None)) == ["a", "b", "free c", "end 1", "free end"]


def test_depth_counts_what_began_before_the_drain() -> None:
    """Two slices are open from before; one began in the drain. The outermost ends."""
    assert shapes(uncrossed([B, 2, End(3, depth=2), 4], None)) == ["free b", "end 1", "free end"]


def test_a_begin_that_was_cut_in_two_is_put_together() -> None:
    assert shapes(uncrossed([1, B, 2, End(3, depth=1), 4, C], A)) == ["a", "free b", "end 0", "free end", "Site"]


def test_what_is_only_attached_stays() -> None:
    records: list[Record] = [A, 1, Attached(Ids(1, 2)), End(3, depth=1), 4]
    assert shapes(uncrossed(records, None)) == ["a", "Attached", "end 1", "end 0"]


def test_a_slice_on_a_track_of_its_own_has_no_cpu_time_of_the_thread() -> None:
    records: list[Record] = [Begin(1, A, cpu_ns=5), Begin(2, B, cpu_ns=6), End(3, cpu_ns=7, depth=1), End(4, cpu_ns=8)]
    begin, free, end, free_end = uncrossed(records, None)
    assert isinstance(free, FreeBegin)
    assert isinstance(free_end, FreeEnd)
    assert [getattr(each, "cpu_ns", 0) for each in (begin, free.begin, end, free_end.end)] == [5, None, 7, None]


def intervals(records: list[Record], open_before: list[Drawn | None]) -> tuple[list[Any], list[Drawn | None]]:
    """The slices of a drain's records, followed by the rules of lanes; and what is open after it."""
    stack, free, done = list(open_before), dict[int, Drawn](), list[Any]()
    for record in records:
        if isinstance(record, Begin):
            stack.append(Drawn(record.site.name, record.time_ns))
        elif isinstance(record, Attached):
            stack.append(None)
        elif isinstance(record, FreeBegin):
            free[record.number] = Drawn(record.begin.site.name, record.begin.time_ns)
        elif isinstance(record, FreeEnd):
            ended = free.pop(record.number)
            done.append((ended.name, ended.begin_ns, record.end.time_ns))
        elif isinstance(record, End):
            closed = stack.pop(len(stack) - 1 - record.depth)
            if closed is not None:
                done.append((closed.name, closed.begin_ns, record.time_ns))
    assert not free, "what left came back whole"
    return done, stack


@given(STEPS, st.lists(st.integers(0, 200), max_size=3))
def test_random_programs_in_random_drains_keep_every_slice(steps: list[Any], places: list[int]) -> None:
    making = made(steps)
    site, stack, found = None, list[Drawn | None](), list[Any]()
    for piece in cut(making.records, places):
        records = uncrossed(piece, site)
        site = records.pop() if records and isinstance(records[-1], Site) else None  # type: ignore[assignment]  # it is one
        done, stack = intervals(records, stack)
        found += done
    assert stack == []
    assert sorted(found) == sorted(each.what for each in making.slices)
