"""What a user may hand to `init`, in every form."""

import dataclasses
from enum import Enum

import pytest
from omegaconf import DictConfig, OmegaConf

from rltel.core.config import JsonlConfig, TelemetryConfig, TraceConfig
from rltel.core.errors import ConfigError
from rltel.core.given import plain_config


def test_a_struct_holds_only_what_was_set():
    config = TelemetryConfig(jsonl=JsonlConfig(path=None), trace=TraceConfig())
    assert plain_config(config) == {"jsonl": {"path": None}, "trace": {}}
    assert plain_config(None) == {}


class Mode(Enum):
    OFF = "disabled"


@dataclasses.dataclass
class Logger:
    experiment_name: str = "???"
    mode: Mode = Mode.OFF
    tags: tuple[str, ...] = ("a",)


@dataclasses.dataclass
class Experiment:
    stats_logger: Logger = dataclasses.field(default_factory=Logger)


def test_a_trainer_s_dataclass_becomes_plain_data_all_the_way_down():
    assert plain_config(Experiment()) == {
        "stats_logger": {"experiment_name": "???", "mode": "disabled", "tags": ["a"]},
    }


def test_another_dataclass_is_no_config():
    with pytest.raises(ConfigError, match="a trainer's dataclass with a stats_logger, got Logger"):
        plain_config(Logger())


def test_a_dataclass_itself_is_no_config():
    with pytest.raises(ConfigError, match="got type"):
        plain_config(Experiment)


AREAL_YAML = """
experiment_name: gsm8k
trial_name: run1
cluster: {fileroot: /data}
actor: {path: "???", prompt: "${not.there}"}
prometheus: {port: 9500}
stats_logger:
  experiment_name: ${experiment_name}
  trial_name: ${trial_name}
  fileroot: ${cluster.fileroot}
"""
RESOLVED = {"experiment_name": "gsm8k", "trial_name": "run1", "fileroot": "/data"}


def test_a_trainer_s_yaml_may_refer_to_its_own_values(tmp_path):
    """Every example of AReaL's does."""
    (tmp_path / "c.yaml").write_text(AREAL_YAML)
    found = plain_config(tmp_path / "c.yaml")
    assert found["stats_logger"] == RESOLVED
    assert found["prometheus"] == {"port": 9500}


@pytest.mark.parametrize("content", [None, "???"])
def test_an_omegaconf_without_content_is_no_config(content):
    with pytest.raises(ConfigError, match="config: "):
        plain_config(DictConfig(content))


def test_what_is_missing_in_the_trainer_s_own_sections_does_not_matter():
    found = plain_config(OmegaConf.create(AREAL_YAML))
    assert found["stats_logger"] == RESOLVED
    assert found["actor"] == {"path": "???", "prompt": "${not.there}"}


@pytest.mark.parametrize("ours", [{"port": "???"}, {"port": "${not.there}"}, "???"])
def test_what_is_missing_in_our_sections_is_an_error(ours):
    with pytest.raises(ConfigError, match="config: "):
        plain_config(OmegaConf.create({"training": {}, "prometheus": ours}))


def test_yaml_that_omegaconf_cannot_hold_stays_as_it_is(tmp_path):
    (tmp_path / "c.yaml").write_text("training: {log_dir: '${x}'}\nwhen: 2026-01-01\n")
    assert plain_config(tmp_path / "c.yaml")["training"] == {"log_dir": "${x}"}
