"""A lane: where slices nest in the order in which they begin. One per thread, and one per asyncio task at work."""

import threading
from typing import Any, Literal, NamedTuple

from rltel.core.context import new_trace_id
from rltel.record.records import Attributes, End, Ids, Record, recorded_at

LaneKind = Literal["thread", "task", "shared"]


class Inside(NamedTuple):
    """What a place in the code lies in, as loops hand it on to tasks and callbacks. (No chain: it may live long.)"""

    ids: Ids
    task: Any = None
    """A weak reference to the task whose slice that is."""
    before: Ids | None = None
    """What that task's own slices lie in."""


class Open:
    """Something that is open on a lane. ``plain``: its end is the time and nothing else."""

    __slots__ = ("around", "begin_ns", "ids", "in_loop", "lane", "lost", "outer", "plain", "said")

    begin_ns: int
    lane: "Lane | None"
    """None if it is not recorded."""
    outer: "Open | None"
    """What it lies in, on its lane."""
    plain: bool
    ids: Ids | None
    said: dict[str, Any] | None
    lost: int
    """How many slices that it lay in when it began have ended before it."""
    in_loop: bool
    """Whether it was begun under an event loop, where it is the parent of tasks that are created inside."""
    around: Inside | None
    """What was handed on there before."""

    def start(self, lane: "Lane", begin_ns: int, ids: Ids | None) -> None:
        """Begin anew, on this lane, with more to say than when."""
        self.lane = lane
        self.begin_ns = begin_ns
        self.outer = lane.top
        self.plain = True
        self.say_more()
        self.ids = ids

    def happened(self, name: str, attributes: Attributes | None) -> None:
        """An instant lies in this: for those who have to know at once."""

    def say_more(self) -> None:
        """A bare slice will have more to say than when, after all."""
        if self.plain:
            self.plain, self.ids, self.said, self.lost, self.in_loop = False, None, None, 0, False

    def set(self, **attributes: Any) -> None:
        """Say more about a slice that is open. Drawn with it, at its end."""
        if self.lane is not None:
            self.say_more()
            self.said = {**(self.said or {}), **attributes}


class Lane:
    """What was recorded here and nobody has taken yet. Appended to by one thread, taken from by the pipeline's.

    Other threads append nothing but the ends of slices that are closed there (`close`). The ``shared`` lane is appended
    to by all threads: what is on it does not nest by order.
    """

    __slots__ = (
        *("closed", "dropped", "home", "inherited", "kind", "limit", "name", "number", "records", "seed", "task"),
        *("task_id", "thread", "thread_id", "thread_time", "top"),
    )

    def __init__(self, kind: LaneKind, name: str, limit: int, *, thread_time: bool = False) -> None:
        self.records: list[Record] = []
        self.top: Open | None = None
        """The innermost slice that is open here."""
        self.closed = 0
        """How many slices ended here that were not the innermost."""
        self.dropped = 0
        """Slices, instants and samples that were not kept because the lane was full."""
        self.kind = kind
        self.name = name
        self.limit = limit
        self.seed = new_trace_id() & _MASK_64  # random: of two counted ones, slices of two lanes would come to one id
        self.number = 0
        """Which one of its thread's lanes for tasks."""
        self.home: Any = None
        """Those lanes (a `rltel.record.lanes.TaskLanes`)."""
        self.task: Any = None
        """A weak reference to the task that has it."""
        self.task_id = 0
        self.inherited: Ids | None = None
        """What that task's slices belong to that lie in no other of the task's."""
        self.thread_time = thread_time and kind == "thread"
        """Whether its slices carry the CPU time of the thread (a task shares its thread with others)."""
        self.thread = threading.current_thread()
        self.thread_id = threading.get_native_id()  # asked of the system: in a forked child, Thread.native_id is stale

    def take(self, until_ns: int | None = None) -> list[Record]:
        """Remove and return what is there, or of that what happened until a moment.

        Safe while the lane's thread goes on appending: each step is atomic.
        """
        count = len(self.records) if until_ns is None else self._recorded_until(until_ns)
        taken = self.records[:count]
        del self.records[:count]
        return taken

    def _recorded_until(self, until_ns: int) -> int:
        """How many; what goes with the first of the later ones is not among them."""
        there = count = len(self.records)
        for place in reversed(range(there)):
            at_ns = recorded_at(self.records[place])
            if at_ns is None:
                if place + 1 == count < there:
                    count = place
            elif at_ns > until_ns:
                count = place
            else:
                break
        return count

    def is_over(self) -> bool:
        """Whether nothing more can come: its thread has ended, and nothing is open or waits here."""
        # The thread first: seen alive last, it could leave records and end after these had been looked for.
        return self.kind != "shared" and not self.thread.is_alive() and self.top is None and not self.records

    def close(self, span: Open, end: int | End) -> None:
        """Record the end of a slice that is not the innermost, or has more to say than when.

        Garbage collection closes abandoned generators at any moment and in any thread, so the lane may change while
        this looks for the slice; then it looks again. (After the last look nothing is called that could be interrupted
        before the record is there.)
        """
        while True:
            top, closed = self.top, self.closed
            above: list[Open] = []
            found = top
            while found is not None and found is not span:
                above.append(found)
                found = found.outer
            record = _at_depth(end, len(above))
            if self.top is top and self.closed == closed:
                break
        if found is None:
            return  # ended twice, or begun before a fork
        if not above:
            self.top = span.outer
            self.records.append(record)
            return
        above[-1].outer = span.outer
        self.closed += 1
        self.records.append(record)
        for each in above:
            each.say_more()
            each.lost += 1

    def depth_of(self, span: Open) -> int:
        """How many slices an open one lay in when it began."""
        span.say_more()
        depth = span.lost
        outer = span.outer
        while outer is not None:
            outer, depth = outer.outer, depth + 1
        return depth


def _at_depth(end: int | End, depth: int) -> int | End:
    if not depth:
        return end
    return End(end, depth=depth) if isinstance(end, int) else end._replace(depth=depth)


_ODD, _ODD_TOO = 0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F
_MASK_64 = (1 << 64) - 1


def slice_id(seed: int, begin_ns: int, depth: int) -> int:
    """The span id of a slice that was given none: from its lane, when it began, and how many slices it lies in.

    So whoever reads the records finds the same id as whoever refers to the slice while it is open.
    """
    return (seed + begin_ns * _ODD + depth * _ODD_TOO) & _MASK_64 or 1
