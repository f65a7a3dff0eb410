"""What a run was started with is written down whole, without secrets, and read back for a replay."""

import getpass
import json
import os
import platform
import sys
from pathlib import Path
from typing import Any

import pytest

from export.making import TIME_NS, environment, identity, run_python
from rltel.core.config import OtlpConfig, RunConfig, TelemetryConfig, WandbConfig
from rltel.core.redact import HIDDEN
from rltel.core.resolve import resolve
from rltel.runs.atomic import write_json
from rltel.runs.layout import RUN_CONFIG
from rltel.runs.run_config import recorded_settings, run_config, sections_of, utc
from rltel.runs.scrub import Scrub

KEY = "abcdef0123456789"
SETTINGS = TelemetryConfig(
    run=RunConfig(
        algo="sac", task="walk", backend="mujoco", config={"seed": 7, "env": {"train_seed": 3, "seed": True}}
    ),
    otlp=OtlpConfig(enabled=True, endpoint="http://me:pass@collector:4318", headers={"x": KEY}),
    wandb=WandbConfig(mode="offline", project="p", api_key=KEY),
)


def content(run_dir: Path, settings: TelemetryConfig = SETTINGS, **environ: str) -> dict[str, Any]:
    scrub = Scrub([sections_of(settings), environ], Path.home())
    found = {"git": {"commit": "c0ffee"}, "hardware": {"cores": 2}, "device": "cuda:1"}
    return run_config(settings, identity(run_dir), scrub, environ, started_ns=TIME_NS, found=found)


def test_says_which_run_of_what_code_on_what_machine(tmp_path: Path) -> None:
    run = content(tmp_path, CUDA_VISIBLE_DEVICES="0,1")["run"]
    assert (run["algo"], run["task"], run["backend"], run["id"]) == ("sac", "walk", "mujoco", "run-1")
    assert (run["role"], run["rank"], run["world_size"], run["process"]) == ("learner", 0, 1, "learner-0.1")
    assert run["devices"] == {"current": "cuda:1", "CUDA_VISIBLE_DEVICES": "0,1"}
    assert run["log_dir"] == str(tmp_path)
    assert run["start_time_utc"] == utc(TIME_NS) == "2026-11-29T21:17:00.123+00:00"
    assert (run["git"], run["hardware"]) == ({"commit": "c0ffee"}, {"cores": 2})
    assert run["versions"]["python"] == platform.python_version()


def test_what_takes_a_while_to_find_out_is_null_until_then(tmp_path: Path) -> None:
    made = run_config(SETTINGS, identity(tmp_path), Scrub([]), {}, started_ns=0, found={})
    assert (made["run"]["git"], made["run"]["hardware"], made["run"]["devices"]) == (None, None, {"current": None})


def test_the_trainer_s_config_and_ours_are_there_without_secrets(tmp_path: Path) -> None:
    made = content(tmp_path)
    assert made["config"] == {"seed": 7, "env": {"train_seed": 3, "seed": True}}
    assert made["telemetry"]["wandb"]["api_key"] == HIDDEN
    assert made["telemetry"]["otlp"]["endpoint"] == "http://collector:4318"
    assert made["telemetry"]["pipeline"]["queue_mb"] == 64.0
    assert KEY not in json.dumps(made)
    assert "pass@" not in json.dumps(made)


def test_a_secret_of_the_environment_is_found_in_the_trainer_s_config(tmp_path: Path) -> None:
    settings = TelemetryConfig(run=RunConfig(config={"note": f"use {KEY}"}))
    assert content(tmp_path, settings, HF_TOKEN=KEY)["config"] == {"note": f"use {HIDDEN}"}


def test_a_config_that_json_cannot_hold_is_spelled_out(tmp_path: Path) -> None:
    settings = TelemetryConfig(run=RunConfig(config={"path": Path("a"), "gamma": float("nan"), "kind": object}))
    assert content(tmp_path, settings)["config"] == {"path": "a", "gamma": "nan", "kind": "<class 'object'>"}


def test_unilab_writes_host_and_user_we_do_so_only_if_asked(tmp_path: Path) -> None:
    asked = TelemetryConfig(run=RunConfig(include_host=True))
    names = {platform.node(), getpass.getuser()}
    assert {content(tmp_path, asked)["run"][name] for name in ("hostname", "user")} == names
    assert not {"hostname", "user"} & content(tmp_path)["run"].keys()


def test_the_command_line_has_no_secrets_and_no_folders_of_the_user(tmp_path: Path) -> None:
    code = (
        "import json, sys\nfrom pathlib import Path\nfrom runs.test_run_config import content\n"
        "print(json.dumps(content(Path(sys.argv[1]))['run']))"
    )
    tests = str(Path(__file__).parents[1])
    home = str(tmp_path / "home" / "somebody")
    arguments = [f"{home}/run", "--password", "hunter2", "wandb.api_key=x", f"note={KEY}"]
    run = json.loads(run_python(code, *arguments, PYTHONPATH=tests, HOME=home).stdout)
    assert run["command"][0] == Path(sys.executable).name
    assert run["command"][-5:] == ["~/run", "--password", HIDDEN, f"wandb.api_key={HIDDEN}", f"note={HIDDEN}"]
    assert run["log_dir"] == "~/run"


class TestSeeds:
    def test_of_the_config_by_their_path(self, tmp_path: Path) -> None:
        seeds = content(tmp_path, PYTHONHASHSEED="5")["run"]["seeds"]
        assert {name: seeds[name] for name in seeds if name != "torch"} == {
            "config.seed": 7,
            "config.env.train_seed": 3,
            "PYTHONHASHSEED": 5,
        }

    @pytest.mark.parametrize(
        ("before", "said"),
        [
            ("", "None"),
            ("import torch\ntorch.manual_seed(11)\n", "11"),
            ("import torch\ntorch.initial_seed = lambda: 5  # nobody has set one\n", "5"),
        ],
    )
    def test_torch_s_if_it_is_there(self, tmp_path: Path, before: str, said: str) -> None:
        code = (
            f"{before}import sys\nfrom pathlib import Path\nfrom runs.test_run_config import content\n"
            "print(content(Path(sys.argv[1]))['run']['seeds'].get('torch'))"
        )
        assert run_python(code, tmp_path, PYTHONPATH=str(Path(__file__).parents[1])).stdout.strip() == said


class TestReadBack:
    def test_as_the_run_had_it_without_its_secrets(self, tmp_path: Path) -> None:
        write_json(tmp_path / RUN_CONFIG, content(tmp_path))
        settings, hidden = recorded_settings(tmp_path)
        assert hidden == ["otlp.headers", "wandb.api_key"]
        assert settings["otlp"] == {"enabled": True, "endpoint": "http://collector:4318"}
        assert settings["wandb"] == {"mode": "offline", "project": "p"}
        assert settings["run"] == {"algo": "sac", "task": "walk", "backend": "mujoco", "config": SETTINGS.run.config}
        again = resolve(settings, {"RLTEL_WANDB_API_KEY": "new"})
        assert (again.wandb.project, again.wandb.api_key, again.run.task) == ("p", "new", "walk")

    def test_what_was_left_at_its_default_is_left_to_the_environment(self, tmp_path: Path) -> None:
        write_json(tmp_path / RUN_CONFIG, content(tmp_path, TelemetryConfig(otlp=OtlpConfig(enabled=True))))
        settings, _ = recorded_settings(tmp_path)
        environ = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://elsewhere:4318"}
        assert resolve(settings, environ).otlp.endpoint == "http://elsewhere:4318"

    def test_settings_of_another_version_are_left_out(self, tmp_path: Path) -> None:
        made = content(tmp_path)
        made["telemetry"]["wandb"]["from_the_future"] = True
        made["telemetry"]["future"] = {"enabled": True}
        write_json(tmp_path / RUN_CONFIG, made)
        assert resolve(recorded_settings(tmp_path)[0], {}).wandb.project == "p"

    @pytest.mark.parametrize(
        "text", [None, "", "[]", '{"config": {"a": 1}}', '{"written_by": "rltel 0", "telemetry": 3}']
    )
    def test_without_a_file_of_ours_there_is_nothing(self, tmp_path: Path, text: str | None) -> None:
        if text is not None:
            (tmp_path / RUN_CONFIG).write_text(text)
        assert recorded_settings(tmp_path) == ({}, [])


def test_the_environment_of_the_tests_is_not_in_it(tmp_path: Path) -> None:
    """Variables are named one by one; the environment as a whole holds too much."""
    made = json.dumps(content(tmp_path, **environment(SOME_VARIABLE="its value")))
    assert "its value" not in made
    assert not any(value in made for name, value in os.environ.items() if name == "PS1")
