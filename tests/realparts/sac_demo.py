"""The SAC demo, run as a user runs it."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import rltel
from realparts.otlp_receiver import ReceivedMetric, RotelAgent, rotel
from realparts.processes import free_port, http_get
from realparts.prometheus import Prometheus, prometheus
from realparts.requirements import REPOSITORY

DEMO = REPOSITORY / "examples" / "sac_pendulum.py"
_CLEAN = {name: value for name, value in os.environ.items() if not name.startswith(("RLTEL_", "OTEL_"))}


def start(tmp_path: Path, *arguments: str, **settings: object) -> subprocess.Popen[str]:
    """The demo in a session of its own, with ``RLTEL_*`` settings."""
    environ = {**_CLEAN, **{f"RLTEL_{name}": str(value) for name, value in settings.items()}}
    command = [sys.executable, str(DEMO), "--log-root", str(tmp_path / "logs"), *arguments]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    return subprocess.Popen(command, cwd=tmp_path, env=environ, text=True, start_new_session=True, **pipes)  # type: ignore[call-overload]


def run(tmp_path: Path, *arguments: str, **settings: object) -> tuple[str, str]:
    """What the demo wrote to stdout and stderr, from start to end."""
    process = start(tmp_path, *arguments, **settings)
    out, err = process.communicate(timeout=800)
    assert process.returncode == 0, err
    return out, err


def found(label: str, out: str) -> str:
    """What the demo printed beside a label."""
    match = re.search(rf"^{label}\s+(\S+)", out, re.MULTILINE)
    assert match, out
    return match[1]


def run_dir_of(tmp_path: Path) -> Path:
    """The run's directory."""
    (folder,) = (tmp_path / "logs").glob("sac/Pendulum-v1/*")
    return folder


@dataclass
class Demo:
    """A whole training, watched by a real Prometheus and a real OTLP receiver."""

    out: str
    err: str
    run_dir: Path
    exposition: str
    prometheus: Prometheus
    otlp: list[Any]
    stamps: list[dict[str, Any]]
    ended: float

    @property
    def lines(self) -> list[rltel.export.jsonl.Line]:
        """The record of the training."""
        return [line for line in rltel.read_jsonl(self.run_dir) if line.axis == "train"]

    @property
    def timeline(self) -> Path:
        """The trace that the demo merged of its two processes'."""
        return self.run_dir / "timeline.pftrace"


@contextmanager
def watched(tmp_path: Path, watching: Path) -> Iterator[Demo]:
    """Runs the demo; the servers that watched it stay for as long as the body runs."""
    port = free_port()
    target = f"127.0.0.1:{port}"
    with prometheus([target], tmp_path=watching) as server, rotel(watching) as receiver:
        process = start(
            tmp_path,
            "--stamps",
            str(tmp_path / "stamps.jsonl"),
            PROMETHEUS_PORT=port,
            OTLP_ENABLED=1,
            OTLP_ENDPOINT=receiver.grpc_endpoint,
            OTLP_PROTOCOL="grpc",
            PIPELINE_SHUTDOWN_TIMEOUT_S=20,  # so that nothing is dropped, however busy the machine
        )
        server.wait_for("rl_environment_reward_mean", timeout=200)
        exposition = http_get(f"http://{target}/metrics").decode()
        out, err = process.communicate(timeout=800)
        ended = time.time()
        assert process.returncode == 0, err
        stamps = [json.loads(line) for line in (tmp_path / "stamps.jsonl").read_text().splitlines()]
        made = Demo(out, err, run_dir_of(tmp_path), exposition, server, [], stamps, ended)
        steps = sum("Train/mean_reward" in line.values for line in made.lines)
        # The relay answers before it has passed anything on.
        receiver.wait_for(lambda: len(rewards_of(receiver)) >= steps, "every step's reward", timeout=120)
        made.otlp += receiver.metrics()
        yield made


def rewards_of(receiver: RotelAgent) -> list[ReceivedMetric]:
    """What has arrived of them."""
    return [metric for metric in receiver.metrics() if metric.name == "rl.environment.reward.mean"]
