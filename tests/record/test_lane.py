"""One lane by itself: taking while it is written, ends in any order, ids by rule."""

from __future__ import annotations

import sys
import threading
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from realparts.lane_making import STEPS, made
from rltel.record.lane import Lane, Open, slice_id
from rltel.record.records import Attached, Begin, End, FreeBegin, FreeEnd, Ids, Placed, Record, Site, recorded_at

SITE = Site("a", "")


def opened(lane: Lane, time_ns: int) -> Open:
    """As the recorder does: nothing is called between the two steps and the record."""
    span, begin = Open(), Begin(time_ns, SITE)
    span.start(lane, time_ns, None)
    span.outer = lane.top
    lane.top = span
    lane.records.append(begin)
    return span


def begins_of_ends(records: list[Record]) -> list[int]:
    """When the slices began that these ends close, in the order of the ends."""
    stack: list[int] = []
    closed: list[int] = []
    for record in records:
        if isinstance(record, Begin):
            stack.append(record.time_ns)
            continue
        depth = record.depth if isinstance(record, End) else 0
        closed.append(stack.pop(len(stack) - 1 - depth))
    return closed


class TestTaking:
    def test_leaves_what_comes_meanwhile(self) -> None:
        class Interrupted(list[Any]):
            """The thread appends right after another has looked at what is there."""

            def __getitem__(self, index: Any) -> Any:
                found = super().__getitem__(index)
                self.append(3)
                return found

        lane = Lane("thread", "t", 10)
        lane.records = Interrupted([1, 2])
        assert lane.take() == [1, 2]
        assert list(lane.records) == [3]

    def test_nothing_is_over_while_something_is_open_or_waits(self) -> None:
        lanes: list[Lane] = []
        thread = threading.Thread(target=lambda: lanes.append(Lane("thread", "t", 10)))
        thread.start()
        thread.join()
        (lane,) = lanes
        assert lane.is_over()
        span = opened(lane, 1)
        lane.take()
        assert not lane.is_over()
        lane.close(span, 2)
        assert not lane.is_over()
        lane.take()
        assert lane.is_over()

    def test_of_a_thread_that_lives_is_not_over(self) -> None:
        assert not Lane("thread", "t", 10).is_over()
        assert not Lane("shared", "", 10).is_over()


ATTACHED = Attached(Ids(1, 2))
FREE, FREE_END = FreeBegin(1, Begin(5, SITE)), FreeEnd(1, End(6))
PLACED = Placed("gpu", Begin(9**9, SITE), 9**9 + 1)


class TestTakingUntilAMoment:
    @pytest.mark.parametrize(
        ("records", "taken"),
        [
            ([Begin(4, SITE), 5, 6], 2),
            ([SITE, 5, 6, SITE, 7], 2),
            ([3, ATTACHED, SITE, 6, 7, ATTACHED], 1),
            ([ATTACHED, FREE, FREE_END], 2),
            ([PLACED], 1),
            ([6], 0),
            ([], 0),
        ],
    )
    def test_leaves_what_is_later_with_what_goes_with_it(self, records: list[Record], taken: int) -> None:
        lane = Lane("thread", "t", 10)
        lane.records = list(records)
        assert lane.take(5) == records[:taken]
        assert lane.take() == records[taken:]

    def test_the_end_of_an_attachment_waits_for_nothing(self) -> None:
        """Else the lane of a thread that ended would never be empty, and never be forgotten."""
        lane = Lane("thread", "t", 10)
        lane.records = [ATTACHED, 2, 3, ATTACHED]
        lane.take(5)
        assert not lane.records

    @given(STEPS, st.lists(st.integers(990, 1100)))
    def test_loses_and_turns_round_nothing(self, steps: list[tuple[str, int, int]], moments: list[int]) -> None:
        records = made(steps).records
        lane = Lane("thread", "t", 10)
        lane.records = list(records)
        taken: list[Record] = []
        for moment in sorted(moments):
            piece = lane.take(moment)
            taken += piece
            assert all((recorded_at(record) or 0) <= moment for record in piece)
            assert next((at > moment for at in map(recorded_at, lane.records) if at is not None), True)
        assert taken + lane.take() == records


class TestEnds:
    def test_of_the_innermost_is_the_time_alone(self) -> None:
        lane = Lane("thread", "t", 10)
        outer, inner = opened(lane, 1), opened(lane, 2)
        lane.close(inner, 3)
        lane.close(outer, 4)
        assert lane.records[2:] == [3, 4]
        assert lane.top is None

    def test_of_another_says_how_deep_it_lies(self) -> None:
        lane = Lane("thread", "t", 10)
        first, second, third = (opened(lane, at) for at in (1, 2, 3))
        lane.close(first, 4)
        lane.close(second, End(5, {"k": 1}, "E"))
        lane.close(third, 6)
        assert lane.records[3:] == [End(4, depth=2), End(5, {"k": 1}, "E", depth=1), 6]
        assert begins_of_ends(lane.records) == [1, 2, 3]
        assert lane.top is None

    def test_a_second_end_is_none(self) -> None:
        lane = Lane("thread", "t", 10)
        outer, inner = opened(lane, 1), opened(lane, 2)
        lane.close(inner, 3)
        lane.close(inner, 3)
        assert len(lane.records) == 3
        assert lane.top is outer

    def test_of_a_slice_of_another_lane_is_none(self) -> None:
        lane = Lane("thread", "t", 10)
        span = opened(Lane("thread", "u", 10), 1)
        opened(lane, 1)
        lane.close(span, 2)
        assert len(lane.records) == 1

    @given(st.lists(st.tuples(st.booleans(), st.integers(0, 10)), max_size=60))
    def test_in_any_order_close_what_they_mean(self, steps: list[tuple[bool, int]]) -> None:
        lane = Lane("thread", "t", 1000)
        still_open: list[tuple[int, Open]] = []
        expected: list[int] = []
        for time_ns, (opens, which) in enumerate(steps):
            if opens:
                still_open.append((time_ns, opened(lane, time_ns)))
            elif still_open:
                began, span = still_open.pop(which % len(still_open))
                lane.close(span, time_ns)
                expected.append(began)
        assert begins_of_ends(lane.records) == expected

    def test_from_another_thread_while_this_one_goes_on(self) -> None:
        """A generator that one thread abandons is closed by whichever thread collects the garbage."""
        lane = Lane("thread", "t", 10**9)
        handed: list[Open] = []
        done = threading.Event()

        def closes() -> None:
            while not done.is_set() or handed:
                if handed:
                    lane.close(handed.pop(), End(0, {"foreign": True}))

        interval = sys.getswitchinterval()
        sys.setswitchinterval(1e-6)
        closer = threading.Thread(target=closes)
        try:
            closer.start()
            for at in range(1, 30_000, 3):
                handed.append(opened(lane, at))
                own = opened(lane, at + 1)
                lane.close(opened(lane, at + 2), 0)
                lane.close(own, 0)
        finally:
            done.set()
            closer.join()
            sys.setswitchinterval(interval)
        assert lane.top is None
        closed = begins_of_ends(lane.records)  # fails where an end has no begin
        assert sorted(closed) == list(range(1, 30_001))
        foreign = [
            isinstance(end, End) and end.attributes is not None for end in lane.records if not isinstance(end, Begin)
        ]
        assert all(is_foreign == (began % 3 == 1) for began, is_foreign in zip(closed, foreign, strict=True))


class TestIds:
    @given(st.integers(0, 2**64 - 1), st.integers(0, 2**63), st.integers(0, 1000))
    def test_fit_and_are_never_zero(self, seed: int, begin_ns: int, depth: int) -> None:
        assert 0 < slice_id(seed, begin_ns, depth) < 2**64

    def test_of_slices_that_begin_together_differ(self) -> None:
        assert len({slice_id(5, 1_000, depth) for depth in range(100)}) == 100

    def test_that_would_be_zero_are_replaced(self) -> None:
        assert slice_id(0, 0, 0) == 1

    def test_depth_is_what_it_was_when_the_slice_began(self) -> None:
        lane = Lane("thread", "t", 10)
        spans = [opened(lane, at) for at in range(4)]
        lane.close(spans[1], 10)
        lane.close(spans[0], 11)
        assert [lane.depth_of(spans[2]), lane.depth_of(spans[3])] == [2, 3]
        assert lane.depth_of(opened(lane, 12)) == 2


class TestSayingMore:
    def test_adds_up(self) -> None:
        lane = Lane("thread", "t", 10)
        span = opened(lane, 1)
        span.set(a=1, b=1)
        span.set(b=2)
        assert span.said == {"a": 1, "b": 2}

    @pytest.mark.parametrize("again", [False, True])
    def test_nothing_is_left_from_the_last_use(self, again: bool) -> None:
        lane = Lane("thread", "t", 10)
        span = opened(lane, 1)
        span.set(a=1)
        span.ids, span.lost, span.in_loop = Ids(1, 2), 3, True
        lane.close(span, 2)
        if again:
            span.start(lane, 3, None)
        else:
            span.plain = True  # as in the hot path
            span.say_more()
        assert (span.ids, span.said, span.lost, span.in_loop, span.plain) == (None, None, 0, False, False)

    def test_of_what_is_not_recorded_is_nothing(self) -> None:
        span = Open()
        span.lane = None
        span.set(a=1)
        assert not hasattr(span, "said")
