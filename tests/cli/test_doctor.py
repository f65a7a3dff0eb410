"""``rltel doctor``: one report, an exit code, and no secrets."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from export.making import environment
from realparts.otlp_receiver import otlp_sink
from realparts.processes import HOST, free_port
from rltel.cli import app
from rltel.cli.checks import disk, network

SECRET = "geheim"  # no secret


def run(*arguments: str, **environ: str) -> Result:
    clean = dict.fromkeys(
        ("RANK", "WORLD_SIZE", "RLTEL_DISABLED", "OTEL_SDK_DISABLED", "RLTEL_RUN_ID", "RLTEL_RUN_DIR")
    )
    return CliRunner().invoke(app, ["doctor", *arguments], env={**clean, **environ})


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    assert environment()  # the tests' own is without telemetry
    return tmp_path


def test_a_config_that_works(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(network, "BOUND_S", 60.0)  # it does answer, on a machine that stands still meanwhile as well
    monkeypatch.setattr(disk, "_BOUND_S", 60.0)
    with otlp_sink() as sink:
        (folder / "c.yaml").write_text(
            f"prometheus: {{enabled: true, port: {free_port()}}}\n"
            f"otlp: {{enabled: true, endpoint: {sink.endpoint}}}\n"
            "tensorboard: {path: '{run_dir}/tb'}\n"
        )
        ran = run("c.yaml")
    assert ran.exit_code == 0, ran.output
    assert "ok      config: right; switched on: prometheus, otlp, tensorboard" in ran.stdout
    assert ran.stdout.splitlines()[-1] == "0 problems, 0 warnings"
    assert [path.name for path in folder.iterdir()] == ["c.yaml"], "nothing stays"


def test_every_problem_says_what_to_do_and_the_exit_code_is_1(folder: Path) -> None:
    (folder / "c.yaml").write_text(
        f"otlp: {{enabled: true, endpoint: 'http://me:{SECRET}@{HOST}:{free_port()}', headers: {{k: {SECRET}}}}}\n"
        f"run: {{log_root: c.yaml}}\n"
    )
    ran = run("c.yaml", "--json", RANK="3", WORLD_SIZE="2")
    assert ran.exit_code == 1
    report = json.loads(ran.stdout)
    problems = {finding["area"]: finding for finding in report["findings"] if finding["status"] == "problem"}
    assert report["ok"] is False
    assert set(problems) == {"otlp metrics", "otlp traces", "run.log_root", "RANK"}
    assert all(finding["do"] for finding in problems.values())
    assert SECRET not in ran.output


def test_text_has_a_line_for_each_and_one_for_what_to_do(folder: Path) -> None:
    lines = run(RANK="3", WORLD_SIZE="2").stdout.splitlines()
    at = lines.index("PROBLEM RANK: RANK=3 is not below WORLD_SIZE=2")
    assert lines[at + 1] == "        -> start it by one launcher, or unset one"
    assert lines[-1].startswith("1 problems")


def test_a_wrong_config_is_named_in_full_and_the_rest_is_looked_at(folder: Path) -> None:
    (folder / "c.yaml").write_text("prometheus: {prot: 1}\ntrace: {steps: 5}\n")
    report = json.loads(run("c.yaml", "--json").stdout)
    said = [finding["what"] for finding in report["findings"] if finding["area"] == "config"]
    assert said == [
        "trace.steps: expected two whole numbers [first, last] or null, got 5",
        'prometheus.prot: unknown key (did you mean "port"?)',
    ]
    assert {"clock", "launcher"} <= {finding["area"] for finding in report["findings"]}


def test_nothing_on_is_a_warning(folder: Path) -> None:
    ran = run()
    assert ran.exit_code == 0
    assert "WARNING config: nothing is switched on" in ran.stdout


def test_a_thrown_switch_is_a_warning(folder: Path) -> None:
    assert "is set: nothing is on" in run(RLTEL_DISABLED="1").stdout


def test_a_trainer_s_own_config(folder: Path) -> None:
    (folder / "c.yaml").write_text("training: {trace_enabled: true}\nalgo: {algo: sac}\npromethues: {}\n")
    ran = run("c.yaml")
    assert ran.exit_code == 0, ran.output
    assert "switched on: trace, tensorboard" in ran.stdout
    assert "WARNING config: promethues: taken for the trainer's own section" in ran.stdout
