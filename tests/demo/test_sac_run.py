"""The SAC demo's run directory, and the demo under the soak monitor."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from realparts.sac_demo import DEMO, run, run_dir_of, start
from rltel.runs.run_summary import read_run_summary

pytestmark = [pytest.mark.xdist_group("demo"), pytest.mark.timeout(900)]

TICKS = "700"


def child_of(pid: int, command: bytes) -> int:
    """A descendant whose command line holds this; waits for it."""
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        for stat in Path("/proc").glob("[0-9]*/stat"):
            try:
                parent = int(stat.read_text().rpartition(")")[2].split()[1])
                said = stat.with_name("cmdline").read_bytes()
                # One that was forked and not yet become another program has its parent's command line.
                if parent == pid and command in said and said != Path(f"/proc/{pid}/cmdline").read_bytes():
                    return int(stat.parent.name)
            except (OSError, IndexError):
                continue  # it has ended
        time.sleep(0.05)
    raise AssertionError(f"no child of {pid} with {command!r}")


def test_a_run_says_what_it_was_and_how_it_ended(tmp_path: Path) -> None:
    run(tmp_path, "--ticks", TICKS, "--seed", "3", PROMETHEUS_PORT=0, PROMETHEUS_LINGER_S=0)
    folder = run_dir_of(tmp_path)
    config = json.loads((folder / "run_config.json").read_text())
    assert (config["run"]["algo"], config["run"]["task"]) == ("sac", "Pendulum-v1")
    assert config["config"]["seed"] == 3
    summary = json.loads((folder / "run_summary.json").read_text())
    assert (summary["status"], summary["metric_schema_version"]) == ("completed", 1)
    assert summary["completed_iterations"] == int(TICKS)
    assert summary["total_env_steps"] > 4 * int(TICKS) * 0.9  # the steps after an episode's end are resets
    assert summary["dropped"] == {}


def test_a_collector_that_died_is_told_from_a_learner_that_failed(tmp_path: Path) -> None:
    process = start(tmp_path, PROMETHEUS_PORT=0)
    os.kill(child_of(process.pid, b"spawn_main"), signal.SIGKILL)
    process.communicate(timeout=200)
    assert process.returncode == 1
    summary = read_run_summary(run_dir_of(tmp_path))
    assert summary is not None
    assert (summary["status"], summary["error"]) == ("collector_died", "exit code -9")


def soak(tmp_path: Path) -> subprocess.Popen[str]:
    command = [str(Path(sys.executable).with_name("rltel")), "soak", "--run-dir", str(tmp_path / "run")]
    command += ["--sample-interval", "0.5", "--post-shutdown-grace", "60", "--output", str(tmp_path / "soak.json")]
    environ = {name: value for name, value in os.environ.items() if not name.startswith(("RLTEL_", "OTEL_"))}
    environ |= {"RLTEL_PROMETHEUS_PORT": "0", "RLTEL_PROMETHEUS_LINGER_S": "0"}
    return subprocess.Popen(
        [*command, "--", sys.executable, str(DEMO), "--ticks", TICKS],
        env=environ, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip


def artifact(tmp_path: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((tmp_path / "soak.json").read_text())
    return found


def test_the_demo_passes_the_soak_monitor(tmp_path: Path) -> None:
    process = soak(tmp_path)
    said, _ = process.communicate(timeout=600)
    assert process.returncode == 0, said
    found = artifact(tmp_path)
    assert (found["status"], found["failure_classification"], found["schema_version"]) == ("passed", None, "0.3.0")
    assert found["post_shutdown"]["residual_processes"] == []
    assert max(sample["process"]["process_count"] for sample in found["samples"]) >= 2
    assert found["run_summary"]["status"] == "completed"


def test_with_its_collector_killed_it_fails_with_the_right_class(tmp_path: Path) -> None:
    process = soak(tmp_path)
    learner = child_of(process.pid, b"sac_pendulum")
    os.kill(child_of(learner, b"spawn_main"), signal.SIGKILL)
    said, _ = process.communicate(timeout=600)
    assert process.returncode != 0, said
    found = artifact(tmp_path)
    assert (found["status"], found["failure_classification"]) == ("failed", "collector_failure")
