"""What was recorded comes to everyone who wants it, once, whatever the others do."""

import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from rltel.export import timeline
from rltel.export.sink import Destination
from rltel.export.timeline import TimelineDrain
from rltel.record.lane import Lane
from rltel.record.recorder import Recorder
from rltel.record.records import Instant, Record, Site


class Listener:
    """A consumer that remembers what it was told, and fails where it is asked to."""

    def __init__(self, *fails: str, keeps: bool = False) -> None:
        self.name = "listener"
        self.told: list[Any] = []
        self.records: list[Record] = []
        self.forgotten: list[Lane] = []
        self._fails = fails
        self._keeps = keeps

    def _hear(self, what: str) -> None:
        self.told.append(what)
        if what in self._fails:
            raise RuntimeError(f"in {what}")

    def begin_round(self) -> None:
        self._hear("begin")

    def take(self, lane: Lane, records: list[Record]) -> None:
        self._hear("take")
        self.records += records

    def end_round(self) -> None:
        self._hear("end")

    def forget(self, lane: Lane) -> bool:
        self.forgotten.append(lane)
        return not self._keeps

    def close(self, now_ns: int) -> None:
        self._hear("close")


class Draining:
    """A recorder with its consumers."""

    def __init__(self, *consumers: Listener, limit: int = 1000) -> None:
        self.recorder = Recorder(limit=limit)
        self.accounts = [Destination(f"d{number}") for number, _ in enumerate(consumers)]
        self.timeline = TimelineDrain(self.recorder, list(zip(consumers, self.accounts, strict=True)))
        self.recorder.start()


def in_thread(run: Callable[[], object]) -> None:
    thread = threading.Thread(target=run)
    thread.start()
    thread.join()


def test_everyone_gets_everything_in_rounds() -> None:
    listeners = Listener(), Listener()
    draining = Draining(*listeners)
    draining.recorder.instant("one")
    in_thread(lambda: draining.recorder.instant("two"))
    draining.timeline.drain()
    draining.recorder.instant("three")
    draining.timeline.close()
    for listener in listeners:
        assert [getattr(record, "name", None) for record in listener.records] == ["one", "two", "three"]
        assert listener.told == ["begin", "take", "take", "end", "begin", "take", "end", "close"]


@pytest.mark.parametrize("where", ["begin", "take", "end", "close"])
def test_one_that_fails_costs_the_other_nothing_and_is_counted(where: str) -> None:
    broken, listener = Listener(where), Listener()
    draining = Draining(broken, listener)
    draining.recorder.instant("one")
    draining.timeline.close()
    assert len(listener.records) == 1
    assert listener.told[-1] == "close"
    assert [account.dropped_totals for account in draining.accounts] == [{"error": 1}, {}]


def test_what_did_not_fit_is_counted_once_for_everyone() -> None:
    draining = Draining(Listener(), Listener(), limit=3)
    for _ in range(5):
        draining.recorder.instant("x")
    draining.timeline.drain()
    draining.timeline.drain()
    assert [account.dropped_totals for account in draining.accounts] == [{"buffer_full": 2}] * 2


class TestLanes:
    def test_of_threads_that_ended_are_forgotten(self) -> None:
        listener = Listener()
        draining = Draining(listener)
        for _ in range(20):
            in_thread(lambda: draining.recorder.instant("x"))
        draining.timeline.drain()
        draining.timeline.drain()
        assert len(draining.recorder.lanes()) == 1
        assert len(set(listener.forgotten)) == 20

    def test_stay_as_long_as_somebody_needs_them(self) -> None:
        draining = Draining(Listener(), Listener(keeps=True))
        in_thread(lambda: draining.recorder.instant("x"))
        for _ in range(3):
            draining.timeline.drain()
        assert len(draining.recorder.lanes()) == 2

    def test_of_threads_that_are_there_stay(self) -> None:
        draining = Draining(Listener())
        draining.recorder.instant("x")
        for _ in range(3):
            draining.timeline.drain()
        assert len(draining.recorder.lanes()) == 2


class TestClose:
    def test_ends_the_recording_and_happens_once(self) -> None:
        listener = Listener()
        draining = Draining(listener)
        draining.timeline.close()
        draining.recorder.instant("too late")
        draining.timeline.close()
        draining.timeline.drain()
        assert not draining.recorder.on
        assert (listener.told, listener.records) == (["begin", "end", "close"], [])

    def test_does_not_wait_for_a_drain_that_hangs(self) -> None:
        entered, go_on = threading.Event(), threading.Event()

        class Hanging(Listener):
            def take(self, lane: Lane, records: list[Record]) -> None:
                entered.set()
                go_on.wait(30)

        draining = Draining(Hanging())
        draining.recorder.instant("x")
        hanging = threading.Thread(target=draining.timeline.drain, daemon=True)
        hanging.start()
        assert entered.wait(30)
        draining.timeline.close()
        assert hanging.is_alive(), "it came back before the drain did"
        go_on.set()
        hanging.join(30)
        assert not hanging.is_alive()

    @pytest.mark.parametrize("in_time", [False, True])
    def test_what_a_drain_has_no_time_for_is_counted(self, monkeypatch: pytest.MonkeyPatch, in_time: bool) -> None:
        """A backlog that takes longer than the shutdown may: what is not written must not vanish without a word."""
        monkeypatch.setattr(timeline, "_PIECE", 10)
        monkeypatch.setattr(timeline, "_LAST_WAIT_S", 30 if in_time else 0)
        entered, go_on = threading.Event(), threading.Event()

        class Slow(Listener):
            def take(self, lane: Lane, records: list[Record]) -> None:
                super().take(lane, records)
                entered.set()
                go_on.wait(30)

        listener = Slow()
        draining = Draining(listener)
        for _ in range(100):
            with draining.recorder.slice("s"):
                pass
        slow = threading.Thread(target=draining.timeline.drain, daemon=True)
        slow.start()
        assert entered.wait(30)
        draining.recorder.instant("recorded meanwhile")
        closing = threading.Thread(target=draining.timeline.close)
        closing.start()
        if not in_time:
            closing.join(30)
        while not draining.timeline._is_late:
            time.sleep(0.001)
        go_on.set()
        closing.join(30)
        slow.join(30)
        draining.timeline.close()
        handed_on = sum(isinstance(record, Site) for record in listener.records)
        assert 0 < handed_on < 100
        assert draining.accounts[0].dropped_totals == {"shutdown": 100 - handed_on + 1}
        assert "close" not in listener.told, "slices whose ends were dropped have no known end"


def test_threads_that_record_while_it_drains_lose_nothing() -> None:
    listener = Listener()
    draining = Draining(listener, limit=10**6)
    threads = [threading.Thread(target=lambda: [draining.recorder.instant("i") for _ in range(3000)]) for _ in range(4)]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        draining.timeline.drain()
    draining.timeline.close()
    assert len(listener.records) == 12_000


def test_what_happens_while_lanes_are_read_waits_for_the_next_round() -> None:
    """Its cause may be on a lane that was read before: spans would lie in one that nobody has seen, and lose links."""
    listener = Listener()
    draining = Draining(listener)
    recorder = draining.recorder
    recorder.instant("here")
    in_thread(lambda: recorder.instant("there"))
    _shared, here, there = recorder.lanes()

    class Last(list[Record]):
        """A lane that is read when more has happened on both."""

        def __len__(self) -> int:
            if not here.records and [each.name for each in listener.records] == []:
                here.records.append(Instant(recorder.now(), "cause", "", None, None))
                self.append(Instant(recorder.now(), "effect", "", None, None))
            return super().__len__()

    there.records = Last(there.records)
    draining.timeline.drain()
    assert [record.name for record in listener.records] == ["here", "there"]
    draining.timeline.drain()
    assert [record.name for record in listener.records] == ["here", "there", "cause", "effect"]


def test_a_thread_that_ends_while_its_lane_is_looked_at_loses_nothing() -> None:
    """It leaves records after they were taken, and before it is asked whether it lives."""
    listener = Listener()
    draining = Draining(listener)
    draining.recorder.instant("before")
    draining.timeline.drain()
    lane = draining.recorder.lanes()[-1]

    class Ending(threading.Thread):
        def is_alive(self) -> bool:
            if draining.recorder.lanes() and not lane.records:
                draining.recorder.instant("last words")
            return False

    lane.thread = Ending()
    draining.timeline.drain()
    draining.timeline.close()
    assert [record.name for record in listener.records] == ["before", "last words"]
