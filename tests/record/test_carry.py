"""`rltel.carry`: what another thread records belongs to the place where the function was carried off."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from tests.realparts.lane_reading import read

import rltel
from rltel.core.context import current
from rltel.record.recorder import Recorder


@pytest.fixture
def on() -> Iterator[Recorder]:
    recorder = rltel.process.recorder
    recorder.start()
    yield recorder
    recorder.reset()


def draw(name: str) -> str:
    with rltel.slice(name), rltel.slice(f"{name} inner"):
        return name


def test_a_pools_slices_lie_in_the_slice_that_is_open_here(on: Recorder) -> None:
    with ThreadPoolExecutor(2) as pool:
        with rltel.slice("a"):
            futures = [pool.submit(rltel.carry(draw), f"of a {number}") for number in range(4)]
        with rltel.slice("b"):
            futures.append(pool.submit(rltel.carry(draw), "of b"))
        futures.append(pool.submit(draw, "not carried"))
        assert [future.result() for future in futures] == [*(f"of a {n}" for n in range(4)), "of b", "not carried"]
    reading = read(on)
    assert {reading.parent(f"of a {number}") for number in range(4)} == {"a"}
    assert (reading.parent("of b"), reading.parent("of b inner")) == ("b", "of b")
    assert reading.parent("not carried") is None
    assert not reading.left_open


def test_after_the_slice_has_ended_it_still_is_the_parent(on: Recorder) -> None:
    with rltel.slice("a"):
        carried = rltel.carry(draw)
    with rltel.slice("elsewhere"):
        carried("late")
    assert read(on).parents == {"a": None, "elsewhere": None, "late": "a", "late inner": "late"}


def test_carried_on_from_thread_to_thread(on: Recorder) -> None:
    with ThreadPoolExecutor(1) as first, ThreadPoolExecutor(1) as second:

        def middle() -> str:
            with rltel.slice("middle"):
                return second.submit(rltel.carry(draw), "end").result()

        with rltel.slice("start"):
            first.submit(rltel.carry(middle)).result()
    reading = read(on)
    assert (reading.parent("end"), reading.parent("middle")) == ("middle", "start")
    assert len({reading.one(name).lane for name in ("start", "middle", "end")}) == 3


def test_one_function_may_run_in_many_threads_at_once(on: Recorder) -> None:
    together = threading.Barrier(8)

    def work(number: int) -> None:
        with rltel.slice(f"t {number}"):
            together.wait()

    with rltel.slice("a"):
        carried = rltel.carry(work)
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(carried, range(8)))
    reading = read(on)
    assert {reading.parent(f"t {number}") for number in range(8)} == {"a"}


def test_from_a_task_to_an_executor(on: Recorder) -> None:
    async def work(number: int) -> None:
        with rltel.slice(f"task {number}"):
            await asyncio.sleep(0)
            await asyncio.get_running_loop().run_in_executor(None, rltel.carry(draw), f"executor {number}")

    async def main() -> None:
        await asyncio.gather(work(1), work(2))

    asyncio.run(main())
    reading = read(on)
    assert [reading.parent(f"executor {number}") for number in (1, 2)] == ["task 1", "task 2"]


def test_a_loop_run_by_a_carried_function(on: Recorder) -> None:
    async def work() -> None:
        with rltel.slice("in loop"):
            await asyncio.sleep(0)

    with rltel.slice("a"), ThreadPoolExecutor(1) as pool:
        pool.submit(rltel.carry(lambda: asyncio.run(work()))).result()
    assert read(on).parents == {"a": None, "in loop": "a"}


def test_in_a_callback_of_a_loop(on: Recorder) -> None:
    async def main() -> None:
        with rltel.slice("a"):
            carried = rltel.carry(draw)
        with rltel.slice("b"):
            asyncio.get_running_loop().call_soon(carried, "callback")
            await asyncio.sleep(0)

    asyncio.run(main())
    assert read(on).parents == {"a": None, "b": None, "callback": "a", "callback inner": "callback"}


def test_while_off_only_the_scope_travels(taken: Any) -> None:
    stats = rltel.get("carried while off")
    with stats.scope("s"), rltel.slice("a"):
        carried = rltel.carry(lambda: stats.scalar(x=1.0))
    with ThreadPoolExecutor(1) as pool:
        pool.submit(carried).result()
    assert list(taken(stats)) == ["carried while off/s/x", "carried while off/s/x__count"]
    assert not rltel.process.recorder.shared.records


def test_carried_while_off_and_run_while_on(on: Recorder) -> None:
    on.stop()
    with rltel.slice("a"):
        carried = rltel.carry(draw)
    on.start()
    carried("late")
    assert read(on).parents == {"late": None, "late inner": "late"}


def test_the_trace_context_travels(on: Recorder) -> None:
    tracer = TracerProvider().get_tracer("user")
    with rltel.rollout() as rollout, ThreadPoolExecutor(1) as pool:
        assert pool.submit(rltel.carry(current)).result() == rollout.context
        with tracer.start_as_current_span("theirs") as theirs:
            carried = rltel.carry(draw)
        carried("in theirs")
    reading = read(on)
    assert reading.parent("in theirs") == f"{theirs.get_span_context().span_id:x}"
    assert trace.get_current_span().get_span_context().is_valid is False


def test_an_exception_leaves_nothing_attached(on: Recorder) -> None:
    def fails() -> None:
        raise KeyError

    with rltel.slice("a"):
        carried = rltel.carry(fails)
    with pytest.raises(KeyError):
        carried()
    draw("after")
    assert read(on).parent("after") is None


async def later() -> None: ...


def generates() -> Iterator[int]:
    yield 1


@pytest.mark.parametrize("function", [later, generates])
def test_what_would_run_elsewhere_is_refused(function: Any) -> None:
    """It would return at once, and run without what was carried."""
    with pytest.raises(rltel.RecordError, match="carry: expected a function that runs where it is called, got <func"):
        rltel.carry(function)
