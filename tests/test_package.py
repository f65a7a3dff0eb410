"""The functions of the package itself, and what a newcomer tripped over."""

import json
import signal
import subprocess
import sys
from pathlib import Path
from textwrap import dedent

import pytest

import rltel
from export.making import run_python
from rltel.record.recorder import Recorder
from rltel.reduce.trackers import Trackers


def run(code: str, tmp_path: Path) -> str:
    ran = run_python(f"import os; os.chdir({str(tmp_path)!r})\n{dedent(code)}")
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


def test_timed_without_its_key_raises_instead_of_swallowing_the_function() -> None:
    with pytest.raises(rltel.RecordError, match=r'expected a key, as in @rltel.timed\("reward"\)'):

        @rltel.timed  # type: ignore[arg-type]  # the mistake
        def train() -> int:
            return 1


def test_timed_times_functions_and_coroutines(tmp_path: Path) -> None:
    code = """
        import asyncio, json, rltel
        @rltel.timed("plain")
        def plain(x): return x + 1
        @rltel.timed("coroutine")
        async def coroutine(x): return x + 2
        assert (plain(1), asyncio.run(coroutine(1))) == (2, 3)
        print(json.dumps(sorted(rltel.export_all())))
    """
    assert json.loads(run(code, tmp_path)) == [
        "timeperf/coroutine",
        "timeperf/coroutine__count",
        "timeperf/plain",
        "timeperf/plain__count",
    ]


@pytest.mark.parametrize(
    "second",
    [
        lambda tracker: tracker.scalar({"loss/avg": 50.0}),
        lambda tracker: tracker.gauge({"loss/max": 7.0}),
        lambda tracker: tracker.count({"other": 1, "loss/min": 1}),
    ],
)
def test_two_keys_do_not_come_out_as_one(second: object) -> None:
    trackers = Trackers(Recorder())
    trackers.default.stat({"loss": [1.0, 3.0]})
    with pytest.raises(rltel.RecordError, match=r'would be "loss/.*" in the flat dict, which is taken by "loss"'):
        second(trackers.default)  # type: ignore[operator]  # a lambda of the list above
    assert trackers.export_all() == {"loss/avg": 2.0, "loss/min": 1.0, "loss/max": 3.0}


def test_a_partner_of_another_key_is_taken_too() -> None:
    trackers = Trackers(Recorder())
    trackers.default.scalar(k=1.0)
    with pytest.raises(rltel.RecordError, match='would be "k__count"'):
        trackers.default.gauge({"k__count": 55.0})


def test_a_step_that_is_none_is_refused_before_anything_is_exported(tmp_path: Path) -> None:
    code = """
        import rltel
        rltel.count(n=7)
        try:
            with rltel.step(5, env_steps=-1): pass
        except rltel.RecordError as error:
            print(error)
        assert rltel.export_all()["n"] == 7
    """
    assert "env_steps: expected a whole number >= 0, got -1" in run(code, tmp_path)


def test_a_step_may_count_on_any_axis(tmp_path: Path) -> None:
    code = """
        import rltel
        rltel.init({"jsonl": {"path": "r.jsonl"}})
        with rltel.step(5, axis="rollout"):
            rltel.count(n=7)
        try:
            with rltel.step(6, axis=""):
                print("inside")
        except rltel.RecordError as error:
            print(error)
        print([(line.axis, line.step, line.values["n"]) for line in rltel.read_jsonl("r.jsonl")])
    """
    said = run(code, tmp_path)
    assert "inside" not in said
    assert "commit: axis: expected what the step counts" in said
    assert "[('rollout', 5, 7.0)]" in said


def test_a_program_whose_stderr_is_closed_starts_all_the_same(tmp_path: Path) -> None:
    code = """
        import sys, rltel
        sys.stderr.close()
        rltel.init({"jsonl": {"path": "r.jsonl"}})
        rltel.log({"x": 1.0}, step=3)
        rltel.shutdown()
        print([line.step for line in rltel.read_jsonl("r.jsonl")])
    """
    assert "[3]" in run(code, tmp_path)


def test_run_dir_is_filled_in_in_every_path(tmp_path: Path) -> None:
    code = """
        import rltel
        telemetry = rltel.init({
            "run": {"dir": "run"}, "jsonl": {"path": "{run_dir}/record.jsonl"},
            "trace": {"enabled": True, "output_dir": "{run_dir}/timeline"}, "tensorboard": {"path": "{run_dir}/tb"},
        })
        rltel.log({"a": 1.0}, step=0)
        rltel.shutdown()
    """
    run(code, tmp_path)
    assert {"record.jsonl", "timeline", "tb"} <= {path.name for path in (tmp_path / "run").iterdir()}
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


def test_sigterm_ends_the_program_as_its_own_end_does(tmp_path: Path) -> None:
    """Asked for by ``pipeline.sigterm``: what waits arrives, and the exit status says which signal it was."""
    code = """
        import os, signal, time, rltel
        record = {"path": "r.jsonl", "write": "worker"}
        end = {"sigterm": True, "shutdown_timeout_s": 60}
        rltel.init({"jsonl": record, "pipeline": end, "trace": {"enabled": True}})
        with rltel.slice("open"):
            rltel.log({"a": 1.0}, step=3)
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(60)
    """
    command = [sys.executable, "-c", dedent(code)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 128 + signal.SIGTERM, done.stderr
    assert [line.step for line in rltel.read_jsonl(tmp_path / "r.jsonl")] == [3]


def test_a_handler_of_the_user_s_own_stays(tmp_path: Path) -> None:
    code = """
        import logging, signal, sys, rltel
        logging.basicConfig(stream=sys.stdout, level=logging.WARNING)
        mine = lambda *_: None
        signal.signal(signal.SIGTERM, mine)
        rltel.init({"jsonl": {"path": "r.jsonl"}, "pipeline": {"sigterm": True}})
        assert signal.getsignal(signal.SIGTERM) is mine
    """
    assert "pipeline.sigterm: SIGTERM has a handler already" in run(code, tmp_path)
