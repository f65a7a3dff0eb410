import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rltel.core.clock import Anchor, SystemClock

SECOND = 1_000_000_000
times = st.integers(0, 2**62)


class SteppingClock(SystemClock):
    """Readings as a busy machine would give them: wide, then tight, then wide."""

    def __init__(self, widths):
        self._widths = iter(widths)

    def _read(self):
        width = next(self._widths)
        return Anchor(width, 0, 0, width)


def test_anchor_is_read_between_two_readings_of_each_clock():
    clock = SystemClock()
    before = (clock.monotonic_ns(), clock.realtime_ns())
    anchor = clock.anchor()
    after = (clock.monotonic_ns(), clock.realtime_ns())
    assert before[0] <= anchor.monotonic_ns <= after[0]
    assert before[1] <= anchor.realtime_ns <= after[1]
    assert 0 <= anchor.width_ns <= after[0] - before[0]


def test_anchor_is_the_tightest_of_a_few():
    assert SteppingClock([900, 400, 30, 500, 800]).anchor().width_ns == 30


def test_monotonic_never_goes_back():
    clock = SystemClock()
    readings = [clock.monotonic_ns() for _ in range(1000)]
    assert readings == sorted(readings)
    assert isinstance(readings[0], int)


def test_realtime_is_the_wall_clock():
    before = time.time_ns()
    assert before <= SystemClock().realtime_ns() <= time.time_ns()


@settings(deadline=None)
@given(monotonic=times, realtime=times, later=st.integers(-(10**15), 10**15))
def test_realtime_of_a_reading_is_exact(monotonic, realtime, later):
    anchor = Anchor(monotonic, realtime, 0, 0)
    assert anchor.realtime_of(monotonic + later) == realtime + later


def test_anchor_places_now_at_now():
    clock = SystemClock()
    anchor, before = clock.anchor(), clock.realtime_ns()
    placed = anchor.realtime_of(clock.monotonic_ns())
    assert before - SECOND < placed < clock.realtime_ns() + SECOND


def test_a_step_of_the_wall_clock_moves_no_interval(monkeypatch):
    clock = SystemClock()
    anchor, start = clock.anchor(), clock.monotonic_ns()
    stepped = time.time_ns() + 3600 * SECOND
    monkeypatch.setattr(time, "time_ns", lambda: stepped)
    end = clock.monotonic_ns()
    assert 0 <= end - start < 60 * SECOND
    assert anchor.realtime_of(end) - anchor.realtime_of(start) == end - start
    assert clock.anchor().realtime_ns == stepped


def test_boottime_falls_back_to_the_monotonic_clock(monkeypatch):
    monkeypatch.delattr(time, "CLOCK_BOOTTIME", raising=False)
    anchor = SystemClock().anchor()
    assert abs(anchor.boottime_ns - anchor.monotonic_ns) <= anchor.width_ns


@pytest.mark.skipif(not hasattr(time, "CLOCK_BOOTTIME"), reason="no CLOCK_BOOTTIME here")
def test_boottime_is_the_kernels():
    before = time.clock_gettime_ns(time.CLOCK_BOOTTIME)
    anchor = SystemClock().anchor()
    assert before <= anchor.boottime_ns <= time.clock_gettime_ns(time.CLOCK_BOOTTIME)


def test_processes_of_a_host_share_the_monotonic_clock(together):
    before = SystemClock().monotonic_ns()
    readings = together(2, lambda _: SystemClock().monotonic_ns())
    after = SystemClock().monotonic_ns()
    assert all(before < reading < after for reading in readings)
