"""A span links to what its flows went through before it, whatever order the lanes are read in."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rltel.export.spans.flow_links import FlowLinks
from rltel.record.records import Ids

A, B, C = (Ids(1, number) for number in (1, 2, 3))


def test_links_go_back_in_time_though_the_receiver_was_read_first() -> None:
    links = FlowLinks()
    received = links.saw((7,), B, 20)
    sent = links.saw((7,), A, 10)
    assert links.of(received, B) == [A]
    assert links.of(sent, A) == []


def test_each_links_to_the_one_before_it() -> None:
    links = FlowLinks()
    passed = {ids: links.saw((7,), ids, at) for ids, at in ((A, 1), (C, 3), (B, 2))}
    assert [links.of(passed[ids], ids) for ids in (A, B, C)] == [[], [A], [B]]


def test_at_one_time_what_was_seen_first_was_first() -> None:
    links = FlowLinks()
    passed = [links.saw((7,), ids, 5) for ids in (A, B)]
    assert [links.of(each, ids) for each, ids in zip(passed, (A, B), strict=True)] == [[], [A]]


def test_a_span_does_not_link_to_itself_nor_twice_to_one() -> None:
    links = FlowLinks()
    links.saw((7, 8), A, 1)
    passed = links.saw((7, 8), B, 2) + links.saw((7,), B, 3)
    assert links.of(passed, B) == [A]


def test_any_whole_number_is_a_flow_and_nothing_else_is() -> None:
    links = FlowLinks()
    strange: tuple[Any, ...] = (-1, 2**64, "x", 1.5, None, [1])
    assert links.saw(strange, A, 1) == [(2**64 - 1, 1), (0, 1)]
    assert links.saw(None, A, 1) == []


def test_memory_is_bounded_by_flows_and_by_what_one_flow_goes_through() -> None:
    links = FlowLinks(remembered=10)
    for number in range(1000):
        links.saw((number, 5), Ids(1, number), number)
    assert len(links._seen) == 10
    assert max(map(len, links._seen.values())) <= 64
    assert links.of([(5, 10_000)], A) == [Ids(1, 999)]


@given(st.permutations([(time, Ids(1, time + 1)) for time in range(6)]))
def test_the_order_of_reading_does_not_matter(seen: list[tuple[int, Ids]]) -> None:
    links = FlowLinks()
    passed = {time: links.saw((7,), ids, time) for time, ids in seen}
    assert [links.of(passed[time], Ids(1, time + 1)) for time in range(1, 6)] == [
        [Ids(1, time)] for time in range(1, 6)
    ]


@pytest.mark.parametrize("flow", [1, 0, 2**63])
def test_a_flow_that_nobody_else_has_links_to_nothing(flow: int) -> None:
    links = FlowLinks()
    assert links.of(links.saw((flow,), A, 1), A) == []
