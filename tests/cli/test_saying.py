"""What the commands print is lines, whatever names stand in them."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from rltel.cli import app
from rltel.cli.saying import say

TITLE = "\x1b]0;taken\x07"


def test_lines_stay_lines_and_no_name_is_obeyed(capsys: pytest.CaptureFixture[str]) -> None:
    say(f"a {TITLE}\n  b\r", err=False)
    say("über 日本 │", err=True)
    assert capsys.readouterr() == ("a ?]0;taken?\n  b?\n", "über 日本 │\n")


@pytest.mark.parametrize("command", [["config", "check"], ["config", "show"], ["doctor"]])
def test_a_config_file_does_not_command_the_terminal(tmp_path: Path, command: list[str]) -> None:
    file = tmp_path / "evil.yaml"
    file.write_text('"\\e]0;taken\\a": 1\nrun: {dir: "x\\e]0;taken\\a"}\n')
    shown = CliRunner().invoke(app, [*command, str(file)]).output
    assert "taken" in shown
    assert "\x1b" not in shown
