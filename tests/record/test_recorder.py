"""The recorder without an event loop: on and off, bounds, threads, what else than slices it takes."""

from __future__ import annotations

import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.realparts.lane_reading import LaneReader, read

from rltel.core.errors import RecordError
from rltel.record.recorder import Recorder
from rltel.record.records import CounterSample, Ids, Instant


class TestOnAndOff:
    def test_begun_while_on_are_ended_while_off(self, recorder: Recorder, clock: Any) -> None:
        recorder.start()
        reader = LaneReader(recorder)
        with recorder.slice("bare"), recorder.slice("rich", flow=1):
            reader.read()
            recorder.stop()
            with recorder.slice("not there"):
                clock.tick(1.0)
        reading = reader.read()
        assert reading.names == ["bare", "rich"]
        assert [drawn.end_ns for drawn in reading.slices] == [2_000_000_000] * 2

    def test_begun_while_off_are_not_ended_while_on(self, recorder: Recorder) -> None:
        with recorder.slice("a"), recorder.slice("b", flow=1):
            recorder.start()
            with recorder.slice("c"):
                pass
        assert read(recorder).parents == {"c": None}

    def test_a_new_start_knows_nothing_of_the_last_one(self, recorder: Recorder) -> None:
        recorder.start()
        left = recorder.slice("left open")
        left.__enter__()
        recorder.stop()
        recorder.start()
        with recorder.slice("new"):
            left.__exit__(None, None, None)
            with recorder.slice("inner"):
                pass
        reading = read(recorder)
        assert reading.parents == {"new": None, "inner": "new"}
        assert not reading.left_open

    def test_a_stop_forgets_whose_spans_they_were(self, recorder: Recorder) -> None:
        """A second run in the same process (a notebook) must not start spans on the first one's provider."""
        recorder.tracer, recorder.root, recorder.adopted = object(), Ids(1, 2), True  # type: ignore[assignment]
        recorder.start()
        assert recorder.tracer is not None
        recorder.stop()
        assert (recorder.tracer, recorder.root, recorder.adopted) == (None, None, False)


class TestOtherRecords:
    @pytest.mark.parametrize("value", [None, "three", [1], 10**400])
    def test_counters_that_are_no_numbers_are_refused(self, recorder: Recorder, value: Any) -> None:
        recorder.start()
        with pytest.raises(RecordError, match=r"counter\('queue'\): expected a number"):
            recorder.counter("queue", value)
        assert read(recorder).counters == []

    def test_instants_and_counters(self, recorder: Recorder) -> None:
        recorder.start()
        recorder.instant("i", "cat", flow=[1, 2], attributes={"k": "v"})
        recorder.counter("c", 3, "bytes")
        assert recorder.here().take() == [
            Instant(1_000_000_000, "i", "cat", (1, 2), {"k": "v"}),
            CounterSample(1_000_000_000, "c", "bytes", 3.0),
        ]

    def test_instants_lie_in_the_slice_around_them(self, recorder: Recorder) -> None:
        recorder.start()
        recorder.instant("outside")
        with recorder.slice("a"):
            recorder.instant("inside")
        assert [(name, around) for name, around, _ in read(recorder).instants] == [("outside", None), ("inside", "a")]


class TestBounds:
    def test_a_full_lane_drops_whole_slices_and_counts(self) -> None:
        recorder = Recorder(limit=4)
        recorder.start()
        for _ in range(5):
            with recorder.slice("a"):
                pass
        recorder.instant("i")
        recorder.counter("c", 1.0)
        assert len(read(recorder).slices) == 2
        assert recorder.dropped == 3 + 2

    def test_a_slice_that_was_kept_gets_its_end_even_if_full(self) -> None:
        recorder = Recorder(limit=4)
        recorder.start()
        with recorder.slice("a"), recorder.slice("b"), recorder.slice("c") as dropped:
            dropped.set(k=1)
        reading = read(recorder)
        assert reading.parents == {"a": None, "b": "a"}
        assert not reading.left_open
        assert recorder.dropped == 1

    def test_there_is_room_again_when_it_was_taken(self) -> None:
        recorder = Recorder(limit=3)
        recorder.start()
        reader = LaneReader(recorder)
        for _ in range(3):
            with recorder.slice("a"):
                pass
            reader.read()
        assert (len(reader.reading.slices), recorder.dropped) == (3, 0)

    def test_of_explicit_slices_and_placed_ones(self) -> None:
        recorder = Recorder(limit=2)
        recorder.start()
        handles = [recorder.begin("a") for _ in range(5)]
        recorder.place("t", "n", 1, 2)
        for handle in handles:
            handle.end()
        reading = read(recorder)
        assert (len(reading.slices), reading.left_open, reading.placed) == (2, [], [])
        assert recorder.dropped == 3 + 1

    def test_attaching_adds_nothing_to_a_full_lane(self) -> None:
        """A pool whose functions are carried, while the disk does not take anything."""
        recorder = Recorder(limit=4)
        recorder.start()
        for _ in range(100):
            with recorder.attached(Ids(1, 2)), recorder.slice("a"):
                pass
        assert len(recorder.here().records) <= 4 + 2
        assert recorder.dropped > 90

    def test_drops_of_the_last_start_are_not_counted_again(self) -> None:
        recorder = Recorder(limit=0)
        recorder.start()
        recorder.instant("i")
        assert recorder.dropped == 1
        recorder.start()
        assert recorder.dropped == 0

    def test_drops_of_a_thread_that_has_ended_still_count(self) -> None:
        recorder = Recorder(limit=0)
        recorder.start()
        thread = threading.Thread(target=recorder.instant, args=("i",))
        thread.start()
        thread.join()
        (lane,) = (each for each in recorder.lanes() if each.is_over())
        recorder.forget(lane)
        assert lane not in recorder.lanes()
        assert recorder.dropped == 1

    @given(
        st.lists(
            st.tuples(st.sampled_from(["bare", "rich", "free", "end", "fail", "instant", "take"]), st.integers(0, 9)),
            max_size=80,
        ),
        st.integers(0, 8),
        st.booleans(),
    )
    def test_no_end_is_ever_without_its_begin(
        self, steps: list[tuple[str, int]], limit: int, thread_time: bool
    ) -> None:
        """Whatever is begun, ended in whatever order, dropped or taken in between. The reader fails on such an end."""
        recorder = Recorder(limit=limit)
        recorder.start(thread_time=thread_time)
        reader = LaneReader(recorder)
        still_open: list[Any] = []
        asked = 0
        for step, which in steps:
            if step in ("bare", "rich"):
                opened = recorder.slice("s", flow=None if step == "bare" else 1)
                opened.__enter__()
                still_open.append(opened)
            elif step == "free":
                still_open.append(recorder.begin("s"))
            elif step == "instant":
                recorder.instant("s")
            elif step == "take":
                reader.read()
            elif still_open:
                _end(still_open.pop(which % len(still_open)), failed=step == "fail")
            asked += step not in ("end", "fail", "take")
        for opened in still_open:
            _end(opened, failed=False)
        reading = reader.read()
        assert not reading.left_open
        assert len(reading.slices) + len(reading.instants) + recorder.dropped == asked


def _end(opened: Any, *, failed: bool) -> None:
    if hasattr(opened, "end"):
        opened.end()
    else:
        opened.__exit__(ValueError if failed else None, None, None)


class TestThreads:
    def test_each_has_its_own_lane(self, recorder: Recorder) -> None:
        recorder.start()

        def draws() -> None:
            with recorder.slice("there"):
                pass

        thread = threading.Thread(target=draws, name="worker-7")
        with recorder.slice("here"):
            thread.start()
            thread.join()
        _, here, there = recorder.lanes()
        assert here is recorder.here()
        assert (here.name, there.name) == (threading.current_thread().name, "worker-7")
        assert here.thread_id == threading.get_native_id() != there.thread_id
        assert read(recorder).parents == {"here": None, "there": None}  # also when the thread has ended
        assert [there.is_over(), here.is_over()] == [True, False]

    def test_nothing_is_lost_while_another_thread_takes(self) -> None:
        recorder = Recorder()
        recorder.start()
        reader = LaneReader(recorder)
        done = threading.Event()
        threads, each = 8, 1000

        def takes() -> None:
            while not done.is_set():
                reader.read()

        def draws() -> None:
            for number in range(each):
                with recorder.slice(str(number)), recorder.slice("inner"):
                    pass

        interval = sys.getswitchinterval()
        sys.setswitchinterval(1e-5)
        try:
            taker = threading.Thread(target=takes)
            drawers = [threading.Thread(target=draws) for _ in range(threads)]
            for thread in (taker, *drawers):
                thread.start()
            for thread in drawers:
                thread.join()
            done.set()
            taker.join()
        finally:
            sys.setswitchinterval(interval)
        reading = reader.read()
        lanes = {drawn.lane for drawn in reading.slices}
        expected = [name for number in range(each) for name in (str(number), "inner")]
        assert [[drawn.name for drawn in reading.slices if drawn.lane is lane] for lane in lanes] == [
            expected
        ] * threads
        assert all(drawn.around is not None for drawn in reading.all("inner"))
        assert not reading.left_open

    def test_what_is_attached_is_the_parent_of_what_begins_inside(self, recorder: Recorder) -> None:
        recorder.start()
        with recorder.slice("outer"), recorder.attached(Ids(0xAB, 0xCD)):
            with recorder.slice("a"):
                pass
            recorder.begin("b").end()
            assert recorder.origin() == (0xAB, 0xCD)
        with recorder.slice("after"):
            pass
        assert read(recorder).parents == {"outer": None, "a": "cd", "b": "cd", "after": None}

    def test_attached_while_off_is_nothing(self, recorder: Recorder) -> None:
        with recorder.attached(Ids(0xAB, 0xCD)):
            recorder.start()
            with recorder.slice("a"):
                pass
        assert read(recorder).parents == {"a": None}


class TestOrigin:
    def test_is_what_the_reader_of_the_records_finds(self, recorder: Recorder, clock: Any) -> None:
        recorder.start()
        asked: dict[str, Ids | None] = {"nothing": recorder.origin()}
        with recorder.slice("a"):
            clock.tick(1.0)
            with recorder.slice("b", flow=1):
                clock.tick(1.0)
                with recorder.slice("c"):
                    asked["c"] = recorder.origin()
                asked["b"] = recorder.origin()
            asked["a"] = recorder.origin()
        found = {drawn.name: drawn.ids.span_id for drawn in read(recorder).slices}
        assert {name: ids.span_id for name, ids in asked.items() if ids} == found
        assert asked["nothing"] is None

    def test_belongs_to_the_processs_trace(self, recorder: Recorder) -> None:
        recorder.root = Ids(0xAB, 0xCD)
        recorder.start()
        with recorder.slice("a"):
            assert (recorder.origin() or (0,))[0] == 0xAB


class TestThreadTime:
    def test_is_on_every_slice_of_a_thread(self, recorder: Recorder) -> None:
        recorder.start(thread_time=True)
        with recorder.slice("bare"), recorder.slice("rich", flow=1):
            _spin()
        for drawn in read(recorder).slices:
            assert drawn.begin is not None
            assert drawn.end is not None
            assert (drawn.end.cpu_ns or 0) - (drawn.begin.cpu_ns or 0) > 1_000_000

    def test_of_a_slice_that_ends_in_another_thread_is_not_known(self, recorder: Recorder) -> None:
        """The two threads' clocks have nothing to do with each other: the difference may even be negative."""
        recorder.start(thread_time=True)
        _spin()
        opened = recorder.slice("a")
        opened.__enter__()
        with ThreadPoolExecutor(1) as pool:
            pool.submit(opened.__exit__, None, None, None).result()
        drawn = read(recorder).one("a")
        assert drawn.begin is not None
        assert drawn.begin.cpu_ns is not None
        assert drawn.end is not None
        assert drawn.end.cpu_ns is None

    def test_begins_with_the_next_start(self, recorder: Recorder) -> None:
        recorder.start()
        with recorder.slice("without"):
            pass
        assert recorder.here().take()[1:] == [1_000_000_000] * 2
        recorder.start(thread_time=True)
        with recorder.slice("with"):
            pass
        drawn = read(recorder).one("with")
        assert drawn.begin is not None
        assert drawn.begin.cpu_ns is not None


def _spin() -> None:
    until = time.thread_time_ns() + 2_000_000
    while time.thread_time_ns() < until:
        pass


class TestWithoutInit:
    def test_sgl_project_sglang_38210_slices_of_a_worker_that_nobody_initialised_are_counted_and_said_once(
        self, caplog: pytest.LogCaptureFixture
    ) -> None:
        recorder = Recorder()
        for _ in range(3):
            with recorder.slice("a"), recorder.slice("b", attributes={"x": 1}):
                pass
        assert recorder.lost == 6
        assert [record.levelname for record in caplog.records] == ["WARNING"]
        assert "rltel.init was not called" in caplog.text

    def test_after_init_what_is_off_is_meant_to_be(self, caplog: pytest.LogCaptureFixture) -> None:
        recorder = Recorder()
        with recorder.slice("a"):
            pass
        recorder.is_awaited()
        with recorder.slice("a"), recorder.slice("b", flow=1):
            pass
        assert recorder.lost == 1
        assert len(caplog.records) == 1


def test_a_placed_slice_that_ends_before_it_begins_is_refused(recorder: Recorder) -> None:
    """It was drawn without a length, and nobody learned that two clocks had been mixed up."""
    recorder.start()
    with pytest.raises(RecordError, match=r"place_slice\('copy'\): expected end_ns >= begin_ns, got 1 < 2"):
        recorder.place("gpu", "copy", 2, 1)
    recorder.place("gpu", "copy", 2, 2)
    assert len(recorder.shared.records) == 1
