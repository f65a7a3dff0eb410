"""rsl_rl's real runner with our clock on it."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

from realparts.rsl_rl_training import ENVS, NET, STEPS, environment, runner
from rltel.core.errors import RltelError
from rltel.export.jsonl import read_jsonl
from rltel.integrations.rsl_rl import instrument
from rltel.process import Process
from rltel.record.phase_sets import PPO_LEARNER
from rltel.record.recorder import Recorder

_WRAPPED = {
    "alg": {"act", "process_env_step", "compute_returns", "update"},
    "env": {"step"},
    "logger": {"log", "process_env_step", "stop_logging_writer"},
}


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("RANK", "WORLD_SIZE", "RLTEL_RUN_ID", "RLTEL_RUN_DIR", "RLTEL_DISABLED", "OTEL_SDK_DISABLED"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def process(tmp_path: Path) -> Iterator[Process]:
    made = Process(Recorder(), {})
    made.init({"run": {"dir": str(tmp_path / "run")}, "jsonl": {"path": str(tmp_path / "r.jsonl")}})
    yield made
    made.shutdown()


def lines_of(tmp_path: Path) -> list[Any]:
    return list(read_jsonl(tmp_path / "r.jsonl"))


def own(made: Any) -> dict[str, set[str]]:
    """What each part has of its own that shadows a method of its class."""
    parts = {"runner": made, **{name: getattr(made, name) for name in _WRAPPED}}
    return {
        name: {each for each in vars(part) if callable(getattr(type(part), each, None))} for name, part in parts.items()
    }


def test_with_rsl_rls_own_writer_the_times_are_committed(tmp_path: Path, process: Process) -> None:
    made = runner(tmp_path / "theirs", "tensorboard")
    with instrument(made, process=process):
        made.learn(3)
    lines = lines_of(tmp_path)
    assert [(line.step, line.env_steps) for line in lines] == [(n, (n + 1) * ENVS * STEPS) for n in range(3)]
    assert lines[0].snapshot.keys() == {"Perf/iteration_time", *(phase.key for phase in PPO_LEARNER.phases)}
    assert "Perf/learner_checkpoint_ms" not in lines[1].snapshot


def test_phases_are_counted_as_their_set_says(tmp_path: Path, process: Process) -> None:
    made = runner(None, "tensorboard")
    with instrument(made, process=process) as clock:
        made.learn(2)
    (first, _) = lines_of(tmp_path)
    counts = {key: metric.state.moments[1] for key, metric in first.snapshot.items()}
    assert counts["Perf/collector_env_step_ms"] == counts["Perf/collector_mlp_infer_ms"] == STEPS
    assert counts["Perf/collection_time"] == counts["Perf/learning_time"] == counts["Perf/iteration_time"] == 1
    assert clock.overlaps == 0
    values = first.values
    exclusive = [values[phase.key] * (1e-3 if phase.key.endswith("_ms") else 1.0) for phase in PPO_LEARNER.phases
                 if phase.kind == "exclusive" and phase.key in values]  # fmt: skip
    assert 0 < sum(exclusive) <= values["Perf/iteration_time"]
    inside = sum(first.snapshot[f"Perf/collector_{part}_ms"].state.moments[0]
                 for part in ("mlp_infer", "env_step", "rollout_write", "episode_log"))  # fmt: skip
    assert 0 < inside <= values["Perf/collection_time"]


@pytest.mark.parametrize("fails", [False, True])
def test_everything_is_as_before_afterwards(fails: bool, process: Process) -> None:
    made = runner(None, "tensorboard")
    before = own(made)
    assert not any(before.values())

    def use() -> None:
        with instrument(made, process=process):
            assert own(made) == {"runner": {"learn", "save"}, **_WRAPPED}
            made.learn(1)
            if fails:
                raise KeyError

    if fails:
        with pytest.raises(KeyError):
            use()
    else:
        use()
    assert own(made) == before


def test_what_the_user_had_put_there_is_there_again(process: Process) -> None:
    made = runner(None, "tensorboard")
    step = made.env.step
    mine = made.env.step = partial(step)
    with instrument(made, process=process):
        assert made.env.step is not mine
    assert made.env.step is mine


def test_an_iteration_that_fails_is_not_committed_and_its_end_is_drawn(tmp_path: Path, process: Process) -> None:
    made = runner(None, "tensorboard")
    update, calls = made.alg.update, []

    def failing() -> Any:
        calls.append(1)
        if len(calls) == 3:
            raise RuntimeError("no memory")
        return update()

    made.alg.update = failing
    with instrument(made, process=process) as clock:
        with pytest.raises(RuntimeError, match="no memory"):
            made.learn(5)
        assert [line.step for line in lines_of(tmp_path)] == [0, 1]
        made.alg.storage.clear()  # rsl_rl itself does not
        made.learn(1)  # and the next goes on: nothing is open
    assert [line.step for line in lines_of(tmp_path)] == [0, 1, 1]
    assert clock.overlaps == 0


def test_calls_outside_of_training_are_nobodys_business(tmp_path: Path, process: Process) -> None:
    made = runner(None, "tensorboard")
    with instrument(made, process=process):
        made.learn(1)
        policy = made.get_inference_policy()
        obs = made.env.get_observations()
        for _ in range(5):  # an evaluation
            obs, *_ = made.env.step(policy(obs))
        made.save(str(tmp_path / "model.pt"))
        made.alg.train_mode()
        made.learn(1)
    counts = [line.snapshot["Perf/collector_env_step_ms"].state.moments[1] for line in lines_of(tmp_path)]
    assert counts == [STEPS, STEPS]
    assert not any("Perf/learner_checkpoint_ms" in line.snapshot for line in lines_of(tmp_path))


def test_a_checkpoint_goes_on_with_its_iterations_number(tmp_path: Path, process: Process) -> None:
    first = runner(tmp_path / "logs", "tensorboard")
    first.learn(6)
    second = runner(None, "tensorboard")
    second.load(str(tmp_path / "logs" / "model_5.pt"))
    with instrument(second, process=process):
        second.learn(2)
    assert [(line.step, line.env_steps) for line in lines_of(tmp_path)] == [
        (5, 6 * ENVS * STEPS),
        (6, 7 * ENVS * STEPS),
    ]


def test_quiet_keeps_the_text_block_off_the_screen(
    tmp_path: Path, process: Process, capsys: pytest.CaptureFixture[str]
) -> None:
    made = runner(tmp_path / "logs", "tensorboard")
    capsys.readouterr()
    with instrument(made, process=process, quiet=True):
        made.learn(1)
    assert "Learning iteration" not in capsys.readouterr().out
    made.learn(1)
    assert "Learning iteration" in capsys.readouterr().out


def test_distillation_has_the_same_loop(tmp_path: Path, process: Process) -> None:
    from rsl_rl.runners import DistillationRunner

    torch.manual_seed(0)
    student = {**NET, "distribution_cfg": {"class_name": "GaussianDistribution", "init_std": 0.5}}
    config = {
        "num_steps_per_env": STEPS,
        "save_interval": 5,
        "obs_groups": {"student": ["policy"], "teacher": ["policy"]},
        "algorithm": {"class_name": "Distillation", "gradient_length": 4},
        "student": student,
        "teacher": student,
    }
    made = DistillationRunner(environment(), config, log_dir=None, device="cpu")
    made.alg.teacher_loaded = True
    with instrument(made, process=process):
        made.learn(2)
    assert [line.step for line in lines_of(tmp_path)] == [0, 1]
    assert {"Perf/collection_time", "Perf/learning_time"} <= lines_of(tmp_path)[0].snapshot.keys()


def test_twice_is_refused_and_leaves_the_first(tmp_path: Path, process: Process) -> None:
    made = runner(None, "tensorboard")
    with instrument(made, process=process):
        with (
            pytest.raises(RltelError, match=r"OnPolicyRunner\.learn is instrumented already"),
            instrument(made, process=process),
        ):
            pass
        made.learn(1)
    assert [line.step for line in lines_of(tmp_path)] == [0]


@pytest.mark.parametrize("wrong", [pytest.param(object(), id="object"), None, "runner"], ids=str)
def test_what_is_no_runner_is_named(wrong: Any, process: Process) -> None:
    with (
        pytest.raises(RltelError, match=f"got {type(wrong).__name__} without .alg"),
        instrument(wrong, process=process),
    ):
        pass


def test_a_missing_method_is_named_and_nothing_stays_wrapped(process: Process) -> None:
    made = runner(None, "tensorboard")
    made.logger.log = None
    with pytest.raises(RltelError, match="Logger has no method log"), instrument(made, process=process):
        pass
    assert own(made)["alg"] == own(made)["env"] == set()
