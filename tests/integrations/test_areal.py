"""StatsLogger in AReaL's place: beside AReaL's own, over what trainers commit."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from export.making import ListSink, run_python, wait_until
from realparts.areal_logger import ArealLogger, areal_logger
from rltel.core.errors import ConfigError, RecordError
from rltel.export.jsonl import read_jsonl
from rltel.integrations.areal import StatsLogger
from rltel.process import Process
from rltel.record.recorder import Recorder
from rltel.reduce.trackers import Trackers

SPEC = SimpleNamespace(total_train_epochs=2, steps_per_epoch=3, total_train_steps=6)
PLACES = ("RANK", "WORLD_SIZE", "RLTEL_RANK", "RLTEL_WORLD_SIZE", "SLURM_PROCID", "SLURM_NTASKS")


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (*PLACES, "RLTEL_RUN_ID", "RLTEL_RUN_DIR", "RLTEL_DISABLED", "OTEL_SDK_DISABLED"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def process() -> Iterator[Process]:
    made = Process(Recorder(), {})
    yield made
    made.shutdown()


@pytest.fixture(scope="module")
def areal() -> Iterator[ArealLogger]:
    with areal_logger() as logger:
        yield logger


def ours(tmp_path: Path, process: Process, **more: Any) -> StatsLogger:
    config = {"jsonl": {"path": str(tmp_path / "r.jsonl")}, "run": {"dir": str(tmp_path / "run")}, **more}
    return StatsLogger(config, SPEC, process=process)


def committed(tmp_path: Path) -> list[tuple[int, dict[str, float]]]:
    """Step and numbers of every line of the record."""
    return [(line.step, dict(line.values)) for line in read_jsonl(tmp_path / "r.jsonl")]


TRAININGS: dict[str, list[tuple[int, Any]]] = {
    "one item a step": [(step, {"loss": float(step), "loss__count": 2}) for step in range(4)],
    "first at 7": [(7, {"a": 1.0}), (8, {"a": 2.0})],
    "several items a step": [(0, [{"a": 1.0}, {"a": 2.0}]), (1, [{"a": 3.0}, {"a": 4.0}]), (9, [{"a": 5.0}])],
    "other keys in each item": [(0, [{"a": 1.0}, {"b": 2.0}]), (1, [{"c": 3.0}])],
    "a step again": [(3, {"a": 1.0}), (3, {"a": 2.0}), (4, {"a": 3.0})],
    "a step that goes back": [(5, {"a": 1.0}), (2, {"a": 2.0}), (6, {"a": 3.0})],
    "no item": [(0, []), (2, {"a": 1.0}), (2, []), (3, {"a": 2.0})],
    "what is not finite": [(0, {"a": math.inf, "b": -math.inf})],
}


class TestBesideAreal:
    @pytest.mark.parametrize("commits", TRAININGS.values(), ids=TRAININGS)
    def test_the_same_numbers_at_the_same_steps(
        self, areal: ArealLogger, tmp_path: Path, process: Process, commits: list[tuple[int, Any]]
    ) -> None:
        named = {"experiment_name": "e", "trial_name": "t", "fileroot": str(tmp_path)}
        classes = areal.config
        theirs_config = classes.BaseExperimentConfig(stats_logger=classes.StatsLoggerConfig(**named))
        theirs_config.stats_logger.tensorboard.path = str(tmp_path / "tb")
        areal.wandb.steps.clear()
        areal.scalars.clear()
        theirs = areal.module.StatsLogger(theirs_config, SPEC)
        mine = StatsLogger(theirs_config, SPEC, process=process)
        run_dir = process.telemetry and process.telemetry.run_dir
        assert run_dir == Path(theirs.get_log_path(theirs_config.stats_logger))
        for global_step, data in commits:
            theirs.commit(0, global_step, global_step, data)
            mine.commit(0, global_step, global_step, data)
        mine.close()
        (record,) = (run_dir / "metrics").glob("*.jsonl")
        found = [
            (line.step, {k: v for k, v in line.values.items() if "nonfinite" not in k}) for line in read_jsonl(record)
        ]
        assert found == areal.wandb.steps
        assert mine.state_dict() == theirs.state_dict()
        events = EventAccumulator(str(tmp_path / "tb"))
        events.Reload()
        scalars = [
            (tag, event.value, event.step)
            for tag in events.Tags()["scalars"]
            for event in events.Scalars(tag)
            if "nonfinite" not in tag
        ]
        assert sorted(scalars) == sorted(areal.scalars)

    def test_the_log_path_is_areal_s(self, areal: ArealLogger, tmp_path: Path) -> None:
        named = {"experiment_name": "e", "trial_name": "t", "fileroot": str(tmp_path)}
        theirs = areal.module.StatsLogger.get_log_path(**named)
        assert StatsLogger.get_log_path(**named) == theirs
        assert StatsLogger.get_log_path(areal.config.StatsLoggerConfig(**named)) == theirs
        assert Path(theirs).is_dir()

    @pytest.mark.parametrize("missing", ["experiment_name", "trial_name", "fileroot"])
    def test_a_log_path_without_a_name_is_refused_by_both(self, areal: ArealLogger, missing: str) -> None:
        named = {"experiment_name": "e", "trial_name": "t", "fileroot": "/x", missing: None}
        for logger in (areal.module.StatsLogger, StatsLogger):
            with pytest.raises(ValueError, match="fileroot"):
                logger.get_log_path(**named)

    def test_areal_935_the_first_commit_is_at_step_0(self, tmp_path: Path, process: Process) -> None:
        ours(tmp_path, process).commit(0, 0, 0, {"a": 1.0})
        assert committed(tmp_path) == [(0, {"a": 1.0})]


class TestEvaluationBeforeTraining:
    """AReaL#1232. AReaL's own logger would count it as a step, and every later step would be off by one."""

    @pytest.mark.parametrize("global_step", [0, -1])
    def test_it_shares_step_0_with_the_first_training_step(
        self, tmp_path: Path, process: Process, global_step: int
    ) -> None:
        logger = ours(tmp_path, process)
        logger.commit(-1 if global_step < 0 else 0, global_step, global_step, {"eval-rollout/reward": 0.1})
        for step in range(3):
            logger.commit(0, step, step, {"loss": float(step)})
        assert committed(tmp_path) == [
            (0, {"eval-rollout/reward": 0.1}),
            (0, {"loss": 0.0}),
            (1, {"loss": 1.0}),
            (2, {"loss": 2.0}),
        ]

    def test_one_after_a_step_belongs_to_that_step(self, tmp_path: Path, process: Process) -> None:
        logger = ours(tmp_path, process)
        for step in range(2):
            logger.commit(0, step, step, {"loss": 1.0})
            logger.commit(0, step, step, {"eval": 1.0})
        assert [step for step, _ in committed(tmp_path)] == [0, 0, 1, 1]

    def test_the_steps_of_a_commit_before_training_are_not_negative(self, tmp_path: Path, process: Process) -> None:
        ours(tmp_path, process).commit(-1, -1, -1, {"a": 1.0})
        (line,) = read_jsonl(tmp_path / "r.jsonl")
        assert (line.step, line.epoch, line.epoch_step) == (0, None, None)


class TestCommit:
    def test_what_was_averaged_keeps_its_weight(self, tmp_path: Path, process: Process) -> None:
        """Stats carry the states behind the numbers; a flat dict that is merged in does not."""
        trackers = Trackers(Recorder())
        trackers.get("rollout").scalar(reward=1.0)
        trackers.get("rollout").scalar(reward=3.0)
        stats = trackers.export_all(None)
        stats.update({"eval-rollout/reward": 0.5, "eval-rollout/reward__count": 4})
        ours(tmp_path, process).commit(0, 0, 0, stats)
        (line,) = read_jsonl(tmp_path / "r.jsonl")
        assert line.values == {"rollout/reward": 2.0, "rollout/reward__count": 2, "eval-rollout/reward": 0.5}

    def test_epoch_and_step_in_it_are_kept(self, tmp_path: Path, process: Process) -> None:
        ours(tmp_path, process).commit(2, 5, 17, {"a": torch.tensor(1.5)})
        (line,) = read_jsonl(tmp_path / "r.jsonl")
        assert (line.epoch, line.epoch_step, line.step, line.values) == (2, 5, 17, {"a": 1.5})

    @pytest.mark.parametrize(
        ("data", "said"),
        [
            ({"a": 1.0, "text": "x"}, "text: expected one number, got str"),
            ([{"a": 1.0}, {"b": [1, 2]}], "b: expected one number, got list"),
            ([{"a": 1.0}, 5], "data: expected a mapping of numbers, or a list of them, got int"),
        ],
    )
    def test_what_is_no_number_is_refused_and_nothing_is_sent(
        self, tmp_path: Path, process: Process, data: Any, said: str
    ) -> None:
        logger = ours(tmp_path, process)
        with pytest.raises(RecordError, match=said):
            logger.commit(0, 0, 0, data)
        assert committed(tmp_path) == []
        assert logger.state_dict() == {"last_commit_step": -1}

    @pytest.mark.parametrize("where", [("0", 0, 0), (0, 1.5, 0), (0, 0, None)])
    def test_steps_are_whole_numbers(self, tmp_path: Path, process: Process, where: tuple[Any, Any, Any]) -> None:
        logger = ours(tmp_path, process)
        with pytest.raises(RecordError, match="expected a whole number"):
            logger.commit(*where, {"a": 1.0})
        assert committed(tmp_path) == []

    def test_how_far_training_is(self, tmp_path: Path, process: Process, caplog: pytest.LogCaptureFixture) -> None:
        caplog.set_level("INFO", "rltel")
        ours(tmp_path, process).commit(0, 1, 1, {"a": 1.0})
        assert "epoch 1/2, step 2/3, train step 2/6" in caplog.messages

    def test_without_a_spec_the_totals_are_not_shown(
        self, tmp_path: Path, process: Process, caplog: pytest.LogCaptureFixture
    ) -> None:
        caplog.set_level("INFO", "rltel")
        StatsLogger(
            {"jsonl": {"path": str(tmp_path / "r.jsonl")}, "run": {"dir": str(tmp_path)}}, process=process
        ).commit(0, 1, 1, {"a": 1.0})
        assert "epoch 1, step 2, train step 2" in caplog.messages

    def test_a_destination_that_raises_costs_only_itself(self, tmp_path: Path, process: Process) -> None:
        class Broken(ListSink):
            def write(self, made: Any, points: Any) -> None:
                raise OSError("gone")

        whole, broken = ListSink("whole"), Broken("broken")
        config = {"jsonl": {"path": str(tmp_path / "r.jsonl")}, "run": {"dir": str(tmp_path / "run")}}
        process.init(config, sinks=[broken, whole])
        logger = StatsLogger(config, SPEC, process=process)
        for step in range(3):
            logger.commit(0, step, step, {"a": 1.0})
        logger.close()
        wait_until(lambda: [made.step for made in whole.commits] == [0, 1, 2], "all steps")  # `close` waits 5 s
        assert [step for step, _ in committed(tmp_path)] == [0, 1, 2]


class TestRecovery:
    def test_it_goes_on_after_the_checkpoint(self, tmp_path: Path, process: Process) -> None:
        logger = ours(tmp_path, process)
        logger.load_state_dict({"last_commit_step": 41})
        logger.commit(0, 0, 40, {"a": 1.0})
        logger.commit(0, 0, 43, {"a": 2.0})
        assert [step for step, _ in committed(tmp_path)] == [42, 43]
        assert logger.state_dict() == {"last_commit_step": 43}

    def test_a_state_that_is_none_is_refused(self, tmp_path: Path, process: Process) -> None:
        with pytest.raises(RecordError, match="last_commit_step: expected a whole number, got 'x'"):
            ours(tmp_path, process).load_state_dict({"last_commit_step": "x"})  # type: ignore[dict-item]  # the point

    def test_a_restart_continues_the_run_of_these_names(self, tmp_path: Path) -> None:
        """As AReaL's W&B run does: same experiment and trial, same run."""
        named = {"experiment_name": "e", "trial_name": "t", "fileroot": str(tmp_path)}
        config = {"stats_logger": {**named, "tensorboard": {"path": str(tmp_path / "tb")}}}
        seen = set()
        for start in range(2):
            process = Process(Recorder(), {})
            logger = StatsLogger(config, SPEC, process=process)
            telemetry = process.telemetry
            assert telemetry is not None
            seen.add((telemetry.identity.run_id, telemetry.run_dir))
            assert telemetry.identity.incarnation == start + 1
            logger.close()
        assert {run_id for run_id, _ in seen} == {"e_t"}
        assert len(seen) == 1


class TestOneProcessCommits:
    @pytest.mark.parametrize(
        "environ", [{"RANK": "1", "WORLD_SIZE": "2"}, {"RLTEL_RANK": "1", "RLTEL_WORLD_SIZE": "2"}]
    )
    def test_other_ranks_do_nothing(
        self, tmp_path: Path, process: Process, monkeypatch: pytest.MonkeyPatch, environ: Mapping[str, str]
    ) -> None:
        for name, value in environ.items():
            monkeypatch.setenv(name, value)
        logger = ours(tmp_path, process)
        logger.commit(0, 0, 0, {"a": 1.0})
        logger.close()
        assert process.telemetry is None
        assert list(tmp_path.iterdir()) == []
        assert logger.state_dict() == {"last_commit_step": -1}

    def test_a_config_that_is_wrong_is_refused_on_every_rank(
        self, process: Process, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("RANK", "1")
        monkeypatch.setenv("WORLD_SIZE", "2")
        with pytest.raises(ConfigError, match=r"stats_logger\.wandb\.mode"):
            StatsLogger({"stats_logger": {"wandb": {"mode": "on"}}}, SPEC, process=process)

    def test_the_last_rank_does_where_it_is_the_writer(
        self, tmp_path: Path, process: Process, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("RANK", "1")
        monkeypatch.setenv("WORLD_SIZE", "2")
        ours(tmp_path, process, run={"writer": "last", "id": "x", "dir": str(tmp_path / "run")}).commit(
            0, 0, 0, {"a": 1.0}
        )
        assert len(committed(tmp_path)) == 1

    def test_a_thrown_switch_turns_it_off(
        self, tmp_path: Path, process: Process, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("RLTEL_DISABLED", "1")
        ours(tmp_path, process).commit(0, 0, 0, {"a": 1.0})
        assert list(tmp_path.iterdir()) == []


class TestAfterInit:
    def test_what_was_switched_on_before_holds_and_stays_on(
        self, tmp_path: Path, process: Process, caplog: pytest.LogCaptureFixture
    ) -> None:
        telemetry = process.init({"jsonl": {"path": str(tmp_path / "r.jsonl")}, "run": {"dir": str(tmp_path / "run")}})
        logger = StatsLogger({"stats_logger": {"tensorboard": {"path": str(tmp_path / "tb")}}}, SPEC, process=process)
        logger.commit(0, 0, 0, {"a": 1.0})
        logger.close()
        assert caplog.messages == [
            "StatsLogger: rltel.init was called before and holds; not switched on: tensorboard.path"
        ]
        assert process.telemetry is telemetry
        assert len(committed(tmp_path)) == 1
        assert not (tmp_path / "tb").exists()


FACE = """
import sys
from rltel.stats_logger import StatsLogger
logger = StatsLogger({"stats_logger": {"experiment_name": "e", "trial_name": "t", "fileroot": sys.argv[1],
                                       "tensorboard": {"path": sys.argv[1] + "/tb"}}}, None)
logger.commit(0, 0, 0, {"a": 1.0})
import rltel
rltel.log({"b": 2.0}, step=0)
logger.close()
print(*sorted({name.split(".")[0] for name in sys.modules} & {"wandb", "swanlab", "trackio", "torch"}))
"""


def test_the_drop_in_is_this_process_s_own_and_imports_no_backend_that_is_off(tmp_path: Path) -> None:
    ran = run_python(FACE, tmp_path, USER="someone", LOGNAME="someone")
    assert (ran.returncode, ran.stdout) == (0, "\n"), ran.stderr
    (record,) = (tmp_path / "logs" / "someone" / "e" / "t" / "metrics").glob("*.jsonl")
    assert [dict(line.values) for line in read_jsonl(record)] == [{"a": 1.0}, {"b": 2.0}]
