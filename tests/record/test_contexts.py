"""Scopes and timings on the timeline; what they record is in test_tracker.py."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
from tests.realparts.lane_reading import read

from rltel.core.errors import RecordError
from rltel.record.recorder import Recorder
from rltel.record.tracker import Tracker


def test_scopes_and_timings_nest_like_all_slices(tracker: Tracker, recorder: Recorder, clock: Any) -> None:
    recorder.start()
    with tracker.scope("a"), recorder.slice("b"), tracker.record_timing("c"), tracker.scope("d/e"):
        clock.tick(1.0)
    reading = read(recorder)
    assert reading.parents == {"a": None, "b": "a", "c": "b", "d/e": "c"}
    assert {drawn.name: drawn.category for drawn in reading.slices} == {
        "a": "scope",
        "b": "",
        "c": "timing",
        "d/e": "scope",
    }
    assert {drawn.end_ns for drawn in reading.slices} == {2_000_000_000}


def test_an_exception_is_noted_on_both(tracker: Tracker, recorder: Recorder) -> None:
    recorder.start()
    with pytest.raises(KeyError), tracker.scope("a"), tracker.record_timing("b"):
        raise KeyError
    assert [drawn.error for drawn in read(recorder).slices] == ["KeyError", "KeyError"]


def test_more_may_be_said(tracker: Tracker, recorder: Recorder) -> None:
    recorder.start()
    with tracker.scope("a") as scope, tracker.record_timing("b") as timing:
        scope.set(x=1)
        timing.set(x=2)
    with tracker.record_timing("b"):
        pass
    assert [drawn.attributes for drawn in read(recorder).slices] == [{"x": 1}, {"x": 2}, {}]


def test_nothing_is_said_of_what_is_not_drawn(tracker: Tracker) -> None:
    with tracker.scope("a") as scope, tracker.record_timing("b") as timing:
        scope.set(x=1)
        timing.set(x=2)


@pytest.mark.parametrize("first", [False, True])
def test_switched_in_the_middle(tracker: Tracker, recorder: Recorder, first: bool) -> None:
    recorder._switch(first)
    with tracker.scope("a"), tracker.record_timing("b"):
        recorder._switch(not first)
    recorder._switch(True)
    with tracker.scope("c"), tracker.record_timing("d"):
        pass
    assert read(recorder).names == (["a", "b"] if first else []) + ["c", "d"]


def test_a_timing_is_for_one_use(tracker: Tracker, recorder: Recorder) -> None:
    recorder.start()
    timing = tracker.record_timing("a")
    with timing, pytest.raises(RecordError, match=r"record_timing\('a'\): used for a second time"):
        timing.__enter__()
    assert read(recorder).names == ["a"]


def test_timings_of_one_name_may_be_inside_each_other(tracker: Tracker, recorder: Recorder) -> None:
    recorder.start()
    with tracker.record_timing("a"), tracker.record_timing("a"), tracker.record_timing("a"):
        pass
    reading = read(recorder)
    assert [drawn.around and drawn.around.begin_ns for drawn in reading.slices] == [None, 10**9, 10**9]
    assert not reading.left_open


def test_of_a_full_lane_are_measured_all_the_same(clock: Any, taken: Any) -> None:
    recorder = Recorder(clock, limit=0)
    recorder.start()
    tracker = Tracker(recorder=recorder)
    with tracker.scope("a"), tracker.record_timing("b"):
        clock.tick(1.0)
    assert recorder.dropped == 2
    assert taken(tracker)["timeperf/b"] == 1.0


def test_an_abandoned_generators_are_closed(tracker: Tracker, recorder: Recorder) -> None:
    recorder.start()

    def numbers() -> Iterator[int]:
        with tracker.scope("a"), tracker.record_timing("b"):
            yield 1

    generator = numbers()
    next(generator)
    with recorder.slice("caller"):
        generator.close()  # type: ignore[attr-defined]
    reading = read(recorder)
    assert [(drawn.error, drawn.attributes) for drawn in reading.slices] == [(None, {"abandoned": True})] * 2 + [
        (None, {})
    ]
    assert not reading.left_open


@pytest.mark.parametrize("is_on", [False, True])
def test_a_scope_closed_in_another_tasks_context_raises_nothing(
    tracker: Tracker, recorder: Recorder, is_on: bool
) -> None:
    """It cannot be taken out of place there: it never was in place."""
    recorder._switch(is_on)

    async def numbers() -> AsyncIterator[int]:
        with tracker.scope("a"):
            yield 1

    async def main() -> None:
        generator = numbers()
        await anext(generator)
        await asyncio.create_task(generator.aclose())  # type: ignore[attr-defined]

    asyncio.run(main())
    assert not read(recorder).left_open
