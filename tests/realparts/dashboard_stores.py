"""Two stores that have seen real runs: Prometheus, which scraped them, and VictoriaMetrics, which they sent to.

SAC once, GRPO twice in the same run directory (a restart), and a small trainer that records what neither has.
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

import rltel
from realparts import other_panels
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
    "RLTEL_PROMETHEUS_PORT": "0",
    "RLTEL_PROMETHEUS_LINGER_S": "20",
    "RLTEL_OTLP_ENABLED": "1",
    "RLTEL_PIPELINE_SHUTDOWN_TIMEOUT_S": "20",
}
_CLEAN = {name: value for name, value in os.environ.items() if not name.startswith(("RLTEL_", "OTEL_"))}
# What the run's own files say, in the words that OTLP has for it; the series' own labels are the stronger ones.
_RELABEL = [
    {"source_labels": ["rl_run"], "regex": "(.+)", "target_label": "rl_run_id"},
    {"source_labels": ["rl_index"], "regex": "(.+)", "target_label": "rl_rank"},
]


@dataclass
class Stores:
    """Both stores, and what the runs left on the disk."""

    prometheus: Prometheus
    victoria: VictoriaMetrics
    root: Path
    ended: float
    """When the last run ended, in seconds since the epoch."""

    def lines(self, run: str) -> list[Line]:
        """The record of a run's training, of all its processes that commit."""
        found = [line for line in rltel.read_jsonl(self.root / run) if line.axis == "train"]
        return sorted(found, key=lambda line: line.time_ns)

    @property
    def began(self) -> float:
        """When the first step was committed."""
        return min(self.lines(run)[0].time_ns for run in (SAC, GRPO, OTHER)) / 1e9


@contextmanager
def loaded(tmp_path: Path) -> Iterator[Stores]:
    """Runs all, one beside the other; the stores stay for as long as the body runs."""
    root, watching, sent = (tmp_path / name for name in ("runs", "prometheus", "victoria"))
    for folder in (root, watching, sent):
        folder.mkdir()
    discovery = [{"files": [str(root / run / "prometheus_sd" / "*.json") for run in (SAC, GRPO, OTHER)]}]
    discovery[0]["refresh_interval"] = "1s"  # type: ignore[assignment]  # a list of files beside a text
    scraping = {"file_sd_configs": discovery, "honor_labels": True, "relabel_configs": _RELABEL}
    with (
        victoria_metrics(sent) as victoria,
        prometheus(tmp_path=watching, scrape_interval=f"{SCRAPE_S}s", **scraping) as server,
        ThreadPoolExecutor(2) as both,
    ):
        sac = both.submit(_run, root, SAC, [str(_EXAMPLES / "sac_pendulum.py"), "--ticks", "900"], victoria)
        grpo = both.submit(_grpo_and_other, root, victoria)
        sac.result()
        grpo.result()
        yield Stores(server, victoria, root, time.time())


def _grpo_and_other(root: Path, victoria: VictoriaMetrics) -> None:
    for iterations in (14, 10):
        command = [str(_EXAMPLES / "llm_rollouts.py"), "--iterations", str(iterations)]
        _run(root, GRPO, command, victoria)
    _run(root, OTHER, [str(Path(other_panels.__file__))], victoria)


def _run(root: Path, run: str, command: Sequence[str], victoria: VictoriaMetrics) -> None:
    places = {"RLTEL_RUN_DIR": str(root / run), "RLTEL_RUN_ID": run, "RLTEL_OTLP_ENDPOINT": victoria.otlp_endpoint}
    environ: Mapping[str, str] = {**_CLEAN, **_SETTINGS, **places}
    done = subprocess.run(
        [sys.executable, *command], env=environ, cwd=root, text=True, capture_output=True, timeout=240, check=False
    )
    assert done.returncode == 0, done.stderr
