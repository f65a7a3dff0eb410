"""Sessions: every rollout ends once, its times are right whatever overlaps, and nothing of it stays in memory."""

from __future__ import annotations

import asyncio
import copy
import gc
import json
import pickle
import resource
import threading
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import rltel
from export.making import identity, run_python, wait_until
from realparts.lane_reading import read
from realparts.measures import Flat, cpu_as_device
from rltel.core.errors import PayloadError, RecordError, RltelError
from rltel.export.sink import Destination
from rltel.record.recorder import Recorder
from rltel.reduce.trackers import Trackers
from rltel.reduce.workers import Receiver, Sender
from rltel.rl import sessions as public
from rltel.rl.sessions import registry
from rltel.rl.sessions.file import SessionFile
from rltel.rl.sessions.lines import line_of
from rltel.rl.sessions.log import SessionLog
from rltel.rl.sessions.registry import Sessions
from rltel.rl.sessions.session import ENDS, Session, current
from rltel.rl.sessions.ticket import Ticket
from rltel.rl.sessions.times import OverlappingTime


class Clock:
    """Stands still until it is told to go on. Seconds."""

    def __init__(self) -> None:
        self.ns = 1_000_000_000
        self.wall = 1_700_000_000_000_000_000

    def __call__(self) -> int:
        return self.ns

    def tick(self, seconds: float) -> None:
        self.ns += round(seconds * 1e9)


class House:
    """Sessions with everything injected, and what they leave."""

    def __init__(self, folder: Path, **bounds: Any) -> None:
        self.clock = Clock()
        self.recorder = Recorder(now=self.clock)
        self.trackers = Trackers(self.recorder)
        self.sessions = Sessions(self.recorder, wall_ns=lambda: self.clock.wall, **bounds)
        self.account = Destination("sessions")
        self.folder = folder
        self.file = SessionFile(folder / "sessions", identity(), self.account)
        self.log = SessionLog(self.sessions, self.file, self.account)

    def submit(self, policy_version: int | None = None, **options: Any) -> Session:
        known = {name: options.pop(name) for name in ("judged_later", "flow") if name in options}
        tracker = self.trackers.get("rollout")
        return self.sessions.submit(policy_version, options, tracker=tracker, **known)

    def lines(self) -> list[dict[str, Any]]:
        self.log.drain()
        return list(public.read(self.folder)) if (self.folder / "sessions").exists() else []

    def line(self) -> dict[str, Any]:
        (found,) = self.lines()
        return found

    def stats(self) -> Flat:
        return dict(self.trackers.export_all())


@pytest.fixture
def house(tmp_path: Path) -> House:
    return House(tmp_path)


class TestLifecycle:
    def test_leaving_the_with_accepts(self, house: House) -> None:
        session = house.submit(3, task="t1")
        assert session.status == "submitted"
        house.clock.tick(1.0)
        with session:
            assert session.status == "running"
            with session.phase("generate"):
                assert session.doing == ["generate"]
                house.clock.tick(2.0)
            house.clock.tick(0.25)
            with session.phase("reward"):
                house.clock.tick(0.5)
        assert session.status == "accepted"
        line = house.line()
        assert line["status"] == "accepted"
        assert (line["queue_s"], line["total_s"], line["idle_s"]) == (1.0, 3.75, 0.25)
        assert line["phases"]["generate"] == {"calls": 1, "wall_s": 2.0, "busy_s": 2.0}
        assert line["calls"] == [["generate", 1.0, 3.0], ["reward", 3.25, 3.75]]
        assert (line["policy_version"], line["policy_versions"]) == (3, [3])
        assert line["attributes"] == {"task": "t1"}
        assert line["submitted_ns"] == house.clock.wall
        assert line["process"] == "learner-0.1"

    @pytest.mark.parametrize(("end", "status"), [("accept", "accepted"), ("reject", "rejected"), ("drop", "dropped")])
    @pytest.mark.parametrize("where", ["inside", "after", "before"])
    def test_who_is_told_how_it_ends_ends_so(self, house: House, end: str, status: str, where: str) -> None:
        session = house.submit(judged_later=True)
        if where == "before":
            getattr(session, end)()
        else:
            with session:
                if where == "inside":
                    getattr(session, end)()
                    assert session.status == "running"
            if where == "after":
                assert session.status == "waiting"
                house.clock.tick(2.0)
                assert getattr(session, end)()
        assert session.status == status
        line = house.line()
        assert line["status"] == status
        assert line["total_s"] == (2.0 if where == "after" else 0.0)

    def test_a_reason_and_the_staleness_at_that_time_are_kept(self, house: House) -> None:
        house.submit(3).drop("too stale", current_version=9)
        assert house.line()["reason"] == "too stale"
        assert house.line()["staleness"] == 6

    def test_the_first_end_stays(self, house: House) -> None:
        session = house.submit()
        assert session.reject("first")
        assert not session.accept()
        assert not session.drop("second")
        assert (house.line()["status"], house.line()["reason"]) == ("rejected", "first")
        assert house.stats()["rollout/sessions/rejected"] == 1

    def test_entered_twice_raises(self, house: House) -> None:
        session = house.submit(judged_later=True)
        with session, pytest.raises(RecordError, match="entered for a second time"):
            session.__enter__()
        with pytest.raises(RecordError, match="entered for a second time"), session:
            pass

    def test_without_a_with_it_runs_from_its_first_phase(self, house: House) -> None:
        """As in a server that handles a session's requests one by one."""
        session = house.submit()
        house.clock.tick(1.0)
        for _ in range(2):
            with house.sessions.find(session.id).phase("generate"):  # type: ignore[union-attr]  # it is there
                house.clock.tick(1.0)
        session.accept()
        assert house.sessions.find(session.id) is None
        line = house.line()
        assert (line["queue_s"], line["total_s"]) == (1.0, 3.0)
        assert line["phases"]["generate"]["calls"] == 2

    def test_counters_and_attributes(self, house: House) -> None:
        with house.submit(group=3) as session:
            session.add(output_tokens=5)
            session.add(output_tokens=7, tool_calls=1)
            session.set(score=float("nan"), prompt="x" * 2000, odd=object)
        line = house.line()
        assert line["counters"] == {"output_tokens": 12, "tool_calls": 1}
        assert line["attributes"]["group"] == 3
        assert line["attributes"]["score"] == "nan"
        assert len(line["attributes"]["prompt"]) == 503

    @pytest.mark.parametrize("name", ["", "/", None, 7])
    def test_a_phase_needs_a_name(self, house: House, name: Any) -> None:
        with pytest.raises(RecordError, match="expected a name"):
            house.submit().phase(name)

    def test_a_phase_cannot_have_the_name_of_a_time_of_the_session(self, house: House) -> None:
        with pytest.raises(RecordError, match="'total'"):
            house.submit().phase("total")

    @pytest.mark.parametrize("version", ["3", 3.0, object()])
    def test_a_version_is_a_whole_number(self, house: House, version: Any) -> None:
        with pytest.raises(RecordError, match="whole number"):
            house.submit(version)
        with pytest.raises(RecordError, match="whole number"):
            house.submit().used_policy(version)

    def test_what_is_added_is_a_number_or_nothing_is(self, house: House) -> None:
        session = house.submit()
        session.add(a=1, b=np.float32(0.5), c=torch.tensor(3), d=torch.tensor([2.5], dtype=torch.bfloat16), e=True)
        for wrong in ("x", None, [1], np.zeros(2), torch.zeros(2), torch.zeros(1, device="meta"), 1j):
            with pytest.raises(RecordError, match=r"session: add\(f\): expected a number, got"):
                session.add(a=1, f=wrong)
        with cpu_as_device(), pytest.raises(RecordError, match=r"add\(g\): expected a number, got Tensor"):
            session.add(g=torch.tensor(1))  # it would have to be waited for
        session.accept()
        assert house.line()["counters"] == {"a": 1, "b": 0.5, "c": 3, "d": 2.5, "e": True}

    def test_no_tensor_is_kept_and_single_numbers_are_numbers(self, house: House) -> None:
        many, one = torch.zeros(100), torch.tensor(0.25, requires_grad=True)
        seen = [weakref.ref(many), weakref.ref(one)]
        session = house.submit(many=many, one=one)
        session.set(array=np.zeros((2, 3)), flag=np.bool_(True), half=torch.tensor(0.5).bfloat16())
        with session.phase("generate", many=many):
            pass
        with cpu_as_device():
            session.set(there=torch.tensor(1.0))
        del many, one
        gc.collect()
        assert [each() for each in seen] == [None, None]
        session.accept()
        assert house.line()["attributes"] == {
            "many": "Tensor of shape (100,), dtype torch.float32",
            "one": 0.25,
            "array": "ndarray of shape (2, 3), dtype float64",
            "flag": True,
            "half": 0.5,
            "there": "Tensor of shape (), dtype torch.float32",
        }

    def test_more_than_a_line_holds_is_said(self, house: House) -> None:
        session = house.submit(**{f"a{number}": 1 for number in range(70)})
        session.add(**{f"c{number}": 1 for number in range(65)})
        session.accept()
        line = house.line()
        assert (len(line["attributes"]), line["attributes_left_out"]) == (64, 6)
        assert (len(line["counters"]), line["counters_left_out"]) == (64, 1)

    def test_it_stays_in_its_process_and_says_what_goes_to_another(self, house: House) -> None:
        for copy_of in (pickle.dumps, copy.copy, copy.deepcopy):
            with pytest.raises(TypeError, match=r"stays in its process: send session\.ticket\(\)"):
                copy_of(house.submit())

    def test_a_counter_takes_numbers(self, house: House) -> None:
        amount: Any = "5"
        with pytest.raises(RecordError, match="add\\(tokens\\): expected a number"):
            house.submit().add(tokens=amount)


class TestErrors:
    def test_an_exception_makes_it_failed_and_goes_on(self, house: House) -> None:
        def rollout() -> None:
            with house.submit() as session:
                session.accept()
                raise ZeroDivisionError("by https://user:secret@host/x?token=1")

        with pytest.raises(ZeroDivisionError):
            rollout()
        line = house.line()
        assert line["status"] == "failed"
        assert line["error"].startswith("ZeroDivisionError: by https://host/x")
        assert "secret" not in line["error"]

    def test_a_rejected_one_stays_rejected_whatever_comes(self, house: House) -> None:
        def rollout() -> None:
            with house.submit() as session:
                session.reject("wrong format")
                raise KeyError

        with pytest.raises(KeyError):
            rollout()
        assert house.line()["status"] == "rejected"
        assert house.line()["error"] == "KeyError"

    def test_fail_says_why(self, house: House) -> None:
        house.submit().fail(TimeoutError("no answer"))
        house.submit().fail("the engine is gone")
        first, second = house.lines()
        assert (first["status"], first["error"]) == ("failed", "TimeoutError: no answer")
        assert (second["status"], second["reason"]) == ("failed", "the engine is gone")

    def test_a_cancelled_task_is_a_cancelled_session(self, house: House) -> None:
        async def rollout() -> None:
            with house.submit() as session, session.phase("generate"):
                await asyncio.Event().wait()

        async def main() -> None:
            task = asyncio.create_task(rollout())
            await asyncio.sleep(0)
            house.clock.tick(2.0)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task

        asyncio.run(main())
        line = house.line()
        assert line["status"] == "cancelled"
        assert line["phases"]["generate"]["wall_s"] == 2.0

    def test_a_coroutine_that_nobody_runs_to_its_end_is_abandoned(self, house: House) -> None:
        def steps() -> Iterator[None]:
            with house.submit():
                yield

        generator = steps()
        next(generator)
        del generator
        gc.collect()
        assert house.line()["status"] == "abandoned"
        assert house.sessions.in_flight() == []


class TestOverlap:
    """The page's worst fault: two overlapping generate phases became three spans, and generate_s was about 0."""

    def test_areal_two_overlapping_generate_phases_are_both_right(self, house: House) -> None:
        house.recorder.start()

        async def generate(session: Session, starts: float, ends: float) -> None:
            await at(starts)
            with session.phase("generate"):
                await at(ends)

        times: list[tuple[float, asyncio.Event]] = []

        async def at(seconds: float) -> None:
            times.append((seconds, asyncio.Event()))
            await times[-1][1].wait()

        async def main() -> None:
            with house.submit() as session:
                async with asyncio.TaskGroup() as group:
                    group.create_task(generate(session, 1.0, 4.0))
                    group.create_task(generate(session, 3.0, 6.0))
                    done = 0.0
                    for _ in range(4):
                        await asyncio.sleep(0)
                        await asyncio.sleep(0)
                        times.sort(key=lambda each: each[0])
                        moment, event = times.pop(0)
                        house.clock.tick(moment - done)
                        done = moment
                        event.set()

        asyncio.run(main())
        line = house.line()
        assert line["phases"]["generate"] == {"calls": 2, "wall_s": 5.0, "busy_s": 6.0}
        assert line["idle_s"] == 1.0
        reading = read(house.recorder)
        drawn = reading.all("generate")
        assert sorted((found.begin_ns, found.end_ns) for found in drawn) == [
            (2_000_000_000, 5_000_000_000),
            (4_000_000_000, 7_000_000_000),
        ]
        assert {reading.parent(found) for found in drawn} == {"rollout"}

    @given(st.lists(st.tuples(st.integers(0, 50), st.integers(0, 20)), max_size=12), st.integers(0, 80))
    def test_wall_is_the_union_and_busy_the_sum_of_any_calls(self, given: list[tuple[int, int]], now: int) -> None:
        calls = [(begin, begin + length) for begin, length in given]
        found = OverlappingTime()
        events = sorted(
            [(begin, 0, begin) for begin, _ in calls] + [(end, 1, begin) for begin, end in calls],
            key=lambda each: each[:2],
        )
        for moment, kind, begin in events:
            if moment <= now:
                found.begin(moment) if kind == 0 else found.end(begin, moment)
        begun = [(begin, min(end, now)) for begin, end in calls if begin <= now]
        covered = {moment for begin, end in begun for moment in range(begin, end)}
        assert found.calls == len(begun)
        assert found.busy_ns(now) == sum(end - begin for begin, end in begun)
        assert found.wall_ns(now) == len(covered)

    def test_a_phase_that_is_open_at_the_end_counts_until_then(self, house: House) -> None:
        session = house.submit()
        with session.phase("generate"):
            house.clock.tick(1.0)
            session.drop("not needed")
            house.clock.tick(1.0)
        line = house.line()
        assert line["open_at_end"] == ["generate"]
        assert line["phases"]["generate"] == {"calls": 1, "wall_s": 1.0, "busy_s": 1.0}
        assert house.stats()["rollout/timeperf/generate"] == 2.0  # the call itself went on

    def test_phases_may_come_from_threads(self, house: House) -> None:
        with house.submit() as session:

            def work() -> None:
                for _ in range(200):
                    with session.phase("tool_call"):
                        pass

            threads = [threading.Thread(target=work) for _ in range(4)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        line = house.line()
        assert line["phases"]["tool_call"]["calls"] == 800
        assert len(line["calls"]) == 64
        assert line["calls_left_out"] == 736
        assert house.stats()["rollout/timeperf/tool_call__count"] == 800


class TestVersions:
    def test_areal_1569_the_version_is_read_before_the_response_not_after(self, house: House) -> None:
        """Output tokens were labelled with a version that was read after the response."""
        published = 4
        with house.submit() as session, session.phase("generate", policy_version=published):
            published = 5  # new weights, while it generates
        assert session.policy_version == 4
        assert published == 5

    def test_weights_that_come_in_the_middle_make_it_as_old_as_its_oldest(self, house: House) -> None:
        with house.submit(3) as session:
            with session.phase("generate", policy_version=4):
                session.used_policy(6)
            with session.phase("generate", policy_version=6):
                pass
        assert house.line()["policy_versions"] == [4, 6]
        assert house.line()["policy_version"] == session.ticket().policy_version == 4

    def test_consumption_records_staleness_and_gives_the_arrows(self, house: House) -> None:
        tickets = []
        for version, flow in ((3, 11), (5, 12), (None, 13)):
            with house.submit(version, flow=flow) as session:
                pass
            tickets.append(session.ticket())
        tracker = house.trackers.get("rollout")
        sent = [pickle.loads(pickle.dumps(tickets[0])), list(tickets[1]), tickets[2]._asdict()]
        found = house.sessions.consume(sent, 6, 40, tracker)
        assert found.flows == [11, 12, 13]
        assert found.staleness == [3, 1, None]
        stats = house.stats()
        assert (stats["rollout/sessions/staleness/min"], stats["rollout/sessions/staleness/max"]) == (1, 3)
        assert stats["rollout/sessions/consumed"] == 3
        lines = {line["id"]: line for line in house.lines()}
        (by,) = lines[tickets[0].id]["consumed"]
        assert (by["step"], by["policy_version"], by["staleness"]) == (40, 6, 3)
        assert lines[tickets[2].id]["consumed"][0]["staleness"] is None

    def test_the_oldest_counts_beyond_the_versions_that_are_listed(self, house: House) -> None:
        session = house.submit(99)
        for version in range(100, 20, -1):
            session.used_policy(version)
        with pytest.raises(RecordError, match="policy_version: expected a whole number"):
            session.used_policy("x")  # type: ignore[arg-type]  # what is refused
        session.accept(current_version=30)
        assert session.ticket().policy_version == session.policy_version == 21
        line = house.line()
        assert (line["policy_version"], line["staleness"], len(line["policy_versions"])) == (21, 9, 64)

    def test_samples_of_one_session_consume_it_once(self, house: House) -> None:
        """Its turns may be samples of their own, each with the ticket."""
        tickets = [Ticket("a", 1, 3), Ticket("b", 2, 1), Ticket("a", 1, 3)]
        consumed = house.sessions.consume(tickets, 4, 7, house.trackers.get("rollout"))
        assert consumed.staleness == [1, 3, 1]
        assert consumed.flows == [1, 2]
        (update,) = house.sessions.take()
        assert isinstance(update, registry.Update)
        assert (update.sessions, update.staleness) == (["a", "b"], [1, 3])
        stats = house.stats()
        assert stats["rollout/sessions/consumed"] == 2
        assert stats["rollout/sessions/staleness/avg"] == 2

    def test_one_by_itself_is_one(self, house: House) -> None:
        session = house.submit(3)
        for one in (session, session.ticket()):
            assert house.sessions.consume(one, 4, None, house.trackers.get("rollout")).staleness == [1]

    @pytest.mark.parametrize("given", ["abc", b"abc", 7, None, {"id": "a", "flow": 1, "policy_version": None}])
    def test_what_is_no_list_is_refused(self, house: House, given: Any) -> None:
        with pytest.raises(PayloadError, match="consume: expected a list of sessions or their tickets, got"):
            house.sessions.consume(given, 4, None)

    @pytest.mark.parametrize(
        ("version", "step"), [(2**70, None), (1.5, None), ("4", None), (4, 1.5), (4, "7"), (4, 2**70)]
    )
    def test_versions_and_steps_are_whole_numbers_or_nothing_is_recorded(
        self, house: House, version: Any, step: Any
    ) -> None:
        with pytest.raises(RecordError, match=r"session: (policy_version|step): expected a whole number"):
            house.sessions.consume([Ticket("a", 1, 1)], version, step, house.trackers.get("rollout"))
        assert "rollout/sessions/consumed" not in house.stats()

    def test_a_step_that_a_tensor_holds_is_a_number_in_the_line(self, house: House) -> None:
        version: Any = torch.tensor(4)
        house.sessions.consume([Ticket("a", 1, 1)], version, np.int64(7), house.trackers.get("rollout"))  # type: ignore[arg-type]  # NumPy's are numbers, too
        (update,) = house.sessions.take()
        assert isinstance(update, registry.Update)
        assert msgspec.json.decode(line_of(update))["step"] == 7

    @pytest.mark.parametrize("flow", [-1, 2**64, "x", 1.5])
    def test_an_arrow_is_a_number_of_64_bits(self, house: House, flow: Any) -> None:
        with pytest.raises(RecordError, match=r"session: flow: expected a number from rltel\.new_flow"):
            house.submit(flow=flow)

    def test_a_session_of_this_process_needs_no_ticket(self, house: House) -> None:
        with house.submit(2) as session:
            pass
        assert house.sessions.consume([session], 2, None, house.trackers.get("rollout")).staleness == [0]

    @pytest.mark.parametrize(
        "given",
        [
            "abc", 7, None, [1, 2, 3], ["a", "b", 3], ["a", 1], {"id": "a"}, ["a", 1, 0.5],
            ["a", -1, 1], ["a", 2**64, 1], ["a", 1, 2**70], ["a" * 65, 1, 1],
        ],
    )  # fmt: skip
    def test_what_is_no_ticket_is_refused_and_nothing_is_recorded(self, house: House, given: Any) -> None:
        good = Ticket("a", 1, 1)
        with pytest.raises(PayloadError, match="expected a session's ticket"):
            house.sessions.consume([good, given], 2, None, house.trackers.get("rollout"))
        assert "rollout/sessions/consumed" not in house.stats()


class TestNumbers:
    def test_what_sessions_leave_in_the_tracker(self, house: House) -> None:
        open_one = house.submit()
        for _ in range(3):
            with house.trackers.get("rollout").scope("somewhere"), house.submit() as session:  # scopes do not count
                house.clock.tick(0.5)
                with session.phase("generate"):
                    house.clock.tick(1.5)
                with session.phase("generate"):
                    house.clock.tick(0.5)
        house.submit().reject()
        stats = house.stats()
        assert stats["rollout/sessions/accepted"] == 3
        assert stats["rollout/sessions/rejected"] == 1
        assert stats["rollout/sessions/in_flight"] == 1
        assert stats["rollout/timeperf/generate"] == 1.0  # a call
        assert stats["rollout/timeperf/session/generate"] == 2.0  # a session
        assert stats["rollout/timeperf/session/total"] == pytest.approx(7.5 / 4)
        assert stats["rollout/timeperf/session/idle__count"] == 4
        assert not [key for key in stats if "somewhere" in key]
        open_one.accept()
        assert house.stats()["rollout/sessions/in_flight"] == 0

    def test_workers_sessions_add_up_in_the_controller(self, tmp_path: Path) -> None:
        controller = Trackers(Recorder())
        receiver = Receiver(controller)
        for number in range(3):
            house = House(tmp_path / str(number))
            house.submit()
            house.submit().accept()
            with house.trackers.taken() as snapshot:
                receiver.absorb(Sender(f"worker-{number}").payload(snapshot))
        stats = controller.export_all()
        assert stats["rollout/sessions/in_flight"] == 3
        assert stats["rollout/sessions/accepted"] == 3

    def test_eval_rollouts_are_kept_apart(self) -> None:
        sessions = Sessions(Recorder())
        with rltel.eval_scope():
            sessions.submit(None, {}).accept()
        stats = rltel.get("eval-rollout").export()
        assert stats["eval-rollout/sessions/accepted"] == 1


class TestBounds:
    def test_areal_finished_sessions_and_their_tasks_are_forgotten(self, house: House) -> None:
        """AReaL's map of tasks to sessions is never pruned."""
        known: weakref.WeakSet[Session] = weakref.WeakSet()
        for _ in range(1000):
            session = house.submit()
            known.add(session)
            session.accept()
        del session
        house.log.drain()
        gc.collect()
        assert house.sessions.in_flight() == []
        assert len(known) == 0

    def test_areal_one_that_nobody_finalises_is_ended_by_its_age(self, tmp_path: Path) -> None:
        """There, one without a status stays ready until a forced flush."""
        house = House(tmp_path, max_age_s=60)
        with house.submit(judged_later=True) as forgotten:
            pass
        house.clock.tick(61)
        house.log.drain()
        assert forgotten.status == "abandoned"
        assert house.line()["reason"] == "older than 60 s"
        assert house.stats()["rollout/sessions/abandoned"] == 1
        assert not forgotten.accept()

    def test_too_many_open_ones_end_the_oldest(self, tmp_path: Path) -> None:
        house = House(tmp_path, max_open=3)
        submitted = [house.submit() for _ in range(5)]
        assert [session.status for session in submitted] == ["abandoned"] * 2 + ["submitted"] * 3
        assert house.stats()["rollout/sessions/in_flight"] == 3

    def test_one_that_is_ended_by_its_age_while_it_runs_leaves_its_with_quietly(self, tmp_path: Path) -> None:
        house = House(tmp_path, max_age_s=60)
        with house.submit() as session, session.phase("generate"):
            house.clock.tick(61)
            house.log.drain()
        assert house.line()["status"] == "abandoned"
        assert house.line()["open_at_end"] == ["generate"]
        assert house.stats()["rollout/sessions/abandoned"] == 1

    def test_what_nobody_writes_is_counted_not_kept(self, tmp_path: Path) -> None:
        house = House(tmp_path, max_waiting=10)
        for _ in range(25):
            house.submit().accept()
        assert len(house.lines()) == 10
        assert house.account.dropped_totals == {"queue_full": 15}

    def test_without_telemetry_nothing_waits(self) -> None:
        sessions, trackers = Sessions(Recorder()), Trackers(Recorder())
        sessions.submit(None, {}, tracker=trackers.get("rollout")).accept()
        assert sessions.take() == []
        assert trackers.export_all()["rollout/sessions/accepted"] == 1

    def test_names_of_phases_made_up_on_the_way_become_other(
        self, house: House, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(registry, "MAX_PHASES", 3)
        with house.submit() as session:
            for turn in range(10):
                with session.phase(f"turn {turn}"):
                    pass
        assert house.line()["phases"].keys() == {"turn 0", "turn 1", "turn 2", "other"}
        assert house.line()["phases"]["other"]["calls"] == 7

    def test_areal_durations_do_not_follow_the_wall_clock(self, house: House) -> None:
        """Its sessions have wall-clock timestamps: a step of the clock is a duration there."""
        with house.submit():
            house.clock.tick(1.0)
            house.clock.wall -= 3600 * 10**9
        assert house.line()["total_s"] == 1.0


class TestFile:
    def test_files_are_bounded_and_all_together_too(self, house: House) -> None:
        house.file._max_file_bytes = 2000
        house.file._max_total_bytes = 6000
        for number in range(100):
            house.submit(number=number).accept()
            house.log.drain()
        files = sorted((house.folder / "sessions").glob("*.jsonl"))
        assert 3 <= len(files) <= 5
        assert all(json.loads(file.read_text().splitlines()[0])["type"] == "process" for file in files)
        assert all(file.stat().st_size < 3000 for file in files)
        written = [line["attributes"]["number"] for line in house.lines()]
        assert sorted(written) == list(range(len(written)))
        assert house.account.exported_total == len(written)
        assert house.account.dropped_totals == {"max_total_mb": 100 - len(written)}

    def test_there_is_no_file_without_a_session(self, house: House) -> None:
        house.log.drain()
        house.log.close()
        assert not (house.folder / "sessions").exists()

    def test_what_is_open_at_the_end_is_written_as_unfinished(self, house: House) -> None:
        with house.submit(), house.submit() as session, session.phase("generate"):
            house.clock.tick(3.0)
            house.log.close()
        lines = house.lines()
        assert [line["status"] for line in lines] == ["unfinished", "unfinished"]
        assert lines[1]["phases"]["generate"]["wall_s"] == 3.0
        house.submit().accept()
        house.log.close()
        assert len(house.lines()) == 2

    def test_a_disk_that_takes_nothing_for_a_while_costs_nothing(self, house: House) -> None:
        soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (400, hard))
        try:
            for _ in range(10):
                house.submit().accept()
                house.log.drain()
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        assert house.account.exported_total < 10
        assert len(house.lines()) == 10
        assert house.account.exported_total == 10

    def test_a_folder_that_cannot_be_made_is_said_and_its_lines_counted(self, house: House) -> None:
        (house.folder / "sessions").write_text("in the way")
        house.submit().accept()
        house.log.drain()
        house.log.close()
        assert house.account.dropped_totals["disk"] == 1

    def test_a_line_cut_short_is_skipped_and_a_newer_version_refused(self, house: House) -> None:
        house.submit().accept()
        house.log.drain()
        with house.file.path_of(1).open("a") as file:
            file.write('{"v":1,"type":"sess')
        assert len(house.lines()) == 1
        with house.file.path_of(1).open("a") as file:
            file.write('\n{"v":99,"type":"session"}\n')
        with pytest.raises(RltelError, match="version 1"):
            house.lines()

    def test_a_file_of_an_earlier_run_is_left_alone(self, house: House) -> None:
        (house.folder / "sessions").mkdir()
        house.file.path_of(1).write_text("somebody's\n")
        house.submit().accept()
        house.log.drain()
        assert house.file.path_of(1).read_text() == "somebody's\n"
        assert len(list(public.read(house.file.path_of(2)))) == 1

    def test_what_cannot_be_written_costs_no_other(self, house: House) -> None:
        house.submit().accept()
        broken = house.submit()
        broken.accept()
        broken.counters = 7  # type: ignore[assignment]  # what a program should not do
        assert len(house.lines()) == 1
        assert house.account.dropped_totals == {"unreadable": 1}

    @settings(max_examples=50)
    @given(st.dictionaries(st.text(max_size=8), st.none() | st.booleans() | st.integers() | st.floats() | st.text()))
    def test_any_attribute_makes_a_line_that_reads(self, attributes: dict[str, Any]) -> None:
        house = Sessions(Recorder())
        session = house.submit(1, attributes, tracker=Trackers(Recorder()).get("rollout"))
        session.accept()
        read = msgspec.json.decode(line_of((session, "accepted")))
        assert read.get("attributes", {}).keys() == {
            name.encode(errors="backslashreplace").decode() for name in attributes
        }


class TestDrawing:
    def test_the_span_carries_what_is_known_and_the_arrow(self, house: House) -> None:
        house.recorder.start()
        with house.submit(3, flow=17, task="t1") as session, session.phase("generate"):
            session.add(tokens=5)
        drawn = read(house.recorder).one("rollout")
        assert drawn.begin is not None
        assert drawn.begin.flows == (17,)
        assert drawn.attributes["rl.session.id"] == session.id
        assert drawn.attributes["rl.policy.version"] == 3
        assert drawn.attributes["rl.session.status"] == "accepted"
        assert drawn.attributes["tokens"] == 5
        assert house.line()["span_id"] == f"{drawn.ids.span_id:016x}"

    def test_one_that_never_ran_is_drawn_afterwards(self, house: House) -> None:
        house.recorder.start()
        session = house.submit(flow=17)
        house.clock.tick(2.0)
        session.drop("late")
        (placed,) = read(house.recorder).placed
        assert (placed.begin.site.name, placed.begin.flows) == ("rollout", (17,))
        assert placed.end_ns - placed.begin.time_ns == 2_000_000_000
        assert placed.begin.attributes is not None
        assert placed.begin.attributes["rl.session.reason"] == "late"

    def test_one_that_is_judged_later_is_marked_then(self, house: House) -> None:
        house.recorder.start()
        with house.submit(judged_later=True) as session:
            pass
        session.reject("too long")
        assert [name for name, _, _ in read(house.recorder).instants] == ["session_judged"]

    def test_a_phase_anywhere_inside_finds_its_session(self, house: House) -> None:
        async def reward(score: float) -> None:
            await asyncio.sleep(0)
            here = current()
            assert here is not None
            here.set(score=score)
            with public.phase("reward"):
                house.clock.tick(1.0)

        async def rollout(score: float) -> None:
            with house.submit(task=score):
                await asyncio.create_task(reward(score))

        async def main() -> None:
            await asyncio.gather(*(rollout(float(number)) for number in range(5)))
            assert current() is None

        asyncio.run(main())
        lines = house.lines()
        assert len(lines) == 5
        assert all(line["attributes"]["task"] == line["attributes"]["score"] for line in lines)
        assert all(line["phases"]["reward"]["calls"] == 1 for line in lines)

    def test_a_phase_outside_of_any_session_is_only_drawn(self) -> None:
        with public.phase("reward", policy_version=3):
            assert current() is None


class TestProcesses:
    """Real ones: what the run directory holds in the end."""

    SETUP = """
import asyncio, os, signal, sys, time
import rltel
from rltel.rl import sessions
from rltel.rl.sessions.registry import process_sessions
config = {"trace": {"enabled": True}, "pipeline": {"shutdown_timeout_s": 60}}  # it ends in 2 s on no busy machine
rltel.init(config, run_dir=sys.argv[1])
"""

    def run(self, tmp_path: Path, code: str, *, code_wanted: int = 0) -> list[dict[str, Any]]:
        ran = run_python(self.SETUP + code, tmp_path / "run", timeout=240)
        assert ran.returncode == code_wanted, ran.stderr
        return list(public.read(tmp_path / "run"))

    def test_open_sessions_of_a_process_that_ends_are_unfinished(self, tmp_path: Path) -> None:
        code = """
done = sessions.submit(1, task="done")
done.accept()
running = sessions.submit(2, task="running").__enter__()
running.phase("generate").__enter__()
waiting = sessions.submit(task="waiting")
"""
        lines = self.run(tmp_path, code)
        assert {line["attributes"]["task"]: line["status"] for line in lines} == {
            "done": "accepted",
            "running": "unfinished",
            "waiting": "unfinished",
        }
        assert lines[1]["open_at_end"] == ["generate"]

    def test_an_exception_that_ends_the_program(self, tmp_path: Path) -> None:
        code = """
with sessions.submit() as session:
    with session.phase("tool_call"):
        raise OSError("no such tool")
"""
        (line,) = self.run(tmp_path, code, code_wanted=1)
        assert (line["status"], line["error"]) == ("failed", "OSError: no such tool")

    def test_a_forked_child_has_none_of_its_parents_sessions(self, tmp_path: Path) -> None:
        code = """
with sessions.submit(1, task="parent") as session:
    with session.phase("generate"):
        pid = os.fork()
        if pid == 0:
            signal.alarm(60)
            ended = session.reject("by the child")
            with session.phase("tool_call"):
                pass
            left = len(sessions.in_flight())
            rltel.init(config, role="rollout", run_dir=sys.argv[1])
            with sessions.submit(2, task="child"):
                pass
            rltel.shutdown()
            os._exit(int(ended) + left)
        assert os.waitpid(pid, 0)[1] == 0
"""
        parent, child = self.run(tmp_path, code)
        assert (parent["process"], parent["status"], parent["attributes"]["task"]) == (
            "learner-0.1",
            "accepted",
            "parent",
        )
        assert (child["process"], child["status"], child["attributes"]["task"]) == ("rollout-0.1", "accepted", "child")
        assert parent["phases"].keys() == {"generate"}

    def test_a_forked_child_writes_nothing_to_its_parents_file(self, tmp_path: Path) -> None:
        code = """
from pathlib import Path
from rltel.export.sink import Destination
from rltel.process import process
from rltel.rl.sessions.file import SessionFile
account = Destination("sessions")
file = SessionFile(Path(sys.argv[1]) / "by hand", process.telemetry.identity, account)
file.write([b'{"of": "the parent"}\\n'])
pid = os.fork()
if pid == 0:
    file.write([b'{"of": "the child"}\\n'])
    os._exit(account.dropped_totals != {"shutdown": 1})
assert os.waitpid(pid, 0)[1] == 0
file.close()
"""
        self.run(tmp_path, code)
        (file,) = (tmp_path / "run" / "by hand").iterdir()
        assert [json.loads(line).get("of") for line in file.read_text().splitlines()] == [None, "the parent"]

    def test_sessions_are_written_while_the_process_goes_on(self, tmp_path: Path) -> None:
        """A killed process loses at most its last second."""
        code = """
with sessions.submit(1):
    pass
assert rltel.flush(30)
os.kill(os.getpid(), signal.SIGKILL)
"""
        (line,) = self.run(tmp_path, code, code_wanted=-9)
        assert line["status"] == "accepted"

    def test_a_fork_while_threads_begin_and_end_sessions_hangs_nobody(self, tmp_path: Path) -> None:
        code = """
import threading
done = threading.Event()
def work():
    while not done.is_set():
        with sessions.submit() as session, session.phase("generate"):
            pass
threads = [threading.Thread(target=work) for _ in range(3)]
for thread in threads: thread.start()
for _ in range(20):
    pid = os.fork()
    if pid == 0:
        signal.alarm(60)
        with sessions.submit() as session, session.phase("generate"):
            pass
        os._exit(0 if session.status == "accepted" else 1)
    assert os.waitpid(pid, 0)[1] == 0
done.set()
for thread in threads: thread.join()
"""
        assert {line["status"] for line in self.run(tmp_path, code)} == {"accepted"}


def test_every_end_is_reachable_and_in_the_catalogue_of_ends() -> None:
    assert ENDS == ("accepted", "rejected", "dropped", "failed", "cancelled", "abandoned", "unfinished")


def test_the_drain_and_the_callers_do_not_lose_sessions(house: House) -> None:
    """Four threads end sessions while one writes."""
    stop = threading.Event()

    def drains() -> None:
        while not stop.is_set():
            house.log.drain()

    def works() -> None:
        for _ in range(250):
            with house.submit() as session, session.phase("generate"):
                pass

    writer = threading.Thread(target=drains)
    writer.start()
    workers: list[threading.Thread] = [threading.Thread(target=works) for _ in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    try:
        wait_until(lambda: house.account.exported_total == 1000, "all are written", timeout=120)
    finally:
        stop.set()
        writer.join()
    assert len(house.lines()) == 1000
    stats = house.stats()
    assert (stats["rollout/sessions/accepted"], stats["rollout/sessions/in_flight"]) == (1000, 0)
