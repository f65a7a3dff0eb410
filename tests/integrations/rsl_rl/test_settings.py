"""The telemetry's settings in ``cfg["logger"]``."""

from __future__ import annotations

from typing import Any

import pytest

from rltel.core.errors import ConfigError
from rltel.core.resolve import resolve
from rltel.integrations.rsl_rl.settings import with_defaults


@pytest.mark.parametrize(
    ("given", "run_dir", "tensorboard", "jsonl"),
    [
        ({}, "logs/x", "{run_dir}", None),
        ({"run": {"dir": "mine"}}, "mine", "{run_dir}", None),
        ({"run": {"id": "r1"}}, None, "{run_dir}", None),
        ({"run": {"log_root": "runs", "algo": "ppo"}}, None, "{run_dir}", None),
        ({"tensorboard": {"path": "tb"}}, "logs/x", "tb", None),
        ({"tensorboard": {"path": None}, "trace": {"enabled": True}}, "logs/x", None, None),
        ({"tensorboard": {"path": None}}, "logs/x", None, "{run_dir}/metrics/rsl_rl.jsonl"),
    ],
    ids=str,
)
def test_what_is_not_said_goes_where_rsl_rl_puts_its_files(
    given: Any, run_dir: str | None, tensorboard: str | None, jsonl: str | None
) -> None:
    config = resolve(with_defaults(given, "logs/x"), {})
    assert (config.run.dir, config.tensorboard.path, config.jsonl.path) == (run_dir, tensorboard, jsonl)


def test_what_is_said_stays_as_it_was_said() -> None:
    given = {"trace": {"enabled": True, "steps": [0, 9]}, "run": {"algo": "ppo"}}
    layer = with_defaults(given, "logs/x")
    assert layer["trace"] == given["trace"]
    assert layer["run"] == {"algo": "ppo", "dir": "logs/x"}


def test_variables_are_stronger() -> None:
    layer = with_defaults({}, "logs/x")
    assert resolve(layer, {"RLTEL_TENSORBOARD_PATH": "there"}).tensorboard.path == "there"


def test_what_is_no_setting_is_named() -> None:
    with pytest.raises(ConfigError, match="tensorbord: unknown section"):
        with_defaults({"tensorbord": {}}, "logs/x")
