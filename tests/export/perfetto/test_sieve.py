"""Slices are left out whole: no end of one closes another."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from realparts.lane_making import STEPS, Drawn, cut, made
from rltel.export.perfetto.sieve import Sieve, items
from rltel.record.records import (
    Attached,
    Begin,
    CounterSample,
    End,
    FreeBegin,
    FreeEnd,
    Ids,
    Instant,
    Placed,
    Record,
    Site,
)

A, B = Site("a", ""), Site("b", "")


def test_of_what_is_open_only_the_ends_pass() -> None:
    sieve = Sieve(1)
    records: list[Record] = [A, 1, Instant(2, "i", "", None, None), 3, CounterSample(4, "c", "", 1.0), 5]
    assert sieve.sift(records, keep=False) == ([5], 3)
    assert sieve.is_clear


def test_a_begin_whose_first_half_is_in_the_trace_is() -> None:
    sieve = Sieve(awaits_time=True)
    assert sieve.sift([1, B, 2, 3, 4], keep=False) == ([1, 4], 1)


def test_a_begin_is_left_out_as_it_was_begun() -> None:
    """Its site was left out, and the trace goes on before its time comes."""
    sieve = Sieve()
    assert sieve.sift([A], keep=False) == ([], 0)
    assert not sieve.is_clear
    assert sieve.sift([1, B, 2, 3, 4], keep=True) == ([B, 2, 3], 1)
    assert sieve.is_clear


def test_depth_counts_what_is_drawn() -> None:
    sieve = Sieve(1)
    kept, left_out = sieve.sift([Begin(1, A), End(2, {"x": 1}, depth=1), 3], keep=False)
    assert (kept, left_out) == ([End(2, {"x": 1})], 1)


def test_what_lies_on_tracks_of_its_own_comes_and_goes() -> None:
    begin = Begin(1, A)
    records: list[Record] = [FreeBegin(1, begin), FreeEnd(2, End(2)), Placed("t", begin, 3), Attached(Ids(1, 2)), 4]
    assert Sieve().sift(records, keep=False) == ([FreeEnd(2, End(2))], 2)


def test_an_end_of_nothing_is_nobody_s() -> None:
    assert Sieve().sift([1, End(2, depth=3)], keep=True) == ([], 0)


def test_items_are_what_begins() -> None:
    begin = Begin(1, A)
    records: list[Record] = [A, 1, 2, begin, End(2), FreeBegin(1, begin), FreeEnd(1, End(3)), Attached(Ids(1, 2)), 4]
    assert items([*records, Instant(2, "i", "", None, None), CounterSample(4, "c", "", 1.0)]) == 5


@given(STEPS, st.lists(st.integers(0, 200), max_size=6), st.lists(st.booleans(), min_size=8, max_size=8))
def test_random_programs_that_are_kept_now_and_then(steps: list[Any], places: list[int], keeps: list[bool]) -> None:
    """Every slice is kept whole or not at all, and what is not is counted."""
    making = made(steps)
    sieve, stack, found, dropped = Sieve(), list[Drawn | None](), list[Any](), 0
    site: Site | None = None
    for piece, keep in zip(cut(making.records, places), keeps, strict=False):
        kept, left_out = sieve.sift(piece, keep=keep)
        dropped += left_out
        for record in kept:
            if isinstance(record, Site):
                site = record
            elif isinstance(record, Begin) or (isinstance(record, int) and site is not None):
                begin = record if isinstance(record, Begin) else Begin(record, site)  # type: ignore[arg-type]  # not None
                stack.append(Drawn(begin.site.name, begin.time_ns))
                site = None if isinstance(record, int) else site
            elif isinstance(record, Attached):
                stack.append(None)
            elif isinstance(record, (int, End)):
                end = End(record) if isinstance(record, int) else record
                closed = stack.pop(len(stack) - 1 - end.depth)
                found += [] if closed is None else [(closed.name, closed.begin_ns, end.time_ns)]
            else:
                found.append("instant")
    true = [each.what for each in making.slices]
    assert stack == []
    assert {each for each in found if each != "instant"} <= set(true)
    assert len(found) + dropped == len(true) + sum(isinstance(each, Instant) for each in making.records)
