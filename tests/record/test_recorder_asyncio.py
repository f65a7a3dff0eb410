"""Tasks interleave: each keeps its nesting, lanes are reused, and parents are the true ones."""

from __future__ import annotations

import asyncio
import gc
import itertools
import sys
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from tests.realparts.lane_reading import LaneReader, Reading, read

from realparts.requirements import need_package
from rltel.record.lane import slice_id
from rltel.record.recorder import Recorder
from rltel.record.records import Ids
from rltel.record.tracker import Tracker

Run = Callable[[Any], Any]


@pytest.fixture
def on() -> Recorder:
    """A recorder that is on, with a clock that never says the same twice."""
    recorder = Recorder(now=itertools.count(1_000_000_000).__next__)
    recorder.start()
    return recorder


def task_lanes(recorder: Recorder) -> list[str]:
    return [lane.name for lane in recorder.lanes() if lane.kind == "task"]


def check_over(recorder: Recorder, reading: Reading) -> None:
    """Nothing is left: no slice that is open, no lane that is held."""
    assert not reading.left_open
    assert all(lane.top is None and lane.task is None for lane in recorder.lanes())


class TestNesting:
    def test_of_gathered_tasks_is_their_own(self, on: Recorder) -> None:
        async def work(number: int) -> None:
            with on.slice(f"outer {number}"):
                for step in range(3):
                    await asyncio.sleep(0)
                    with on.slice(f"inner {number} {step}"):
                        await asyncio.sleep(0)

        async def main() -> None:
            await asyncio.gather(*(work(number) for number in range(20)))

        asyncio.run(main())
        reading = read(on)
        assert len(reading.slices) == 20 * 4
        for drawn in reading.slices:
            number = drawn.name.split()[1]
            expected = None if drawn.name.startswith("outer") else f"outer {number}"
            assert reading.parent(drawn) == expected
            assert drawn.lane is reading.one(f"outer {number}").lane
        assert len(task_lanes(on)) == 20
        check_over(on, reading)

    def test_lanes_are_reused_lowest_first(self, on: Recorder) -> None:
        async def work() -> None:
            with on.slice("a"):
                await asyncio.sleep(0)

        async def main() -> None:
            for _ in range(1000):
                await asyncio.gather(work(), work(), work())

        asyncio.run(main())
        thread = threading.current_thread().name
        assert task_lanes(on) == [f"asyncio {number} ({thread})" for number in (1, 2, 3)]
        check_over(on, read(on))

    def test_tasks_without_slices_have_no_lane(self, on: Recorder) -> None:
        async def work() -> None:
            on.instant("i")
            on.counter("c", 1.0)

        asyncio.run(work())
        assert not task_lanes(on)
        assert read(on).instants[0][2] is on.thread_lane()

    def test_instants_lie_in_the_slice_of_their_task(self, on: Recorder) -> None:
        async def work(number: int) -> None:
            with on.slice(f"a {number}"):
                await asyncio.sleep(0)
                on.instant(f"i {number}")

        async def main() -> None:
            await asyncio.gather(work(1), work(2))

        asyncio.run(main())
        assert [each[:2] for each in read(on).instants] == [("i 1", "a 1"), ("i 2", "a 2")]

    def test_scopes_and_timings_do_so_too(self, on: Recorder) -> None:
        tracker = Tracker(recorder=on)

        async def work(number: int) -> None:
            with tracker.scope(f"s{number}"):
                await asyncio.sleep(0)
                with tracker.record_timing(f"t{number}"):
                    await asyncio.sleep(0)

        async def main() -> None:
            for _ in range(3):
                await asyncio.gather(work(1), work(2))

        asyncio.run(main())
        reading = read(on)
        timings = [(drawn.name, reading.parent(drawn)) for drawn in reading.slices if drawn.name.startswith("t")]
        assert sorted(timings) == [("t1", "s1")] * 3 + [("t2", "s2")] * 3
        check_over(on, reading)

    def test_a_full_lane_is_given_back(self) -> None:
        recorder = Recorder(limit=2)
        recorder.start()

        async def work() -> None:
            with recorder.slice("a"):
                await asyncio.sleep(0)

        async def main() -> None:
            for _ in range(50):
                await work()
                await asyncio.create_task(work())

        asyncio.run(main())
        assert len(task_lanes(recorder)) == 1
        assert recorder.dropped == 99
        check_over(recorder, read(recorder))

    def test_two_loops_in_two_threads_share_nothing(self, on: Recorder) -> None:
        both = threading.Barrier(2)

        async def work(number: int) -> None:
            with on.slice(f"outer {number}"):
                both.wait()
                await asyncio.sleep(0)
                with on.slice(f"inner {number}"):
                    both.wait()

        threads = [threading.Thread(target=lambda n=n: asyncio.run(work(n)), name=f"t{n}") for n in (1, 2)]  # type: ignore[misc]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        reading = read(on)
        assert reading.parents == {"outer 1": None, "outer 2": None, "inner 1": "outer 1", "inner 2": "outer 2"}
        assert sorted(task_lanes(on)) == ["asyncio 1 (t1)", "asyncio 1 (t2)"]

    def test_other_loops_and_tasks_need_nothing_special(self, on: Recorder) -> None:
        """As of uvloop, or of a program's own task factory."""

        class Loop(asyncio.SelectorEventLoop):
            """One that nobody knows."""

        async def work(number: int) -> None:
            with on.slice(f"outer {number}"):
                await asyncio.sleep(0)
                with on.slice(f"inner {number}"):
                    await asyncio.sleep(0)

        async def main() -> None:
            with on.slice("main"):
                await asyncio.gather(work(1), work(2))

        loop = Loop()
        loop.set_task_factory(lambda loop, coroutine, **known: asyncio.tasks._PyTask(coroutine, loop=loop, **known))  # type: ignore[attr-defined]
        try:
            loop.run_until_complete(main())
        finally:
            loop.close()
        reading = read(on)
        assert [reading.parent(f"inner {number}") for number in (1, 2)] == ["outer 1", "outer 2"]
        assert [reading.parent(f"outer {number}") for number in (1, 2)] == ["main", "main"]
        check_over(on, reading)

    def test_uvloop_needs_nothing_special(self, on: Recorder) -> None:
        uvloop = need_package("uvloop")

        async def work(number: int) -> None:
            with on.slice(f"outer {number}"):
                await asyncio.sleep(0.001)
                with on.slice(f"inner {number}"):
                    await asyncio.sleep(0)

        async def main() -> None:
            with on.slice("main"):
                await asyncio.gather(work(1), work(2))

        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(main())
        reading = read(on)
        assert [reading.parent(f"inner {number}") for number in (1, 2)] == ["outer 1", "outer 2"]
        assert [reading.parent(f"outer {number}") for number in (1, 2)] == ["main", "main"]
        check_over(on, reading)

    def test_off_and_on_in_the_middle(self, on: Recorder) -> None:
        async def main() -> None:
            with on.slice("before"):
                on._switch(False)
                await asyncio.sleep(0)
                with on.slice("not there"):
                    on._switch(True)
                    with on.slice("again"):
                        await asyncio.sleep(0)

        asyncio.run(main())
        reading = read(on)
        assert reading.parents == {"before": None, "again": "before"}
        check_over(on, reading)

    def test_thread_time_is_no_tasks(self) -> None:
        recorder = Recorder()
        recorder.start(thread_time=True)

        async def main() -> None:
            with recorder.slice("a"):
                await asyncio.sleep(0)

        with recorder.slice("runner"):
            asyncio.run(main())
        times = {drawn.name: drawn.begin and drawn.begin.cpu_ns for drawn in read(recorder).slices}
        assert times["a"] is None
        assert times["runner"] is not None


class TestParents:
    def test_of_tasks_are_the_slices_that_created_them(self, on: Recorder) -> None:
        async def child(name: str) -> None:
            with on.slice(name), on.slice(f"{name} inner"):
                await asyncio.sleep(0)

        async def main() -> None:
            with on.slice("first"):
                a = asyncio.create_task(child("a"))
                with on.slice("second"):
                    b = asyncio.create_task(child("b"))
                c = asyncio.create_task(child("c"))
            d = asyncio.create_task(child("d"))
            await asyncio.gather(a, b, c, d)

        with on.slice("runner"):
            asyncio.run(main())
        reading = read(on)
        outer = {name: parent for name, parent in reading.parents.items() if not name.endswith("inner")}
        assert outer == {
            "runner": None,
            "first": "runner",
            "second": "first",
            "a": "first",
            "b": "second",
            "c": "first",
            "d": "runner",
        }
        assert [reading.parent(f"{name} inner") for name in "abcd"] == list("abcd")
        assert len({drawn.ids.trace_id for drawn in reading.slices if drawn.lane.kind == "task"}) == 1
        check_over(on, reading)

    def test_survive_their_end(self, on: Recorder) -> None:
        """The object that stood for the parent is used for something else by then."""
        tracker = Tracker(recorder=on)

        async def child() -> None:
            await asyncio.sleep(0.001)
            with on.slice("child"):
                pass

        async def main() -> None:
            with tracker.record_timing("parent"):
                task = asyncio.create_task(child())
            with tracker.record_timing("parent"):
                await task

        asyncio.run(main())
        reading = read(on)
        first, second = reading.all("parent")
        assert first.ids != second.ids
        assert reading.one("child").parent_id == first.ids.span_id

    def test_of_callbacks_are_what_scheduled_them(self, on: Recorder) -> None:
        async def child(name: str) -> None:
            with on.slice(name):
                pass

        async def main() -> None:
            loop = asyncio.get_running_loop()
            tasks: list[asyncio.Task[None]] = []

            def called() -> None:
                tasks.append(loop.create_task(child("of callback")))
                with on.slice("callback"):
                    with on.slice("inner"):
                        tasks.append(loop.create_task(child("of inner")))
                    tasks.append(loop.create_task(child("of slice")))
                tasks.append(loop.create_task(child("after")))

            with on.slice("main"):
                loop.call_soon(called)
                await asyncio.sleep(0)
            await asyncio.gather(*tasks)

        with on.slice("runner"):
            asyncio.run(main())
        reading = read(on)
        assert reading.parents == {
            "runner": None,
            "main": "runner",
            "callback": "main",
            "inner": "callback",
            "of callback": "main",
            "of inner": "inner",
            "of slice": "callback",
            "after": "main",
        }
        assert reading.one("callback").lane is on.thread_lane()
        check_over(on, reading)

    def test_of_what_runs_in_a_loop_is_what_runs_the_loop(self, on: Recorder) -> None:
        async def work() -> None:
            with on.slice("in loop"):
                await asyncio.sleep(0)

        with on.slice("outer"), on.slice("runs it"):
            asyncio.run(work())
            with on.slice("next"):
                pass
        assert read(on).parents == {"outer": None, "runs it": "outer", "in loop": "runs it", "next": "runs it"}

    def test_of_a_task_group(self, on: Recorder) -> None:
        async def child(name: str) -> None:
            with on.slice(name):
                await asyncio.sleep(0)
                if name == "fails":
                    raise KeyError
                await asyncio.sleep(10)

        async def main() -> None:
            with on.slice("group"):
                async with asyncio.TaskGroup() as group:
                    group.create_task(child("fails"))
                    group.create_task(child("is cancelled"))

        with pytest.raises(ExceptionGroup):
            asyncio.run(main())
        reading = read(on)
        assert reading.parents == {"group": None, "fails": "group", "is cancelled": "group"}
        errors = {drawn.name: drawn.error for drawn in reading.slices}
        assert errors == {"group": "ExceptionGroup", "fails": "KeyError", "is cancelled": "CancelledError"}
        check_over(on, reading)

    def test_of_a_cancelled_task_that_waits_longer(self, on: Recorder) -> None:
        async def child() -> None:
            with on.slice("child"):
                try:
                    await asyncio.sleep(10)
                except asyncio.CancelledError:
                    with on.slice("cleans up"):
                        await asyncio.sleep(0)
                    raise

        async def main() -> None:
            with on.slice("parent"):
                task = asyncio.create_task(child())
                await asyncio.sleep(0)
                task.cancel()
                await asyncio.wait([task])
                with on.slice("goes on"):
                    pass

        asyncio.run(main())
        reading = read(on)
        assert reading.parents == {"parent": None, "child": "parent", "cleans up": "child", "goes on": "parent"}
        assert reading.one("child").error == "CancelledError"
        check_over(on, reading)

    def test_of_explicit_slices_are_those_of_their_task(self, on: Recorder) -> None:
        async def work(number: int) -> None:
            with on.slice(f"a {number}"):
                await asyncio.sleep(0)
                handle = on.begin(f"free {number}")
                await asyncio.sleep(0)
            handle.end()

        async def main() -> None:
            await asyncio.gather(work(1), work(2))

        asyncio.run(main())
        parents = read(on).parents
        assert (parents["free 1"], parents["free 2"]) == ("a 1", "a 2")

    def test_attached_in_a_task_hold_for_tasks_created_inside(self, on: Recorder) -> None:
        async def child(name: str) -> None:
            await asyncio.sleep(0)
            with on.slice(name):
                pass

        async def request(number: int) -> None:
            with on.attached(Ids(1, number)):
                await asyncio.sleep(0)
                with on.slice(f"handles {number}"):
                    await asyncio.sleep(0)
                await asyncio.create_task(child(f"task of {number}"))
            with on.slice(f"after {number}"):
                pass

        async def main() -> None:
            await asyncio.gather(request(0xA), request(0xB))

        asyncio.run(main())
        reading = read(on)
        for number, parent in ((0xA, "a"), (0xB, "b")):
            assert reading.parent(f"handles {number}") == reading.parent(f"task of {number}") == parent
            assert reading.parent(f"after {number}") is None
        check_over(on, reading)

    def test_of_threads_of_to_thread_are_the_slices_that_wait_for_them(self, on: Recorder) -> None:
        """What has to know its parent asks for it; bare slices there lie in nothing (see `rltel.carry`)."""

        def there() -> Ids | None:
            return on.origin()

        async def main() -> Ids | None:
            with on.slice("waits"):
                return await asyncio.to_thread(there)

        found = asyncio.run(main())
        assert found == read(on).one("waits").ids

    @pytest.mark.skipif(sys.version_info < (3, 12), reason="eager tasks came with Python 3.12")
    def test_of_eager_tasks(self, on: Recorder) -> None:
        async def child() -> None:
            with on.slice("child"):
                await asyncio.sleep(0)

        async def main() -> None:
            asyncio.get_running_loop().set_task_factory(asyncio.eager_task_factory)  # type: ignore[attr-defined]
            with on.slice("parent"):
                task = asyncio.create_task(child())
                with on.slice("goes on"):
                    await task

        asyncio.run(main())
        assert read(on).parents == {"parent": None, "child": "parent", "goes on": "parent"}

    def test_ids_are_asked_and_read_alike(self, on: Recorder) -> None:
        asked: dict[str, Ids | None] = {}

        async def work(number: int) -> None:
            with on.slice(f"a {number}"):
                await asyncio.sleep(0)
                with on.slice(f"b {number}"):
                    await asyncio.sleep(0)
                    asked[f"b {number}"] = on.origin()
                asked[f"a {number}"] = on.origin()

        async def main() -> None:
            await asyncio.gather(work(1), work(2))

        asyncio.run(main())
        assert asked == {drawn.name: drawn.ids for drawn in read(on).slices}


class TestGenerators:
    def test_an_async_one_interleaves_with_its_caller(self, on: Recorder) -> None:
        async def numbers() -> AsyncIterator[int]:
            with on.slice("g"):
                for number in range(3):
                    with on.slice(f"makes {number}"):
                        await asyncio.sleep(0)
                    yield number

        async def main() -> None:
            with on.slice("main"):
                async for number in numbers():
                    with on.slice(f"uses {number}"):
                        await asyncio.sleep(0)
            with on.slice("after"):
                pass

        asyncio.run(main())
        reading = read(on)
        assert reading.names == ["main", "g", *(f"{do} {n}" for n in range(3) for do in ("makes", "uses")), "after"]
        assert reading.parent("after") is None
        check_over(on, reading)

    @pytest.mark.parametrize("scoped", [False, True])
    def test_an_async_one_that_is_left_is_closed_by_another_task(self, on: Recorder, scoped: bool) -> None:
        """`break` out of `async for`: the loop closes the generator in a task of its own."""
        tracker = Tracker(recorder=on)
        complaints: list[Any] = []

        async def numbers() -> AsyncIterator[int]:
            with tracker.scope("g") if scoped else on.slice("g"):
                for number in range(3):
                    yield number

        async def main() -> None:
            asyncio.get_running_loop().set_exception_handler(lambda _, about: complaints.append(about))
            with on.slice("main"):
                async for _ in numbers():
                    break
                gc.collect()
                for _ in range(5):
                    await asyncio.sleep(0)
                with on.slice("inner"):
                    pass
            with on.slice("after"):
                await asyncio.sleep(0)

        asyncio.run(main())
        reading = read(on)
        drawn = reading.one("g")
        assert (drawn.error, drawn.attributes) == (None, {"abandoned": True})
        assert reading.parents == {"main": None, "g": "main", "inner": "main", "after": None}
        assert not complaints
        check_over(on, reading)

    def test_one_at_a_tasks_outermost_that_is_left_is_nobodys_parent_later(self, on: Recorder) -> None:
        async def numbers() -> AsyncIterator[int]:
            with on.slice("g"):
                yield 1
                yield 2

        async def main() -> None:
            async for _ in numbers():
                break
            gc.collect()
            for _ in range(5):
                await asyncio.sleep(0)
            with on.slice("later"):
                await asyncio.sleep(0)

        with on.slice("runner"):
            asyncio.run(main())
        reading = read(on)
        assert reading.parents == {"runner": None, "g": "runner", "later": "runner"}
        check_over(on, reading)

    def test_one_closed_at_the_moment_when_another_slice_begins(
        self, on: Recorder, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The task has nothing open then, and keeps its lane all the same."""
        generators: list[Iterator[int]] = []

        def numbers() -> Iterator[int]:
            with on.slice("g"):
                yield 1

        def collects(seed: int, begin_ns: int, depth: int) -> int:
            while len(generators) == 1:
                generators.pop().close()  # type: ignore[attr-defined]
            return slice_id(seed, begin_ns, depth)

        async def other() -> None:
            with on.slice("other"):
                await asyncio.sleep(0)

        async def main() -> None:
            generators.extend((numbers(), numbers()))
            next(generators[0])
            generators.pop()
            monkeypatch.setattr("rltel.record.recorder.slice_id", collects)
            with on.slice("main"):
                await asyncio.gather(other(), other())

        asyncio.run(main())
        reading = read(on)
        assert not generators
        assert reading.one("main").lane not in {drawn.lane for drawn in reading.all("other")}
        check_over(on, reading)

    def test_a_context_manager_closed_in_another_task(self, on: Recorder) -> None:
        @asynccontextmanager
        async def session() -> AsyncIterator[None]:
            with on.slice("session"):
                yield

        async def main() -> None:
            opened = session()
            await opened.__aenter__()
            await asyncio.create_task(opened.__aexit__(None, None, None))  # type: ignore[arg-type]
            with on.slice("after"):
                pass

        asyncio.run(main())
        reading = read(on)
        assert reading.parents == {"session": None, "after": None}
        check_over(on, reading)

    def test_one_of_a_task_that_has_ended_does_not_hold_the_next_tasks_lane(self, on: Recorder) -> None:
        """Ids of dead tasks come again: the new task must not find the old one's lane."""

        def numbers(name: str) -> Iterator[int]:
            with on.slice(name):
                yield 1

        kept: list[Iterator[int]] = []

        async def work(number: int) -> None:
            kept.append(numbers(f"g {number}"))
            next(kept[-1])

        async def other(number: int) -> None:
            with on.slice(f"other {number}"):
                await asyncio.sleep(0)

        async def main() -> None:
            for number in range(50):
                await asyncio.create_task(work(number))
                gc.collect()
                await asyncio.create_task(other(number))

        asyncio.run(main())
        for generator in kept:
            generator.close()  # type: ignore[attr-defined]
        reading = read(on)
        assert {reading.parent(f"other {number}") for number in range(50)} == {None}
        check_over(on, reading)

    def test_what_was_closed_in_another_thread_gives_its_lane_back(self, on: Recorder) -> None:
        def numbers() -> Iterator[int]:
            with on.slice("g"):
                yield 1

        async def work() -> None:
            generator = numbers()
            next(generator)
            await asyncio.to_thread(generator.close)  # type: ignore[attr-defined]

        async def main() -> None:
            for _ in range(30):
                await asyncio.create_task(work())

        asyncio.run(main())
        assert len(task_lanes(on)) == 1
        assert not read(on).left_open


def test_records_can_be_taken_at_any_moment(on: Recorder) -> None:
    reader = LaneReader(on)

    async def work(number: int) -> None:
        with on.slice(f"outer {number}"):
            reader.read()
            await asyncio.sleep(0)
            with on.slice(f"inner {number}"):
                reader.read()
                await asyncio.sleep(0)
            reader.read()

    async def main() -> None:
        await asyncio.gather(*(work(number) for number in range(5)))

    asyncio.run(main())
    reading = reader.read()
    assert [reading.parent(f"inner {number}") for number in range(5)] == [f"outer {number}" for number in range(5)]
    check_over(on, reading)
