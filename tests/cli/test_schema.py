"""``rltel schema``: the metric schema as text, as JSON, and as the page of the documentation."""

import json

import pytest
from typer.testing import CliRunner, Result

from rltel.cli import app
from rltel.names.otel import Namer
from rltel.names.schema import METRIC_SCHEMA_VERSION, persisted_tags, tags


def run(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["schema", *arguments])


def test_the_text_has_a_line_for_each_tag() -> None:
    head, *lines = run().stdout.splitlines()
    assert head.split()[:3] == ["tag", "unit", "ranks"]
    assert [line.split("  ")[0] for line in lines] == [each.name for each in persisted_tags()]
    assert "Perf/total_fps" in run().stdout


def test_json_has_everything() -> None:
    data = json.loads(run("--json").stdout)
    assert data["metric_schema_version"] == METRIC_SCHEMA_VERSION
    assert [each["name"] for each in data["tags"]] == [each.name for each in tags()]
    assert {each["local"] for each in data["tags"]} <= data["local"].keys()
    assert data["local"]["ema"]["alpha"] == 0.1
    assert [each["prefix"] for each in data["removed"]] == ["Episode_Reward/"]


@pytest.mark.parametrize(
    ("tag", "prometheus", "unit", "scale"),
    [
        ("Perf/total_fps", "rl_samples_rate_per_second", "{sample}/s", 1.0),
        ("Perf/learner_inference_ms", "rl_phase_duration_seconds", "s", 0.001),
        ("Episode/timeout_rate", "rl_environment_episode_timeout_ratio", "1", 1.0),
        (
            "Train/replay_ingress_backpressure_wait_ms",
            "rl_replay_ingress_backpressure_time_seconds",
            "s",
            0.001,
        ),
    ],
)
def test_json_has_the_names_elsewhere(tag: str, prometheus: str, unit: str, scale: float) -> None:
    (found,) = (each for each in json.loads(run("--json").stdout)["tags"] if each["name"] == tag)
    assert found["prometheus"] == prometheus
    assert found["otel"]["name"] == Namer().name(tag).name
    assert (found["otel"]["unit"], found["otel"]["scale"]) == (unit, scale)


def test_what_only_the_terminal_has_has_no_name_elsewhere() -> None:
    (other,) = (each for each in json.loads(run("--json").stdout)["tags"] if each["name"] == "Other")
    assert other["persisted"] is False
    assert "otel" not in other


def test_one_form_at_a_time() -> None:
    ran = run("--json", "--markdown")
    assert (ran.exit_code, ran.stdout) == (2, "")
    assert "got both" in ran.stderr
