from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rltel.record.recorder import (
    NOTHING,
    Begin,
    CounterSample,
    End,
    Instant,
    Recorder,
    Slice,
    ThreadBuffer,
    as_flows,
    new_flow,
)


def names(records: list[Any]) -> list[str]:
    """Begins by name, ends as ``-``."""
    return [record[1] if isinstance(record, tuple) and not isinstance(record, End) else "-" for record in records]


def check_balanced(records: list[Any]) -> None:
    """Every end has its begin."""
    depth = 0
    for record in records:
        depth += -1 if isinstance(record, int | End) else 1
        assert depth >= 0
    assert depth == 0


class TestSlices:
    def test_nest_in_the_order_of_their_records(self, recorder: Recorder, clock: Any) -> None:
        recorder.start()
        with recorder.slice("a", "cat"):
            clock.tick(1.0)
            with recorder.slice("b"):
                clock.tick(2.0)
            with recorder.slice("c"):
                clock.tick(3.0)
        records = recorder.here().take()
        assert names(records) == ["a", "b", "-", "c", "-", "-"]
        start = records[0][0]
        seconds = [(record[0] if isinstance(record, tuple) else record) - start for record in records]
        assert seconds == [0, 1_000_000_000, 3_000_000_000, 3_000_000_000, 6_000_000_000, 6_000_000_000]

    def test_say_what_they_are(self, recorder: Recorder) -> None:
        recorder.start()
        with recorder.slice("a", "cat", flow=7, attributes={"k": 1}):
            pass
        assert Begin(*recorder.here().take()[0]) == Begin(1_000_000_000, "a", "cat", (7,), {"k": 1})

    def test_that_are_open_are_there_already(self, recorder: Recorder) -> None:
        recorder.start()
        with recorder.slice("a"):
            assert names(recorder.here().take()) == ["a"]
        assert names(recorder.here().take()) == ["-"]

    def test_an_exception_is_noted_on_its_end_and_goes_on(self, recorder: Recorder, clock: Any) -> None:
        recorder.start()
        with pytest.raises(ZeroDivisionError), recorder.slice("a"), recorder.slice("b"):
            clock.fail_after(1.0)
        _, _, inner, outer = recorder.here().take()
        assert inner == outer == End(2_000_000_000, {"error": "ZeroDivisionError"})

    def test_cost_nothing_while_off(self, recorder: Recorder, clock: Any) -> None:
        with recorder.slice("a") as nothing:
            recorder.instant("i")
            recorder.counter("c", 1.0)
        assert nothing is NOTHING
        assert clock.readings == 0
        assert not recorder.buffers()

    def test_begun_while_on_are_ended_while_off(self, recorder: Recorder) -> None:
        recorder.start()
        opened = recorder.slice("a")
        with opened:
            recorder.stop()
            with recorder.slice("b"):
                pass
        check_balanced(recorder.here().take())

    def test_begun_while_off_are_not_ended_while_on(self, recorder: Recorder) -> None:
        with recorder.slice("a"):
            recorder.start()
        assert not recorder.here().take()


class TestOtherRecords:
    def test_instants_and_counters(self, recorder: Recorder) -> None:
        recorder.start()
        recorder.instant("i", "cat", flow=[1, 2], attributes={"k": "v"})
        recorder.counter("c", 3, "bytes")
        assert recorder.here().take() == [
            Instant(1_000_000_000, "i", "cat", (1, 2), {"k": "v"}),
            CounterSample(1_000_000_000, "c", "bytes", 3.0),
        ]

    def test_flows(self) -> None:
        assert as_flows(None) is None
        assert as_flows(5) == (5,)
        assert as_flows(iter([5, 6])) == (5, 6)
        assert len({new_flow() for _ in range(100)}) == 100


class TestBounds:
    def test_a_full_buffer_drops_whole_slices_and_counts(self) -> None:
        recorder = Recorder(limit=4)
        recorder.start()
        for _ in range(5):
            with recorder.slice("a"):
                pass
        recorder.instant("i")
        recorder.counter("c", 1.0)
        assert recorder.dropped == 3 * 2 + 2
        check_balanced(recorder.here().take())

    def test_a_slice_that_was_kept_gets_its_end_even_if_full(self) -> None:
        recorder = Recorder(limit=2)
        recorder.start()
        with recorder.slice("a"), recorder.slice("b"), recorder.slice("c"):
            pass
        records = recorder.here().take()
        assert names(records) == ["a", "b", "-", "-"]
        assert recorder.dropped == 2

    def test_there_is_room_again_when_it_was_taken(self) -> None:
        recorder = Recorder(limit=2)
        recorder.start()
        for _ in range(3):
            recorder.here().take()
            with recorder.slice("a"):
                pass
        assert recorder.dropped == 0

    @given(st.lists(st.sampled_from(["begin", "end", "instant", "take"]), max_size=60), st.integers(1, 6))
    def test_what_is_kept_is_balanced_whatever_happens(self, steps: list[str], limit: int) -> None:
        recorder = Recorder(limit=limit)
        recorder.start()
        open_slices: list[Slice] = []
        taken: list[Any] = []
        asked = 0
        for step in steps:
            if step == "begin":
                opened = recorder.slice("a")
                opened.__enter__()
                open_slices.append(opened)  # type: ignore[arg-type]
                asked += 2
            elif step == "end" and open_slices:
                open_slices.pop().__exit__(None, None, None)
            elif step == "take":
                taken += recorder.here().take()
            elif step == "instant":
                recorder.instant("i")
                asked += 1
        while open_slices:
            open_slices.pop().__exit__(None, None, None)
        taken += recorder.here().take()
        assert len(taken) + recorder.dropped == asked
        check_balanced([record for record in taken if not isinstance(record, Instant)])


class TestThreads:
    def test_each_has_its_own_buffer(self, recorder: Recorder) -> None:
        recorder.start()

        def draws() -> None:
            with recorder.slice("there"):
                pass

        thread = threading.Thread(target=draws, name="worker-7")
        with recorder.slice("here"):
            thread.start()
            thread.join()
        here, there = recorder.buffers()
        assert here is recorder.here()
        assert (here.thread_name, there.thread_name) == (threading.current_thread().name, "worker-7")
        assert here.thread_id == threading.get_native_id() != there.thread_id
        assert names(here.take()) == ["here", "-"]
        assert names(there.take()) == ["there", "-"]  # also when the thread has ended

    def test_nothing_is_lost_while_another_thread_takes(self) -> None:
        recorder = Recorder()
        recorder.start()
        done = threading.Event()
        threads, each = 8, 2000
        found: dict[int, list[Any]] = {}

        def take() -> None:
            for buffer in recorder.buffers():
                found.setdefault(id(buffer), []).extend(buffer.take())

        def takes() -> None:
            while not done.is_set():
                take()

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
        take()
        assert len(found) == threads
        expected = [name for number in range(each) for name in (str(number), "inner", "-", "-")]
        for records in found.values():
            assert names(records) == expected

    def test_take_leaves_what_comes_meanwhile(self) -> None:
        class Interrupted(list[Any]):
            """The thread appends right after another has looked at what is there."""

            def __getitem__(self, index: Any) -> Any:
                found = super().__getitem__(index)
                self.append(3)
                return found

        buffer = ThreadBuffer(Interrupted([1, 2]), 1, "t")
        assert buffer.take() == [1, 2]
        assert list(buffer.records) == [3]


FORKED = """
import json, os, sys
from rltel.record.recorder import Recorder, timeline

timeline.start()
with timeline.slice("parent"):
    timeline.instant("before")
    pid = os.fork()
    if pid == 0:
        found = {"on": timeline.on, "buffers": len(timeline.buffers())}
        timeline.start()
        with timeline.slice("child"):
            pass
        found["records"] = [r[1] if isinstance(r, tuple) else "-" for r in timeline.here().take()]
        found["pid_of_thread"] = timeline.here().thread_id == os.getpid()
        print(json.dumps(found), flush=True)
        os._exit(0)
    os.waitpid(pid, 0)
print(json.dumps([r[1] if isinstance(r, tuple) else "-" for r in timeline.here().take()]), flush=True)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_a_forked_child_starts_empty_and_off() -> None:
    run = subprocess.run([sys.executable, "-c", FORKED], capture_output=True, text=True, check=True, timeout=60)
    child, parent = map(json.loads, run.stdout.splitlines())
    assert child == {"on": False, "buffers": 0, "records": ["child", "-"], "pid_of_thread": True}
    assert parent == ["parent", "before", "-"]
