"""The structs: the names and defaults that are fixed, and that a struct knows what was given."""

import copy
import pickle

import msgspec
import pytest
import yaml

from realparts.requirements import need_package
from rltel.core.config import (
    ConsoleConfig,
    JsonlConfig,
    OtlpConfig,
    PipelineConfig,
    PrometheusConfig,
    RunConfig,
    SwanlabConfig,
    TelemetryConfig,
    TensorBoardConfig,
    TerminalConfig,
    TraceConfig,
    TrackioConfig,
    WandbConfig,
)

# The design's configuration, as it stands there, and console.table.
DESIGN = """
run:         {name: null, dir: null, id: null, algo: null, task: null, backend: null, log_root: logs, log_interval: 1, step_axis: step, resume: auto, primary_role: learner, writer: 0, config: {}, include_host: false}
trace:       {enabled: false, output_dir: null, thread_time: false, cuda_events: true, ranks: all, steps: null, flush_interval_s: 1.0, max_file_mb: 256, max_total_mb: 4096}
prometheus:  {enabled: false, host: 127.0.0.1, port: 9464, advertise: null, timestamps: false, linger_s: 0.0, tls_cert: null, tls_key: null, username: null, password: null, push_url: null}
otlp:        {enabled: false, endpoint: null, protocol: http/protobuf, headers: {}, compression: null, certificate: null, insecure: null, timeout_s: 5.0, metrics: true, traces: true, exponential_histograms: false}
tensorboard: {path: null}
jsonl:       {path: null, write: commit}
console:     {enabled: false, interval_s: 10.0, table: false}
terminal:    {enabled: false, refresh_hz: 2.0, window_s: 2.0}
wandb:       {mode: disabled, project: null, entity: null, name: null, group: null, job_type: null, tags: [], notes: null, base_url: null, api_key: null, id_suffix: train, config: {}}
swanlab:     {mode: disabled, project: null, name: null, logdir: null, api_key: null, config: {}}
trackio:     {mode: disabled, project: null, name: null, space_id: null}
names:       {strict: false, max_series_per_metric: 2000}
pipeline:    {queue_mb: 64, shutdown_timeout_s: 2.0, sigterm: false}
"""  # noqa: E501  # verbatim


def test_names_and_defaults_are_the_designs():
    assert msgspec.to_builtins(TelemetryConfig()) == yaml.safe_load(DESIGN)


def test_nothing_is_on_by_default():
    assert not TelemetryConfig().anything_on()
    assert not TelemetryConfig(run=RunConfig(dir="x", id="y"), pipeline=PipelineConfig(sigterm=True)).anything_on()


@pytest.mark.parametrize(
    "config",
    [
        TelemetryConfig(trace=TraceConfig(enabled=True)),
        TelemetryConfig(prometheus=PrometheusConfig(enabled=True)),
        TelemetryConfig(otlp=OtlpConfig(enabled=True)),
        TelemetryConfig(console=ConsoleConfig(enabled=True)),
        TelemetryConfig(terminal=TerminalConfig(enabled=True)),
        TelemetryConfig(wandb=WandbConfig(mode="offline")),
        TelemetryConfig(swanlab=SwanlabConfig(mode="local")),
        TelemetryConfig(trackio=TrackioConfig(mode="local")),
        TelemetryConfig(tensorboard=TensorBoardConfig(path="tb")),
        TelemetryConfig(jsonl=JsonlConfig(path="x.jsonl")),
    ],
    ids=lambda config: next(iter(config.given())),
)
def test_each_destination_alone_is_something(config):
    assert config.anything_on()


def test_a_field_left_alone_is_not_given():
    assert TelemetryConfig().given() == frozenset()
    assert TraceConfig().given() == frozenset()


def test_a_field_set_to_its_default_is_given():
    assert OtlpConfig(timeout_s=5.0, headers={}).given() == {"timeout_s", "headers"}
    assert TelemetryConfig(otlp=OtlpConfig()).given() == {"otlp"}


def test_unknown_keywords_are_refused():
    with pytest.raises(TypeError, match="enabeld"):
        TraceConfig(enabeld=True)


def test_configs_are_immutable_and_compare_by_value():
    config = TraceConfig(enabled=True)
    with pytest.raises(AttributeError):
        config.enabled = False
    assert config == TraceConfig(enabled=True, thread_time=False)
    assert config != TraceConfig()


def test_defaults_are_not_shared():
    first, second = OtlpConfig(), OtlpConfig()
    first.headers["a"] = "b"
    assert second.headers == {}


GIVEN = TelemetryConfig(trace=TraceConfig(enabled=True, flush_interval_s=1.0), run=RunConfig(config={"lr": [1]}))


@pytest.mark.parametrize(
    "remake",
    [copy.copy, copy.deepcopy, lambda config: pickle.loads(pickle.dumps(config))],
    ids=["copy", "deep", "pickle"],
)
def test_a_copy_knows_what_was_given(remake):
    """Configs travel to spawned processes: a copy that forgot what was given would switch everything off there."""
    made = remake(GIVEN)
    assert made == GIVEN
    assert made.given() == {"trace", "run"}
    assert made.trace.given() == {"enabled", "flush_interval_s"}  # the default that was given, too
    assert made.run.given() == {"config"}


def test_a_replaced_one_knows_what_differs():
    made = msgspec.structs.replace(GIVEN, jsonl=JsonlConfig(path="x"))
    assert made.given() == {"trace", "run", "jsonl"}
    assert msgspec.structs.replace(GIVEN.trace, max_file_mb=8.0).given() == {"enabled", "max_file_mb"}


def test_a_decoded_one_knows_what_differs():
    made = msgspec.convert({"trace": {"enabled": True}}, TelemetryConfig)
    assert made.given() == {"trace"}
    assert made.trace.given() == {"enabled"}


SECRET = "sk-SECRET-4711"
SECRETS = TelemetryConfig(
    wandb=WandbConfig(api_key=SECRET, project="walk"),
    swanlab=SwanlabConfig(api_key=SECRET),
    prometheus=PrometheusConfig(username="u", password=SECRET, push_url=f"http://u:{SECRET}@gateway"),
    otlp=OtlpConfig(headers={"authorization": SECRET}, endpoint=f"https://u:{SECRET}@host"),
    run=RunConfig(config={"hf_token": SECRET, "lr": 0.1}),
)


@pytest.mark.parametrize("show", [repr, str, format])
def test_no_secret_shows_in_a_repr(show):
    shown = show(SECRETS)
    assert SECRET not in shown
    assert "walk" in shown
    assert "'lr': 0.1" in shown


def test_no_secret_shows_in_a_rich_repr():
    pretty = need_package("rich.pretty")
    shown = pretty.pretty_repr(SECRETS)
    assert SECRET not in shown
    assert "walk" in shown


def test_a_repr_is_the_call_that_was_made():
    assert repr(TelemetryConfig(trace=TraceConfig(enabled=True))) == "TelemetryConfig(trace=TraceConfig(enabled=True))"
