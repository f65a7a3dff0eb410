"""Two stores that have seen real runs: Prometheus, which scraped them, and VictoriaMetrics, which they sent to.

SAC once, GRPO twice in the same run directory (a restart; five processes, two of them ranks), and a small trainer that
records what neither has.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import rltel
from realparts import other_panels
from realparts.processes import HOST, free_port
from realparts.prometheus import Prometheus, prometheus
from realparts.requirements import REPOSITORY
from realparts.victoriametrics import VictoriaMetrics, victoria_metrics
from rltel.export.jsonl import Line

SAC, GRPO, OTHER = "sac-1", "grpo-1", "other-1"
SCRAPE_S = 0.5

_EXAMPLES = REPOSITORY / "examples"
_SETTINGS = {
    "RLTEL_TRACE_ENABLED": "1",
    "RLTEL_PROMETHEUS_ENABLED": "1",
    "RLTEL_PROMETHEUS_LINGER_S": "20",
    "RLTEL_OTLP_ENABLED": "1",
    "RLTEL_PIPELINE_SHUTDOWN_TIMEOUT_S": "20",
}
_CLEAN = {name: value for name, value in os.environ.items() if not name.startswith(("RLTEL_", "OTEL_"))}


class Place(NamedTuple):
    """A run, and the port of its writer; its other processes have the next ones, whoever comes first."""

    run: str
    port: int


@dataclass(eq=False)
class Stores:
    """Both stores, and what the runs left on the disk."""

    prometheus: Prometheus
    victoria: VictoriaMetrics
    root: Path
    ended: float
    """When the last run ended, in seconds since the epoch."""

    def __post_init__(self) -> None:
        self._lines: dict[str, list[Line]] = {}
        self._keys: dict[str, list[str]] = {}

    def lines(self, run: str) -> list[Line]:
        """The record of a run's training, of all its processes that commit, in the order of their times."""
        if run not in self._lines:
            self._lines[run] = [line for line in rltel.read_jsonl(self.root / run) if line.axis == "train"]
        return self._lines[run]

    def keys(self, run: str) -> list[str]:
        """What that record has, in no order: keys, and what a state of several numbers has under its own."""
        if run not in self._keys:
            kept = {key: metric for line in self.lines(run) for key, metric in line.snapshot.items()}
            parts = {key + value.suffix for key, metric in kept.items() for value in metric.state.values()}
            self._keys[run] = [*kept, *(parts - kept.keys())]
        return self._keys[run]


@contextmanager
def loaded(tmp_path: Path, length: int = 1) -> Iterator[Stores]:
    """Runs all, one beside the other; the stores stay for as long as the body runs.

    Args:
        tmp_path: for the runs, and the data of the stores.
        length: of the runs; 1 is under a minute each, as the tests want them.
    """
    root, watching, sent = (tmp_path / name for name in ("runs", "prometheus", "victoria"))
    for folder in (root, watching, sent):
        folder.mkdir()
    sac, grpo, other = (Place(run, free_port()) for run in (SAC, GRPO, OTHER))
    with (
        victoria_metrics(sent) as victoria,
        prometheus(
            tmp_path=watching,
            scrape_interval=f"{SCRAPE_S}s",
            # Known from the start: these runs are too short for Prometheus to look at files first, up to five seconds.
            static_configs=[_target(sac, 0, "learner"), _target(sac, 1, "collector"), _target(other, 0, "learner")],
            file_sd=root / GRPO / "prometheus_sd" / "*.json",
            honor_labels=True,
        ) as server,
        ThreadPoolExecutor(2) as both,
    ):
        first = both.submit(
            _run, root, sac, [str(_EXAMPLES / "sac_pendulum.py"), "--ticks", str(1500 * length)], victoria
        )
        second = both.submit(_grpo_and_other, root, (grpo, other), victoria, length)
        first.result()
        second.result()
        yield Stores(server, victoria, root, time.time())


def _target(place: Place, number: int, role: str) -> dict[str, object]:
    """As a run's ``prometheus_sd/`` has it, but for what says which process is meant."""
    labels = {"rl_run_id": place.run, "rl_role": role, "rl_rank": "0"}
    return {"targets": [f"{HOST}:{place.port + number}"], "labels": labels}


def _grpo_and_other(root: Path, places: tuple[Place, Place], victoria: VictoriaMetrics, length: int) -> None:
    """The restarted writer has the same port, so that what only grows falls back to 0 in the same series."""
    grpo, other = places
    for iterations in (30 * length, 24 * length):
        lengths = {"--iterations": iterations, "--warm-up": 60 * length}
        command = [str(_EXAMPLES / "grpo_arithmetic.py"), *(str(word) for both in lengths.items() for word in both)]
        _run(root, grpo, command, victoria)
    _run(root, other, [str(Path(other_panels.__file__))], victoria)


def _run(root: Path, place: Place, command: Sequence[str], victoria: VictoriaMetrics) -> None:
    places = {
        "RLTEL_RUN_DIR": str(root / place.run),
        "RLTEL_RUN_ID": place.run,
        "RLTEL_PROMETHEUS_PORT": str(place.port),
        "RLTEL_OTLP_ENDPOINT": victoria.otlp_endpoint,
    }
    environ: Mapping[str, str] = {**_CLEAN, **_SETTINGS, **places}
    done = subprocess.run(
        [sys.executable, *command], env=environ, cwd=root, text=True, capture_output=True, timeout=800, check=False
    )
    assert done.returncode == 0, done.stderr
