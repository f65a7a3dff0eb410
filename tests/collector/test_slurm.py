"""The prolog starts the node's Collector once, the epilog of the last job stops it; tasks are told where it is."""

from __future__ import annotations

import contextlib
import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from realparts.requirements import REPOSITORY

SCRIPTS = REPOSITORY / "collector-config" / "slurm"


class Node:
    """A node's state, and a program that says when it starts and stops."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.said = folder / "said"
        self.said.touch()
        self.program = folder / "otelcol"
        self.program.write_text(
            f'#!/bin/sh\ntrap \'echo "stopped" >>{self.said}; exit 0\' TERM\necho "started $*" >>{self.said}\n'
            "while :; do sleep 0.05; done\n"
        )
        self.program.chmod(0o755)

    def run(self, script: str, job: str) -> subprocess.CompletedProcess[str]:
        user = subprocess.run(["id", "-un"], capture_output=True, text=True, check=True).stdout.strip()
        environ = {
            "PATH": os.environ["PATH"],
            "SLURM_JOB_ID": job,
            "OTELCOL": str(self.program),
            "OTELCOL_CONFIG": "agent.yaml",
            "OTELCOL_USER": user,  # "nobody" may not read a test's folder
            "COLLECTOR_STATE": str(self.folder / "state"),
        }
        return subprocess.run([SCRIPTS / script], env=environ, capture_output=True, text=True, timeout=60, check=True)

    def says(self, *wanted: str) -> None:
        """Waits until it has said this, and nothing else."""
        deadline = time.monotonic() + 120
        while (lines := self.said.read_text().split("\n")[:-1]) != list(wanted):
            assert time.monotonic() < deadline, lines
            time.sleep(0.02)

    @property
    def pid(self) -> int | None:
        file = self.folder / "state" / "pid"
        return int(file.read_text()) if file.exists() else None


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    made = Node(tmp_path)
    try:
        yield made
    finally:
        if made.pid is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(made.pid, 9)


STARTED = "started --config=agent.yaml"


def test_one_collector_serves_all_jobs_of_a_node(node: Node) -> None:
    node.run("prolog.sh", "1")
    node.run("prolog.sh", "2")
    node.says(STARTED)
    node.run("epilog.sh", "1")
    node.says(STARTED)
    node.run("epilog.sh", "2")
    node.says(STARTED, "stopped")
    assert node.pid is None


def test_one_that_died_is_started_again_by_the_next_job(node: Node) -> None:
    node.run("prolog.sh", "1")
    node.says(STARTED)
    first = node.pid
    assert first
    os.kill(first, 9)
    with contextlib.suppress(OSError):  # it may be gone at any moment
        while Path(f"/proc/{first}/cmdline").read_bytes():
            time.sleep(0.02)
    node.run("prolog.sh", "2")
    node.says(STARTED, STARTED)
    assert node.pid != first


def test_a_program_that_is_not_there_drains_no_node(node: Node) -> None:
    node.program.unlink()
    assert node.run("prolog.sh", "1").returncode == 0
    assert node.run("epilog.sh", "1").returncode == 0


def test_an_epilog_without_a_prolog_does_nothing(node: Node) -> None:
    assert node.run("epilog.sh", "7").returncode == 0
    node.says()


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({}, {"export OTEL_EXPORTER_OTLP_ENDPOINT=http://127.0.0.1:4318", "export RLTEL_OTLP_ENABLED=1"}),
        ({"RLTEL_OTLP_ENABLED": "0"}, {"export OTEL_EXPORTER_OTLP_ENDPOINT=http://127.0.0.1:4318"}),
        ({"RLTEL_OTLP_ENDPOINT": "http://x:1"}, {"export RLTEL_OTLP_ENABLED=1"}),
        (
            {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://x:1"},
            {"export OTEL_EXPORTER_OTLP_ENDPOINT=http://x:1", "export RLTEL_OTLP_ENABLED=1"},
        ),
    ],
)
def test_tasks_are_told_where_it_is_unless_the_user_said_otherwise(given: dict[str, str], said: set[str]) -> None:
    environ = {"PATH": os.environ["PATH"], **given}
    done = subprocess.run([SCRIPTS / "task_prolog.sh"], env=environ, capture_output=True, text=True, check=True)
    assert set(done.stdout.splitlines()) == said


def test_what_the_job_sets_is_what_rltel_reads(tmp_path: Path) -> None:
    from rltel.core.resolve import resolve

    lines = [line for line in (SCRIPTS / "job.sbatch").read_text().splitlines() if line.startswith("export ")]
    environ = dict(line.removeprefix("export ").split("=", 1) for line in lines)
    config = resolve({}, environ)
    assert config.pipeline.sigterm is True
    assert "RLTEL_RUN_DIR" in environ
