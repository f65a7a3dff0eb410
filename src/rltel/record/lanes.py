"""Which lane is whose: one per thread, and as many more as tasks of that thread have something open at once."""

import threading
from asyncio import _get_running_loop as running_loop
from asyncio import current_task
from collections import deque
from heapq import heappop, heappush
from typing import Any
from weakref import ref

from rltel.record.lane import Lane, LaneKind


class TaskLanes:
    """The lanes that one thread has for its tasks. A task has one for as long as anything of it is open."""

    __slots__ = ("_free", "_left", "_made", "_of_tasks")

    def __init__(self) -> None:
        self._of_tasks: dict[int, Lane] = {}
        self._free: list[tuple[int, Lane]] = []  # a heap: the lowest lane is taken first
        self._left: deque[Lane] = deque()
        self._made = 0

    def of(self, task: Any) -> Lane | None:
        """The lane that this task has, if any."""
        lane = self._of_tasks.get(id(task))
        return lane if lane is not None and lane.task() is task else None  # ids of dead tasks come again

    def assign(self, task: Any, all_lanes: "Lanes") -> Lane:
        """Give a lane to a task that has none."""
        while self._left:
            lane = self._left.popleft()
            if lane.top is None and lane.task is not None:
                self.release(lane)
        lane = self._take_free() or self._new(all_lanes)
        self.hold(lane, task)
        return lane

    def _take_free(self) -> Lane | None:
        while self._free:
            lane = heappop(self._free)[1]
            if lane.task is None:  # else it was held again
                return lane
        return None

    def hold(self, lane: Lane, task: Any) -> None:
        """This task has this lane."""
        lane.task, lane.task_id = ref(task), id(task)
        self._of_tasks[lane.task_id] = lane

    def release(self, lane: Lane) -> None:
        """A task has nothing open any more: the next one may have its lane."""
        lane.task = None
        if self._of_tasks.get(lane.task_id) is lane:
            del self._of_tasks[lane.task_id]
        heappush(self._free, (lane.number, lane))

    def leave(self, lane: Lane) -> None:
        """Another thread ended what was open on a lane: it is released when one is needed next."""
        self._left.append(lane)

    def _new(self, all_lanes: "Lanes") -> Lane:
        self._made += 1
        lane = all_lanes.new("task", f"asyncio {self._made} ({threading.current_thread().name})")
        lane.number, lane.home = self._made, self
        return lane


class _Mine(threading.local):
    """This thread's lanes."""

    lane: Lane
    """Its own; there from its first record on."""

    def __init__(self) -> None:
        self.tasks = TaskLanes()


class Lanes:
    """All lanes of a recording."""

    def __init__(self, limit: int, *, thread_time: bool = False) -> None:
        self._limit = limit
        self._thread_time = thread_time
        self._lock = threading.Lock()
        self._dropped_of_ended = 0
        self.mine = _Mine()
        self.shared = Lane("shared", "", limit)
        self._all: list[Lane] = [self.shared]

    def all(self) -> list[Lane]:
        """All that may hold records."""
        with self._lock:
            return list(self._all)

    def forget(self, lane: Lane) -> None:
        """Nothing more will come from this lane: its thread has ended."""
        with self._lock:
            self._all.remove(lane)
            self._dropped_of_ended += lane.dropped

    @property
    def dropped(self) -> int:
        """Slices, instants and samples that were not kept because their lane was full."""
        return self._dropped_of_ended + sum(lane.dropped for lane in self.all())

    def new(self, kind: LaneKind, name: str) -> Lane:
        """One more."""
        lane = Lane(kind, name, self._limit, thread_time=self._thread_time)
        with self._lock:
            self._all.append(lane)
        return lane

    def of_thread(self) -> Lane:
        """This thread's lane."""
        try:
            return self.mine.lane
        except AttributeError:
            self.mine.lane = lane = self.new("thread", threading.current_thread().name)
            return lane

    def here(self) -> Lane:
        """The lane to open a slice on: this task's, or this thread's."""
        task = _task()
        if task is None:
            return self.of_thread()
        tasks = self.mine.tasks
        return tasks.of(task) or tasks.assign(task, self)

    def open_here(self) -> Lane:
        """The lane that this task has, if anything of it is open; else its thread's."""
        task = _task()
        lane = None if task is None else self.mine.tasks.of(task)
        return lane or self.of_thread()

    def is_mine(self, lane: Lane) -> bool:
        """Whether it is this thread's own."""
        return getattr(self.mine, "lane", None) is lane

    def is_of_this_task(self, lane: Lane) -> bool:
        """Whether it is the running task's."""
        return lane.task is not None and self.is_running(lane.task)

    def is_running(self, task: Any) -> bool:
        """Whether this weakly referenced task is the one that runs here."""
        here = _task()
        return here is not None and task() is here

    def hold(self, lane: Lane) -> None:
        """Keep a lane on which this task has just opened something, although all else on it has ended meanwhile."""
        if lane.home is not None and lane.task is None:
            lane.home.hold(lane, _task())

    def release(self, lane: Lane) -> None:
        """If it was a task's that has nothing open any more, the next one may have it."""
        home: TaskLanes | None = lane.home
        if home is None or lane.top is not None or lane.task is None:
            return
        if home is self.mine.tasks:
            home.release(lane)
        else:
            home.leave(lane)


def _task() -> Any:
    loop = running_loop()
    return None if loop is None else current_task(loop)  # a callback of the loop runs like any function
