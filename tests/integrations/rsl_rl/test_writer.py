"""What the writer makes of single calls. Whole trainings are in ``tests/integrations/test_rsl_rl.py``."""

from __future__ import annotations

import json
import math
import os
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch

from rltel.core.errors import ConfigError
from rltel.export.jsonl import read_jsonl
from rltel.integrations.rsl_rl import RltelLogWriter
from rltel.process import Process
from rltel.record import fold
from rltel.record.recorder import Recorder


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("RANK", "WORLD_SIZE", "RLTEL_RUN_ID", "RLTEL_RUN_DIR", "RLTEL_DISABLED", "OTEL_SDK_DISABLED"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def process() -> Iterator[Process]:
    made = Process(Recorder(), {})
    yield made
    made.shutdown()


@pytest.fixture
def writer(tmp_path: Path, process: Process) -> Iterator[RltelLogWriter]:
    made = RltelLogWriter(str(tmp_path), tensorboard={"path": None}, process=process)
    yield made
    made.stop()


def steps_of(run_dir: Path, axis: str = "train") -> dict[int, Mapping[str, float]]:
    return {line.step: line.values for line in read_jsonl(run_dir) if line.axis == axis}


def test_it_is_a_log_writer_of_rsl_rls(writer: RltelLogWriter) -> None:
    from rsl_rl.utils import LogWriter

    assert isinstance(writer, LogWriter)


class TestWhenAnIterationIsCommitted:
    def test_when_the_step_changes_and_at_the_end(self, writer: RltelLogWriter, tmp_path: Path) -> None:
        for step in range(3):
            writer.add_scalar("Loss/value", float(step), step)
            writer.add_scalar("reward/x", 1.0, step)
            assert steps_of(tmp_path).keys() == set(range(step))
        writer.stop()
        assert steps_of(tmp_path) == {step: {"Loss/value": step, "reward/x": 1.0} for step in range(3)}

    def test_before_a_checkpoint_is_sent(self, writer: RltelLogWriter, tmp_path: Path) -> None:
        writer.add_scalar("Loss/value", 1.0, 0)
        writer.save_model(str(tmp_path / "model_0.pt"), 0)
        assert steps_of(tmp_path) == {0: {"Loss/value": 1.0}}

    def test_at_the_last_tag_of_rsl_rls_log(self, writer: RltelLogWriter, tmp_path: Path) -> None:
        """So that what is drawn is not an iteration late."""
        writer.add_scalar("Train/mean_reward", 1.0, 5)
        writer.add_scalar("Train/mean_reward/time", 1.0, 77)
        writer.add_scalar("Train/mean_episode_length/time", 9.0, 77)
        assert steps_of(tmp_path) == {5: {"Train/mean_reward": 1.0}}
        assert steps_of(tmp_path, "time") == {}

    def test_seconds_are_an_axis_of_their_own_if_asked_for(self, tmp_path: Path, process: Process) -> None:
        writer = RltelLogWriter(str(tmp_path), time_axis=True, process=process)
        for step, seconds in ((5, 77), (6, 77)):  # whole seconds: several iterations at one of them
            writer.add_scalar("Loss/value", 1.0, step)
            writer.add_scalar("Train/mean_reward/time", float(step), seconds)
            writer.add_scalar("Train/mean_episode_length/time", 9.0, seconds)
        assert steps_of(tmp_path).keys() == {5, 6}
        found = [(line.step, dict(line.values)) for line in read_jsonl(tmp_path) if line.axis == "time"]
        tags = ("Train/mean_reward/time", "Train/mean_episode_length/time")
        assert found == [(77, dict(zip(tags, values, strict=True))) for values in ((5.0, 9.0), (6.0, 9.0))]

    def test_stop_twice_and_numbers_after_it_are_no_error(self, writer: RltelLogWriter, tmp_path: Path) -> None:
        writer.add_scalar("Loss/value", 1.0, 0)
        writer.stop()
        writer.stop()
        writer.add_scalar("Loss/value", 2.0, 1)
        writer.save_model("gone.pt", 1)
        assert steps_of(tmp_path).keys() == {0}

    def test_what_a_child_inherits_by_fork_is_not_committed_by_it(self, writer: RltelLogWriter, tmp_path: Path) -> None:
        writer.add_scalar("Loss/value", 1.0, 0)
        child = os.fork()
        if child == 0:
            writer._finish()
            os._exit(0 if not writer._is_stopped else 1)
        assert os.waitpid(child, 0)[1] == 0
        assert steps_of(tmp_path) == {}


class TestValues:
    @pytest.mark.parametrize(
        "value",
        [1.5, 3, np.float32(2.5), np.int64(7), torch.tensor(0.25), torch.tensor([4.0]), -math.inf],
        ids=repr,
    )
    def test_one_number_of_any_type(self, value: Any, writer: RltelLogWriter, tmp_path: Path) -> None:
        writer.add_scalar("Loss/value", value, 0)
        writer.stop()
        assert steps_of(tmp_path)[0]["Loss/value"] == float(value)
        assert not writer.lost

    def test_nan_is_kept(self, writer: RltelLogWriter, tmp_path: Path) -> None:
        writer.add_scalar("Loss/value", torch.tensor(math.nan), 0)
        writer.stop()
        assert math.isnan(steps_of(tmp_path)[0]["Loss/value"])

    @pytest.mark.parametrize(
        "value", [None, "high", torch.ones(2), [1.0], 1j, pytest.param(object(), id="object")], ids=str
    )
    def test_what_is_no_number_is_counted_and_costs_nothing_else(
        self, value: Any, writer: RltelLogWriter, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        for step in range(2):
            writer.add_scalar("Loss/a", 1.0, step)
            writer.add_scalar("Loss/wrong", value, step)
            writer.add_scalar("Loss/b", 2.0, step)
        writer.stop()
        assert steps_of(tmp_path) == {step: {"Loss/a": 1.0, "Loss/b": 2.0} for step in range(2)}
        assert writer.lost == {"refused": 2}
        assert caplog.text.count("Loss/wrong: expected one number") == 1
        assert "not written, by reason: {'refused': 2}" in caplog.text

    @pytest.mark.parametrize(("tag", "step"), [(3, 0), ("Loss/a", None), ("Loss/a", -1), ("Loss/a", 0.5), ("", 0)])
    def test_a_tag_or_step_that_is_none_is_counted(self, tag: Any, step: Any, writer: RltelLogWriter) -> None:
        writer.add_scalar(tag, 1.0, step)
        assert writer.lost == {"refused": 1}

    def test_a_tag_that_comes_twice_is_counted_and_the_later_one_holds(
        self, writer: RltelLogWriter, tmp_path: Path
    ) -> None:
        """An environment that logs ``Train/mean_reward`` itself: two points of one step in rsl_rl's TensorBoard."""
        writer.add_scalar("Train/mean_reward", 1.0, 0)
        writer.add_scalar("Train/mean_reward", 2.0, 0)
        writer.stop()
        assert steps_of(tmp_path)[0]["Train/mean_reward"] == 2.0
        assert writer.lost == {"repeated": 1}

    def test_a_tag_that_is_another_kind_of_metric_already_is_counted(
        self, writer: RltelLogWriter, process: Process
    ) -> None:
        process.trackers.default.scalar({"Loss/value": 1.0, "Perf/learning_time": 1.0})
        writer.add_scalar("Loss/value", 1.0, 0)
        writer.add_scalar("Perf/learning_time", 1.0, 0)
        assert writer.lost == {"refused": 2}

    def test_tags_are_whole_names_whatever_scope_rsl_rl_runs_in(
        self, writer: RltelLogWriter, process: Process, tmp_path: Path
    ) -> None:
        with process.trackers.default.scope("experiment"):
            writer.add_scalar("Loss/value", 1.0, 0)
        writer.stop()
        assert steps_of(tmp_path) == {0: {"Loss/value": 1.0}}

    def test_nobody_waits_for_a_device(
        self, writer: RltelLogWriter, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(fold, "_HOST", "none")  # the CPU counts as a device
        read = []
        monkeypatch.setattr(torch.Tensor, "item", read.append)
        for tag in ("Loss/a", "Loss/b"):
            writer.add_scalar(tag, torch.tensor(3.0), 0)
        assert read == []
        writer.stop()
        assert steps_of(tmp_path) == {0: {"Loss/a": 3.0, "Loss/b": 3.0}}
        assert read == []  # both came in one copy

    def test_rates_are_summed_over_ranks_and_times_are_observations(
        self, writer: RltelLogWriter, tmp_path: Path
    ) -> None:
        for tag in ("Perf/total_fps", "Loss/value", "Perf/learning_time", "Perf/collection_time"):
            writer.add_scalar(tag, 2.0, 0)
        writer.stop()
        (line,) = read_jsonl(tmp_path)
        kinds = {key: str(metric.state.kind) for key, metric in line.snapshot.items()}
        assert (kinds["Perf/total_fps"], kinds["Loss/value"]) == ("gauge_sum", "gauge_mean")
        assert line.snapshot["Perf/learning_time"].state.kind.phase.rl == "train"
        assert line.snapshot["Perf/collection_time"].state.kind.phase.rl == "sample"


class TestStrictNames:
    def test_a_strange_tag_costs_itself_only(self, tmp_path: Path, process: Process) -> None:
        writer = RltelLogWriter(str(tmp_path), names={"strict": True}, process=process)
        writer.add_scalar("Loss/value", 1.0, 0)
        writer.add_scalar("Curriculm/levl", 1.0, 0)
        writer.add_scalar("Perf/learning_time", 1.0, 0)
        writer.stop()
        assert steps_of(tmp_path) == {0: {"Loss/value": 1.0, "Perf/learning_time": 1.0}}
        assert writer.lost == {"refused": 1}

    def test_a_strange_key_of_one_s_own_does_not_end_the_training(
        self, tmp_path: Path, process: Process, caplog: pytest.LogCaptureFixture
    ) -> None:
        writer = RltelLogWriter(str(tmp_path), names={"strict": True}, process=process)
        process.trackers.default.scalar({"my own": 1.0})
        writer.add_scalar("Loss/value", 1.0, 0)
        writer.stop()
        assert writer.lost == {"commit": 1}
        assert '"my own"' in caplog.text


class TestSettings:
    def test_rsl_rls_folder_is_the_run_directory_and_tensorboards(self, tmp_path: Path, process: Process) -> None:
        RltelLogWriter(str(tmp_path / "logs"), process=process)
        telemetry = process.telemetry
        assert telemetry is not None
        assert telemetry.run_dir == tmp_path / "logs"
        assert list((tmp_path / "logs").glob("*tfevents*"))

    def test_where_it_is_told_it_goes_there(self, tmp_path: Path, process: Process) -> None:
        run = {"log_root": str(tmp_path / "mine"), "algo": "ppo"}
        RltelLogWriter(str(tmp_path / "logs"), run=run, tensorboard={"path": None}, process=process)
        telemetry = process.telemetry
        assert telemetry is not None
        assert telemetry.run_dir is not None
        assert telemetry.run_dir.parent == tmp_path / "mine" / "ppo"
        assert telemetry.config.tensorboard.path is None
        assert not (tmp_path / "logs").exists()

    def test_a_variable_is_stronger(self, tmp_path: Path) -> None:
        process = Process(Recorder(), {"RLTEL_RUN_DIR": str(tmp_path / "there")})
        RltelLogWriter(str(tmp_path / "logs"), process=process)
        process.shutdown()
        assert (tmp_path / "there" / "run.json").exists()

    def test_a_file(self, tmp_path: Path, process: Process) -> None:
        (tmp_path / "telemetry.yaml").write_text("trace: {enabled: true}\n")
        RltelLogWriter(str(tmp_path / "logs"), config=str(tmp_path / "telemetry.yaml"), process=process)
        assert process.telemetry is not None
        assert process.telemetry.config.trace.enabled

    def test_a_file_and_sections_are_too_much(self, tmp_path: Path, process: Process) -> None:
        with pytest.raises(ConfigError, match="config or sections, not both, got config and trace"):
            RltelLogWriter(str(tmp_path), config={}, trace={"enabled": True}, process=process)

    def test_what_init_switched_on_before_holds_and_stays_on(
        self, tmp_path: Path, process: Process, caplog: pytest.LogCaptureFixture
    ) -> None:
        telemetry = process.init({"run": {"dir": str(tmp_path / "run")}, "jsonl": {"path": str(tmp_path / "r.jsonl")}})
        writer = RltelLogWriter(str(tmp_path / "logs"), trace={"enabled": True}, process=process)
        writer.add_scalar("Loss/value", 1.0, 0)
        writer.stop()
        assert process.telemetry is telemetry
        assert not (tmp_path / "logs").exists()
        assert "rltel.init was called before and holds" in caplog.text
        assert [line.step for line in read_jsonl(tmp_path / "r.jsonl")] == [0]

    def test_an_older_rsl_rl_is_named(self, tmp_path: Path, process: Process, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(sys.modules, "rsl_rl.utils", ModuleType("rsl_rl.utils"))
        with pytest.raises(ConfigError, match=r"needs rsl-rl-lib 5\.4 or later"):
            RltelLogWriter(str(tmp_path), process=process)
        assert process.telemetry is None


class TestEnvironmentSteps:
    @pytest.mark.parametrize(
        ("given", "env_cfg", "expected"),
        [(None, {"num_envs": 4}, 40), (3, {"num_envs": 4}, 30), (None, {}, None)],
    )
    def test_are_counted_where_the_number_of_environments_is_known(
        self, given: int | None, env_cfg: Any, expected: int | None, tmp_path: Path, process: Process
    ) -> None:
        writer = RltelLogWriter(str(tmp_path), num_envs=given, process=process)
        writer.store_config(env_cfg, {"num_steps_per_env": 5, "multi_gpu": {"world_size": 2}})
        writer.add_scalar("Loss/value", 1.0, 0)
        writer.stop()
        assert [line.env_steps for line in read_jsonl(tmp_path)] == [expected]

    def test_a_configuration_that_cannot_be_written_ends_no_training(
        self, tmp_path: Path, writer: RltelLogWriter
    ) -> None:
        (tmp_path / "rsl_rl_config.json").mkdir()
        writer.store_config({"num_envs": 4}, {"num_steps_per_env": 5})
        assert writer.lost == {"config": 1}

    def test_a_configuration_that_contains_itself_neither(self, tmp_path: Path, writer: RltelLogWriter) -> None:
        endless: dict[str, Any] = {}
        endless["self"] = endless
        writer.store_config(endless, {})
        assert writer.lost == {"config": 1}
        writer.store_config({}, {"x": 1})
        assert json.loads((tmp_path / "rsl_rl_config.json").read_text())["train_cfg"] == {"x": 1}
