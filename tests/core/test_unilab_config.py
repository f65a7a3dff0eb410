"""UniLab's form of config: the ``training`` section of its 1.5.2."""

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from omegaconf import OmegaConf

from realparts.unilab import need_unilab
from rltel.core.config import TelemetryConfig
from rltel.core.errors import ConfigError
from rltel.core.resolve import resolve
from rltel.core.unilab_config import KNOWN

# The fields of UniLab's own training sections that are about logging and tracing, as they come.
DEFAULTS: dict[str, Any] = {
    "logger": "tensorboard", "log_interval": 1, "log_root": None, "log_dir": None,
    "wandb_project": "unilab", "wandb_entity": None, "wandb_group": None, "wandb_job_type": None, "wandb_name": None,
    "wandb_tags": [], "wandb_notes": None, "wandb_mode": None,
    "trace_enabled": False, "trace_output_dir": None, "trace_thread_time": False, "trace_cuda_events": True,
    "task_name": "G1WalkFlat", "sim_backend": "mujoco",
}  # fmt: skip
OTHERS: dict[str, Any] = {
    "device": None,
    "play_only": False,
    "nan_guard": {"enabled": True},
    "nvtx_profile_ranges": False,
}
CONFIG: dict[str, Any] = {
    "algo": {"algo": "sac", "algo_log_name": "sac", "num_envs": 4096},
    "training": {**DEFAULTS, **OTHERS},
    "hydra": {"run": {"dir": "."}},
    "interactive": {"speed": 1.0},
}


def resolved(environ: dict[str, str] | None = None, **training: Any) -> TelemetryConfig:
    return resolve({**CONFIG, "training": {**CONFIG["training"], **training}}, environ or {})


def problems_of(given: Any) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        resolve(given, {})
    return str(caught.value).split("\n")


def options_of(module: Path) -> Iterator[str]:
    """Of the constructors in a module, which would import all of UniLab."""
    for node in ast.walk(ast.parse(module.read_text())):
        if isinstance(node, ast.FunctionDef) and node.name == "__init__":
            yield from (argument.arg for argument in (*node.args.args, *node.args.kwonlyargs))


def test_every_field_of_unilab_s_is_known_here() -> None:
    assert set(DEFAULTS) == set(KNOWN)


def test_every_option_of_unilab_rl_s_logger_and_runner_that_the_config_feeds_is_known_here() -> None:
    source = need_unilab() / "uni_rl"
    options = {*options_of(source / "logging" / "offpolicy.py"), *options_of(source / "offpolicy" / "runner.py")}
    about_us = {name for name in options if name.startswith(("wandb_", "trace_", "log_"))}
    assert {"wandb_project", "trace_enabled", "log_interval"} <= about_us
    assert about_us - {"log_backend"} <= {*KNOWN, "wandb_config"}  # `logger`; the trainer's config


def test_a_config_as_it_comes_writes_tensorboard_and_nothing_else() -> None:
    config = resolved()
    assert config.tensorboard.path == "{run_dir}"
    assert (config.wandb.mode, config.trace.enabled) == ("disabled", False)
    assert (config.run.algo, config.run.task, config.run.backend) == ("sac", "G1WalkFlat", "mujoco")
    assert (config.run.log_root, config.run.dir, config.run.id) == ("logs", None, None)


@pytest.mark.parametrize(
    ("field", "value", "path"),
    [
        ("task_name", "Go2", "run.task"),
        ("sim_backend", "genesis", "run.backend"),
        ("log_interval", 10, "run.log_interval"),
        ("log_root", "/data", "run.log_root"),
        ("log_dir", "/data/run", "run.dir"),
        ("trace_enabled", True, "trace.enabled"),
        ("trace_output_dir", "/traces", "trace.output_dir"),
        ("trace_thread_time", True, "trace.thread_time"),
        ("trace_cuda_events", False, "trace.cuda_events"),
        ("wandb_project", "p", "wandb.project"),
        ("wandb_entity", "e", "wandb.entity"),
        ("wandb_group", "g", "wandb.group"),
        ("wandb_job_type", "j", "wandb.job_type"),
        ("wandb_name", "n", "wandb.name"),
        ("wandb_notes", "no", "wandb.notes"),
    ],
)
def test_what_a_field_becomes(field: str, value: Any, path: str) -> None:
    section, name = path.split(".")
    assert getattr(getattr(resolved(**{field: value}), section), name) == value


def test_what_unilab_fills_in_for_wandb() -> None:
    wandb = resolved(logger="wandb", wandb_tags=["mine", "sac"]).wandb
    assert (wandb.mode, wandb.project, wandb.group, wandb.job_type) == ("online", "unilab", "G1WalkFlat", "sac")
    assert wandb.tags == ["mine", "sac", "G1WalkFlat", "mujoco"]  # UniLab adds the user's name, too: we do not


@pytest.mark.parametrize(
    ("training", "environ", "mode"),
    [
        ({"logger": "wandb", "wandb_mode": "offline"}, {"WANDB_MODE": "disabled"}, "offline"),
        ({"logger": "wandb"}, {"WANDB_MODE": "offline"}, "offline"),
        ({"logger": "WandB"}, {}, "online"),
        ({"logger": "tensorboard", "wandb_mode": "online"}, {"WANDB_MODE": "online"}, "disabled"),
    ],
)
def test_which_mode_wandb_has(training: dict[str, Any], environ: dict[str, str], mode: str) -> None:
    assert resolved(environ, **training).wandb.mode == mode


@pytest.mark.parametrize("logger", ["none", "no_print", None, "wandb"])
def test_other_loggers_leave_tensorboard_off(logger: str | None) -> None:
    assert resolved(logger=logger).tensorboard.path is None


def test_the_whole_of_a_mapping_without_any_field_is_unilab_s_default() -> None:
    assert resolve({"training": {}}, {}).tensorboard.path == "{run_dir}"
    assert not resolve({"training": None}, {}).anything_on()


def test_omegaconf_as_hydra_composes_it() -> None:
    config = OmegaConf.create({**CONFIG, "reward": {"scale": "???"}})
    config.training.log_dir = "${hydra.run.dir}/out"
    config.training.render = "${not.there}"
    assert resolve(config, {}).run.dir == "./out"


def test_an_interval_below_one_is_one_as_in_unilab() -> None:
    assert resolved(log_interval=0).run.log_interval == 1


def test_the_folder_of_unilab_s_launcher_is_that_of_all_its_ranks() -> None:
    run = resolved({"UNILAB_DP_LOG_DIR": "/data/2026-03-09_18-30-00_mujoco_gpux2"}, log_dir="/other").run
    assert (run.dir, run.id) == ("/data/2026-03-09_18-30-00_mujoco_gpux2", "2026-03-09_18-30-00_mujoco_gpux2")


def test_unilab_none_backend_rsl_rl_loggers_that_do_not_exist_are_refused() -> None:
    """UniLab makes the text ``none`` of a logger that it does not know, and rsl_rl fails at that."""
    assert problems_of({"training": {"logger": "mlflow"}}) == [
        'training.logger: expected one of "tensorboard", "wandb", "none", "no_print", got "mlflow"'
    ]


def test_all_errors_at_once_as_the_trainer_has_them() -> None:
    given = {"trace_enabeld": True, "wandb_mode": "onlin", "log_interval": "often", "trace_thread_time": 3}
    assert problems_of({"training": given}) == [
        'training.trace_enabeld: unknown key (did you mean "trace_enabled"?)',
        'training.wandb_mode: expected one of "disabled", "online", "offline", "shared", got "onlin"',
        'training.log_interval: expected a whole number >= 1, got "often"',
        "training.trace_thread_time: expected true or false, got 3",
    ]


def test_another_trainer_s_section_of_that_name_is_not_taken_for_unilab_s() -> None:
    (problem,) = problems_of({"training": {"epochs": 3, "lr": 0.1}})
    assert problem.startswith("training: expected UniLab's section (logger, task_name")
    assert problem.endswith("got one with epochs, lr")
