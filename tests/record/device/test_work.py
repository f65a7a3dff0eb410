"""Work on the host clock: the order of its stream, and what the host saw, come before what was measured."""

from __future__ import annotations

from typing import Any

import pytest

from rltel.record.device.anchors import MAX_DRIFT, Anchor, Position
from rltel.record.device.event_source import StreamRef
from rltel.record.device.work import Measured, Stream, Submitted, draw

MS = 1_000_000
WIDE = Anchor(None, 0, 20 * MS)
"""Somewhere in 20 ms: taken to be at 10 ms."""


def stream() -> Stream:
    return Stream(StreamRef("cuda:0", 0, None), "cuda:0 stream 0")


def measured(
    on: Stream, begin_ms: float, length_ms: float, *, submit_ms: float = -100.0, seen_ms: float = 1e6, **orders: int
) -> Measured:
    """Work that began so long after the anchor."""
    work = Submitted("work", on, (1,), {})
    work.begin_order = orders.get("begin", next(on.order))
    work.end_order = orders.get("end", next(on.order))
    work.submit_ns = round(submit_ms * MS)
    at = Position(WIDE, begin_ms)
    return Measured(work, round(seen_ms * MS), at, length_ms, Position(WIDE, begin_ms + length_ms))


def times(drawn: list[Any]) -> list[tuple[float, float, str]]:
    return [(round(each.begin_ns / MS, 3), round(each.end_ns / MS, 3), each.clamped) for each in drawn]


class TestBounds:
    def test_by_the_anchor(self) -> None:
        on = stream()
        (drawn,) = draw(on, [measured(on, 5, 2)])
        assert times([drawn]) == [(15.0, 17.0, "")]
        assert 10 * MS <= drawn.uncertainty_ns < 10.01 * MS

    def test_a_length_is_as_uncertain_as_the_rate(self) -> None:
        on = stream()
        short, long = draw(on, [measured(on, 5, 0), measured(on, 6, 200)])
        assert long.uncertainty_ns - short.uncertainty_ns == pytest.approx(200.0 * MS * MAX_DRIFT, rel=0.02)

    def test_not_before_the_submit(self) -> None:
        on = stream()
        assert times(draw(on, [measured(on, 5, 2, submit_ms=18)])) == [(18.0, 20.0, "submit")]

    def test_not_after_the_host_saw_the_end(self) -> None:
        on = stream()
        ((begin, end, clamped),) = times(draw(on, [measured(on, 5, 2, seen_ms=9)]))
        assert (begin, end, clamped) == (7.001, 9.0, "observed")  # 500 ppm of 2 ms may be the clock's

    def test_between_both_even_if_it_seems_longer(self) -> None:
        on = stream()
        assert times(draw(on, [measured(on, 5, 2, submit_ms=8, seen_ms=9)])) == [(8.0, 9.0, "submit")]

    def test_the_end_of_long_work_is_placed_for_itself(self) -> None:
        on = stream()
        each = measured(on, 5, 300)
        each.end = Position(WIDE, 305.5)
        assert times(draw(on, [each])) == [(15.0, 315.5, "")]


class TestTheOrderOfAStream:
    def test_rounding_makes_no_overlap_and_shifts_no_length(self) -> None:
        on = stream()
        one, other = draw(on, [measured(on, 5, 2), measured(on, 6.9995, 1)])
        assert other.begin_ns == one.end_ns
        assert other.end_ns - other.begin_ns == MS

    def test_holds_from_one_round_to_the_next(self) -> None:
        on = stream()
        (one,) = draw(on, [measured(on, 5, 2)])
        (other,) = draw(on, [measured(on, 6.9995, 1)])
        assert other.begin_ns == one.end_ns

    def test_what_is_pushed_is_as_uncertain_as_what_pushed_it(self) -> None:
        on = stream()
        one = measured(on, 5, 2)
        exact = Anchor(None, 10 * MS, 10 * MS)
        other = measured(on, 6.9995, 1)
        other.begin = Position(exact, 6.9995)
        first, second = draw(on, [one, other])
        assert second.begin_ns == first.end_ns
        assert second.uncertainty_ns == first.uncertainty_ns

    def test_a_parent_is_around_its_children(self) -> None:
        on = stream()
        parent, child = measured(on, 5, 3, begin=0, end=3), measured(on, 4.9995, 3.001, begin=1, end=2)
        outer, inner = draw(on, [child, parent])
        assert outer.begin_ns == inner.begin_ns == 15 * MS
        assert outer.end_ns == inner.end_ns

    def test_late_work_of_another_thread_is_drawn_where_it_was(self) -> None:
        on = stream()
        late, early = measured(on, 1, 2), measured(on, 5, 2)
        draw(on, [early])
        assert times(draw(on, [late])) == [(11.0, 13.0, "")]
        assert times(draw(on, [measured(on, 6.9, 1)])) == [(17.0, 18.0, "")]
