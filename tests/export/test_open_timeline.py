"""What the config wants of the timeline is what there is: files, spans, a window of them, or nothing."""

import asyncio
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from export.making import PATIENT, run_python, wait_until
from realparts.otlp_receiver import ReceivedSpan, otlp_sink, rotel
from realparts.processes import HOST, free_port
from realparts.trace_processor import query
from rltel.core.errors import ConfigError
from rltel.process import Process
from rltel.record.phase_sets import phase_set
from rltel.record.phases import PhaseClock
from rltel.record.recorder import Recorder
from rltel.telemetry import Telemetry


class Program:
    """A process's telemetry with an environment of its own."""

    def __init__(self, tmp_path: Path, **environ: str) -> None:
        self.recorder = Recorder()
        self.process = Process(self.recorder, {"RLTEL_RUN_LOG_ROOT": str(tmp_path / "logs"), **PATIENT, **environ})

    def clock(self) -> PhaseClock:
        return PhaseClock(phase_set("llm", "learner"), self.process.trackers.default, self.recorder)

    def init(self, config: Any, **how: Any) -> Telemetry:
        return self.process.init(config, **how)


@pytest.fixture
def program(tmp_path: Path) -> Iterator[Program]:
    made = Program(tmp_path)
    yield made
    made.process.shutdown()


def trace_of(telemetry: Telemetry) -> Path:
    assert telemetry.run_dir is not None
    (path,) = (telemetry.run_dir / "trace").glob("*.pftrace")
    return path


def since(before: set[threading.Thread]) -> list[threading.Thread]:
    """Threads that are new. (Not their number: one that an earlier test left may end at any time.)"""
    return [thread for thread in threading.enumerate() if thread not in before]


def id_of(span: ReceivedSpan) -> bytes:
    return span.span.span_id


class TestWhatIsOn:
    def test_nothing_of_it_leaves_the_recorder_off(self, program: Program, tmp_path: Path) -> None:
        telemetry = program.init({"jsonl": {"path": str(tmp_path / "r.jsonl")}})
        assert not program.recorder.on
        assert "trace" not in telemetry.describe()
        assert telemetry.run_dir is not None
        assert not (telemetry.run_dir / "trace").exists()

    def test_the_trace_alone(self, program: Program) -> None:
        telemetry = program.init({"trace": {"enabled": True}})
        with program.recorder.slice("s"):
            pass
        program.process.shutdown()
        assert query(trace_of(telemetry), "select name from slice") == [[{"name": "s"}]]
        assert not program.recorder.on

    def test_spans_alone(self, program: Program) -> None:
        with otlp_sink() as receiver:
            telemetry = program.init({"otlp": {"enabled": True, "endpoint": receiver.endpoint, "metrics": False}})
            assert f"spans {receiver.endpoint}/v1/traces" in telemetry.describe()
            with program.recorder.slice("s"):
                pass
            program.process.shutdown()
            receiver.wait_for_span("s")
            receiver.wait_for_span("learner 0")
        assert telemetry.run_dir is not None
        assert not (telemetry.run_dir / "trace").exists()

    def test_otlp_traces_off_sends_no_spans(self, program: Program) -> None:
        with otlp_sink() as receiver:
            telemetry = program.init({"otlp": {"enabled": True, "endpoint": receiver.endpoint, "traces": False}})
            assert not program.recorder.on
            telemetry.commit({"x": 1.0}, step=1)
            program.process.shutdown()
            receiver.wait_for_metric("rl.stats.x")
            assert receiver.spans() == []

    @pytest.mark.parametrize(("ranks", "traced"), [("all", True), ([1], True), ([0, 2], False)])
    def test_trace_ranks_says_whose_timeline_there_is(self, program: Program, ranks: Any, traced: bool) -> None:
        """File and spans alike."""
        with otlp_sink() as receiver:
            config = {
                "trace": {"enabled": True, "ranks": ranks},
                "otlp": {"enabled": True, "endpoint": receiver.endpoint, "metrics": False},
            }
            telemetry = program.init(config, rank=1, world_size=3, run_id="r")
            assert program.recorder.on is traced
            program.process.shutdown()
            assert telemetry.run_dir is not None
            assert (telemetry.run_dir / "trace").exists() is traced
            assert bool(receiver.requests()) is traced

    def test_trace_steps_is_a_window(self, program: Program) -> None:
        telemetry = program.init({"trace": {"enabled": True, "steps": [2, 3]}})
        clock = program.clock()
        for step in range(6):
            with clock.iteration(step=step), clock.phase("train"):
                pass
        program.process.shutdown()
        sql = """select extract_arg(arg_set_id, 'debug.rl_loop_iteration') as step from slice
                 where category = 'rl.loop' order by ts"""
        steps, trains = query(trace_of(telemetry), sql, "select count(*) as n from slice where name = 'train'")
        assert ([row["step"] for row in steps], trains) == ([2, 3], [{"n": 2}])

    @pytest.mark.parametrize("thread_time", [True, False])
    def test_trace_thread_time(self, program: Program, thread_time: bool) -> None:
        telemetry = program.init({"trace": {"enabled": True, "thread_time": thread_time}})
        with program.recorder.slice("s"):
            sum(range(100_000))
        program.process.shutdown()
        ((row,),) = query(trace_of(telemetry), "select thread_dur from slice")
        assert (row["thread_dur"] or 0) > 0 if thread_time else row["thread_dur"] is None

    def test_trace_output_dir(self, program: Program, tmp_path: Path) -> None:
        program.init({"trace": {"enabled": True, "output_dir": str(tmp_path / "elsewhere")}})
        assert [path.suffix for path in (tmp_path / "elsewhere").iterdir()] == [".pftrace"]

    def test_spans_of_an_address_that_cannot_be_are_refused_and_nothing_is_left(self, tmp_path: Path) -> None:
        program = Program(tmp_path)
        before = set(threading.enumerate())
        with pytest.raises(ConfigError, match="endpoint"):
            program.init({"trace": {"enabled": True}, "otlp": {"enabled": True, "endpoint": "ftp://there"}})
        assert not program.recorder.on
        assert since(before) == []

    def test_a_failure_later_on_leaves_no_thread(self, tmp_path: Path) -> None:
        program = Program(tmp_path)
        before = set(threading.enumerate())
        config = {
            "otlp": {"enabled": True, "endpoint": f"http://{HOST}:{free_port()}"},
            "prometheus": {"enabled": True, "port": 0, "host": "203.0.113.1"},
        }
        with pytest.raises(ConfigError, match=r"prometheus\.host"):
            program.init(config)
        wait_until(lambda: since(before) == [], "the end of all threads")
        assert not program.recorder.on


def record_everything(program: Program) -> None:
    recorder, clock = program.recorder, program.clock()
    with recorder.slice("setting up", attributes={"a": 1}):
        recorder.instant("checkpoint")

    async def rollout(number: int) -> None:
        with recorder.slice(f"rollout {number}", flow=number):
            await asyncio.sleep(0)

    async def rollouts() -> None:
        await asyncio.gather(*(rollout(number) for number in (1, 2)))

    with clock.iteration(step=1):
        with clock.phase("sample"):
            asyncio.run(rollouts())
        with clock.phase("train", flow=(1, 2)), recorder.slice("forward"):
            pass
    with pytest.raises(ValueError, match="no"), recorder.slice("failing"):
        raise ValueError("no")


@pytest.mark.parametrize("protocol", ["grpc", "http/protobuf"])
def test_through_a_real_agent_the_tree_arrives_whole(program: Program, tmp_path: Path, protocol: str) -> None:
    with rotel(tmp_path) as agent:
        endpoint = agent.grpc_endpoint if protocol == "grpc" else agent.http_endpoint
        config = {"otlp": {"enabled": True, "endpoint": endpoint, "protocol": protocol, "metrics": False}}
        program.init({**config, "run": {"name": "my-run"}})
        record_everything(program)
        program.process.shutdown()
        process = agent.wait_for_span("learner 0")
        agent.wait_for(lambda: len(agent.spans()) >= 9, "all spans")
        found = {span.name: span for span in agent.spans()}
    assert process.resource["service.name"] == "my-run"
    assert process.resource["rl.role"] == "learner"
    assert (process.scope.name, process.span.parent_span_id) == ("rltel", b"")
    parents = {
        "setting up": "learner 0",
        "failing": "learner 0",
        "rl.sample": "rl.loop",
        "rl.train": "rl.loop",
        "forward": "rl.train",
        "rollout 1": "rl.sample",
        "rollout 2": "rl.sample",
    }
    assert {name: id_of(found[parent]) for name, parent in parents.items()} == {
        name: found[name].span.parent_span_id for name in parents
    }
    assert found["rl.loop"].span.parent_span_id == b""
    assert found["rl.loop"].attributes == {"rl.loop.iteration": 1}
    assert [event.name for event in found["setting up"].span.events] == ["checkpoint"]
    assert {link.span_id for link in found["rl.train"].span.links} == {id_of(found[f"rollout {n}"]) for n in (1, 2)}
    assert (found["failing"].span.status.code, found["failing"].span.status.message) == (2, "ValueError")
    assert abs(found["rl.loop"].span.start_time_unix_nano - time.time_ns()) < 600 * 10**9


def test_the_process_continues_the_trace_that_it_was_started_in(tmp_path: Path) -> None:
    program = Program(tmp_path, TRACEPARENT=f"00-{5:032x}-{6:016x}-01")
    with otlp_sink() as receiver:
        telemetry = program.init({"otlp": {"enabled": True, "endpoint": receiver.endpoint}})
        with program.clock().iteration(step=1):
            pass
        program.process.shutdown()
        process, loop = (receiver.wait_for_span(name) for name in ("learner 0", "rl.loop"))
    assert telemetry.root.trace_id == 5
    assert (process.span.parent_span_id.hex(), loop.span.parent_span_id) == (f"{6:016x}", id_of(process))
    assert loop.span.trace_id == process.span.trace_id == bytes(15) + b"\x05"


def test_spans_that_the_receiver_refuses_are_counted(program: Program) -> None:
    with otlp_sink() as receiver:
        receiver.status = 400
        config = {"otlp": {"enabled": True, "endpoint": receiver.endpoint, "metrics": False}}
        telemetry = program.init(config)
        for _ in range(5):
            with program.recorder.slice("s"):
                pass
        program.process.shutdown()
    (account,) = [each for each in telemetry._destinations if each.name == "spans"]
    assert account.dropped_totals == {"error": 6}


def test_a_busy_receiver_gets_them_when_it_is_back(program: Program) -> None:
    with otlp_sink() as receiver:
        receiver.status = 503
        config = {"otlp": {"enabled": True, "endpoint": receiver.endpoint, "metrics": False, "timeout_s": 30.0}}
        program.init({**config, "trace": {"flush_interval_s": 0.05}, "pipeline": {"shutdown_timeout_s": 20.0}})
        with program.recorder.slice("s"):
            pass
        receiver.wait_for(lambda: receiver.refused >= 2, "two tries")
        receiver.status = 200
        receiver.wait_for_span("s")


def test_a_trace_that_stands_still_does_not_hold_up_the_spans(
    program: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A full disk costs the file, and nothing else."""
    from rltel.export.perfetto import files as perfetto

    class FullDisk:
        def __getattr__(self, name: str) -> Any:
            return getattr(os, name)

        @staticmethod
        def write(descriptor: int, data: bytes) -> int:
            raise OSError(28, "No space left on device")

    with otlp_sink() as receiver:
        config = {
            "otlp": {"enabled": True, "endpoint": receiver.endpoint, "metrics": False},
            "trace": {"enabled": True},
        }
        telemetry = program.init({**config, "pipeline": {"shutdown_timeout_s": 20.0}})
        monkeypatch.setattr(perfetto, "os", FullDisk())
        for number in range(3):
            with program.recorder.slice(f"s{number}"):
                pass
            telemetry.flush(20)
            receiver.wait_for_span(f"s{number}")
        program.process.shutdown()
    totals = {each.name: each.dropped_totals for each in telemetry._destinations}
    assert totals["trace"] == {"disk": 3}
    assert totals["spans"] == {}


DEAD = """
import sys
import rltel
otlp = {"enabled": True, "endpoint": sys.argv[1], "protocol": sys.argv[2], "timeout_s": 600.0, "metrics": False}
rltel.init({"otlp": otlp, "pipeline": {"shutdown_timeout_s": 5.0}, "trace": {"enabled": True},
            "run": {"dir": sys.argv[3]}})
for step in range(20):
    with rltel.slice("s"):
        pass
"""


@pytest.mark.parametrize("protocol", ["http/protobuf", "grpc"])
def test_posthog_70964_the_end_is_bounded_with_a_dead_receiver_of_spans(tmp_path: Path, protocol: str) -> None:
    began = time.monotonic()
    ran = run_python(DEAD, f"http://{HOST}:{free_port()}", protocol, tmp_path / "run")
    assert time.monotonic() - began < 150
    assert (ran.returncode, "Traceback" in ran.stderr) == (0, False), ran.stderr
    assert "spans: lost 21 in all" in ran.stderr
    (path,) = (tmp_path / "run" / "trace").iterdir()
    assert query(path, "select count(*) as n from slice") == [[{"n": 20}]]
