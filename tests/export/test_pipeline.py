"""Between commit and the destinations: nobody waits for anybody, and what is dropped is counted."""

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest

from export.making import ListSink, commit, point, recorded, wait_until
from rltel.export.commit import Commit
from rltel.export.media import media
from rltel.export.pipeline import Pipeline, RemoteWorker
from rltel.export.points import Point
from rltel.export.sink import Destination, Sink
from rltel.export.worker import Parcel, Worker
from rltel.names.otel import Namer

LONG = 30.0
BOUND = 10.0
"""Seconds: far below LONG, far above what it takes."""


class HangingSink(ListSink):
    """Hangs in its first write until it is let go."""

    def __init__(self, name: str = "hanging") -> None:
        super().__init__(name)
        self.entered, self.let_go = threading.Event(), threading.Event()

    def write(self, made: Commit, points: Sequence[Point]) -> None:
        self.entered.set()
        self.let_go.wait(LONG)
        super().write(made, points)


class Plain(ListSink):
    """One that takes the numbers as they are."""

    takes_points = False


class RaisingSink(ListSink):
    """Raises wherever it is asked to, and works otherwise."""

    def __init__(self, *where: str) -> None:
        super().__init__("raising")
        self.where = where

    def _raise(self, where: str) -> None:
        if where in self.where:
            raise RuntimeError(f"in {where}")

    def write(self, made: Commit, points: Sequence[Point]) -> None:
        self._raise("write")
        super().write(made, points)

    def flush(self) -> None:
        self._raise("flush")
        super().flush()

    def close(self) -> None:
        self._raise("close")
        super().close()


class Running:
    """A pipeline with its destinations."""

    def __init__(
        self, local: Sequence[Sink] = (), remote: Sequence[Sink] = (), remote_bytes: int = 10**9, **how: Any
    ) -> None:
        self.local = [Destination(sink.name) for sink in local]
        self.remote = [Destination(sink.name) for sink in remote]
        self.drains = 0
        how = {"drain": self._drain, "flush_interval_s": 0.02, **how}
        workers = [RemoteWorker(*pair, remote_bytes) for pair in zip(remote, self.remote, strict=True)]
        self.pipeline = Pipeline(list(zip(local, self.local, strict=True)), workers, Namer(), **how)

    def _drain(self) -> None:
        self.drains += 1

    def submit(self, *steps: int, **changed: Any) -> None:
        for step in steps:
            self.pipeline.submit(commit({"x": float(step)}, step=step, **changed))


@contextmanager
def running(local: Sequence[Sink] = (), remote: Sequence[Sink] = (), **how: Any) -> Iterator[Running]:
    made = Running(local, remote, **how)
    try:
        yield made
    finally:
        for sink in (*local, *remote):
            if isinstance(sink, HangingSink):
                sink.let_go.set()
        made.pipeline.close(BOUND)


def steps(sink: ListSink) -> list[int]:
    return [made.step for made in sink.commits]


class TestDelivery:
    def test_every_commit_reaches_everyone_in_order(self) -> None:
        local, remote = ListSink("l"), ListSink("r")
        with running([local], [remote]) as made:
            made.submit(*range(50))
            assert made.pipeline.flush(BOUND)
            assert steps(local) == steps(remote) == list(range(50))
            assert [found.exported_total for found in (*made.local, *made.remote)] == [50, 50]

    def test_all_get_the_same_points(self) -> None:
        local, remote = ListSink("l"), ListSink("r")
        with running([local], [remote]) as made:
            made.submit(1)
            assert made.pipeline.flush(BOUND)
        assert local.points == remote.points
        assert point(local.points[0], "rl.stats.x").value == 1.0

    def test_points_that_nobody_takes_are_not_made(self) -> None:
        """Names and sums of every key would be kept for nothing."""
        plain = Plain("p")
        with running([plain], [Plain("q")]) as made:
            made.submit(*range(5))
            assert made.pipeline.flush(BOUND)
            assert (plain.points, made.pipeline._totals._known) == ([[]] * 5, {})
        taker = ListSink("t")
        with running([Plain("p")], [taker]) as made:
            made.submit(1)
            assert made.pipeline.flush(BOUND)
        assert point(taker.points[0], "rl.stats.x").value == 1.0

    def test_a_queue_of_commits_without_points_is_bounded_as_well(self) -> None:
        class Hanging(HangingSink):
            takes_points = False

        hanging = Hanging()
        with running([], [hanging], remote_bytes=10_000) as made:
            made.submit(0)
            assert hanging.entered.wait(BOUND)
            made.submit(*range(1, 51))
            wait_until(lambda: made.remote[0].dropped_totals.get("queue_full", 0) >= 30, "the oldest were dropped")

    def test_the_trace_is_drained_every_interval_and_at_the_end(self) -> None:
        with running() as made:
            wait_until(lambda: made.drains >= 3, "three drains")
            before = made.drains
        assert made.drains > before

    def test_the_trace_does_not_wait_for_a_trainer_that_never_rests(self) -> None:
        class Slow(ListSink):
            def write(self, made: Commit, points: Sequence[Point]) -> None:
                time.sleep(0.002)
                super().write(made, points)

        sink, done = Slow(), list[int]()  # how many commits were there at each drain
        with running([sink], drain=lambda: done.append(len(sink.commits))) as made:
            made.submit(*range(2000))
            wait_until(lambda: len({at for at in done if 0 < at < 2000}) >= 3, "three drains while there is work")
            made.pipeline._inbox.clear()

    def test_no_commit_waits_for_the_next_interval(self) -> None:
        sink = ListSink()
        with running([sink], flush_interval_s=LONG) as made:
            made.submit(1)
            wait_until(lambda: sink.commits, "the commit")


class TestFailures:
    @pytest.mark.parametrize("kind", ["local", "remote"])
    @pytest.mark.parametrize("where", ["write", "flush", "close"])
    def test_one_that_raises_delays_and_costs_nobody_else(
        self, kind: str, where: str, caplog: pytest.LogCaptureFixture
    ) -> None:
        raising, local, remote = RaisingSink(where), ListSink("l"), ListSink("r")
        sinks: dict[str, list[Sink]] = {"local": [local], "remote": [remote]}
        sinks[kind].insert(0, raising)
        with running(sinks["local"], sinks["remote"]) as made:
            made.submit(1, 2, 3)
            assert made.pipeline.flush(BOUND)
            assert steps(local) == steps(remote) == [1, 2, 3]
        assert local.closed
        wait_until(lambda: remote.closed, "the remote one's close")
        account = (made.local if kind == "local" else made.remote)[0]
        assert account.exported_total == (0 if where == "write" else 3)
        assert account.dropped_totals.get("error", 0) == (3 if where == "write" else 0)
        said = [record for record in caplog.records if "in " + where in record.message]
        assert len(said) == (0 if (kind, where) == ("remote", "flush") else 1), "said once, whatever happens how often"

    def test_one_that_hangs_delays_nobody_else(self) -> None:
        hanging, local, remote = HangingSink(), ListSink("l"), ListSink("r")
        with running([local], [hanging, remote]) as made:
            made.submit(*range(20))
            wait_until(lambda: steps(local) == steps(remote) == list(range(20)), "the others")
            wait_until(hanging.entered.is_set, "the one that hangs to be at it")
            assert hanging.commits == []

    def test_a_drain_that_raises_ends_nothing(self) -> None:
        def broken() -> None:
            raise RuntimeError("cannot drain")

        sink = ListSink()
        with running([sink], drain=broken) as made:
            wait_until(lambda: "error" in made.pipeline.account.dropped_totals, "a drain")
            made.submit(1)
            assert made.pipeline.flush(BOUND)
            assert steps(sink) == [1]

    def test_a_commit_that_cannot_be_translated_costs_itself_only(self, monkeypatch: pytest.MonkeyPatch) -> None:
        from rltel.export import pipeline

        real = pipeline.points_of

        def fails_at_two(made: Commit, *rest: Any) -> list[Point]:
            if made.step == 2:
                raise RuntimeError("untranslatable")
            return real(made, *rest)

        monkeypatch.setattr(pipeline, "points_of", fails_at_two)
        sink = ListSink()
        with running([sink]) as made:
            made.submit(1, 2, 3)
            assert made.pipeline.flush(BOUND)
            assert steps(sink) == [1, 3]
            assert made.pipeline.account.dropped_totals == {"error": 1}

    def test_and_neither_does_the_last_one(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """The one that `log_interval` had held back, translated at the end."""
        from rltel.export import pipeline

        def broken(*_: Any) -> list[Point]:
            raise RuntimeError("untranslatable")

        monkeypatch.setattr(pipeline, "points_of", broken)
        sink = ListSink()
        with running([sink], log_interval=10) as made:
            made.submit(1)
        assert sink.closed
        assert made.pipeline.account.dropped_totals == {"error": 1}


class TestBounds:
    def test_a_full_queue_drops_the_oldest_and_counts(self) -> None:
        hanging = HangingSink()
        with running([], [hanging], remote_bytes=10 * 400 * 3) as made:
            made.submit(0)
            assert hanging.entered.wait(LONG)
            made.submit(*range(1, 31))
            wait_until(lambda: made.pipeline._handled == 31, "the local thread")
            dropped = made.remote[0].dropped_totals["queue_full"]
            hanging.let_go.set()
            assert made.pipeline.flush(BOUND)
            assert steps(hanging) == [0, *range(1 + dropped, 31)], "the newest are there, in order"
            assert made.remote[0].exported_total + dropped == 31
            assert 10 <= dropped < 30

    def test_the_newest_stays_however_large_it_is(self) -> None:
        hanging = HangingSink()
        with running([], [hanging], remote_bytes=1) as made:
            made.submit(0)
            assert hanging.entered.wait(LONG)
            made.submit(1, 2, 3)
            wait_until(lambda: made.pipeline._handled == 4, "the local thread")
            hanging.let_go.set()
            assert made.pipeline.flush(BOUND)
            assert steps(hanging) == [0, 3]

    def test_what_a_queue_dropped_is_in_the_next_sum(self) -> None:
        hanging = HangingSink()
        with running([], [hanging], remote_bytes=1) as made:
            for step in range(10):
                snapshot = recorded(lambda trackers, step=step: trackers.default.scalar(reward=float(step)))
                made.pipeline.submit(commit(snapshot, step=step))
                assert hanging.entered.wait(LONG)
            wait_until(lambda: made.pipeline._handled == 10, "the local thread")
            hanging.let_go.set()
            assert made.pipeline.flush(BOUND)
            last = hanging.points[-1]
            assert len(hanging.points) < 10
            assert point(last, "rl.stats.reward.numerator").value == sum(range(10))
            assert point(last, "rl.stats.reward.denominator").value == 10

    def test_what_adds_up_never_goes_back_where_a_held_step_is_let_through_at_the_end(self) -> None:
        """An evaluation's step that the interval held back comes after later steps of the training."""
        sink = ListSink()
        with running([sink], [], log_interval=10) as made:
            for number, (axis, step) in enumerate([("train", 0), ("eval", 5), *(("train", n) for n in range(1, 41))]):
                snapshot = recorded(lambda trackers: trackers.default.count(n=1))
                made.pipeline.submit(commit(snapshot, number=number, step=step, axis=axis))
            made.pipeline.close(BOUND)
        assert [each.step for each in sink.commits if each.axis == "eval"] == [5]
        counts = [[p.value for p in points if p.name == "rl.stats.n"] for points in sink.points]
        whole = [values[0] for values in counts if values]
        assert whole == sorted(whole)
        assert len(whole) == len(sink.commits) - 1, "the held one brings its gauges only"

    def test_media_that_wait_behind_a_local_one_that_hangs_are_counted_at_the_end(self) -> None:
        hanging = HangingSink()
        with running([hanging], []) as made:
            made.submit(0)
            assert hanging.entered.wait(LONG)
            for step in range(3):
                made.pipeline.show(media("text", "sample", "words", step=step, axis="train", time_ns=0))
            made.pipeline.close(0.1)
            assert made.pipeline.account.dropped_totals["shutdown"] == 1 + 3  # the commit, too
            hanging.let_go.set()

    def test_a_local_one_that_hangs_holds_a_bounded_number_of_commits(self) -> None:
        """A disk that does not answer must not fill the memory, nor hold up who commits; the sums stay whole."""
        hanging, remote = HangingSink(), ListSink("r")
        with running([hanging], [remote], queue_bytes=5000) as made:
            made.submit(0)
            assert hanging.entered.wait(LONG)
            for step in range(1, 100):
                snapshot = recorded(lambda trackers: trackers.default.count(n=1))
                made.pipeline.submit(commit(snapshot, step=step))
            assert len(made.pipeline._inbox) <= 5
            dropped = made.local[0].dropped_totals["queue_full"]
            assert dropped == made.remote[0].dropped_totals["queue_full"] >= 90
            hanging.let_go.set()
            assert made.pipeline.flush(BOUND)
            assert len(remote.commits) + dropped == 100
            assert point(remote.points[-1], "rl.stats.n").value == 99.0


def once_waited_for(pipeline: Pipeline, call: Callable[[], None]) -> None:
    """Call it, on a thread of its own, when somebody waits for a flush."""

    def watch() -> None:
        wait_until(lambda: pipeline._awaited is not None, "somebody who waits for a flush")
        call()

    threading.Thread(target=watch, daemon=True).start()


class TestFlush:
    def test_waits_until_it_is_there(self) -> None:
        sink = ListSink()
        with running([], [sink], flush_interval_s=LONG) as made:
            for step in range(20):
                made.submit(step)
                assert made.pipeline.flush(BOUND)
                assert steps(sink) == list(range(step + 1))

    def test_flushes_the_local_ones(self) -> None:
        sink = ListSink()
        with running([sink], flush_interval_s=LONG) as made:
            before = sink.flushes, made.drains
            assert made.pipeline.flush(BOUND)
            assert (sink.flushes, made.drains) == (before[0] + 1, before[1] + 1)

    def test_one_that_is_under_way_is_not_enough(self) -> None:
        """It may have passed what was recorded since it began: that was said to be written, and was not."""
        recorded: list[str] = []
        written: list[str] = []
        inside, go_on = threading.Event(), threading.Event()

        def drain() -> None:
            written.extend(recorded[len(written) :])
            inside.set()
            go_on.wait(LONG)

        with running(drain=drain) as made:  # which flushes of itself
            assert inside.wait(LONG)
            recorded.append("a slice")
            once_waited_for(made.pipeline, go_on.set)
            assert made.pipeline.flush(LONG)
            assert written == ["a slice"]

    def test_one_that_the_end_overtakes_does_not_wait_on(self) -> None:
        inside, go_on = threading.Event(), threading.Event()

        def drain() -> None:
            inside.set()
            go_on.wait(LONG)

        with running(drain=drain, flush_interval_s=LONG) as made:
            closing = threading.Thread(target=made.pipeline.close, args=(LONG,))
            closing.start()
            assert inside.wait(LONG), "the last flush"
            once_waited_for(made.pipeline, go_on.set)
            began = time.monotonic()
            assert not made.pipeline.flush(LONG), "none comes that could have what is recorded now"
            assert time.monotonic() - began < BOUND
            closing.join()

    @pytest.mark.parametrize("kind", ["local", "remote"])
    def test_says_so_if_the_time_runs_out(self, kind: str) -> None:
        hanging = HangingSink()
        with running(*([hanging], []) if kind == "local" else ([], [hanging])) as made:
            made.submit(1)
            assert not made.pipeline.flush(0.05)

    def test_after_the_end_it_does_not_wait(self) -> None:
        with running([ListSink()]) as made:
            made.submit(1)
        began = time.monotonic()
        assert made.pipeline.flush(LONG)
        assert time.monotonic() - began < BOUND


class TestClose:
    def test_brings_home_what_waits(self) -> None:
        local, remote = ListSink("l"), ListSink("r")
        with running([local], [remote], flush_interval_s=LONG) as made:
            made.submit(*range(100))
        assert steps(local) == steps(remote) == list(range(100))
        assert local.closed
        wait_until(lambda: remote.closed, "close")

    @pytest.mark.parametrize("kind", ["local", "remote"])
    def test_is_bounded_as_a_whole_and_counts_what_is_left(self, kind: str) -> None:
        hanging = [HangingSink(f"h{number}") for number in range(3)]
        with running(*(hanging, []) if kind == "local" else ([], hanging)) as made:
            made.submit(1, 2, 3)
            assert hanging[0].entered.wait(LONG)
            wait_until(lambda: kind == "local" or all(sink.entered.is_set() for sink in hanging), "all to hang")
            wait_until(lambda: kind == "local" or made.pipeline._handled == 3, "all commits to be in their queues")
            began = time.monotonic()
            made.pipeline.close(0.3)
            assert time.monotonic() - began < BOUND, "together, not each"
            if kind == "local":
                assert made.pipeline.account.dropped_totals == {"shutdown": 3}
            else:
                assert [account.dropped_totals for account in made.remote] == [{"shutdown": 3}] * 3


class TestTimeline:
    """The drain's part in it."""

    def worker(self, sent: list[str]) -> tuple[Worker, Destination]:
        account = Destination("spans")
        return Worker("spans", lambda: sent.append("closed"), account, 10**6), account

    def test_the_last_spans_reach_their_worker_before_it_closes(self) -> None:
        sent: list[str] = []
        worker, account = self.worker(sent)

        def finish() -> None:
            worker.put_parcel(Parcel(lambda: sent.append("the last ones"), 10, 5))

        with running(finish=finish, others=[worker], flush_interval_s=LONG):
            pass
        wait_until(lambda: sent == ["the last ones", "closed"], "the worker's end")
        assert (account.exported_total, account.dropped_totals) == (5, {})

    def test_it_is_drained_once_more_before_it_is_finished(self) -> None:
        order: list[str] = []
        drain, finish = lambda: order.append("drain"), lambda: order.append("finish")
        with running(drain=drain, finish=finish, flush_interval_s=LONG):
            pass
        assert order == ["drain", "finish"]

    def test_a_finish_that_raises_ends_nothing(self) -> None:
        def broken() -> None:
            raise RuntimeError("cannot finish")

        sink = ListSink()
        with running([sink], finish=broken) as made:
            made.submit(1)
        assert sink.closed
        assert steps(sink) == [1]
        assert "error" in made.pipeline.account.dropped_totals

    def test_a_flush_waits_for_what_was_drained_to_be_sent(self) -> None:
        sent: list[str] = []
        worker, account = self.worker(sent)

        def drain() -> None:
            worker.put_parcel(Parcel(lambda: sent.append("spans"), 10, 1))

        with running(drain=drain, others=[worker], flush_interval_s=LONG) as made:
            assert made.pipeline.flush(BOUND)
            assert sent == ["spans"]
            assert account.exported_total == 1

    def test_one_that_hangs_does_not_hold_up_the_end(self) -> None:
        let_go = threading.Event()
        sent: list[str] = []
        worker, account = self.worker(sent)
        worker.put_parcel(Parcel(lambda: let_go.wait(LONG) and None, 10, 7))
        with running(others=[worker]) as made:
            began = time.monotonic()
            made.pipeline.close(0.3)
            assert time.monotonic() - began < BOUND
            let_go.set()
        assert account.dropped_totals == {"shutdown": 7}


class TestLogInterval:
    def run(self, *commits: Commit, log_interval: int = 10) -> ListSink:
        sink = ListSink()
        with running([sink], log_interval=log_interval) as made:
            for each in commits:
                made.pipeline.submit(each)
        return sink

    def test_every_nth_step_and_the_last(self) -> None:
        sink = self.run(*(commit({"x": 1.0}, step=step) for step in range(26)))
        assert steps(sink) == [0, 10, 20, 25]

    def test_a_last_step_that_went_through_comes_once(self) -> None:
        assert steps(self.run(*(commit({"x": 1.0}, step=step) for step in range(21)))) == [0, 10, 20]

    def test_the_last_step_of_each_axis(self) -> None:
        commits = [commit({"x": 1.0}, step=step, axis=axis) for step in range(13) for axis in ("train", "rollout")]
        sink = self.run(*commits, commit({"x": 1.0}, step=8073, axis="eval"))
        last = [(made.axis, made.step) for made in sink.commits if made.step not in (0, 10)]
        assert sorted(last) == [("eval", 8073), ("rollout", 12), ("train", 12)]

    def test_steps_that_are_never_a_multiple_are_thinned_all_the_same(self) -> None:
        """A trainer that commits every 10 steps, and wants every 40th of them."""
        sink = self.run(*(commit({"a": 1.0}, step=step) for step in range(9, 200, 10)), log_interval=40)
        assert [made.step for made in sink.commits] == [49, 89, 129, 169, 199]

    def test_all_commits_of_the_last_step(self) -> None:
        """A trainer may log its losses and its evaluation of one step separately."""
        sink = self.run(commit({"loss": 1.0}, step=12), commit({"loss": 2.0}, step=13), commit({"eval": 3.0}, step=13))
        assert [made.values for made in sink.commits] == [{"loss": 2.0}, {"eval": 3.0}]

    def test_what_was_held_back_is_in_the_sums(self) -> None:
        def count(trackers: Any) -> None:
            trackers.default.count(n=1)

        sink = self.run(*(commit(recorded(count), step=step) for step in range(11)))
        assert [point(points, "rl.stats.n").value for points in sink.points] == [1.0, 11.0]


class TestDestination:
    def test_a_reason_is_said_once_and_counted_always(self, caplog: pytest.LogCaptureFixture) -> None:
        destination = Destination("otlp")
        for _ in range(5):
            destination.failed(OSError("gone"), "error")
        destination.failed(OSError("full"), "disk")
        assert destination.dropped_totals == {"error": 5, "disk": 1}
        assert [record.message for record in caplog.records] == [
            "otlp: gone (counted in rltel_dropped_total; said once)",
            "otlp: full (counted in rltel_dropped_total; said once)",
        ]

    def test_counts_from_any_thread(self) -> None:
        destination = Destination("d")
        run: Callable[[], object] = lambda: [(destination.exported(), destination.dropped("x")) for _ in range(5000)]  # noqa: E731
        threads = [threading.Thread(target=run) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert (destination.exported_total, destination.dropped_totals) == (20_000, {"x": 20_000})
