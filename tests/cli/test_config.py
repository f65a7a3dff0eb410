"""``rltel config``: what is set, where it comes from, and all that is wrong."""

import json

import msgspec
import pytest
import yaml
from typer.testing import CliRunner

from rltel.cli import app
from rltel.core.config import TelemetryConfig
from rltel.core.resolve import resolve

SECRET = "geheim"  # no secret
OURS = f"""
prometheus: {{enabled: true, port: 9500, username: me, password: {SECRET}}}
otlp: {{headers: {{api-key: {SECRET}}}, endpoint: "http://me:{SECRET}@o:4318"}}
"""
AREAL = f"""
experiment_name: gsm8k
actor: {{a: 1, b: 2, c: 3, d: 4, e: 5, hf_token: {SECRET}}}
stats_logger:
  experiment_name: ${{experiment_name}}
  trial_name: run1
  wandb: {{mode: offline, wandb_api_key: {SECRET}}}
wandb: {{entity: team}}
"""


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch):
    for name in ("RLTEL_RUN_ID", "RLTEL_RUN_DIR", "RLTEL_DISABLED", "OTEL_SDK_DISABLED"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def file(tmp_path):
    def write(text):
        (tmp_path / "c.yaml").write_text(text)
        return str(tmp_path / "c.yaml")

    return write


def run(*arguments, **environ):
    return CliRunner().invoke(app, ["config", *arguments], env=environ)


class TestShow:
    def test_every_value_with_where_it_comes_from(self, file):
        path = file(OURS)
        shown = json.loads(run("show", path, "--json", RLTEL_PROMETHEUS_PORT="9600").stdout)
        assert shown["config"]["prometheus"]["port"] == 9600
        assert shown["origins"]["prometheus.port"] == "RLTEL_PROMETHEUS_PORT"
        assert shown["origins"]["prometheus.enabled"] == path
        assert shown["origins"]["prometheus.host"] == "default"
        assert shown["origins"].keys() == {
            f"{section}.{field}"
            for section, fields in msgspec.to_builtins(TelemetryConfig()).items()
            for field in fields
        }

    def test_as_text_it_is_the_same_config_again(self, file, tmp_path):
        path = file("trace: {enabled: true, steps: [1, 9]}\nwandb: {tags: [a]}\n")
        (tmp_path / "again.yaml").write_text(run("show", path).stdout)
        assert resolve(tmp_path / "again.yaml", {}) == resolve(path, {})
        (line,) = [line for line in run("show", path).stdout.splitlines() if line.startswith("  steps:")]
        assert line.split("#")[1].strip() == path

    def test_a_trainer_s_own_config_with_the_names_of_its_fields(self, file):
        path = file(AREAL)
        shown = json.loads(run("show", path, "--json").stdout)
        assert shown["config"]["wandb"]["project"] == "gsm8k"
        assert shown["origins"]["wandb.mode"] == f"{path}: stats_logger.wandb.mode"
        assert shown["origins"]["wandb.project"] == f"{path}: stats_logger.experiment_name"
        assert shown["origins"]["wandb.entity"] == path

    def test_the_trainer_s_settings_are_counted_in_the_text(self, file):
        text = run("show", file("training: {logger: none}\n" + "".join(f"x{n}: 1\n" for n in range(9)))).stdout
        assert yaml.safe_load(text)["run"]["config"] == {}
        assert "# 10 entries, see --json" in text

    @pytest.mark.parametrize("config", [OURS, AREAL])
    @pytest.mark.parametrize("form", [(), ("--json",)])
    def test_no_secret_shows(self, file, config, form):
        ran = run("show", file(config), *form)
        assert ran.exit_code == 0
        assert SECRET not in ran.output
        assert "[redacted]" in ran.output

    def test_without_a_file_it_is_the_environment(self):
        shown = json.loads(
            run("show", "--json", RLTEL_TRACE_ENABLED="1", OTEL_EXPORTER_OTLP_ENDPOINT="http://o:1").stdout
        )
        assert shown["config"]["trace"]["enabled"] is True
        assert shown["origins"]["otlp.endpoint"] == "OTEL_EXPORTER_OTLP_ENDPOINT"

    @pytest.mark.parametrize("switch", [{"RLTEL_DISABLED": "1"}, {"OTEL_SDK_DISABLED": "true"}])
    def test_a_thrown_switch_is_said(self, switch):
        assert run("show", **switch).stdout.startswith("# OTEL_SDK_DISABLED or RLTEL_DISABLED is set")
        assert json.loads(run("show", "--json", **switch).stdout)["disabled"] is True


class TestCheck:
    def test_what_is_right_says_what_is_on(self, file):
        path = file(OURS + "tensorboard: {path: tb}\n")
        ran = run("check", path)
        assert (ran.exit_code, ran.stdout) == (0, f"{path}: right; switched on: prometheus, tensorboard\n")

    def test_nothing_on_is_right_and_said(self, file):
        assert "switched on: nothing" in run("check", file("{}")).stdout

    def test_all_errors_at_once(self, file):
        path = file(
            f"prometheus: {{prot: 1, password: {SECRET}}}\ntrace: {{flush_interval_s: fast}}\nwandb: {{mode: on}}\n"
        )
        ran = run("check", path, RLTEL_OTLP_TIMEOUT_S="-1")
        assert ran.exit_code == 1
        assert ran.stdout == ""
        lines = ran.stderr.splitlines()
        assert len(lines) == 5
        assert 'prometheus.prot: unknown key (did you mean "port"?)' in lines
        assert 'trace.flush_interval_s: expected a number > 0, got "fast"' in lines
        assert "otlp.timeout_s: expected a number > 0, got -1 (from RLTEL_OTLP_TIMEOUT_S)" in lines
        assert lines[-1] == f"rltel config check: 4 problems in {path}"
        assert SECRET not in ran.output

    def test_a_trainer_s_errors_have_the_trainer_s_names(self, file):
        ran = run("check", file("training: {logger: mlflow}\n"))
        assert ran.exit_code == 1
        assert ran.stderr.startswith('training.logger: expected one of "tensorboard"')

    def test_what_looks_misspelt_is_said(self, file):
        ran = run("check", file("stats_logger: {}\npromethues: {enabled: true}\n"))
        assert ran.exit_code == 0
        assert ran.stderr.startswith("note: promethues: ")

    def test_what_looks_misspelt_is_said_beside_other_problems(self, file):
        path = file("stats_logger: {}\npromethues: {enabled: true}\ntrace: {enabled: 3}\n")
        for command in ("check", "show"):
            ran = run(command, path)
            assert ran.exit_code == 1
            problem, note, last = ran.stderr.splitlines()
            assert problem == "trace.enabled: expected true or false, got 3"
            assert note.startswith("note: promethues: taken for the trainer's own section")
            assert last == f"rltel config {command}: 1 problem in {path}"

    def test_a_file_that_is_not_there(self, tmp_path):
        ran = run("check", str(tmp_path / "no.yaml"))
        assert ran.exit_code == 1
        assert "No such file or directory" in ran.stderr
