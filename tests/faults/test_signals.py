"""How programs end: killed, by a signal, by an exception. Every committed step is on disk; replay brings the rest."""

import signal
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from realparts.otlp_receiver import OtlpSink, otlp_sink
from realparts.tensorboard_reader import all_events
from realparts.trainer import plain_result, replayed, started, trained
from rltel import read_jsonl

STEPS, AT = 40, 20
SLOW_S = 0.02  # of each destination, so that something is on its way when the program ends
PAUSE_S = 0.004  # of a training that has no end: faster than destinations, and not so fast that they never catch up

SLOW_DISK = f"""
from rltel.export.tensorboard.event_file import EventFile
write = EventFile.write
def slow(*arguments):
    time.sleep({SLOW_S})
    write(*arguments)
EventFile.write = slow
"""
INTERRUPTIBLE = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)\n"  # not so below `nohup`
OWN_HANDLER = """
import signal
def handler(number, frame):
    say("asked to end", number)
    sys.exit(7)
signal.signal(signal.SIGTERM, handler)
"""


def config(receiver: OtlpSink, **changed: Any) -> dict[str, Any]:
    """The time for the end is ample here: what it is for is tested in `test_exits`."""
    return {
        "tensorboard": {"path": "{run_dir}/tensorboard"},
        "otlp": {"enabled": True, "endpoint": receiver.endpoint, "traces": False},
        "pipeline": {"shutdown_timeout_s": 30.0, **changed},
    }


def otlp_steps(receiver: OtlpSink) -> list[int]:
    return [int(metric.value) for metric in receiver.metrics() if metric.name == "rl.step"]


def tensorboard_steps(run_dir: Path) -> list[int]:
    folders = {path.parent for path in (run_dir / "tensorboard").rglob("*tfevents*")}
    events = [event for folder in folders for event in all_events(folder)]
    return [event.step for event in events if any(value.tag == "reward" for value in event.summary.value)]


def replay_brings_the_rest(run_dir: Path, receiver: OtlpSink, steps: list[int]) -> None:
    """And the second one nothing."""
    receiver.delay = 0.0
    for to, endpoint in (("tensorboard", None), ("otlp", receiver.endpoint)):
        first, second = (replayed(run_dir, to, endpoint) for _ in range(2))
        assert [each["missing"] for each in (first, second)] == [0, 0]
        assert second["sent"] == 0
    assert sorted(tensorboard_steps(run_dir)) == steps
    # The receiver has one more time what it had taken when the sender was killed before it could note that.
    found = Counter(otlp_steps(receiver))
    assert sorted(found) == steps
    assert found.total() - len(steps) <= 1


class TestKilled:
    """Nothing of ours runs at the end."""

    @pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
    def test_by_a_signal(self, tmp_path: Path, number: signal.Signals) -> None:
        run_dir = tmp_path / "run"
        with otlp_sink() as receiver:
            receiver.delay = SLOW_S
            with started(config(receiver), run_dir, steps=100_000, before=SLOW_DISK, pause_s=PAUSE_S) as running:
                running.wait_for(AT)
                running.process.send_signal(number)
                ended = running.end()
            assert ended.code == -number
            steps = [line.step for line in read_jsonl(run_dir)]
            assert steps == list(range(len(steps)))
            assert len(steps) - len(ended.committed) in (0, 1)  # the last one may be written, and not said to be
            assert len(tensorboard_steps(run_dir)) < len(steps)
            replay_brings_the_rest(run_dir, receiver, steps)

    def test_by_itself_with_os_exit(self, tmp_path: Path) -> None:
        run_dir = tmp_path / "run"
        with otlp_sink() as receiver:
            receiver.delay = SLOW_S
            ended = trained(config(receiver), run_dir, before=SLOW_DISK, at={AT: "os._exit(3)"})
            assert (ended.code, ended.committed) == (3, list(range(AT)))
            assert [line.step for line in read_jsonl(run_dir)] == list(range(AT))
            assert len(tensorboard_steps(run_dir)) < AT
            replay_brings_the_rest(run_dir, receiver, list(range(AT)))


class TestComesHome:
    """What was committed reaches everyone, before the program ends as it would without us."""

    @pytest.mark.parametrize(
        ("code", "how", "changed"),
        [
            pytest.param(143, "os.kill(os.getpid(), 15)", {"sigterm": True}, id="SIGTERM, if asked"),
            pytest.param(-signal.SIGINT, "os.kill(os.getpid(), 2)", {}, id="KeyboardInterrupt"),
            pytest.param(1, "raise SystemError('diverged')", {}, id="exception"),
            pytest.param(4, "sys.exit(4)", {}, id="sys.exit"),
        ],
    )
    def test_at_its_end(self, tmp_path: Path, code: int, how: str, changed: dict[str, Any]) -> None:
        run_dir = tmp_path / "run"
        with otlp_sink() as receiver:
            receiver.delay = SLOW_S
            before = SLOW_DISK + INTERRUPTIBLE
            at = {1: "rltel.flush()", AT: how}  # Python forgets that it was interrupted if it has to import at its end
            ended = trained(config(receiver, **changed), run_dir, before=before, at=at)
            assert (ended.code, ended.committed) == (code, list(range(AT))), ended.err
            assert [line.step for line in read_jsonl(run_dir)] == list(range(AT))
            assert tensorboard_steps(run_dir) == otlp_steps(receiver) == list(range(AT))
            assert "lost" not in ended.err
            for to, endpoint in (("tensorboard", None), ("otlp", receiver.endpoint)):
                assert replayed(run_dir, to, endpoint)["sent"] == 0

    @pytest.mark.parametrize("sigterm", [False, True])
    @pytest.mark.parametrize("when", ["before", "after"])
    def test_by_a_handler_of_the_user_s_which_stays(self, tmp_path: Path, sigterm: bool, when: str) -> None:
        """Set before init it is left alone, and that is said; set after it, it has the last word anyway."""
        run_dir = tmp_path / "run"
        with otlp_sink() as receiver:
            at = {0: OWN_HANDLER if when == "after" else "", AT: "os.kill(os.getpid(), 15)"}
            before = OWN_HANDLER if when == "before" else ""
            ended = trained(config(receiver, sigterm=sigterm), run_dir, before=before, at=at)
            assert (ended.code, ended.said("asked to end")) == (7, [signal.SIGTERM])
            assert ("SIGTERM has a handler already" in ended.err) == (sigterm and when == "before")
            assert tensorboard_steps(run_dir) == otlp_steps(receiver) == list(range(AT))

    def test_sys_exit_in_a_thread_ends_that_thread_only(self, tmp_path: Path) -> None:
        run_dir = tmp_path / "run"
        thread = (
            "import threading; thread = threading.Thread(target=sys.exit, args=(9,)); thread.start(); thread.join()"
        )
        with otlp_sink() as receiver:
            ended = trained(config(receiver), run_dir, at={AT: thread})
            assert (ended.code, ended.result) == (0, plain_result()), ended.err
            assert tensorboard_steps(run_dir) == otlp_steps(receiver) == list(range(STEPS))

    def test_a_signal_in_the_middle_of_any_commit_loses_nothing(self, tmp_path: Path) -> None:
        """The handler may interrupt `commit` anywhere: its locks are released on the way, and the end does not hang."""
        run_dir = tmp_path / "run"
        with otlp_sink() as receiver:
            with started(config(receiver, sigterm=True), run_dir, steps=100_000) as running:
                running.wait_for(AT)
                running.process.send_signal(signal.SIGTERM)
                ended = running.end()
            assert ended.code == 143, ended.err
            steps = [line.step for line in read_jsonl(run_dir)]
            assert len(steps) - len(ended.committed) in (0, 1)
            replay_brings_the_rest(run_dir, receiver, steps)
