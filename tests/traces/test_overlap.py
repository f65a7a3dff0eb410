"""Unions and overlaps of intervals, against counting every nanosecond."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from rltel.traces.overlap import Intervals, overlap, union, within

SPAN = 60
PAIRS = st.lists(st.tuples(st.integers(0, SPAN), st.integers(0, SPAN)), max_size=12)


def intervals(pairs: list[tuple[int, int]]) -> Intervals:
    starts, ends = (np.array([pair[side] for pair in pairs], np.int64) for side in (0, 1))
    return union(starts, ends)


def held(pairs: list[tuple[int, int]]) -> set[int]:
    return {moment for start, end in pairs for moment in range(start, end)}


@given(PAIRS)
def test_a_union_holds_just_when_one_of_them_does(pairs: list[tuple[int, int]]) -> None:
    made = intervals(pairs)
    assert held(list(zip(made.starts.tolist(), made.ends.tolist(), strict=True))) == held(pairs)
    assert made.total == len(held(pairs))


@given(PAIRS)
def test_its_intervals_stand_apart_and_in_order(pairs: list[tuple[int, int]]) -> None:
    made = intervals(pairs)
    assert (made.starts < made.ends).all()
    assert (made.ends[:-1] < made.starts[1:]).all()


@given(PAIRS, PAIRS)
def test_an_overlap_is_when_both_hold(one: list[tuple[int, int]], other: list[tuple[int, int]]) -> None:
    both = len(held(one) & held(other))
    assert overlap(intervals(one), intervals(other)) == both
    assert overlap(intervals(other), intervals(one)) == both


@given(PAIRS, st.integers(-5, SPAN + 5), st.integers(0, SPAN))
def test_within_a_window(pairs: list[tuple[int, int]], start: int, length: int) -> None:
    window = set(range(start, start + length))
    assert within(intervals(pairs), start, start + length) == len(held(pairs) & window)


def test_wall_clock_times_stay_exact() -> None:
    """Nanoseconds since the epoch do not fit into a float."""
    now = 1_795_987_020_123_456_789
    assert overlap(intervals([(now, now + 7)]), intervals([(now + 3, now + 10)])) == 4
