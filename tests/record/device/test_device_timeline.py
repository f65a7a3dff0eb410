"""Device work on the timeline, on a simulated device: what is drawn is when it ran."""

from __future__ import annotations

import gc
import importlib.util
import logging
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from export.making import identity
from realparts.requirements import need_package
from realparts.simulated_device import OWN, SimulatedDevice
from realparts.trace_processor import query
from rltel.core.clock import Anchor as ClockAnchor
from rltel.core.errors import RecordError
from rltel.export.perfetto.files import PerfettoWriter
from rltel.export.sink import Destination
from rltel.export.timeline import TimelineDrain
from rltel.record.device.clock import RENEW_NS, SPIN_NS
from rltel.record.device.cuda_events import CudaEventSource
from rltel.record.device.device_timeline import NOTED_NS, POLL_EVERY, DeviceTimeline
from rltel.record.device.event_source import StreamRef
from rltel.record.device.slice import NOTHING
from rltel.record.device.work import Drawn
from rltel.record.recorder import Recorder
from rltel.record.records import Placed

MS = 1_000_000
EXAMPLES = Path(__file__).parents[3] / "examples"
RENEW_MS = RENEW_NS / MS


class Watched(DeviceTimeline):
    """Keeps what it draws, as it was before it became records."""

    def __init__(self, recorder: Recorder, **settings: Any) -> None:
        super().__init__(recorder, **settings)
        self.drawn: list[Drawn] = []

    def _place(self, drawn: Drawn) -> None:
        self.drawn.append(drawn)
        super()._place(drawn)


class Setup:
    """A device, and the timeline on it."""

    def __init__(self, sim: SimulatedDevice | None = None, **settings: Any) -> None:
        self.sim = sim or SimulatedDevice()
        self.recorder = Recorder(now=self.sim.now)
        self.device = Watched(self.recorder, sleep=self.sim.sleep, **settings)
        self.recorder.start()
        self.device.start(self.sim)
        self.truth: dict[str, tuple[int, int]] = {}

    def work(self, name: str, ms: float, stream: int = 0, **given: Any) -> None:
        """One kernel in a slice."""
        with self.slice(name, stream, **given):
            self.sim.run(ms, stream)

    def slice(self, name: str, stream: int = 0, **given: Any) -> Any:
        return Noting(self, name, self.device.slice(name, stream, **given))

    def iterate(self, times: int = 1, ms: float = 300.0) -> None:
        """Iterations without device work."""
        for _ in range(times):
            self.sim.advance(ms)
            self.device.poll()

    def placed(self) -> dict[str, Placed]:
        """What is drawn by now, by name."""
        self.device.draw()
        placed = [each for each in self.recorder.shared.take() if isinstance(each, Placed)]
        by_name = {each.begin.site.name: each for each in placed}
        assert len(by_name) == len(placed)
        return by_name

    def finish(self) -> dict[str, Placed]:
        self.device.close()
        return self.placed()

    def error_ns(self, name: str, placed: Placed) -> int:
        """How far it is drawn from where it ran."""
        begin, end = self.truth[name]
        return max(abs(placed.begin.time_ns - begin), abs(placed.end_ns - end))


class Noting:
    """A device slice, and when the device really ran what is in it."""

    def __init__(self, setup: Setup, name: str, opened: Any) -> None:
        self._setup = setup
        self._name = name
        self._opened = opened

    def __enter__(self) -> Any:
        return self._opened.__enter__()

    def __exit__(self, *raised: Any) -> None:
        self._opened.__exit__(*raised)
        work = self._opened._work
        self._setup.truth[self._name] = work.begin.done_ns, work.end.done_ns


@pytest.fixture
def on() -> Setup:
    return Setup()


def in_thread(run: Callable[[], object]) -> None:
    thread = threading.Thread(target=run)
    thread.start()
    thread.join()


class TestWhereWorkIsDrawn:
    def test_unilab_back_to_back_work_looked_overlapping(self, on: Setup) -> None:
        """UniLab draws device slices at their submit: 10-14 and 14-15 ms came out as 10-14 and 10.02-11.02."""
        on.sim.advance(10)
        on.work("replay_pipeline_storage_h2d", 4)
        on.work("replay_pipeline_batch_gather", 1)
        on.sim.advance(20)
        placed = on.finish()
        first, second = placed["replay_pipeline_storage_h2d"], placed["replay_pipeline_batch_gather"]
        assert first.end_ns <= second.begin.time_ns < first.end_ns + 5_000
        assert round((first.end_ns - first.begin.time_ns) / MS, 2) == 4.0
        assert round((second.end_ns - second.begin.time_ns) / MS, 2) == 1.0
        assert on.error_ns("replay_pipeline_batch_gather", second) < NOTED_NS

    def test_work_that_waited_is_drawn_when_it_ran_not_when_it_was_submitted(self, on: Setup) -> None:
        on.sim.run(50)
        on.work("late", 1)
        (submit,) = (record for record in on.recorder.thread_lane().take() if not isinstance(record, int))
        placed = on.finish()["late"]
        assert submit.time_ns < on.truth["late"][0] - 49 * MS  # type: ignore[union-attr]
        assert on.error_ns("late", placed) < NOTED_NS

    def test_overlap_of_two_streams_is_drawn(self, on: Setup) -> None:
        on.work("matmul", 10, 0)
        on.work("h2d", 4, 7)
        on.sim.advance(30)
        placed = on.finish()
        matmul, h2d = placed["matmul"], placed["h2d"]
        assert matmul.begin.time_ns < h2d.begin.time_ns < h2d.end_ns < matmul.end_ns
        assert (matmul.track, h2d.track) == ("cuda:0 stream 0", "cuda:0 stream 1")

    def test_streams_that_finish_out_of_order(self, on: Setup) -> None:
        on.work("long", 900, 1)
        on.work("short", 1, 2)
        on.iterate(2)
        on.work("shorter", 1, 2)
        on.iterate(20)
        placed = on.finish()
        assert set(placed) == {"long", "short", "shorter"}
        for name, each in placed.items():
            assert on.error_ns(name, each) < NOTED_NS

    def test_other_threads_work_on_one_stream_keeps_its_order(self, on: Setup) -> None:
        on.work("first", 3)
        in_thread(lambda: on.work("second", 2))
        on.work("third", 1)
        on.sim.advance(30)
        placed = on.finish()
        assert placed["first"].end_ns <= placed["second"].begin.time_ns
        assert placed["second"].end_ns <= placed["third"].begin.time_ns

    def test_slices_inside_slices_stay_inside(self, on: Setup) -> None:
        with on.slice("update"):
            for part in ("forward", "backward"):
                on.work(part, 2)
        on.sim.advance(30)
        placed = on.finish()
        outer, one, other = placed["update"], placed["forward"], placed["backward"]
        assert outer.begin.time_ns <= one.begin.time_ns < one.end_ns <= other.begin.time_ns
        assert other.end_ns <= outer.end_ns

    def test_drawn_in_the_order_of_begins_on_each_track(self, on: Setup) -> None:
        for i in range(30):
            on.work(f"{i}", 0.01, i % 3)
        on.sim.advance(30)
        tracks: dict[str, list[int]] = {}
        for each in on.finish().values():
            tracks.setdefault(each.track, []).append(each.begin.time_ns)
        assert len(tracks) == 3
        assert all(begins == sorted(begins) for begins in tracks.values())

    def test_work_of_many_seconds_ends_where_it_ended(self) -> None:
        on = Setup(SimulatedDevice(rate=1 + 80e-6))
        on.work("long", 20_000)
        on.iterate(80)
        placed = on.finish()["long"]
        assert on.error_ns("long", placed) < NOTED_NS

    def test_hours_without_work_do_not_spoil_the_next(self) -> None:
        """An hour from an anchor, float32 milliseconds are a quarter of a millisecond apart."""
        on = Setup(SimulatedDevice(rate=1 - 60e-6))
        for hour in range(10):
            on.sim.run(50.1)
            on.work(f"{hour}", 1)
            on.sim.advance(100)
            on.device.poll()
            on.sim.advance(3_600_000.1 + 0.037 * hour)
        placed = on.finish()
        assert max(on.error_ns(name, each) for name, each in placed.items()) < 10_000

    def test_attributes_and_names(self, on: Setup) -> None:
        given = {"bytes": 4096}
        on.device.name_stream(7, "h2d")
        with on.slice("copy", 7, attributes=given) as opened:
            opened.set(rows=32)
        given["bytes"] = 0
        placed = on.finish()["copy"]
        assert placed.track == "cuda:0 h2d"
        assert placed.begin.site.category == "device"
        said = placed.begin.attributes or {}
        assert {"bytes": 4096, "rows": 32}.items() <= said.items()

    def test_devices_have_streams_and_clocks_of_their_own(self, on: Setup) -> None:
        with on.device.slice("one", StreamRef("cuda:0", 5, None)):
            on.sim.run(1, 5)
        with on.device.slice("two", StreamRef("cuda:1", 5, None)):
            on.sim.run(1, 5, "cuda:1")
        on.sim.advance(10)
        assert [each.track for each in on.finish().values()] == ["cuda:0 stream 1", "cuda:1 stream 1"]


class TestAnchors:
    def test_float32_milliseconds_stay_short(self, on: Setup) -> None:
        """elapsed_time has 0.5 us of resolution left at 5 s, and 16 us at two minutes."""
        for i in range(400):
            on.work(f"{i}", 0.5)
            on.iterate()
        assert on.sim.host_ns > 100_000 * MS
        assert max(on.sim.elapsed) < 2 * RENEW_MS

    def test_clocks_of_different_rates_are_followed(self) -> None:
        on = Setup(SimulatedDevice(rate=1 + 200e-6))
        for i in range(100):
            on.work(f"{i}", 0.5)
            on.iterate()
        placed = on.finish()
        assert len(placed) == 100
        assert max(on.error_ns(name, each) for name, each in placed.items()) < 10_000  # 100 * 0.3 s * 200 ppm is 6 ms

    def test_a_spin_is_bounded_and_rare(self) -> None:
        on = Setup(SimulatedDevice(one_queue=True))
        on.sim.run(30_000)
        on.work("x", 1)
        spent = []
        for _ in range(100):
            on.sim.advance(10)
            before = on.sim.host_ns
            on.device.poll()
            spent.append(on.sim.host_ns - before)
        assert max(spent) < SPIN_NS + 10_000
        assert sum(each > 5_000 for each in spent) <= 1

    def test_a_busy_device_has_wide_anchors_and_says_so(self) -> None:
        on = Setup(SimulatedDevice(one_queue=True))
        for i in range(40):
            on.work(f"{i}", 290)
            on.sim.run(20)  # more than an iteration's worth: it never idles
            on.iterate(ms=300)
        on.device.close(wait_s=5.0)
        placed = on.placed()
        assert len(placed) == 40
        said = [(each.begin.attributes or {}).get("uncertainty_us", 0) for each in placed.values()]
        assert max(said) > 50
        for each in on.device.drawn:
            begin, end = on.truth[each.work.name]
            assert abs(each.begin_ns - begin) <= each.uncertainty_ns + 1
            assert abs(each.end_ns - end) <= each.uncertainty_ns + 1

    def test_nothing_is_drawn_before_its_submit_or_after_the_host_saw_its_end(self) -> None:
        on = Setup(SimulatedDevice(one_queue=True))
        on.sim.run(400)
        bounds: dict[str, tuple[int, int]] = {}
        for i in range(20):
            submit = on.sim.host_ns
            on.work(f"{i}", 0.2)
            on.iterate(ms=450)
            bounds[f"{i}"] = submit, on.sim.host_ns
            on.sim.run(400)
        placed = on.finish()
        for name, (submit, seen) in bounds.items():
            assert submit <= placed[name].begin.time_ns <= placed[name].end_ns <= seen


@st.composite
def programs(draw: st.DrawFn) -> list[tuple[Any, ...]]:
    work = st.tuples(st.just("work"), st.integers(0, 2), st.sampled_from([0.0, 0.001, 0.02, 0.5, 3.0, 400.0]))
    nested = st.tuples(st.just("nested"), st.integers(0, 2), st.sampled_from([0.001, 0.5]))
    idle = st.tuples(st.just("idle"), st.sampled_from([0.001, 0.3, 20.0, 700.0, 5_000.0]))
    wait = st.tuples(st.just("wait"), st.integers(0, 2), st.integers(0, 2))
    return draw(st.lists(st.one_of(work, work, work, nested, idle, wait, st.tuples(st.just("poll"))), max_size=60))


class TestAnyProgram:
    @settings(max_examples=300)
    @given(
        programs(),
        st.floats(1 - 300e-6, 1 + 300e-6),
        st.sampled_from([1, 32, 500]),
        st.booleans(),
        st.integers(0, 1_500),
    )
    def test_is_drawn_as_it_ran_within_the_stated_uncertainty(
        self, program: list[tuple[Any, ...]], rate: float, resolution_ns: int, one_queue: bool, visible_ns: int
    ) -> None:
        sim = SimulatedDevice(rate=rate, resolution_ns=resolution_ns, one_queue=one_queue, visible_ns=visible_ns)
        on = Setup(sim)
        for number, (what, *how) in enumerate(program):
            if what == "work":
                on.work(f"{number}", how[1], how[0])
            elif what == "nested":
                with on.slice(f"{number}", how[0]):
                    on.work(f"{number} inside", how[1], how[0])
            elif what == "idle":
                sim.advance(how[0])
            elif what == "wait":
                sim.wait(*how)
            else:
                on.device.poll()
        on.device.close(wait_s=60.0)
        assert on.device.dropped == 0
        assert sorted(each.work.name for each in on.device.drawn) == sorted(on.truth)
        check_times(on)
        check_streams(on)
        check_overlaps(on)


def check_times(on: Setup) -> None:
    for each in on.device.drawn:
        begin, end = on.truth[each.work.name]
        assert abs(each.begin_ns - begin) <= each.uncertainty_ns + 2, each
        assert abs(each.end_ns - end) <= each.uncertainty_ns + 2, each


def check_streams(on: Setup) -> None:
    """What one stream ran in turn is drawn in turn, however short it was."""
    for one in on.device.drawn:
        for other in on.device.drawn:
            if one.work.stream is other.work.stream and one.work.end_order < other.work.begin_order:
                assert one.end_ns <= other.begin_ns or is_late(one, other)


def is_late(one: Drawn, other: Drawn) -> bool:
    """A parent that was drawn after its children, in another round, may be off by its own uncertainty."""
    return one.end_ns - other.begin_ns <= one.uncertainty_ns + other.uncertainty_ns and "inside" in (
        one.work.name + other.work.name
    )


def check_overlaps(on: Setup) -> None:
    """Overlap between streams is drawn as long as it was."""
    for one in on.device.drawn:
        for other in on.device.drawn:
            if one.work.stream is not other.work.stream:
                drawn = min(one.end_ns, other.end_ns) - max(one.begin_ns, other.begin_ns)
                true = min(on.truth[one.work.name][1], on.truth[other.work.name][1]) - max(
                    on.truth[one.work.name][0], on.truth[other.work.name][0]
                )
                assert abs(drawn - true) <= one.uncertainty_ns + other.uncertainty_ns + 4


class TestWhatTrainingPays:
    def test_events_are_asked_only_by_the_thread_that_recorded_them(self, on: Setup) -> None:
        stop, polled = threading.Event(), threading.Event()

        def other() -> None:
            on.work("theirs", 1, 3)
            polled.set()
            stop.wait(60)

        thread = threading.Thread(target=other)
        thread.start()
        polled.wait(60)
        on.sim.calls.clear()
        on.iterate(3)
        assert on.sim.count("query") == 0  # nothing of ours is pending, and theirs is theirs
        stop.set()
        thread.join()

    def test_a_poll_asks_once_per_stream_while_nothing_is_done(self, on: Setup) -> None:
        on.sim.run(1_500, 0)
        on.sim.run(1_500, 1)
        for i in range(20):
            on.work(f"{i}", 1, i % 2)
        on.sim.calls.clear()
        on.device.poll()
        assert on.sim.count("query") == 2

    def test_a_slice_records_two_events_and_asks_nothing(self, on: Setup) -> None:
        on.work("first, with an anchor", 1)
        on.sim.calls.clear()
        on.work("x", 1)
        assert [call for call, _ in on.sim.calls if call != "new_event"] == ["record", "record"]

    def test_events_are_used_again(self, on: Setup) -> None:
        for i in range(1_000):
            on.work(f"{i}", 0.1)
            on.iterate(ms=1)
        assert on.sim.count("new_event") < 30

    def test_programs_without_iterations_are_drawn_too(self, on: Setup) -> None:
        for i in range(40 * POLL_EVERY):
            on.work(f"{i}", 0.5)
            on.sim.advance(2)
        assert len(on.placed()) > 20 * POLL_EVERY

    def test_nothing_is_done_while_off(self) -> None:
        on = Setup()
        on.recorder.stop()
        assert on.device.slice("x", "no stream") is NOTHING
        assert on.sim.calls == []
        off = DeviceTimeline(on.recorder)
        on.recorder.start()
        with off.slice("x") as nothing:
            nothing.set(rows=1)
        off.name_stream(0, "x")
        off.poll()
        off.draw()
        off.close()
        assert nothing is NOTHING
        assert (on.sim.calls, off.dropped) == ([], 0)

    def test_nothing_is_done_before_the_device_is_in_use(self, on: Setup) -> None:
        on.sim.in_use = False
        with on.device.slice("x"):
            pass
        assert on.sim.calls == []
        assert on.recorder.lanes() == [on.recorder.shared]
        on.sim.in_use = True
        on.work("y", 1)
        assert set(on.finish()) == {"y"}

    def test_nothing_is_recorded_or_asked_while_a_graph_is_captured(self, on: Setup) -> None:
        on.work("before", 1)
        on.sim.advance(RENEW_MS + 1)
        on.sim.capturing = True
        on.sim.calls.clear()
        with on.device.slice("captured"):
            pass
        on.iterate(3)
        assert on.sim.calls == []
        on.sim.capturing = False
        on.work("after", 1)
        assert set(on.finish()) == {"before", "after"}
        assert on.device.dropped == 0

    def test_work_in_which_a_capture_began_is_counted(self, on: Setup) -> None:
        with on.device.slice("half"):
            on.sim.capturing = True
        on.sim.capturing = False
        assert on.finish() == {}
        assert on.device.drops == {"device_capturing": 1}

    def test_work_of_the_traced_steps_is_drawn_after_the_window_closed(self, on: Setup) -> None:
        on.work("x", 1)
        on.recorder.stop()
        on.iterate(10)
        assert set(on.placed()) == {"x"}

    def test_what_the_body_raises_passes_through(self, on: Setup) -> None:
        with pytest.raises(ZeroDivisionError), on.device.slice("x"):
            raise ZeroDivisionError
        assert set(on.finish()) == {"x"}

    def test_what_is_no_stream_is_refused(self, on: Setup) -> None:
        with pytest.raises(RecordError, match="expected a stream, got 'gpu'"):
            on.device.slice("x", "gpu")
        with pytest.raises(RecordError, match="expected a stream, got 'gpu'"):
            on.device.name_stream("gpu", "h2d")


class TestBounds:
    def test_what_is_pending_is_bounded_and_the_oldest_goes(self) -> None:
        on = Setup(max_pending=10)
        on.sim.run(50)
        for i in range(25):
            on.work(f"{i}", 0.1, i % 2)
        on.sim.advance(100)
        assert set(on.finish()) == {str(i) for i in range(15, 25)}
        assert on.device.drops == {"device_pending_full": 15}

    def test_what_waits_for_an_anchor_is_bounded_too(self) -> None:
        on = Setup(max_held=10)
        for i in range(30):
            on.work(f"{i}", 0.1)
            on.iterate(ms=1)
        assert len(on.placed()) >= 20
        assert on.device.dropped == 0

    def test_a_full_recorder_is_counted(self) -> None:
        on = Setup()
        on.recorder.shared.limit = 1
        on.work("a", 1)
        on.work("b", 1)
        assert set(on.finish()) == {"a"}
        assert on.device.drops == {"device_buffer_full": 1}

    def test_the_end_waits_for_a_moment_and_counts_the_rest(self, on: Setup) -> None:
        on.work("soon", 100, 1)
        on.work("late", 1_000, 2)
        before = on.sim.host_ns
        assert set(on.finish()) == {"soon"}
        assert on.sim.host_ns - before < 210 * MS
        assert on.device.drops == {"device_unfinished": 1}

    def test_after_the_end_nothing_more_comes(self, on: Setup) -> None:
        opened = on.device.slice("open")
        opened.__enter__()
        on.device.close()
        opened.__exit__(None, None, None)
        assert on.device.slice("x") is NOTHING
        on.device.poll()
        on.device.close()
        assert on.device.drops == {"device_unfinished": 1}

    def test_it_can_begin_again(self, on: Setup) -> None:
        on.work("x", 1)
        on.finish()
        on.device.start(on.sim)
        on.work("y", 1)
        assert set(on.finish()) == {"y"}


class TestThreadsAndProcesses:
    def test_a_thread_that_ended_leaves_its_work_to_the_next_poll(self, on: Setup) -> None:
        in_thread(lambda: on.work("theirs", 1, 3))
        on.iterate(10)
        placed = on.placed()
        assert on.error_ns("theirs", placed["theirs"]) < NOTED_NS
        assert on.device._pending == []

    def test_the_end_takes_what_living_threads_have(self, on: Setup) -> None:
        recorded, stop = threading.Event(), threading.Event()

        def other() -> None:
            on.work("theirs", 1, 3)
            recorded.set()
            stop.wait(60)

        thread = threading.Thread(target=other)
        thread.start()
        recorded.wait(60)
        on.work("ours", 1)
        assert set(on.finish()) == {"theirs", "ours"}
        stop.set()
        thread.join()

    def test_many_threads_lose_nothing(self) -> None:
        on = Setup()

        def other(number: int) -> None:
            for i in range(300):
                with on.device.slice(f"{number} {i}", number):
                    on.sim.run(0.01, number)
                on.device.poll()

        threads = [threading.Thread(target=other, args=(number,)) for number in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        on.device.close(wait_s=5.0)
        assert (len(on.device.drawn), on.device.dropped) == (1_800, 0)

    @pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
    def test_a_forked_child_starts_empty_and_frees_nothing(self, on: Setup) -> None:
        freed = []

        class Event:
            def __del__(self) -> None:
                freed.append(1)

        on.work("ours", 1)
        on.device._pending[0].by_stream[on.device._stream(on.sim.stream(0))][0].attributes["event"] = Event()
        gc.collect()  # what earlier tests left is not the child's to end
        child = os.fork()
        if not child:
            on.device.reset()
            gc.collect()
            on.device.poll()
            on.device.close()
            empty = not on.device.on and on.device.slice("x") is NOTHING and on.device.dropped == 0 and not freed
            os._exit(0 if empty else 1)
        assert os.waitpid(child, 0)[1] == 0
        assert set(on.finish()) == {"ours"}


class TestABrokenDevice:
    @pytest.mark.parametrize("when", ["opening", "begin", "end", "poll", "close"])
    def test_never_raises_into_training_and_is_counted(self, on: Setup, when: str) -> None:
        on.work("first", 1)
        error = RuntimeError("CUDA error: the launch timed out")
        if when == "poll":
            on.sim.advance(10)
            on.sim.broken = error
            on.device.poll()
        elif when == "close":
            on.sim.broken = error
        else:
            opened = on.device.slice("x")
            on.sim.broken = error if when == "begin" else None
            with opened:
                on.sim.broken = error
        on.device.close()
        assert on.device.drops["device_error"] + on.device.drops.get("device_unfinished", 0) >= 1
        drawn = len(on.placed())
        assert drawn + on.device.dropped == (1 if when in {"poll", "close"} else 2)

    def test_a_capture_check_that_raises_is_counted(self, on: Setup, monkeypatch: pytest.MonkeyPatch) -> None:
        def fails(_: object = None) -> bool:
            raise RuntimeError("CUDA error")

        monkeypatch.setattr(on.sim, "is_capturing", fails)
        assert on.device.slice("x") is NOTHING
        assert on.device.drops == {"device_error": 1}

    def test_is_asked_no_more_and_said_once(self, on: Setup, caplog: pytest.LogCaptureFixture) -> None:
        on.sim.broken = RuntimeError("CUDA error: device lost")
        with caplog.at_level(logging.WARNING, "rltel"):
            for _ in range(100):
                with on.device.slice("x"):
                    pass
        assert len(caplog.records) == 2
        assert "RuntimeError: CUDA error: device lost" in caplog.text
        on.sim.calls.clear()
        assert on.device.slice("x") is NOTHING
        on.device.poll()
        on.device.close()
        assert on.sim.calls == []

    def test_one_bad_event_costs_one_slice(self, on: Setup, monkeypatch: pytest.MonkeyPatch) -> None:
        on.work("bad", 1)
        bad = on.device._pending[0].by_stream[on.device._stream(on.sim.stream(0))][0].end
        on.work("good", 1)
        asked = on.sim.query

        def query_(event: Any) -> bool:
            if event is bad:
                raise RuntimeError("invalid resource handle")
            return asked(event)

        monkeypatch.setattr(on.sim, "query", query_)
        assert set(on.finish()) == {"good"}
        assert on.device.drops == {"device_error": 1}


class SimulatedClock:
    """The simulation's host clock, as a trace file wants it."""

    def __init__(self, sim: SimulatedDevice) -> None:
        self.monotonic_ns = sim.now

    def realtime_ns(self) -> int:
        return self.monotonic_ns() + 10**18

    def anchor(self) -> ClockAnchor:
        at = self.monotonic_ns()
        return ClockAnchor(at, at + 10**18, at, 0)

    def host(self) -> str:
        return "simulated"


class TraceFile:
    """The trace file of a simulation."""

    def __init__(self, on: Setup, folder: Path) -> None:
        self._on = on
        account = Destination("trace")
        self._writer = PerfettoWriter(folder, identity(), SimulatedClock(on.sim), account, 10**9, 10**9)
        self._drain = TimelineDrain(on.recorder, [(self._writer, account)])

    def drain(self) -> None:
        self._on.device.draw()
        self._drain.drain()

    def close(self) -> Path:
        self._on.device.close()
        self._drain.close()
        return self._writer.path


class TestInATraceFile:
    @pytest.fixture
    def rows(self, on: Setup, tmp_path: Path) -> list[list[dict[str, Any]]]:
        file = TraceFile(on, tmp_path)
        for i in range(8):
            with on.recorder.slice("learning"):
                on.work("forward", 4, attributes={"step": i})
                on.work("backward", 1)
                on.work("h2d", 3, 1)
            on.iterate(ms=500)
            file.drain()
        return query(file.close(), *SQL)

    def test_sql_sees_it_all(self, rows: list[list[dict[str, Any]]]) -> None:
        faults, tracks, overlaps, back_to_back, across, flows, steps = rows
        assert faults == []
        assert tracks == [
            {"track": "cuda:0 stream 0", "name": "backward", "n": 8, "ms": 1.0},
            {"track": "cuda:0 stream 0", "name": "forward", "n": 8, "ms": 4.0},
            {"track": "cuda:0 stream 1", "name": "h2d", "n": 8, "ms": 3.0},
        ]
        assert overlaps == [{"n": 0}]
        assert back_to_back == [{"n": 8}]
        assert across == [{"n": 8}]
        assert flows == [{"n": 24, "causal": 24}]
        assert [row["step"] for row in steps] == list(range(8))


DEVICE = "(select slice.*, track.name as track from slice join track on track_id = track.id where category = 'device')"
SQL = (
    "select name from stats where severity in ('error', 'data_loss') and value > 0",
    f"select track, name, count() as n, round(avg(dur) / 1e6, 1) as ms from {DEVICE} group by 1, 2 order by 1, 2",
    f"select count() as n from {DEVICE} a join {DEVICE} b on a.track = b.track and a.id < b.id "
    "and a.ts < b.ts + b.dur and b.ts < a.ts + a.dur",
    f"select count() as n from {DEVICE} a join {DEVICE} b on a.name = 'forward' and b.name = 'backward' "
    "and b.ts - a.ts - a.dur between 0 and 5000",
    f"select count() as n from {DEVICE} a join {DEVICE} b on a.name = 'forward' and b.name = 'h2d' "
    "and a.ts < b.ts and b.ts + b.dur < a.ts + a.dur",
    "select count() as n, sum(s.name = d.name and s.category = 'submit' and d.category = 'device' and s.ts <= d.ts) as "
    "causal from flow join slice s on slice_out = s.id join slice d on slice_in = d.id",
    f"select extract_arg(arg_set_id, 'debug.step') as step from {DEVICE} where name = 'forward' order by ts",
)


class TestCudaWithoutAGpu:
    def test_does_not_import_torch(self) -> None:
        code = (
            "import sys\n"
            "from rltel.record.device.device_timeline import device_timeline as d\n"
            "from rltel.record.recorder import timeline\n"
            "timeline.start(); d.start()\n"
            "with d.slice('x'): pass\n"
            "d.poll(); d.close(); assert 'torch' not in sys.modules and d.dropped == 0"
        )
        ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
        assert ran.returncode == 0, ran.stderr

    def test_is_not_ready_where_torch_has_not_begun_with_cuda(self) -> None:
        torch = need_package("torch")
        if torch.cuda.is_initialized():
            pytest.skip("this process uses CUDA already")
        assert not CudaEventSource().ready()
        assert not torch.cuda.is_initialized()

    def test_refuses_what_is_no_stream(self) -> None:
        need_package("torch")
        with pytest.raises(RecordError, match=r"expected a torch\.cuda\.Stream, or None .*, got 'gpu'"):
            CudaEventSource().stream("gpu")


def test_own_streams_are_nobody_elses() -> None:
    assert SimulatedDevice().own_stream("cuda:0").key == OWN


class TestTheScriptForAGpu:
    """What it asserts can fail, and does not on a device that does what it should."""

    @pytest.fixture
    def script(self) -> Any:
        need_package("torch")
        spec = importlib.util.spec_from_file_location("cuda_timeline", EXAMPLES / "cuda_timeline.py")
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module

    def rounds(self, on: Setup, script: Any, folder: Path) -> tuple[dict[str, Any], list[Any]]:
        file, truths = TraceFile(on, folder), []
        for _ in range(8):
            on.work("first", 4)
            on.work("second", 2)
            on.sim.advance(10)
            on.work("product", 8)
            on.work("copy", 5, 1)
            on.sim.advance(20)
            on.work("watched", 0.01)
            on.sim.advance(0.02)
            truths.append(script.Truth(4.0, 2.0, 5.0, on.sim.host_ns))
            on.iterate(ms=500)
            file.drain()
        return script.read_device_slices(file.close()), truths

    def test_finds_nothing_wrong_with_what_is_right(self, on: Setup, script: Any, tmp_path: Path) -> None:
        drawn, truths = self.rounds(on, script, tmp_path)
        assert script.faults(drawn, truths) == []

    @pytest.mark.parametrize(
        ("name", "shift_ms", "longer_ms", "said"),
        [
            ("second", -4.0, 0.0, "not back to back"),
            ("second", 0.2, 0.0, "not back to back"),
            ("copy", 6.0, 0.0, "of the copy overlaps the product"),
            ("watched", 0.2, 0.0, "the host saw the end"),
            ("watched", -0.2, 0.0, "the host saw the end"),
            ("second", 0.0, 0.5, "second is drawn 2.5"),
        ],
    )
    def test_finds_what_is_wrong(
        self, on: Setup, script: Any, tmp_path: Path, name: str, shift_ms: float, longer_ms: float, said: str
    ) -> None:
        drawn, truths = self.rounds(on, script, tmp_path)
        each = drawn[name][3]
        begin, end = each.begin + round(shift_ms * MS), each.end + round((shift_ms + longer_ms) * MS)
        drawn[name][3] = each._replace(begin=begin, end=end)
        (fault,) = script.faults(drawn, truths)
        assert fault.startswith("round 3: ")
        assert said in fault

    def test_finds_what_is_missing_or_should_not_be_there(self, on: Setup, script: Any, tmp_path: Path) -> None:
        drawn, truths = self.rounds(on, script, tmp_path)
        drawn["captured"] = drawn["first"][:1]
        del drawn["first"][-1]
        assert script.faults(drawn, truths) == ["first: 7 drawn, 8 ran", "drawn, and not to be: ['captured']"]

    def test_without_cuda_it_says_so(self, script: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        if script.torch.cuda.is_available():
            pytest.skip("there is a CUDA device here")
        assert script.main(tmp_path) == 0
        assert "no CUDA device here" in capsys.readouterr().out
