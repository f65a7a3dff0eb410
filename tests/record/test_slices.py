"""Slices as a program uses them: `with`, decorators, begun and ended explicitly."""

from __future__ import annotations

import asyncio
import gc
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from tests.realparts.lane_reading import LaneReader, read

from rltel.core.errors import RecordError
from rltel.record.recorder import Recorder
from rltel.record.records import Begin, End, FreeBegin, FreeEnd, Site
from rltel.record.slices import Quiet, as_flows


@pytest.fixture
def on(recorder: Recorder) -> Recorder:
    recorder.start()
    return recorder


class TestBare:
    def test_are_a_site_and_two_times(self, on: Recorder, clock: Any) -> None:
        for _ in range(2):
            with on.slice("a"):
                clock.tick(1.0)
        records = on.here().take()
        assert [isinstance(record, Site) for record in records] == [True, False, False] * 2
        assert records[0] is records[3]
        assert records[1:3] + records[4:] == [1_000_000_000, 2_000_000_000, 2_000_000_000, 3_000_000_000]

    def test_nest_in_the_order_of_their_records(self, on: Recorder) -> None:
        with on.slice("a"):
            with on.slice("b"):
                pass
            with on.slice("c"), on.slice("d"):
                pass
        assert read(on).parents == {"a": None, "b": "a", "c": "a", "d": "c"}

    def test_that_are_open_are_there_already(self, on: Recorder) -> None:
        reader = LaneReader(on)
        with on.slice("a"):
            assert [drawn.name for drawn in reader.read().left_open] == ["a"]
        assert not reader.read().left_open

    def test_an_exception_is_noted_and_goes_on(self, on: Recorder, clock: Any) -> None:
        with pytest.raises(ZeroDivisionError), on.slice("a"), on.slice("b"):
            clock.fail_after(1.0)
        with on.slice("c"):
            pass
        reading = read(on)
        assert [drawn.error for drawn in reading.slices] == ["ZeroDivisionError", "ZeroDivisionError", None]
        assert reading.parents == {"a": None, "b": "a", "c": None}

    def test_more_is_said_at_the_end(self, on: Recorder) -> None:
        with on.slice("a") as a, on.slice("b"):
            a.set(loss=0.5)
            a.set(step=1, loss=0.25)
        reading = read(on)
        assert reading.one("a").attributes == {"loss": 0.25, "step": 1}
        assert reading.one("b").attributes == {}

    def test_may_be_used_again_after_their_end(self, on: Recorder) -> None:
        again = on.slice("a")
        for _ in range(2):
            with again:
                pass
        assert read(on).names == ["a", "a"]

    @pytest.mark.parametrize("attributes", [None, {"k": 1}])
    def test_are_refused_inside_themselves(self, on: Recorder, attributes: Any) -> None:
        again = on.slice("a", attributes=attributes)
        with again, pytest.raises(RecordError, match=r"slice\('a'\): entered again before its end; call slice again"):
            again.__enter__()
        reading = read(on)
        assert reading.names == ["a"]
        assert not reading.left_open

    @pytest.mark.parametrize("name", [len, 5, None, ["a"]])
    @pytest.mark.parametrize("is_on", [False, True])
    def test_need_a_name(self, recorder: Recorder, name: Any, is_on: bool) -> None:
        """As when the brackets of a decorator were forgotten."""
        if is_on:
            recorder.start()
        with pytest.raises(RecordError, match=r'slice: expected a name, as in rltel\.slice\("reward"\), got '):
            recorder.slice(name)
        with pytest.raises(RecordError, match="expected a name"):
            recorder.slice(name, "category")

    def test_names_made_up_on_the_way_do_not_fill_the_memory(
        self, on: Recorder, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("rltel.record.recorder._MAX_SITES", 10)
        for number in range(100):
            with on.slice(f"request {number}"):
                pass
        assert read(on).names == [f"request {number}" for number in range(100)]
        assert len(on._sites) <= 10
        assert len(on._quiet) <= 10


class TestRich:
    def test_say_what_they_are(self, on: Recorder) -> None:
        with on.slice("a", "cat", flow=7, attributes={"k": 1}):
            pass
        begin, end = on.here().take()
        assert isinstance(begin, Begin)
        assert (begin.time_ns, begin.site.name, begin.site.category) == (1_000_000_000, "a", "cat")
        assert (begin.flows, begin.attributes) == ((7,), {"k": 1})
        assert end == 1_000_000_000

    def test_attributes_are_copied(self, on: Recorder) -> None:
        mine = {"k": 1}
        handle = on.begin("free", attributes=mine)
        with on.slice("a", attributes=mine):
            on.instant("i", attributes=mine)
            on.place("track", "p", 1, 2, attributes=mine)
            mine["k"] = 2
        handle.end()
        records = [*on.shared.take(), *on.here().take()]
        said = [record.begin.attributes for record in records if hasattr(record, "begin")]
        said += [record.attributes for record in records if hasattr(record, "name") or isinstance(record, Begin)]
        assert said == [{"k": 1}] * 4

    def test_an_exception_is_noted(self, on: Recorder) -> None:
        def fails() -> None:
            with on.slice("a", "cat", flow=1) as opened:
                opened.set(k=1)
                raise KeyError

        with pytest.raises(KeyError):
            fails()
        assert on.here().take()[1:] == [End(1_000_000_000, {"k": 1}, "KeyError")]

    @pytest.mark.parametrize("flow", [1.5, "12", b"12", object()])
    def test_flows_that_are_no_ids_are_refused(self, on: Recorder, flow: Any) -> None:
        with pytest.raises(RecordError, match="flow: expected an id"):
            on.slice("s", flow=flow)

    def test_flows_may_be_numbers_of_numpy(self) -> None:
        assert as_flows(np.int64(7)) == (7,)  # type: ignore[arg-type]  # an index all the same

    @pytest.mark.parametrize("attributes", [5, [1, 2], "ab"])
    def test_attributes_that_are_no_mapping_are_refused(self, on: Recorder, attributes: Any) -> None:
        for call in (on.slice, on.instant, on.begin):
            with pytest.raises(RecordError, match="attributes: expected a mapping"):
                call("s", attributes=attributes)
        assert read(on).slices == []

    def test_flows_are_ids_or_none(self) -> None:
        assert as_flows(None) is None
        assert as_flows(5) == (5,)
        assert as_flows(iter([5, 6])) == (5, 6)


class TestDecorators:
    @pytest.mark.parametrize("category", ["", "cat"])
    def test_of_functions(self, on: Recorder, category: str) -> None:
        @on.slice("f", category)
        def f(x: int, *, y: int) -> int:
            """Doc."""
            return x + y

        assert [f(1, y=2), f(2, y=3)] == [3, 5]
        assert (f.__name__, f.__doc__) == ("f", "Doc.")
        assert [(each.name, each.category) for each in read(on).slices] == [("f", category)] * 2

    def test_of_coroutines_take_until_these_are_done(self, on: Recorder, clock: Any) -> None:
        @on.slice("f", attributes={"k": 1})
        async def f() -> int:
            await asyncio.sleep(0)
            clock.tick(1.0)
            return 5

        assert asyncio.run(f()) == 5
        drawn = read(on).one("f")
        assert (drawn.end_ns or 0) - drawn.begin_ns == 1_000_000_000
        assert drawn.attributes == {"k": 1}

    def test_of_generators_take_until_these_are_done(self, on: Recorder, clock: Any) -> None:
        @on.slice("batches")
        def batches() -> Iterator[int]:
            yield 1
            clock.tick(2.0)
            yield 2

        assert list(batches()) == [1, 2]
        assert [(drawn.name, drawn.end_ns - drawn.begin_ns) for drawn in read(on).slices] == [("batches", 2 * 10**9)]

    def test_of_asynchronous_generators_are_refused(self, on: Recorder) -> None:
        async def stream() -> Any:
            yield 1

        with pytest.raises(RecordError, match="asynchronous generator"):
            on.slice("stream")(stream)

    def test_an_exception_goes_through(self, on: Recorder) -> None:
        @on.slice("f")
        def f() -> None:
            raise KeyError

        with pytest.raises(KeyError):
            f()
        assert read(on).one("f").error == "KeyError"

    def test_calls_may_be_inside_each_other(self, on: Recorder) -> None:
        @on.slice("f")
        def f(depth: int) -> int:
            return depth and f(depth - 1)

        f(3)
        assert read(on).names == ["f"] * 4

    @pytest.mark.parametrize("category", ["", "cat"])
    def test_made_while_off_record_once_on(self, recorder: Recorder, category: str) -> None:
        """At import time, that is, before `init`."""

        @recorder.slice("f", category)
        def f() -> None:
            pass

        @recorder.slice("g", category)
        async def g() -> None:
            pass

        f()
        asyncio.run(g())
        recorder.start()
        f()
        asyncio.run(g())
        recorder.stop()
        f()
        assert sorted((each.name, each.category) for each in read(recorder).slices) == [
            ("f", category),
            ("g", category),
        ]

    def test_made_while_on_stay_quiet_once_off(self, on: Recorder, clock: Any) -> None:
        @on.slice("f")
        def f() -> None:
            pass

        on.stop()
        f()
        assert clock.readings == 0
        assert not read(on).slices


class TestExplicit:
    def test_end_anywhere_in_any_order_and_once(self, on: Recorder, clock: Any) -> None:
        with on.slice("outer"):
            a, b = on.begin("a", "cat", flow=1), on.begin("b")
        clock.tick(1.0)
        thread = threading.Thread(target=a.end, kwargs={"error": "timed out", "k": 1})
        thread.start()
        thread.join()
        clock.tick(1.0)
        b.end()
        a.end()
        b.end()
        assert [type(record) for record in on.shared.records] == [FreeBegin, FreeBegin, FreeEnd, FreeEnd]
        reading = read(on)
        first, second = reading.one("a"), reading.one("b")
        assert (first.end_ns, first.error, first.attributes) == (2_000_000_000, "timed out", {"k": 1})
        assert (second.end_ns, second.error, second.attributes) == (3_000_000_000, None, {})
        assert reading.parents == {"a": "outer", "b": "outer", "outer": None}

    def test_a_word_without_a_name_is_refused(self, on: Recorder) -> None:
        """``end("accepted")`` would have marked it as failed."""
        with pytest.raises(TypeError):
            on.begin("a").end("accepted")  # type: ignore[misc]  # what is refused

    def test_begun_while_off_are_not_ended_while_on(self, recorder: Recorder) -> None:
        handle = recorder.begin("a")
        recorder.start()
        handle.end()
        assert not recorder.shared.records

    def test_begun_before_a_new_start_end_where_they_began(self, on: Recorder) -> None:
        handle = on.begin("a")
        on.stop()
        on.start()
        handle.end()
        assert not on.shared.records

    def test_placed_ones_are_whole(self, on: Recorder) -> None:
        on.place("gpu 0", "kernel", 5, 8, "cuda", flow=[1, 2], attributes={"k": 1})
        (placed,) = read(on).placed
        assert (placed.track, placed.begin.time_ns, placed.end_ns) == ("gpu 0", 5, 8)
        assert (placed.begin.site.name, placed.begin.site.category) == ("kernel", "cuda")
        assert (placed.begin.flows, placed.begin.attributes) == ((1, 2), {"k": 1})


class TestQuiet:
    def test_cost_no_reading_of_the_clock(self, recorder: Recorder, clock: Any) -> None:
        with recorder.slice("a") as quiet, recorder.slice("b", "cat", flow=1):
            quiet.set(k=1)
            recorder.instant("i")
            recorder.counter("c", 1.0)
            recorder.place("t", "n", 1, 2)
            recorder.begin("h").end()
        assert isinstance(quiet, Quiet)
        assert clock.readings == 0
        assert recorder.lanes() == [recorder.shared]

    def test_let_exceptions_through(self, recorder: Recorder) -> None:
        with pytest.raises(KeyError), recorder.slice("a"):
            raise KeyError


class TestGenerators:
    def numbers(self, recorder: Recorder, name: str) -> Iterator[int]:
        with recorder.slice(name):
            yield 1
            with recorder.slice(f"{name} inner"):
                yield 2

    def test_interleaved_with_their_caller(self, on: Recorder, clock: Any) -> None:
        numbers = self.numbers(on, "g")
        next(numbers)
        with on.slice("caller"):
            clock.tick(1.0)
            next(numbers)
            clock.tick(1.0)
        with on.slice("later"):
            clock.tick(1.0)
            next(numbers, None)
            clock.tick(1.0)
        reading = read(on)
        ends = {each.name: (each.begin_ns // 10**9, (each.end_ns or 0) // 10**9) for each in reading.slices}
        assert ends == {"g": (1, 4), "caller": (1, 3), "g inner": (2, 4), "later": (3, 5)}

    def test_of_two_zipped_generators(self, on: Recorder) -> None:
        assert list(zip(self.numbers(on, "g"), self.numbers(on, "h"), strict=False)) == [(1, 1), (2, 2)]
        reading = read(on)
        assert sorted(reading.names) == ["g", "g inner", "h", "h inner"]
        assert not reading.left_open
        assert on.here().top is None

    @pytest.mark.parametrize("attributes", [None, {"k": 1}])
    def test_abandoned_ones_are_marked_and_no_error(self, on: Recorder, attributes: Any) -> None:
        def numbers() -> Iterator[int]:
            with on.slice("g", attributes=attributes):
                yield 1

        generator = numbers()
        next(generator)
        with on.slice("caller"):
            del generator
            gc.collect()
            with on.slice("inner"):
                pass
        reading = read(on)
        drawn = reading.one("g")
        assert drawn.error is None
        assert drawn.attributes == {**(attributes or {}), "abandoned": True}
        assert drawn.end_ns is not None
        assert reading.parent("inner") == "caller"
        assert on.here().top is None

    def test_closed_in_another_thread(self, on: Recorder) -> None:
        generator = self.numbers(on, "g")
        next(generator)
        with on.slice("here"):
            with on.slice("before"):
                pass

            def closes() -> None:
                with on.slice("there"):
                    generator.close()  # type: ignore[attr-defined]

            thread = threading.Thread(target=closes)
            thread.start()
            thread.join()
            with on.slice("after"):
                pass
        reading = read(on)
        assert reading.parents == {"g": None, "here": "g", "before": "here", "there": None, "after": "here"}
        assert reading.one("g").attributes == {"abandoned": True}
        assert not reading.left_open

    def test_in_a_cycle_are_closed_by_the_garbage_collector(self, on: Recorder) -> None:
        class Loop:
            """Only the collector finds it."""

        for _ in range(3):
            loop = Loop()
            loop.itself, loop.numbers = loop, self.numbers(on, "g")  # type: ignore[attr-defined]
            next(loop.numbers)  # type: ignore[attr-defined]
        del loop
        with on.slice("caller"):
            gc.collect()
        reading = read(on)
        assert len(reading.all("g")) == 3
        assert not reading.left_open
        assert on.here().top is None

    def test_closed_at_the_moment_when_another_slice_begins(
        self, recorder: Recorder, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """As garbage collection may do it, wherever something is allocated."""
        recorder.start(thread_time=True)
        generators = [self.numbers(recorder, "g")]
        next(generators[0])

        def collects() -> int:
            while generators:
                generators.pop().close()  # type: ignore[attr-defined]
            return 0

        monkeypatch.setattr("rltel.record.recorder.time.thread_time_ns", collects)
        with recorder.slice("caller"):
            pass
        assert recorder.here().top is None
        reading = read(recorder)
        assert reading.parents == {"g": None, "caller": None}
        assert not reading.left_open

    def test_ids_are_the_same_for_who_asks_and_who_reads_after_others_have_ended(self, on: Recorder) -> None:
        generator = self.numbers(on, "g")
        next(generator)
        with on.slice("caller"):
            generator.close()  # type: ignore[attr-defined]
            handle = on.begin("child")
            handle.end()
        assert read(on).parent("child") == "caller"
