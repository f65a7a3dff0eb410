"""``rltel soak``, started as a user starts it: exit codes, Ctrl+C, and what is left when it is killed itself."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from export.making import environment, wait_until
from realparts.soak_trainer import command
from rltel.cli.soak import _tail as tail_of
from rltel.cli.soak import soak_command
from rltel.runs.soak.processes import Process, table

MAIN = (
    "import sys, typer\n"
    "sys.modules['torch'] = None\n"
    "from rltel.cli.soak import soak_command\n"
    "app = typer.Typer()\n"
    "app.command(context_settings={'allow_interspersed_args': False})(soak_command)\n"
    "app()\n"
)
QUICK = ["--sample-interval", "0.1", "--post-shutdown-grace", "1"]
app = typer.Typer()
app.command(context_settings={"allow_interspersed_args": False})(soak_command)


def started(tmp_path: Path, *arguments: str | Path, **environ: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", MAIN, *QUICK, *map(str, arguments)],
        cwd=tmp_path,
        env=environment(**environ),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def ran(tmp_path: Path, *arguments: str | Path, **environ: str) -> tuple[int, str, str]:
    process = started(tmp_path, *arguments, **environ)
    out, err = process.communicate(timeout=200)
    return process.returncode, out, err


def artifact(path: Path) -> dict[str, Any]:
    made: dict[str, Any] = json.loads(path.read_text())
    return made


def below(pid: int) -> list[Process]:
    """A monitor's command and what that has started."""
    rows = table()
    children = [row.process for row in rows.values() if row.parent == pid]
    return children + [row.process for row in rows.values() if row.parent in {each.pid for each in children}]


@contextmanager
def training(tmp_path: Path) -> Iterator[tuple[subprocess.Popen[str], list[Process]]]:
    """A monitor at work, with its command and that one's collector; nothing of it stays."""
    process = started(tmp_path, "--run-dir", "run", "--stop-grace", "20", "--", *command("goes_on"))
    processes: list[Process] = []
    try:
        wait_until((tmp_path / "run" / "progress.jsonl").exists, "the training goes on", 60)
        wait_until(lambda: len(below(process.pid)) == 2, "it has its collector", 60)
        processes = below(process.pid)
        yield process, processes
    finally:
        process.kill()
        process.communicate()
        for each in processes:
            each.signal(signal.SIGKILL)


def test_a_good_run_exits_with_0_and_leaves_its_artifact_in_the_run_directory(tmp_path: Path) -> None:
    code, out, err = ran(tmp_path, "--run-dir", "run", "--", *command("completes"))
    assert (code, artifact(tmp_path / "run" / "soak.json")["status"]) == (0, "passed"), out + err
    assert out.startswith("passed after")
    assert "artifact: run/soak.json" in out


def test_a_bad_run_exits_with_1_and_shows_why(tmp_path: Path) -> None:
    script = "echo the last words; exit 3"
    code, out, _ = ran(tmp_path, "--output", "a.json", "--run-dir", "run", "sh", "-c", script)
    assert (code, artifact(tmp_path / "a.json")["failure_classification"]) == (1, "missing_run_summary")
    assert "missing_run_summary\n  the command exited with code 3\n" in out
    assert "    the last words" in out


def test_without_a_run_directory_it_makes_one_for_each_soak(tmp_path: Path) -> None:
    for _ in range(2):
        assert ran(tmp_path, "--", *command("completes"))[0] == 0
    folders = sorted((tmp_path / "soaks").iterdir())
    assert len(folders) == 2
    assert {path.name for path in folders[0].iterdir()} >= {"soak.json", "soak-console.log", "run_summary.json"}


def test_takes_the_run_directory_of_the_environment(tmp_path: Path) -> None:
    code, _, err = ran(tmp_path, "--", *command("completes"), RLTEL_RUN_DIR=str(tmp_path / "there"))
    assert (code, artifact(tmp_path / "there" / "soak.json")["status"]) == (0, "passed"), err


def test_watches_the_folder_of_a_command_that_names_its_runs_itself(tmp_path: Path) -> None:
    (tmp_path / "logs" / "old").mkdir(parents=True)
    (tmp_path / "logs" / "old" / "run_summary.json").write_text("{}")
    script = f"mkdir -p logs/new && RLTEL_RUN_DIR=logs/new exec {' '.join(command('completes'))}"
    code, out, _ = ran(tmp_path, "--watch", "logs", "--", "sh", "-c", f'test -z "$RLTEL_RUN_DIR" && {script}')
    assert code == 0, out


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_cancelled_from_outside(tmp_path: Path, number: signal.Signals) -> None:
    """Ctrl+C comes to the monitor, and the command gets it too and may finish its files."""
    with training(tmp_path) as (monitor, processes):
        monitor.send_signal(number)
        out, err = monitor.communicate(timeout=120)
        made = artifact(tmp_path / "run" / "soak.json")
        assert (monitor.returncode, made["failure_classification"]) == (1, "external_cancellation"), out + err
        assert made["failure_reason"].startswith(f"the monitor received {number.name}")
        assert [each for each in processes if each.is_alive()] == []
        if number == signal.SIGINT:
            assert (made["run_summary"]["status"], made["returncode"]) == ("interrupted", 130)


def test_a_monitor_that_is_killed_leaves_an_artifact_that_says_so(tmp_path: Path) -> None:
    with training(tmp_path) as (monitor, _):
        monitor.kill()
        monitor.communicate()
        made = artifact(tmp_path / "run" / "soak.json")
        assert (made["status"], made["failure_classification"]) == ("failed", "monitor_failure")
        assert made["failure_reason"] == "the monitor did not come to its end"


def test_a_stopped_collector_is_killed_with_the_rest(tmp_path: Path) -> None:
    """SIGSTOP: it can answer to nothing but SIGKILL."""
    options = ["--stale-progress", "1", "--stop-grace", "0.5", "--run-dir", "run"]
    process = started(tmp_path, *options, "--", *command("hangs"))
    processes: list[Process] = []
    try:
        hangs = tmp_path / "run" / "hangs"
        # On a machine that stood still before it could say so, the monitor has ended it already.
        wait_until(lambda: hangs.exists() or process.poll() is not None, "it hangs", 60)
        processes = below(process.pid)
        with suppress(IndexError):
            os.kill(processes[1].pid, signal.SIGSTOP)
        process.communicate(timeout=120)
        assert artifact(tmp_path / "run" / "soak.json")["failure_classification"] == "timeout/stale_tick"
        assert [each for each in processes if each.is_alive()] == []
    finally:
        process.kill()
        for each in processes:
            each.signal(signal.SIGKILL)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--run-dir", "a", "--watch", "b", "true"], "--run-dir and --watch: expected one of them, got both"),
        (["--sample-interval", "0", "true"], "sample_interval_s: expected a number > 0, got 0.0"),
        (["--max-rss-growth", "-1", "true"], "rss_growth_mib: expected a number >= 0, got -1.0"),
        ([], "Missing argument"),
    ],
)
def test_settings_that_cannot_be_exit_with_2(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], said: str
) -> None:
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(app, arguments)
    assert done.exit_code == 2
    assert said in done.stderr.replace("│", "").replace("\n", " ")


def test_a_folder_that_cannot_be_made_exits_with_2(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    code, _, err = ran(tmp_path, "--run-dir", "file/run", "true")
    assert code == 2
    assert "file" in err


def test_of_a_huge_log_only_the_end_is_read(tmp_path: Path) -> None:
    """A week's output may be larger than the memory: here it is 64 GiB, all but their end a hole."""
    log = tmp_path / "soak-console.log"
    with log.open("wb") as file:
        file.truncate(1 << 36)
        file.seek(0, os.SEEK_END)
        file.write("\n".join(["", *(f"line {number}" for number in range(30)), "über"]).encode())
    assert tail_of(log) == [*(f"line {number}" for number in range(11, 30)), "über"]


def test_a_log_that_cannot_be_read_says_why(tmp_path: Path) -> None:
    assert "No such file" in tail_of(tmp_path / "missing")[0]
