"""Complete slices on lanes: nothing is lost, and every lane nests, as a stack machine like Perfetto's sees it."""

import tracemalloc
from collections import Counter, defaultdict

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rltel.export.otel.lanes import OPEN, Lanes

Interval = tuple[int, int]


def as_drawn(placed: list[tuple[int, Interval]]) -> Counter[tuple[int, Interval]]:
    """What the trace processor makes of begins and ends in file order: it sorts by time, stably, and uses a stack."""
    events = []
    for lane, (begin, end) in placed:
        events += [(begin, lane, "begin"), (end, lane, "end")]
    stacks: dict[int, list[int]] = defaultdict(list)
    drawn: Counter[tuple[int, Interval]] = Counter()
    for time, lane, kind in sorted(events, key=lambda event: event[0]):
        if kind == "begin":
            stacks[lane].append(time)
        else:
            drawn[lane, (stacks[lane].pop(), time)] += 1
    assert not any(stacks.values())
    return drawn


intervals = st.tuples(st.integers(0, 12), st.integers(0, 6)).map(lambda pair: (pair[0], pair[0] + pair[1]))


@given(st.lists(intervals, max_size=40), st.sampled_from([4, 10, 1000]))
def test_whatever_overlaps_stays_whole(slices: list[Interval], limit: int) -> None:
    lanes = Lanes(limit)
    placed = [(lanes.place("thread", *interval), interval) for interval in slices]
    assert as_drawn(placed) == Counter(placed)


families = st.lists(st.tuples(intervals, st.integers(0, 5), st.integers(0, 5)), max_size=30)


@given(families, st.sampled_from([4, 10, 1000]), st.booleans())
def test_with_parents_in_any_order_too(slices: list[tuple[Interval, int, int]], limit: int, reserved: bool) -> None:
    lanes = Lanes(limit)
    placed = []
    for number, (interval, id, parent) in enumerate(slices):
        family = "trace" if reserved and number % 2 else None
        placed.append(
            (lanes.place("spans", *interval, id=(id, number % 3), parent=(parent, 0), family=family), interval)
        )
    assert as_drawn(placed) == Counter(placed)


@given(st.lists(intervals, max_size=40))
def test_in_the_order_of_time_there_are_no_more_lanes_than_need_be(slices: list[Interval]) -> None:
    """A lane is opened only where something on every other is in the way."""
    lanes = Lanes()
    placed: list[tuple[int, Interval]] = []
    for begin, end in sorted(slices, key=lambda interval: (interval[0], -interval[1])):
        lane = lanes.place("thread", begin, end)
        for other in range(lane):
            on_it = [known for index, known in placed if index == other]
            assert any(b <= begin < e < end for b, e in on_it)
        placed.append((lane, (begin, end)))


def test_google_perfetto_4280_an_overlap_gets_a_lane() -> None:
    lanes = Lanes()
    assert [lanes.place("tid", 3000, 6776), lanes.place("tid", 5000, 7000)] == [0, 1]


def test_groups_do_not_share_lanes() -> None:
    lanes = Lanes()
    assert [lanes.place(group, 0, 10) for group in ("a", "b")] == [0, 0]
    assert [lanes.place(group, 5, 15) for group in ("a", "b")] == [1, 1]


class TestParents:
    def test_a_parent_comes_to_its_children(self) -> None:
        lanes = Lanes()
        assert lanes.place("g", 0, 100, id="other") == 0
        assert lanes.place("g", 10, 20, id="a", parent="p") == 1
        assert lanes.place("g", 20, 30, id="b", parent="p") == 1
        assert lanes.place("g", 5, 40, id="p") == 1

    def test_children_come_to_their_parent(self) -> None:
        lanes = Lanes()
        lanes.place("g", 0, 100, id="other")
        assert lanes.place("g", 5, 40, id="p") == 1
        assert lanes.place("g", 10, 20, id="a", parent="p") == 1

    def test_and_grandchildren_to_theirs(self) -> None:
        lanes = Lanes()
        assert [lanes.place("g", n, 100 - n, id=n, parent=n - 1) for n in range(5)] == [0] * 5

    def test_concurrent_work_is_drawn_beside_and_not_within(self) -> None:
        lanes = Lanes()
        assert lanes.place("g", 0, 100, id="p") == 0
        assert lanes.place("g", 10, 90, id="a", parent="p") == 0
        assert lanes.place("g", 20, 80, id="b", parent="p") == 1, "by time it would fit into a"

    @pytest.mark.parametrize("end", [5, 9])
    def test_one_that_begins_with_a_child_that_is_written_already_gets_a_lane(self, end: int) -> None:
        """On the child's lane, the file's order would draw it inside the child."""
        lanes = Lanes()
        assert lanes.place("g", 0, 5, id="child", parent="p") == 0
        assert lanes.place("g", 0, end, id="p") == 1

    def test_nobody_gets_into_the_way_of_a_parent_that_is_to_come(self) -> None:
        lanes = Lanes()
        assert lanes.place("g", 10, 20, id="a", parent="p", family=1) == 0
        assert lanes.place("g", 30, 40, id="x", family=2) == 1
        assert lanes.place("g", 5, 45, id="p", family=1) == 0
        assert lanes.place("g", 50, 60, id="y", family=2) == 0, "now the lane is free for all"

    def test_the_steps_of_a_root_that_is_still_open_share_a_lane(self) -> None:
        """One at a time, children first, as SimpleSpanProcessor exports them."""
        lanes = Lanes()
        for step in range(0, 1000, 10):
            assert lanes.place("g", step + 2, step + 5, id=(step, "child"), parent=step, family=1) == 0
            assert lanes.place("g", step, step + 9, id=step, parent="root", family=1) == 0
        assert lanes.place("g", -1, 2000, id="root", family=1) == 0


def test_what_is_open_keeps_its_lane_to_itself() -> None:
    lanes = Lanes()
    assert lanes.place("g", 10, OPEN) == 0
    assert lanes.place("g", 5, 30) == 1
    assert lanes.place("g", 0, 7) == 0
    assert lanes.place("g", 20, 25) == 0, "inside it is a place, too"


def test_a_slice_that_ends_before_it_begins_is_refused() -> None:
    with pytest.raises(ValueError, match=r"ends \(1\) before it begins \(2\)"):
        Lanes().place("g", 2, 1)


def test_memory_is_bounded_over_a_stream_without_end() -> None:
    lanes = Lanes(limit=1000)
    used = []
    tracemalloc.start()
    for step in range(20_000):
        for inner in range(4):
            begin = step * 100 + inner * 20
            lanes.place("g", begin, begin + 30 + inner, id=(step, inner), parent=step)
        assert lanes.place("g", step * 100, step * 100 + 95, id=step, parent="root") <= 4
        if step % 5000 == 4999:
            used.append(tracemalloc.get_traced_memory()[0])
    tracemalloc.stop()
    assert max(used) < 2_000_000
    assert lanes.place("g", -1, 10**9, id="root") <= 4, "what was forgotten still nests in its parent"


def test_many_at_once_take_as_many_lanes_and_reuse_them() -> None:
    lanes = Lanes()
    for start in range(0, 1000, 100):
        placed = {lanes.place("g", start + index % 7, start + 50, id=(start, index)) for index in range(64)}
        assert placed == set(range(64))
