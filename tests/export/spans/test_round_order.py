"""A parent is seen before its children on other lanes, and a lane's own order stays."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from realparts.lane_making import STEPS, cut, made
from rltel.export.spans.round_order import RoundOrder
from rltel.record.lane import Lane
from rltel.record.records import Attached, Begin, End, FreeBegin, Ids, Placed, Record, Site

A, B = Site("a", ""), Site("b", "")


def lane(kind: Any = "thread") -> Lane:
    return Lane(kind, "x", 10)


def test_lanes_are_merged_by_time() -> None:
    order, first, second = RoundOrder(), lane(), lane()
    order.take(first, [A, 2, 4])
    order.take(second, [Begin(1, B), 3])
    assert order.in_order() == [(second, Begin(1, B)), (first, Begin(2, A)), (second, End(3)), (first, End(4))]
    assert order.in_order() == []


def test_what_is_attached_comes_with_what_it_is_for() -> None:
    """It has no time of its own; its parent's begin has to come first."""
    order, child, parent = RoundOrder(), lane(), lane()
    attached = Attached(Ids(1, 2))
    order.take(child, [attached, A, 5, 6, attached])
    order.take(parent, [B, 4, 7])
    assert [record for _, record in order.in_order()] == [Begin(4, B), attached, Begin(5, A), End(6), End(7), attached]


def test_a_round_may_come_in_pieces() -> None:
    whole, pieces, here = RoundOrder(), RoundOrder(), lane()
    records: list[Record] = [A, 5, Attached(Ids(1, 2)), B, 4, 7, 8, 9]
    whole.take(here, records)
    expected = whole.in_order()
    for place in range(len(records)):
        pieces.take(here, records[:place])
        pieces.take(here, records[place:])
        assert pieces.in_order() == expected


def test_slices_on_tracks_of_their_own_come_in_time_whatever_their_order() -> None:
    order, shared, here = RoundOrder(), lane("shared"), lane()
    records: list[Record] = [FreeBegin(1, Begin(9, A)), Placed("t", Begin(3, B), 4), Placed("t", Begin("x", B), 4)]  # type: ignore[arg-type]  # as a program may
    order.take(shared, records)
    order.take(here, [A, 2, 10])
    assert [record for _, record in order.in_order()] == [records[2], Begin(2, A), records[1], records[0], End(10)]


def test_a_clock_that_goes_back_does_not_turn_a_lane_round() -> None:
    order, here = RoundOrder(), lane()
    order.take(here, [A, 5, 3])
    assert order.in_order() == [(here, Begin(5, A)), (here, End(3))]


@given(st.lists(STEPS, max_size=3), st.lists(st.integers(0, 200), max_size=3))
def test_every_lane_keeps_its_order_over_rounds(programs: list[Any], places: list[int]) -> None:
    lanes = [lane() for _ in programs]
    records = [made(steps).records for steps in programs]
    order, found = RoundOrder(), list[tuple[Lane, Record]]()
    for pieces in zip(*([*cut(each, places), [], [], []][:4] for each in records), strict=True):
        for of, piece in zip(lanes, pieces, strict=True):
            order.take(of, piece)
        found += order.in_order()
    for of, expected in zip(lanes, records, strict=True):
        assert [record for each, record in found if each is of] == _spelled_out(expected)


def _spelled_out(records: list[Record]) -> list[Record]:
    out: list[Record] = []
    site: Site | None = None
    for record in records:
        if isinstance(record, Site):
            site = record
        elif isinstance(record, int):
            out.append(End(record) if site is None else Begin(record, site))
            site = None
        else:
            out.append(record)
    return out
