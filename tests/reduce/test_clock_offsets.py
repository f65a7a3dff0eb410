"""Offsets between ranks' clocks: within the stated error, whatever clocks and ways do."""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pytest
import torch.distributed as dist
from hypothesis import given
from hypothesis import strategies as st

from realparts.ranks import RankError, Ranks, ranks
from rltel.core.clock import Anchor, SystemClock
from rltel.core.errors import ReductionError
from rltel.reduce.clock_offsets import ClockOffset, Exchange, measure_offsets, offset_of

SECOND = 1_000_000_000
pytestmark = pytest.mark.xdist_group("three ranks")


@dataclass
class HostClock:
    """The monotonic clock of a simulated host: ahead of this machine's by so much, and running so much faster."""

    ahead_ns: int = 0
    drift_ppm: int = 0
    before: Callable[[], object] = lambda: None
    after: Callable[[], object] = lambda: None

    def monotonic_ns(self) -> int:
        self.before()
        now = self.at(time.perf_counter_ns())
        self.after()
        return now

    def at(self, true_ns: int) -> int:
        """What it shows at a time of this machine's clock."""
        return true_ns + true_ns * self.drift_ppm // 1_000_000 + self.ahead_ns

    def true_ns(self, shown_ns: int) -> int:
        """When it shows that, on this machine's clock."""
        return (shown_ns - self.ahead_ns) * 1_000_000 // (1_000_000 + self.drift_ppm)

    def realtime_ns(self) -> int:
        raise AssertionError("offsets are between monotonic clocks")

    def anchor(self) -> Anchor:
        raise AssertionError("offsets are between monotonic clocks")


def wrong_by(found: ClockOffset, mine: HostClock, reference: HostClock) -> int:
    """How far the measured offset is from the true one, at its own time."""
    return abs(found.offset_ns - (found.at_ns - reference.at(mine.true_ns(found.at_ns))))


# --- one round trip and another ---------------------------------------------------------------------------------------

moments = st.integers(0, 10**15)
delays = st.integers(0, 10**9)


@st.composite
def exchanges(draw: st.DrawFn) -> tuple[HostClock, HostClock, list[Exchange]]:
    """Round trips between two drifting clocks, with any delay on either way."""
    mine, reference = (HostClock(draw(st.integers(-(10**12), 10**12)), draw(st.integers(-500, 500))) for _ in range(2))
    trips = draw(st.lists(st.tuples(moments, delays, delays), min_size=1, max_size=5))
    made = [
        Exchange(mine.at(start), reference.at(start + there), mine.at(start + there + back))
        for start, there, back in trips
    ]
    return mine, reference, made


@given(exchanges())
def test_the_true_offset_is_within_the_error_whatever_the_two_ways_take(made: Any) -> None:
    mine, reference, trips = made
    found = offset_of(trips, 0)
    # Both clocks of the simulation floor to whole nanoseconds.
    assert wrong_by(found, mine, reference) <= found.error_ns + 2


def test_the_shortest_round_trip_counts() -> None:
    trips = [Exchange(0, 5_000, 1_000), Exchange(10_000, 7_050, 10_100), Exchange(20_000, 1, 20_500)]
    found = offset_of(trips, 3)
    assert found == ClockOffset(reference_rank=3, offset_ns=3_000, error_ns=51, at_ns=10_050, round_trip_ns=100)


def test_the_error_covers_a_way_that_took_all_of_the_time() -> None:
    """The reference's clock equals ours, and it read at once, or only at the end."""
    for reference_ns in (0, 1_000):
        found = offset_of([Exchange(0, reference_ns, 1_000)], 0)
        assert abs(found.offset_ns) == 500 < found.error_ns


# --- over a process group ---------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def three(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ranks]:
    with ranks(3, tmp_path_factory.mktemp("three")) as group:
        yield group


HOSTS = [HostClock(0, 40), HostClock(3 * SECOND, -35), HostClock(-3 * SECOND, 200)]


def test_hosts_three_seconds_apart_and_drifting(three: Ranks) -> None:
    found = three.run(lambda rank: measure_offsets(dist.group.WORLD, HOSTS[rank]))
    assert found[0].offset_ns == found[0].error_ns == 0
    for each, clock in zip(found[1:], HOSTS[1:], strict=True):
        assert each.reference_rank == 0
        assert wrong_by(each, clock, HOSTS[0]) <= each.error_ns
        assert each.error_ns < SECOND, "a bound that says nothing"


def test_measured_again_after_a_while_it_is_the_offset_of_then(three: Ranks) -> None:
    """A fast clock gains; each measurement says what was so at its own time."""
    fast = HostClock(0, 100_000)

    def twice(rank: int) -> list[ClockOffset]:
        clock = fast if rank == 1 else HostClock()
        first = measure_offsets(dist.group.WORLD, clock)
        time.sleep(0.05)
        return [first, measure_offsets(dist.group.WORLD, clock)]

    first, second = three.run(twice)[1]
    passed = second.at_ns - first.at_ns
    gained = second.offset_ns - first.offset_ns
    tolerance = (first.round_trip_ns + second.round_trip_ns) // 2 + 10  # this clock is faster than any the bound covers
    assert abs(gained - passed * 100_000 // 1_100_000) <= tolerance


@pytest.mark.parametrize("side", ["before", "after"])
def test_one_way_slower_than_the_other_stays_within_the_bound(three: Ranks, side: str) -> None:
    """The reference reads its clock late, or answers late: all of the delay is on one of the two ways."""

    def measured(rank: int) -> ClockOffset:
        slow = HostClock(**{side: lambda: time.sleep(0.02)})  # much longer than the other way, on a busy machine too
        return measure_offsets(dist.group.WORLD, slow if rank == 0 else HOSTS[rank])

    for each, clock in list(zip(three.run(measured), HOSTS, strict=True))[1:]:
        wrong = wrong_by(each, clock, HostClock())
        assert wrong <= each.error_ns
        assert wrong > 1_000_000, "the delay was on both ways"


def test_the_first_rank_of_the_group_is_the_reference(three: Ranks) -> None:
    def measured(rank: int) -> ClockOffset | None:
        group = dist.new_group([1, 2])
        return measure_offsets(group, HOSTS[rank]) if rank else None

    nobody, first, second = three.run(measured)
    assert nobody is None
    assert (first.reference_rank, first.offset_ns) == (1, 0)
    assert second.reference_rank == 1
    assert wrong_by(second, HOSTS[2], HOSTS[1]) <= second.error_ns


def test_ranks_may_ask_for_different_numbers_of_rounds(three: Ranks) -> None:
    found = three.run(lambda rank: measure_offsets(dist.group.WORLD, SystemClock(), rounds=1 + 3 * rank))
    assert all(abs(each.offset_ns) <= each.error_ns for each in found)


def test_other_collectives_go_on_afterwards(three: Ranks) -> None:
    def measured(rank: int) -> list[int]:
        measure_offsets(dist.group.WORLD, SystemClock())
        told: list[int] = [0] * 3
        dist.all_gather_object(told, rank)
        return told

    assert three.run(measured) == [[0, 1, 2]] * 3


def test_a_rank_that_is_not_in_the_group_is_told(three: Ranks) -> None:
    def measured(rank: int) -> Any:
        group = dist.new_group([0, 1])
        return measure_offsets(group, SystemClock()) and None

    outcomes = three.outcomes(measured)
    assert outcomes[:2] == [None, None]
    assert (outcomes[2].kind, "expected a process group that this rank is in" in outcomes[2].message) == (
        "ReductionError",
        True,
    )


def test_a_group_of_one_needs_no_peer(three: Ranks) -> None:
    def measured(rank: int) -> ClockOffset:
        alone = [dist.new_group([each]) for each in range(3)][rank]
        return measure_offsets(alone, HOSTS[rank])

    for rank, found in enumerate(three.run(measured)):
        assert (found.reference_rank, found.offset_ns, found.error_ns) == (rank, 0, 0)
        assert HOSTS[rank].true_ns(found.at_ns) <= time.perf_counter_ns()


def test_a_rank_that_never_calls_ends_as_the_groups_own_time_out(tmp_path: Any) -> None:
    def measured(rank: int) -> bool:
        dist.barrier()  # all have started: the time-out of the next group is not spent on that
        group = dist.new_group(range(3), timeout=timedelta(seconds=5))
        if rank != 2:
            measure_offsets(group, SystemClock())
        return True

    with ranks(3, tmp_path) as group:
        reference, served, absent = group.outcomes(measured, timeout=120.0)
    assert isinstance(reference, RankError)
    assert reference.kind == "RuntimeError"
    assert (served, absent) == (True, True)


def test_without_a_process_group_it_says_what_it_needs() -> None:
    with pytest.raises(ReductionError, match="expected a process group that this rank is in, got None"):
        measure_offsets(None, SystemClock())


def test_no_rounds_are_refused() -> None:
    with pytest.raises(ReductionError, match="rounds: expected at least 1, got 0"):
        measure_offsets(None, SystemClock(), rounds=0)
