"""How long a batch took: by events on its stream, or by the host's clock."""

import pytest

from realparts.simulated_device import SimulatedDevice
from rltel.rl.batch_timing import BatchTimer


@pytest.fixture
def device() -> SimulatedDevice:
    return SimulatedDevice()


def timer(device: SimulatedDevice) -> BatchTimer:
    return BatchTimer(device, device.now)


def test_a_device_s_time_is_that_of_its_stream(device: SimulatedDevice) -> None:
    timed = timer(device).begin()
    device.run(40.0)
    timed.end()
    assert timed.seconds() is None  # not done, and nobody waits
    device.advance(50.0)
    assert timed.seconds() == pytest.approx(0.040, abs=1e-4)


def test_work_in_front_of_the_batch_is_not_its_own(device: SimulatedDevice) -> None:
    device.run(100.0)
    timed = timer(device).begin()
    device.run(40.0)
    timed.end()
    device.advance(200.0)
    assert timed.seconds() == pytest.approx(0.040, abs=1e-4)


def test_gaps_and_waits_of_the_stream_inside_are(device: SimulatedDevice) -> None:
    timed = timer(device).begin()
    device.run(10.0)
    device.advance(30.0)  # the host is late with the rest
    device.run(10.0)
    device.run(100.0, stream=7)
    device.wait(0, 7)
    timed.end()
    device.advance(500.0)
    assert timed.seconds() == pytest.approx(0.130, abs=1e-3)


def test_a_side_stream_that_is_not_joined_is_not(device: SimulatedDevice) -> None:
    timed = timer(device).begin()
    device.run(10.0)
    device.run(900.0, stream=7)
    timed.end()
    device.advance(50.0)
    assert timed.seconds() == pytest.approx(0.010, abs=1e-4)


def test_the_end_is_on_the_stream_that_was_current_at_the_begin(device: SimulatedDevice) -> None:
    timed = timer(device).begin()
    device.run(10.0)
    device.current = 3
    device.run(500.0, stream=3)
    timed.end()
    device.advance(20.0)
    assert timed.seconds() == pytest.approx(0.010, abs=1e-4)


def test_two_events_a_batch_and_no_questions_while_it_runs(device: SimulatedDevice) -> None:
    timed = timer(device).begin()
    timed.end()
    assert [call for call, _ in device.calls] == ["new_event", "record"] * 2


def test_without_a_device_the_host_s_clock_counts(device: SimulatedDevice) -> None:
    device.in_use = False
    timed = timer(device).begin()
    device.advance(40.0)
    assert timed.seconds() is None
    timed.end()
    device.advance(100.0)
    assert timed.seconds() == pytest.approx(0.040, abs=1e-6)
    assert device.calls == []


def test_what_has_no_events_is_waited_for_at_both_ends(device: SimulatedDevice) -> None:
    """An NPU, say: its own function drains it before the clock is read."""
    timed_by_host = BatchTimer(device, device.now, synchronize=lambda: device.advance(5.0))
    timed = timed_by_host.begin()
    device.advance(40.0)
    timed.end()
    assert timed.seconds() == pytest.approx(0.045, abs=1e-6)


def test_a_graph_s_capture_is_known(device: SimulatedDevice) -> None:
    assert not timer(device).is_capturing()
    device.capturing = True
    assert timer(device).is_capturing()
    device.in_use = False
    assert not timer(device).is_capturing()
