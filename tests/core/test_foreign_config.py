"""A trainer's own config, with ours beside it and much that is none of our business."""

import pytest

from rltel.core.errors import ConfigError
from rltel.core.resolve import resolve, resolve_with_origins


def test_what_is_the_trainer_s_is_left_alone():
    given = {
        "algo": {"lr": 1e-3},
        "env": ["a"],
        5: None,
        "training": {"logger": "none"},
        "prometheus": {"enabled": True},
    }
    config = resolve(given, {})
    assert config.prometheus.enabled
    assert config.tensorboard.path is None


@pytest.mark.parametrize("theirs", [{"stats_logger": {}}, {"training": {"logger": "none"}}])
def test_ours_beside_it_are_as_strict_as_ever(theirs):
    with pytest.raises(ConfigError, match=r'^prometheus\.prot: unknown key \(did you mean "port"\?\)$'):
        resolve({**theirs, "prometheus": {"prot": 1}}, {})


def test_without_a_trainer_s_section_unknown_ones_are_refused():
    with pytest.raises(ConfigError, match=r"^algo: unknown section"):
        resolve({"algo": {}, "prometheus": {"enabled": True}}, {})


def test_one_of_ours_that_looks_misspelt_is_said(caplog):
    resolve({"stats_logger": {}, "promethues": {"enabled": True}, "actor": {}}, {})
    assert caplog.messages == [
        'promethues: taken for the trainer\'s own section; if "prometheus" was meant, correct it'
    ]


def test_the_trainer_s_config_is_kept_with_the_run_without_secrets_and_without_ours():
    given = {
        "stats_logger": {"wandb": {"wandb_api_key": "geheim"}},
        "actor": {"lr": 1e-3, "dtype": complex, "paths": ("a",)},
        "prometheus": {"password": "geheim", "username": "me"},
    }
    config = resolve(given, {})
    assert config.run.config == {
        "stats_logger": {"wandb": {"wandb_api_key": "[redacted]"}},
        "actor": {"lr": 1e-3, "dtype": "<class 'complex'>", "paths": ["a"]},
    }


def test_one_that_is_given_wins():
    config = resolve({"stats_logger": {}, "run": {"config": {"mine": 1}}}, {})
    assert config.run.config == {"mine": 1}


def test_both_trainers_sections_may_stand_in_one():
    """A trainer on AReaL may well have a section of its own that is called training."""
    config = resolve({"stats_logger": {"tensorboard": {"path": "/tb"}}, "training": {"epochs": 3}}, {})
    assert config.tensorboard.path == "/tb"
    found = resolve({"stats_logger": {"tensorboard": {"path": "/tb"}}, "training": {"trace_enabled": True}}, {})
    assert (found.tensorboard.path, found.trace.enabled) == ("/tb", True)


def test_opentelemetry_s_variables_are_weaker_than_a_trainer_s_section():
    found = resolve_with_origins({"training": {}}, {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://o:1"})
    assert found.origins["otlp.endpoint"] == "OTEL_EXPORTER_OTLP_ENDPOINT"
    assert found.origins["tensorboard.path"] == "training.logger"


def test_the_given_data_is_not_changed():
    given = {"training": {"log_interval": 0, "wandb_tags": ["a"], "task_name": "t"}}
    resolve(given, {})
    assert given == {"training": {"log_interval": 0, "wandb_tags": ["a"], "task_name": "t"}}
