"""A replay goes where the run itself sent its numbers, as its own record of its config says."""

import logging
from pathlib import Path

import pytest

from export.making import commit, environment, identity
from realparts.ledgered import keep_record
from realparts.otlp_receiver import otlp_sink
from realparts.tensorboard_reader import steps
from rltel.core.config import JsonlConfig, OtlpConfig, PrometheusConfig, RunConfig, TelemetryConfig, TensorBoardConfig
from rltel.core.errors import ConfigError
from rltel.runs.atomic import write_json
from rltel.runs.layout import RUN_CONFIG
from rltel.runs.recorded_setup import recorded_setup
from rltel.runs.replay import replay
from rltel.runs.run_config import run_config, sections_of
from rltel.runs.scrub import Scrub

QUIET = environment()


def run_of(run_dir: Path, settings: TelemetryConfig) -> None:
    """A run of three steps, with the record of its config."""
    who = identity(run_dir)
    keep_record(run_dir, [commit({"x": float(n)}, identity=who, number=n, step=n) for n in range(3)])
    scrub = Scrub([sections_of(settings)])
    write_json(run_dir / RUN_CONFIG, run_config(settings, who, scrub, {}, started_ns=0, found={}))


def test_otlp_goes_to_the_run_s_endpoint(tmp_path: Path) -> None:
    with otlp_sink() as receiver:
        run_of(tmp_path, TelemetryConfig(otlp=OtlpConfig(enabled=True, endpoint=receiver.endpoint)))
        assert replay(tmp_path, "otlp", environ=QUIET).run().sent == 3
        assert len(receiver.requests()) == 3


def test_tensorboard_goes_to_the_run_s_folder(tmp_path: Path) -> None:
    run_of(tmp_path, TelemetryConfig(tensorboard=TensorBoardConfig(path="{run_dir}/events")))
    assert replay(tmp_path, "tensorboard", environ=QUIET).run().sent == 3
    assert steps(tmp_path / "events")["x"] == [0, 1, 2]


def test_the_run_s_names_come_along(tmp_path: Path) -> None:
    """Who wrote for it, above all."""
    run = RunConfig(primary_role="actor", algo="ppo", config={"lr": 0.1})
    run_of(tmp_path, TelemetryConfig(run=run, otlp=OtlpConfig(enabled=True)))
    setup = recorded_setup(tmp_path, "wandb", QUIET)
    assert setup == {"run": {"primary_role": "actor", "algo": "ppo", "config": {"lr": 0.1}}}


def test_what_is_said_is_stronger(tmp_path: Path) -> None:
    with otlp_sink() as receiver:
        run_of(tmp_path, TelemetryConfig(otlp=OtlpConfig(enabled=True, endpoint="http://127.0.0.1:1")))
        variable = {**QUIET, "RLTEL_OTLP_ENDPOINT": receiver.endpoint}
        assert replay(tmp_path, "otlp", environ=variable).report.place.startswith(receiver.endpoint)
        assert replay(tmp_path, "otlp", environ=QUIET, endpoint=receiver.endpoint).report.place.startswith(
            receiver.endpoint
        )
        given = {"otlp": {"endpoint": receiver.endpoint}}
        assert replay(tmp_path, "otlp", given, environ=QUIET).report.place.startswith(receiver.endpoint)


def test_secrets_come_from_the_environment(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with otlp_sink() as receiver:
        otlp = OtlpConfig(enabled=True, endpoint=receiver.endpoint, headers={"authorization": "Bearer abcdef012345"})
        run_of(tmp_path, TelemetryConfig(otlp=otlp))
        with caplog.at_level(logging.WARNING, "rltel"):
            replay(tmp_path, "otlp", environ=QUIET)
        assert "otlp.headers: the run had one, and run_config.json keeps no secrets" in caplog.text
        assert "set RLTEL_OTLP_HEADERS" in caplog.text
        caplog.clear()
        environ = {**QUIET, "RLTEL_OTLP_HEADERS": '{"authorization": "Bearer abcdef012345"}'}
        assert replay(tmp_path, "otlp", environ=environ).run().sent == 3
        assert caplog.text == ""
        assert receiver.requests()[0].headers["authorization"] == "Bearer abcdef012345"


def test_another_destination_s_secrets_are_of_no_concern(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Half of an endpoint's password, besides, would be a contradiction."""
    prometheus = PrometheusConfig(enabled=True, username="u", password="p" * 8, push_url="http://127.0.0.1:1")
    otlp = OtlpConfig(enabled=True, headers={"x": "abcdef012345"})
    run_of(tmp_path, TelemetryConfig(prometheus=prometheus, otlp=otlp))
    assert recorded_setup(tmp_path, "prometheus-push", QUIET) == {"prometheus": {"push_url": "http://127.0.0.1:1"}}
    made = replay(tmp_path, "prometheus-push", environ=QUIET)
    assert (made.report.place, caplog.text) == ("http://127.0.0.1:1", "")


def test_an_address_that_was_a_secret_has_to_be_given(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    run_of(tmp_path, TelemetryConfig(prometheus=PrometheusConfig(push_url="http://gateway:9091?token=abcdef012345")))
    with pytest.raises(ConfigError, match=r"prometheus\.push_url: expected the address"):
        replay(tmp_path, "prometheus-push", environ=QUIET)
    assert "set RLTEL_PROMETHEUS_PUSH_URL" in caplog.text


def test_a_record_that_the_config_put_elsewhere_is_found(tmp_path: Path) -> None:
    run_of(tmp_path, TelemetryConfig(jsonl=JsonlConfig(path="{run_dir}/elsewhere.jsonl")))
    (tmp_path / "metrics" / "learner-0.1.jsonl").rename(tmp_path / "elsewhere.jsonl")
    assert replay(tmp_path, "tensorboard", environ=QUIET).run().sent == 3


def test_a_run_without_one_is_replayed_as_before(tmp_path: Path) -> None:
    assert recorded_setup(tmp_path, "otlp", QUIET) == {}
