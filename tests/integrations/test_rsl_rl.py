"""rsl_rl's real runner through our writer: beside rsl_rl's own, and where others lose what it logs."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from export.making import PATIENT, run_python, wait_until
from realparts.rsl_rl_training import EXAMPLES, ITERATIONS, OURS, FailsAt, environment, parameters, runner
from realparts.tensorboard_reader import pages, scalars
from realparts.wandb_reader import read_offline
from rltel.core.errors import ConfigError
from rltel.export.jsonl import read_jsonl
from rltel.integrations.rsl_rl import RltelLogWriter, instrument
from rltel.process import Process
from rltel.record.recorder import Recorder

TIMES = {"Perf/total_fps", "Perf/collection_time", "Perf/learning_time"}
OVER_SECONDS = {"Train/mean_reward/time", "Train/mean_episode_length/time"}
ENV_STEPS = 16 * 8
"""Of one iteration."""


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("RANK", "WORLD_SIZE", "RLTEL_RUN_ID", "RLTEL_RUN_DIR", "RLTEL_DISABLED", "OTEL_SDK_DISABLED"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def process() -> Iterator[Process]:
    made = Process(Recorder(), {})
    yield made
    made.shutdown()


def ours(process: Process, **settings: Any) -> dict[str, Any]:
    """``cfg["logger"]`` with the writer on this process. (rsl_rl copies what is in it, but no function.)"""

    def make(log_dir: str, **kwargs: Any) -> RltelLogWriter:
        return RltelLogWriter(log_dir, process=process, **kwargs)

    return {"class_name": make, **settings}


def lines_of(run_dir: Path, axis: str = "train") -> list[Any]:
    return [line for line in read_jsonl(run_dir) if line.axis == axis]


def as_float32(value: float) -> float:
    (rounded,) = struct.unpack("f", struct.pack("f", value))
    return float(rounded)


class TestBesideRslRlsOwnWriter:
    """Two trainings from one seed: rsl_rl's TensorBoard writer has one, ours the other."""

    @pytest.fixture(params=["plain", "instrumented"])
    def both(self, request: pytest.FixtureRequest, tmp_path: Path, process: Process) -> tuple[Any, Any]:
        theirs = runner(tmp_path / "theirs", "tensorboard")
        theirs.learn(ITERATIONS)
        theirs.logger.writer.close()  # rsl_rl itself never does
        mine = runner(tmp_path / "ours", ours(process, time_axis=True))
        with instrument(mine, process=process) if request.param == "instrumented" else nullcontext():
            mine.learn(ITERATIONS)
        return theirs, mine

    def test_every_number_of_every_tag_is_the_same_and_so_is_what_was_learned(
        self, both: tuple[Any, Any], tmp_path: Path
    ) -> None:
        assert parameters(both[0]) == parameters(both[1])
        theirs, mine = scalars(tmp_path / "theirs"), scalars(tmp_path / "ours")
        assert theirs.keys() <= mine.keys()
        assert {"Loss/surrogate", "Train/mean_reward", "reward/alive", "Episode_Termination/pole_fell"} < theirs.keys()
        for tag in theirs.keys() - TIMES:
            assert [point.value for point in mine[tag]] == [point.value for point in theirs[tag]], tag
        for tag in theirs.keys() - OVER_SECONDS:
            assert [point.step for point in mine[tag]] == [point.step for point in theirs[tag]], tag

    def test_the_record_has_the_same_numbers_one_line_an_iteration(self, both: tuple[Any, Any], tmp_path: Path) -> None:
        theirs = scalars(tmp_path / "theirs")
        lines = lines_of(tmp_path / "ours")
        assert [(line.step, line.env_steps) for line in lines] == [
            (number, (number + 1) * ENV_STEPS) for number in range(ITERATIONS)
        ]
        for tag in theirs.keys() - TIMES - OVER_SECONDS:
            found = {line.step: as_float32(line.values[tag]) for line in lines if tag in line.values}
            assert found == {point.step: point.value for point in theirs[tag]}, tag


class TestTimes:
    """On a clock that the test moves: rsl_rl reads it as its wall clock, we as ours."""

    @pytest.fixture
    def clock(self, monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
        from rsl_rl.runners import on_policy_runner

        clock = SimpleNamespace(ns=10**18, wall_back_s=0)
        wall = SimpleNamespace(time=lambda: clock.ns / 1e9 - clock.wall_back_s)
        monkeypatch.setattr(on_policy_runner, "time", wall)
        return clock

    def training(self, clock: SimpleNamespace, logger: Any, log_dir: Path) -> tuple[Any, dict[str, list[float]]]:
        """A runner whose step takes 2 ms and whose update 50 ms, and what rsl_rl's timers say."""
        said: dict[str, list[float]] = {}
        made = runner(log_dir, logger)
        step, update, log = made.env.step, made.alg.update, made.logger.log

        def slow_step(actions: torch.Tensor) -> Any:
            clock.ns += 2_000_000
            return step(actions)

        def slow_update() -> Any:
            clock.ns += 50_000_000
            return update()

        def heard_log(**known: Any) -> None:
            for name in ("collect_time", "learn_time"):
                said.setdefault(name, []).append(known[name])
            clock.ns += 1_000_000
            log(**known)

        made.env.step, made.alg.update, made.logger.log = slow_step, slow_update, heard_log
        return made, said

    @pytest.mark.parametrize("instrumented", [False, True])
    def test_are_those_of_rsl_rls_own_timers(self, instrumented: bool, clock: SimpleNamespace, tmp_path: Path) -> None:
        process = Process(Recorder(now=lambda: clock.ns), {})
        made, said = self.training(clock, ours(process), tmp_path)
        with instrument(made, process=process) if instrumented else nullcontext():
            made.learn(4)
        lines = lines_of(tmp_path)
        for tag, name, seconds in (
            ("Perf/collection_time", "collect_time", 0.016),
            ("Perf/learning_time", "learn_time", 0.05),
        ):
            assert said[name] == pytest.approx([seconds] * 4, abs=1e-6)  # a float of seconds since 1970 holds no more
            assert [line.values[tag] for line in lines] == pytest.approx(
                [seconds] * 4 if instrumented else said[name], abs=1e-9
            )
        if instrumented:
            assert [line.values["Perf/iteration_time"] for line in lines] == pytest.approx([0.067] * 4)
            assert [line.values["Perf/collector_env_step_ms"] for line in lines] == pytest.approx([2.0] * 4)
            assert [line.values["Perf/learner_update_ms"] for line in lines] == pytest.approx([50.0] * 4)
        else:
            assert "Perf/iteration_time" not in lines[0].values

    def test_a_wall_clock_that_is_set_back_spoils_rsl_rls_and_not_ours(
        self, clock: SimpleNamespace, tmp_path: Path
    ) -> None:
        process = Process(Recorder(now=lambda: clock.ns), {})
        made, said = self.training(clock, ours(process), tmp_path)
        made.alg.act = FailsAt(made.alg.act, 3, lambda: setattr(clock, "wall_back_s", 3600))
        with instrument(made, process=process):
            made.learn(1)
        assert said["collect_time"][0] < -3599
        assert lines_of(tmp_path)[0].values["Perf/collection_time"] == pytest.approx(0.016)

    def test_without_our_clock_a_negative_time_is_refused_and_counted(
        self, clock: SimpleNamespace, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        process = Process(Recorder(now=lambda: clock.ns), {})
        made, _ = self.training(clock, ours(process), tmp_path)
        made.alg.act = FailsAt(made.alg.act, 3, lambda: setattr(clock, "wall_back_s", 3600))
        made.learn(1)
        assert "Perf/collection_time" not in lines_of(tmp_path)[0].values
        assert made.logger.writer.lost == {"refused": 1}
        assert "Perf/collection_time: expected seconds >= 0" in caplog.text


TRAIN = """
import os, sys
from realparts.rsl_rl_training import FailsAt, OURS, environment, runner
from rltel.integrations.rsl_rl import instrument
from contextlib import nullcontext
how, instrumented, log_dir = sys.argv[1:]
def fail():
    if how == "killed":
        os._exit(9)
    raise RuntimeError("the simulator is gone")
env = environment(max_episode_length=4)
env.step = FailsAt(env.step, 8 * 6 + 3, fail)  # in iteration 6
made = runner(log_dir, {"class_name": OURS}, env=env)
with instrument(made) if instrumented == "yes" else nullcontext():
    made.learn(20)
"""


def run_training(code: str, *arguments: str | Path, **environ: str) -> Any:
    tests = str(Path(__file__).parents[1])
    return run_python(code, *arguments, timeout=200, PYTHONPATH=f"{tests}:{EXAMPLES}", **environ)


class TestTrainingsThatEndBadly:
    """rsl_rl calls ``stop`` only at the end of a training that goes well, and its own writer flushes every 10 s."""

    @pytest.mark.parametrize("instrumented", ["yes", "no"])
    @pytest.mark.parametrize("how", ["raises", "killed"])
    def test_every_iteration_that_was_logged_is_in_the_record_and_in_tensorboard(
        self, how: str, instrumented: str, tmp_path: Path
    ) -> None:
        ran = run_training(TRAIN, how, instrumented, tmp_path, **PATIENT)
        assert ran.returncode == (9 if how == "killed" else 1), ran.stderr
        assert [line.step for line in lines_of(tmp_path)] == list(range(6))
        if how == "raises":
            assert "the simulator is gone" in ran.stderr
            assert [point.step for point in scalars(tmp_path)["Loss/value"]] == list(range(6))

    @pytest.mark.parametrize("instrumented", [False, True])
    def test_a_checkpoint_that_cannot_be_written_costs_no_numbers(
        self, instrumented: bool, tmp_path: Path, process: Process, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def full() -> None:
            raise OSError(28, "No space left on device")

        made = runner(tmp_path, ours(process), env=environment(max_episode_length=4))
        monkeypatch.setattr(torch, "save", FailsAt(torch.save, 1, full))
        with (
            pytest.raises(OSError, match="No space"),
            instrument(made, process=process) if instrumented else nullcontext(),
        ):
            made.learn(20)
        assert [line.step for line in lines_of(tmp_path)] == list(range(6))  # it saves after iterations 0 and 5


class TestGoingOn:
    def test_learn_again_goes_on_in_the_same_folder(self, tmp_path: Path, process: Process) -> None:
        """Each ``learn`` makes a writer, and stops it. The iteration that rsl_rl counts twice is there twice."""
        made = runner(tmp_path, ours(process))
        with instrument(made, process=process):
            made.learn(3)
            made.learn(3)
        assert [line.step for line in lines_of(tmp_path)] == [0, 1, 2, 2, 3, 4]
        with pages(tmp_path) as shown:
            wait_until(lambda: "Loss/value" in shown.scalars().get(".", {}), "what the data server has loaded")
            assert [step for step, _ in shown.scalars()["."]["Loss/value"]] == [0, 1, 2, 3, 4]

    def test_unilab_441_no_axis_restarts_when_a_training_is_resumed(self, tmp_path: Path, process: Process) -> None:
        """rsl_rl's own total of steps, and its axis of seconds, begin at 0 again."""
        first = runner(tmp_path, ours(process))
        first.learn(6)
        second = runner(tmp_path, ours(Process(Recorder(), {})), seed=4)
        second.load(str(tmp_path / "model_5.pt"))
        second.learn(2)
        assert second.logger.tot_timesteps == 2 * ENV_STEPS
        assert [(line.step, line.env_steps) for line in lines_of(tmp_path)][-2:] == [
            (5, 6 * ENV_STEPS),
            (6, 7 * ENV_STEPS),
        ]


class TestPublicFaults:
    def test_unilab_on_rsl_rl_5_5_lost_every_scalar_for_wandb_and_here_each_arrives(
        self, tmp_path: Path, process: Process
    ) -> None:
        """Also leggedrobotics/rsl_rl 40 and 150: no run of W&B's is needed, or waited for, to go on."""
        settings = {"wandb": {"mode": "offline", "project": "p"}, "pipeline": {"shutdown_timeout_s": 60.0}}
        made = runner(tmp_path / "run", ours(process, **settings))
        made.learn(ITERATIONS)
        found = read_offline(tmp_path / "run", timeout=60.0)
        lines = lines_of(tmp_path / "run")
        for tag in ("Loss/value", "Perf/total_fps", "reward/alive"):
            values = [row[tag] for row in found.rows if tag in row]
            assert values == pytest.approx([line.values[tag] for line in lines]), tag
        assert any("model_5.pt" in file for file in found.files)

    def test_mjlab_1163_and_unilab_s_logger_named_none_a_wrong_setting_is_named(
        self, tmp_path: Path, process: Process
    ) -> None:
        """UniLab turns loggers that it does not know into ``none``, which rsl_rl 5.5 refuses without saying what."""
        with pytest.raises(ConfigError, match=r"prometheus\.enabld: unknown key"):
            runner(tmp_path, ours(process, prometheus={"enabld": True})).learn(1)

    @pytest.mark.parametrize("name", [OURS, OURS.replace(":", ".")])
    def test_rsl_rl_finds_the_writer_by_name(self, name: str, tmp_path: Path) -> None:
        code = (
            "import sys; from realparts.rsl_rl_training import runner\n"
            "runner(sys.argv[1], {'class_name': sys.argv[2], 'run': {'algo': 'ppo'}}).learn(3)\n"
        )
        ran = run_training(code, tmp_path, name)
        assert ran.returncode == 0, ran.stderr
        assert [line.step for line in lines_of(tmp_path)] == [0, 1, 2]
        assert "Traceback" not in ran.stderr

    def test_isaaclab_3484_and_3203_numbers_of_one_s_own_go_along_with_their_iteration(
        self, tmp_path: Path, process: Process
    ) -> None:
        made = runner(tmp_path, ours(process))
        step = made.env.step

        def counted(actions: torch.Tensor) -> Any:
            process.trackers.default.scalar(my_steps=1.0)
            return step(actions)

        made.env.step = counted
        with instrument(made, process=process):
            made.learn(4)
        assert [line.snapshot["my_steps"].state.moments[1] for line in lines_of(tmp_path)] == [8.0] * 4

    def test_a_run_with_videos_sends_each_once(
        self, tmp_path: Path, process: Process, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """rsl_rl names every video at every iteration, and its W&B writer tells them apart by file name only."""
        shown: list[tuple[Any, ...]] = []
        monkeypatch.setattr(RltelLogWriter, "_show", lambda _, *what: shown.append(what))
        for folder in ("train", "play"):
            (tmp_path / "videos" / folder).mkdir(parents=True)
            (tmp_path / "videos" / folder / "step-0.mp4").write_bytes(b"film")
        runner(tmp_path, ours(process)).learn(5)
        videos = [Path(what[2]).parent.name for what in shown if what[0] == "video"]
        assert sorted(videos) == ["play", "train"]


def test_the_configuration_is_kept_without_secrets_and_with_the_version_of_the_schema(
    tmp_path: Path, process: Process
) -> None:
    runner(tmp_path, ours(process, wandb={"api_key": "s3cret"}), note=float("nan")).learn(1)
    text = (tmp_path / "rsl_rl_config.json").read_text()
    kept = json.loads(text, parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))
    assert kept["metric_schema_version"] == 1
    assert (kept["train_cfg"]["num_steps_per_env"], kept["env_cfg"]["num_envs"]) == (8, 16)
    assert "s3cret" not in text


def test_episode_rewards_of_the_environment_are_not_written_and_are_counted(
    tmp_path: Path, process: Process, caplog: pytest.LogCaptureFixture
) -> None:
    env = environment()
    step = env.step

    def with_more(actions: torch.Tensor) -> Any:
        obs, reward, done, extras = step(actions)
        more = {"Episode_Reward/track": 1.0, "Curriculum/level": torch.tensor(2.0), "plain": 3.0}
        return obs, reward, done, {**extras, "log": {**extras["log"], **more}}

    env.step = with_more
    made = runner(tmp_path, ours(process), env=env)
    made.learn(2)
    values = lines_of(tmp_path)[-1].values
    assert (values["Curriculum/level"], values["Episode/plain"]) == (2.0, 3.0)
    assert not any(tag.startswith("Episode_Reward/") for tag in values)
    assert made.logger.writer.lost == {"removed": 2}
    assert caplog.text.count("Episode_Reward/track") == 1


def test_no_writer_no_files(tmp_path: Path, process: Process, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a folder rsl_rl logs nothing; the phases are measured all the same."""
    monkeypatch.chdir(tmp_path)
    made = runner(None, ours(process))
    with instrument(made, process=process):
        made.learn(2)
    assert list(tmp_path.iterdir()) == []
    assert process.lost_commits == 2
    assert process.export_all(None)["Perf/iteration_time"] > 0
