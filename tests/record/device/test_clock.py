"""Anchors: an event whose completion the host observed, and the line through two of them."""

from __future__ import annotations

import threading

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from realparts.simulated_device import OWN, SimulatedDevice
from rltel.record.device.anchors import MAX_DRIFT, Anchor, Position, rounding_ns
from rltel.record.device.clock import OVERDUE_NS, RENEW_NS, RETRY_NS, SPIN_NS, VISIBLE_NS, DeviceClock

MS = 1_000_000


def clock_of(sim: SimulatedDevice) -> DeviceClock:
    return DeviceClock("cuda:0", sim, sim.now)


def anchors(clock: DeviceClock) -> list[Anchor]:
    return clock._anchors


def holds(anchor: Anchor) -> bool:
    """Whether the event completed between the two readings."""
    return anchor.early_ns <= anchor.event.done_ns <= anchor.late_ns


class TestTakingAnchors:
    def test_of_an_idle_device_are_tight_and_true(self) -> None:
        sim = SimulatedDevice()
        clock = clock_of(sim)
        assert clock.renew()
        (anchor,) = anchors(clock)
        assert holds(anchor)
        assert anchor.late_ns - anchor.early_ns < 10_000

    def test_are_renewed_now_and_then(self) -> None:
        sim = SimulatedDevice()
        clock = clock_of(sim)
        taken = []
        for _ in range(100):
            taken.append(clock.renew())
            sim.advance(100)
        assert sum(taken) == 1 + (99 * 100 * MS) // RENEW_NS
        assert clock.renew(at_once=True)

    @pytest.mark.parametrize(
        ("slow", "tries"),
        [({"query_ns": 9_000}, 2), ({"record_ns": 30_000, "query_ns": 1_000}, 1), ({"query_ns": 60_000}, 1)],
    )
    def test_the_tightest_of_some_tries_within_a_bounded_time(self, slow: dict[str, int], tries: int) -> None:
        sim = SimulatedDevice(**slow)
        clock = clock_of(sim)
        before = sim.host_ns
        clock.renew()
        assert sim.host_ns - before <= SPIN_NS + 60_000 + sim.record_ns
        assert sim.count("record") >= tries
        assert all(anchor.late_ns > anchor.early_ns for anchor in anchors(clock))

    @given(
        st.integers(0, VISIBLE_NS),
        st.integers(0, 40_000),
        st.integers(0, 3_000),
        st.integers(50, 15_000),
        st.booleans(),
    )
    def test_hold_what_the_host_could_see(
        self, visible_ns: int, latency_ns: int, record_ns: int, query_ns: int, looks_late: bool
    ) -> None:
        sim = SimulatedDevice(
            visible_ns=visible_ns,
            latency_ns=latency_ns,
            record_ns=record_ns,
            query_ns=query_ns,
            looks_late=looks_late,
        )
        clock = clock_of(sim)
        while not clock.is_anchored:
            clock.renew()
        assert all(holds(anchor) for anchor in anchors(clock))

    def test_are_as_tight_as_two_queries_however_slow_the_device(self) -> None:
        clock = clock_of(SimulatedDevice(latency_ns=20_000))
        clock.renew()
        (anchor,) = anchors(clock)
        assert anchor.late_ns - anchor.early_ns < VISIBLE_NS + 2 * 500

    def test_of_a_busy_device_are_wide_and_true(self) -> None:
        sim = SimulatedDevice()
        clock = clock_of(sim)
        for _ in range(11):
            sim.run(15, OWN)
            clock.renew()
            sim.advance(10)
        (anchor,) = anchors(clock)
        assert holds(anchor)
        assert 9 * MS < anchor.late_ns - anchor.early_ns < 11 * MS

    def test_a_wide_ones_first_reading_is_before_the_query_that_said_not_yet(self) -> None:
        sim = SimulatedDevice(query_ns=30_000, looks_late=False)
        clock = clock_of(sim)
        sim.run(10, OWN)
        while not clock.is_anchored:
            clock.renew()
        assert all(holds(anchor) for anchor in anchors(clock))

    def test_a_busy_device_is_tried_again_before_a_wide_one_is_taken(self) -> None:
        sim = SimulatedDevice()
        clock = clock_of(sim)
        clock.renew()
        sim.advance(RENEW_NS / MS)
        sim.run(95, OWN)
        for _ in range(2 * RETRY_NS // (10 * MS)):
            clock.renew()
            sim.advance(10)
        _, second = anchors(clock)
        assert second.late_ns - second.early_ns < 10_000

    def test_a_wide_one_is_better_than_none(self) -> None:
        sim = SimulatedDevice()
        clock = clock_of(sim)
        clock.renew()
        for _ in range(200):
            sim.run(60, OWN)
            sim.advance(50)
            clock.renew()
        assert 2 <= len(anchors(clock)) <= 1 + 10_000 * MS // OVERDUE_NS + 1
        assert all(holds(anchor) for anchor in anchors(clock))

    def test_a_slow_device_is_not_tried_at_every_call(self) -> None:
        sim = SimulatedDevice()
        clock = clock_of(sim)
        clock.renew()
        sim.advance(RENEW_NS / MS)
        sim.latency_ns = 100_000
        spins = 0
        for _ in range(100):
            before = sim.host_ns
            clock.renew()
            spins += sim.host_ns - before > SPIN_NS / 2
            sim.advance(10)
        assert spins <= 2 + 1_000 * MS / RETRY_NS

    def test_the_least_wide_one_is_taken(self) -> None:
        sim = SimulatedDevice()
        clock = clock_of(sim)
        clock.renew()
        sim.latency_ns = 100_000
        sim.advance(RENEW_NS / MS)
        events = []
        for gap_ms in (20, 5, 10):
            clock.renew()
            assert clock._waiting is not None
            events.append(clock._waiting.event)
            sim.advance(gap_ms)
            clock.renew()
            sim.advance(RETRY_NS / MS)
        sim.run(10_000, OWN)  # none better comes
        sim.advance(OVERDUE_NS / MS)
        assert clock.renew()
        assert anchors(clock)[1].event is events[1]
        assert holds(anchors(clock)[1])

    def test_another_threads_event_is_not_asked_about(self) -> None:
        sim = SimulatedDevice()
        clock = clock_of(sim)
        sim.run(50, OWN)
        thread = threading.Thread(target=clock.renew)
        thread.start()
        thread.join()
        sim.advance(60)
        sim.calls.clear()
        clock.renew()
        assert sim.calls == []
        sim.advance(OVERDUE_NS / MS)
        assert clock.renew()

    def test_only_the_last_ones_are_kept(self) -> None:
        sim = SimulatedDevice()
        clock = clock_of(sim)
        for _ in range(100):
            clock.renew(at_once=True)
            sim.advance(1)
        assert len(anchors(clock)) == 16
        assert all(one.next is other for one, other in zip(anchors(clock), anchors(clock)[1:], strict=False))

    def test_work_from_before_the_first_is_placed_by_it(self) -> None:
        sim = SimulatedDevice()
        event = sim.new_event("cuda:0")
        sim.record(event, sim.stream(0))
        sim.advance(100)
        clock = clock_of(sim)
        clock.renew()
        place = clock.position(event).on_host()
        assert abs(place.ns - event.done_ns) <= place.uncertainty_ns
        assert place.ns < anchors(clock)[0].early_ns


class TestTheLine:
    def test_runs_through_both_anchors(self) -> None:
        first, second = Anchor(None, 90, 110), Anchor(None, 2_000_100_190, 2_000_100_210)
        first.next, first.length_ms = second, 2_000.0
        assert [Position(first, ms).on_host().ns for ms in (0.0, 1_000.0, 2_000.0)] == [
            100,
            1_000_050_150,
            2_000_100_200,
        ]
        assert Position(first, 1_000.0).on_host().rate == pytest.approx(1e6 * (1 + 50e-6))

    def test_without_a_second_one_the_rate_is_not_known(self) -> None:
        place = Position(Anchor(None, 90, 110), 1_000.0).on_host()
        assert place.ns == 1_000_000_100
        assert place.uncertainty_ns > 1e9 * MAX_DRIFT

    def test_too_short_a_way_measures_no_rate(self) -> None:
        first, second = Anchor(None, 0, 10_000), Anchor(None, 90_000, 100_000)
        first.next, first.length_ms = second, 0.1
        assert Position(first, 0.05).on_host().rate == 1e6

    def test_neighbours_tighten_a_wide_anchor(self) -> None:
        wide, tight = Anchor(None, 0, 20 * MS), Anchor(None, 110 * MS, 110 * MS + 10)
        wide.tighten(tight, -100.0 * MS)
        assert wide.early_ns <= 10 * MS <= wide.late_ns
        assert wide.late_ns - wide.early_ns < 0.11 * MS

    @pytest.mark.parametrize("latencies_ns", [(0, 100_000), (100_000, 0)])
    def test_a_wide_anchor_is_narrowed_by_the_one_before_or_after_it(self, latencies_ns: tuple[int, int]) -> None:
        sim = SimulatedDevice()
        clock = clock_of(sim)
        for taken, sim.latency_ns in enumerate(latencies_ns, start=1):
            while len(anchors(clock)) < taken:
                clock.renew(at_once=True)
                sim.advance(20)
        for anchor in anchors(clock):
            assert holds(anchor)
            assert anchor.late_ns - anchor.early_ns < 60 * MS * 2 * MAX_DRIFT + 20_000

    def test_an_anchor_by_which_something_may_be_placed_stays_as_it_is(self) -> None:
        """Else work on both sides of it would be placed by two different ones."""
        sim = SimulatedDevice(query_ns=4_000)
        clock = clock_of(sim)
        for _ in range(2):
            clock.renew(at_once=True)
            sim.advance(0.5)
        before = [(anchor.early_ns, anchor.late_ns) for anchor in anchors(clock)]
        sim.query_ns = 50
        clock.renew(at_once=True)
        assert [(anchor.early_ns, anchor.late_ns) for anchor in anchors(clock)][:2] == before

    def test_neighbours_that_contradict_change_nothing(self) -> None:
        anchor = Anchor(None, 0, 10)
        anchor.tighten(Anchor(None, 110 * MS, 110 * MS + 10), -50.0 * MS)
        assert (anchor.early_ns, anchor.late_ns) == (0, 10)

    @given(st.floats(1e-3, 1e7))
    def test_rounding_is_a_unit_of_the_last_place_of_a_float32(self, ms: float) -> None:
        assert rounding_ns(float(np.float32(ms)) * 1e6) == pytest.approx(float(np.spacing(np.float32(ms))) * 1e6)
        assert rounding_ns(-ms * 1e6) == rounding_ns(ms * 1e6)
