"""Puts the terminal in order after a kill. On a real terminal: `test_tmux.py`."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from export.making import environment, run_python, wait_until

CODE = """
import os, sys
from rltel.export.panel import keeper as module
from rltel.export.panel.keeper import Keeper
module._WAIT_S = 60.0  # for the end of what was killed
fd = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
keeper = Keeper(fd, "in order")
"""


def after(code: str, tmp_path: Path) -> Path:
    """What a program that ends like this leaves."""
    file = tmp_path / "terminal"
    ran = run_python(CODE + code, file)
    assert "Traceback" not in ran.stderr, ran.stderr
    return file


@pytest.mark.parametrize(
    "end",
    ["os._exit(1)", "os.kill(os.getpid(), 9)", "os.abort()", "sys.exit(0)"],
    ids=["exit", "kill", "abort", "forgot"],
)
def test_whatever_ends_the_process(end: str, tmp_path: Path) -> None:
    file = after(end, tmp_path)
    wait_until(lambda: file.read_text() == "in order", "the keeper's text")


def test_not_when_it_was_dismissed(tmp_path: Path) -> None:
    file = after("keeper.dismiss(); keeper.dismiss(); print(keeper)", tmp_path)
    assert file.read_text() == ""


def test_dismissed_it_is_gone(tmp_path: Path) -> None:
    """No process is left for a soak to find."""
    code = (
        "pid = keeper._process.pid; keeper.dismiss()\nimport pathlib; assert not pathlib.Path(f'/proc/{pid}').exists()"
    )
    after(code, tmp_path)


def test_ctrl_c_is_not_for_it(tmp_path: Path) -> None:
    """The terminal sends it to the whole group; it must still be there when the trainer is killed later."""
    file = tmp_path / "terminal"
    waits = "import signal, time\nsignal.signal(2, signal.SIG_IGN)\nprint(1, flush=True)\ntime.sleep(60)"
    process = subprocess.Popen(
        [sys.executable, "-c", CODE + waits, str(file)],
        env=environment(),
        stdout=subprocess.PIPE,
        start_new_session=True,
    )  # fmt: skip
    assert process.stdout is not None
    process.stdout.readline()
    os.killpg(process.pid, signal.SIGINT)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait(30)
    process.stdout.close()
    wait_until(lambda: file.read_text() == "in order", "the keeper's text")


def test_a_forked_child_does_not_keep_it_waiting(tmp_path: Path) -> None:
    """A collector that was forked outlives its learner: the terminal is put in order all the same."""
    code = """
if os.fork() == 0:
    import time
    os.close(1); os.close(2)
    time.sleep(20)
    os._exit(0)
os.kill(os.getpid(), 9)
"""
    file = after(code, tmp_path)
    wait_until(lambda: file.read_text() == "in order", "the keeper's text", timeout=15.0)


def test_a_forked_childs_end_is_not_its_parents(tmp_path: Path) -> None:
    code = """
if os.fork() == 0:
    keeper.dismiss()
    sys.exit(0)
os.wait()
assert keeper._process.poll() is None
keeper.dismiss()
"""
    assert after(code, tmp_path).read_text() == ""


def test_where_there_is_no_shell_there_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from rltel.export.panel import keeper

    def refuse(*_: object, **__: object) -> None:
        raise FileNotFoundError("/bin/sh")

    monkeypatch.setattr(keeper.subprocess, "Popen", refuse)
    keeper.Keeper(1, "text").dismiss()
