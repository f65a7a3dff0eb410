"""Which lane is whose."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

from rltel.record.lane import Open
from rltel.record.lanes import Lanes


class Task:
    """Stands for one of asyncio's."""


def open_on(lane: Any) -> Open:
    span = Open()
    span.start(lane, 1, None)
    lane.top = span
    return span


def test_a_task_has_its_lane_as_long_as_it_is_held() -> None:
    lanes, task = Lanes(10), Task()
    tasks = lanes.mine.tasks
    lane = tasks.assign(task, lanes)
    assert tasks.of(task) is lane
    tasks.release(lane)
    assert tasks.of(task) is None


def test_the_lowest_that_is_free_is_taken_first() -> None:
    lanes, held = Lanes(10), [Task() for _ in range(4)]
    tasks = lanes.mine.tasks
    first = [tasks.assign(task, lanes) for task in held]
    for number in (3, 1, 2):
        tasks.release(first[number])
    assert [tasks.assign(Task(), lanes) for _ in range(3)] == first[1:]
    assert len(lanes.all()) == 1 + 4


def test_of_a_dead_task_is_not_the_next_ones() -> None:
    """Whose id is the same, as a rule."""
    lanes = Lanes(10)
    tasks = lanes.mine.tasks
    task = Task()
    lane = tasks.assign(task, lanes)
    open_on(lane)
    del task
    for _ in range(100):
        assert tasks.of(Task()) is None


def test_one_left_by_another_thread_is_free_when_it_is_needed() -> None:
    lanes, task = Lanes(10), Task()
    lane = lanes.mine.tasks.assign(task, lanes)
    thread = threading.Thread(target=lanes.release, args=(lane,))
    thread.start()
    thread.join()
    assert lanes.mine.tasks.assign(Task(), lanes) is lane


def test_one_left_by_another_thread_is_not_free_if_it_is_in_use_again() -> None:
    lanes, task = Lanes(10), Task()
    lane = lanes.mine.tasks.assign(task, lanes)
    thread = threading.Thread(target=lanes.release, args=(lane,))
    thread.start()
    thread.join()
    open_on(lane)
    assert lanes.mine.tasks.assign(Task(), lanes) is not lane


def test_one_that_was_released_while_something_was_being_opened_is_held_again() -> None:
    """Garbage collection closed the last that was open on it, at that moment."""

    async def main() -> None:
        lanes = Lanes(10)
        lane = lanes.here()
        lanes.release(lane)
        open_on(lane)
        lanes.hold(lane)
        assert lanes.here() is lane

        async def other() -> None:
            assert lanes.here() is not lane

        await asyncio.create_task(other())

    asyncio.run(main())


def test_callbacks_are_on_the_threads_lane() -> None:
    found: list[bool] = []

    async def main() -> None:
        lanes = Lanes(10)
        asyncio.get_running_loop().call_soon(lambda: found.append(lanes.here() is lanes.of_thread()))
        await asyncio.sleep(0)
        assert lanes.here() is not lanes.of_thread()

    asyncio.run(main())
    assert found == [True]


def test_what_is_forgotten_still_counts_what_it_dropped() -> None:
    lanes = Lanes(10)
    lane = lanes.of_thread()
    lane.dropped = 3
    lanes.shared.dropped = 1
    lanes.forget(lane)
    assert lanes.all() == [lanes.shared]
    assert lanes.dropped == 4
