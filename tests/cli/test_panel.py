"""``rltel panel``, on a recorded run."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from export.making import commit, identity
from export.panel.making import SAC, SECOND
from rltel.cli import app
from rltel.export.jsonl import JsonlFile
from rltel.export.sink import Destination

runner = CliRunner()


@pytest.fixture
def run_dir(tmp_path: Path) -> Path:
    file = JsonlFile(tmp_path / "metrics" / "learner-0.1.jsonl", identity(tmp_path), Destination("jsonl"))
    for step in range(3):
        file.write(commit(SAC, number=step, step=step, time_ns=step * SECOND))
    file.close()
    return tmp_path


def test_as_text(run_dir: Path) -> None:
    ran = runner.invoke(app, ["panel", str(run_dir), "--columns", "100", "--algo", "sac"])
    assert ran.exit_code == 0, ran.output
    assert "rltel | sac" in ran.stdout
    assert "Collector Wait" in ran.stdout
    assert "\x1b" not in ran.stdout


def test_as_svg(run_dir: Path, tmp_path: Path) -> None:
    drawn = tmp_path / "p.svg"
    arguments = ["--svg", str(drawn), "--columns", "120", "--task", "go2", "--facts", '{"buffer": 4321}']
    assert runner.invoke(app, ["panel", str(run_dir), *arguments]).exit_code == 0
    assert "4,321" in drawn.read_text(encoding="utf-8")
    assert "go2" in drawn.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("facts", "said"),
    [
        ('{"bufer": 1}', 'did you mean "buffer"'),
        ("[1]", "--facts: expected a JSON object, got list"),
        ("{", "--facts: expected a JSON object, got no JSON"),
    ],
)
def test_facts_that_are_none(run_dir: Path, facts: str, said: str) -> None:
    ran = runner.invoke(app, ["panel", str(run_dir), "--facts", facts])
    assert ran.exit_code == 1
    assert said in ran.stderr


@pytest.mark.parametrize("place", ["no/such/p.svg", "."])
def test_a_picture_that_cannot_be_written_is_no_traceback(run_dir: Path, place: str) -> None:
    ran = runner.invoke(app, ["panel", str(run_dir), "--svg", str(run_dir / place)])
    assert (ran.exit_code, isinstance(ran.exception, SystemExit)) == (1, True)
    assert ran.stderr.startswith("rltel panel: ")
    assert str(run_dir) in ran.stderr


def test_a_folder_without_a_run(tmp_path: Path) -> None:
    ran = runner.invoke(app, ["panel", str(tmp_path)])
    assert ran.exit_code == 1
    assert "expected a run directory" in ran.stderr
    ran = runner.invoke(app, ["panel", str(tmp_path / "nosuch")])
    assert (ran.exit_code, "nosuch: expected a run directory, found none" in ran.stderr) == (1, True)


def test_the_title_is_the_run_s_own_and_the_width_as_asked(run_dir: Path) -> None:
    config = {"written_by": "rltel 0.1.0", "telemetry": {"run": {"algo": "sac", "task": "hop"}}}
    (run_dir / "run_config.json").write_text(json.dumps(config))
    ran = runner.invoke(app, ["panel", str(run_dir), "--columns", "130"])
    assert "rltel | sac | hop" in ran.stdout
    assert max(map(len, ran.stdout.splitlines())) == 130
    assert ran.stdout.endswith("\n")
