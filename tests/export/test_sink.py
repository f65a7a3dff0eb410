"""The account of a destination: what arrived, what did not, when, and how long it took."""

import logging
import threading

import pytest

from rltel.export.sink import DURATION_BOUNDS, Destination, Waiting


class TestSuccess:
    def test_there_was_none_yet(self) -> None:
        assert Destination("d").last_success is None

    def test_is_the_time_of_the_last_that_arrived(self) -> None:
        times = iter([10.0, 20.0])
        destination = Destination("d", now=lambda: next(times))
        destination.exported()
        destination.dropped("error")
        assert destination.last_success == 10.0
        destination.exported(3)
        assert (destination.last_success, destination.exported_total) == (20.0, 4)

    def test_nothing_that_arrived_is_none(self) -> None:
        """A request of which a receiver took nothing."""
        destination = Destination("d")
        destination.exported(0)
        assert destination.last_success is None


class TestDurations:
    def test_are_counted_up_to_each_bound(self) -> None:
        destination = Destination("d")
        for seconds in (0.00005, 0.001, 0.0011, 7.0, 1000.0):
            destination.took(seconds)
        found = dict(zip((*DURATION_BOUNDS, None), destination.durations.counts, strict=True))
        assert (found[0.0001], found[0.001], found[0.005], found[5.0], found[10.0], found[30.0]) == (1, 2, 3, 3, 4, 4)
        assert found[None] == 5
        assert destination.durations.total_s == pytest.approx(1007.00215)

    def test_a_failure_took_its_time_too(self) -> None:
        destination = Destination("d")
        with pytest.raises(OSError, match="away"), destination.timed():
            raise OSError("away")
        assert destination.durations.counts[-1] == 1
        assert destination.durations.total_s > 0


class TestOutage:
    def test_is_said_once_for_each(self, caplog: pytest.LogCaptureFixture) -> None:
        destination = Destination("d")
        with caplog.at_level(logging.WARNING):
            for _ in range(3):
                destination.waiting(OSError("away"))
            destination.exported()
            destination.waiting(OSError("away"))
        assert len(caplog.records) == 2
        assert destination.retries_total == 4


def test_a_queue_is_looked_at_when_somebody_asks() -> None:
    destination = Destination("d")
    assert destination.queue is None
    destination.queue = lambda: Waiting(2, 800)
    assert destination.queue() == (2, 800)


def test_threads_lose_no_count() -> None:
    destination = Destination("d")

    def count() -> None:
        for _ in range(2_000):
            destination.exported()
            destination.took(0.001)

    threads = [threading.Thread(target=count) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (destination.exported_total, destination.durations.counts[-1]) == (8_000, 8_000)
