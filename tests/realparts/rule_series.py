"""What the rules stand on: the demos and a small program, scraped by a real Prometheus that has the rules loaded."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from prometheus_client import CollectorRegistry

import rltel
from export.making import commit, identity
from realparts.processes import HOST, free_port
from realparts.prometheus import Labels, Prometheus, Vector, prometheus
from realparts.requirements import REPOSITORY
from rltel.core.config import PrometheusConfig
from rltel.export.points import Totals, points_of
from rltel.export.prometheus.collector import RunCollector
from rltel.export.prometheus.endpoint import Endpoint
from rltel.export.prometheus.table import PrometheusSink
from rltel.export.sink import Destination
from rltel.names.otel import Namer
from rltel.record.recorder import Recorder
from rltel.reduce.trackers import Trackers
from rltel.rl import moe
from rltel.rl.throughput import Throughput

_DEMOS = {
    "sac": ("sac_pendulum.py", "--ticks", "450"),
    "grpo": ("grpo_arithmetic.py", "--iterations", "16", "--warm-up", "40"),
}
NOT_IN_THE_DEMOS = {
    "rl_train_vtrace_rho_p99": "APPO's",
    "rl_policy_std_mean": "of a policy whose deviation is a parameter: PPO's and APPO's",
    "rl_inference_publication_lag_max": "of a collector that asks ahead",
    "rl_replay_ingress_dropped": "of a bounded ingress between processes; the demo uses a pipe",
    "rl_stats_ppo_actor_update_entropy": "AReaL's key",
    "rltel_dropped_total": "nothing is lost in a demo",
    "rltel_overflowed_keys": "the demos have few keys",
}
"""What the small programs record, and why no demo does. (They also set gauges where the GRPO demo records values.)"""


def small_program(trackers: Trackers) -> None:
    """Records all of that, except what is about the telemetry itself."""
    tracker = trackers.default
    tracker.gauge({"Train/approx_kl": 0.01, "Train/clip_fraction": 0.1, "Train/vtrace_rho_p99": 1.5})
    tracker.gauge({"Policy/mean_std": 0.5, "Perf/collector_inference_max_publication_lag": 1.0})
    tracker.gauge({"Train/replay_ingress_dropped_batches": 0.0})
    for scope, into in (("", tracker), ("critic", tracker), ("", trackers.get("critic"))):
        with into.scope(scope) if scope else nullcontext():
            moe.record({3: [2, 6]}, tracker=into)
    throughput = Throughput(trackers=trackers)
    with throughput.batch(lengths=[3, 4]):
        pass
    throughput.settle()
    tracker.gauge({f"reward/{term}": 0.0 for term in range(60)})  # more than the namer below has room for


def small_llm_program(trackers: Trackers) -> None:
    """Records values where that one sets gauges, under the same names; and iterations, without tokens or samples."""
    trackers.default.scalar({"Perf/iteration_time": 0.5})
    with trackers.default.scope("ppo_actor/update"):
        trackers.default.denominator(n_valid_tokens=np.array([True, True, False]))
        values = np.array([0.1, 0.3, 9.0])
        trackers.default.stat(approx_kl=values, clip_ratio=values, entropy=values, denominator="n_valid_tokens")
        trackers.default.scalar(grad_norm=1.5)


@contextmanager
def served(record: Callable[[Trackers], None]) -> Iterator[str]:
    """The target that shows what a program records."""
    sink, namer = PrometheusSink(), Namer(max_series=50)
    totals = Totals(namer)
    trackers = Trackers(Recorder())
    record(trackers)
    with trackers.taken(derive=True) as snapshot:
        made = commit(snapshot)
    totals.add(made)
    sink.write(made, points_of(made, totals))
    destination = Destination("otlp")
    destination.dropped("queue_full", 2)
    registry = CollectorRegistry()
    registry.register(RunCollector(sink, lambda: [destination], identity(), namer))
    endpoint = Endpoint(PrometheusConfig(), registry, 0)
    try:
        yield endpoint.target
    finally:
        endpoint.close()


@dataclass
class Watched:
    """All series of the three runs that were scraped, and the server that has them."""

    server: Prometheus
    demos: Vector
    """As they were last."""
    program: list[Labels]

    folder: Path

    def values(self, demo: str, key: str) -> list[float]:
        """What the run's record has under a key, line by line."""
        return [line.values[key] for line in rltel.read_jsonl(self.folder / demo) if key in line.values]

    def at_the_end(self, demo: str, series: str, promql: str) -> Vector:
        """What an expression gave when a series of this demo was scraped last."""
        ((_, samples),) = self.server.samples(f'{series}{{rl_run_id="{demo}"}}[1h]')
        found = self.server.query(promql, time=samples[-1][0])
        return [(labels, value) for labels, value in found if labels["rl_run_id"] == demo]


@contextmanager
def watched(tmp_path: Path, rules: list[Path]) -> Iterator[Watched]:
    """Runs the demos one after the other, and the small programs beside them."""
    ports = {name: free_port() for name in _DEMOS}
    discovered = tmp_path / "targets.json"
    files = [discovered, tmp_path / "grpo" / "prometheus_sd" / "*.json"]
    with (
        served(small_program) as program,
        served(small_llm_program) as llm_program,
        prometheus(
            tmp_path=tmp_path,
            file_sd_configs=[{"files": [str(file) for file in files], "refresh_interval": "1s"}],
            honor_labels=True,
            rule_files=rules,
        ) as server,
    ):
        # SAC is too short for a Prometheus that may look at files only each five seconds.
        targets = {"program": program, "llm-program": llm_program, "sac": f"{HOST}:{ports['sac']}"}
        labels = {name: {"rl_run_id": name, "rl_role": "learner", "rl_rank": "0"} for name in targets}
        discovered.write_text(
            json.dumps([{"targets": [target], "labels": labels[name]} for name, target in targets.items()])
        )
        every = '{__name__=~"rl_.+|rltel_.+",rl_run_id'
        server.wait_for(f'{every}="llm-program"}}', timeout=60)  # it knows the others, too
        for name, command in _DEMOS.items():
            _run(tmp_path / name, name, command, ports[name])
        yield Watched(
            server,
            server.query(f'last_over_time({every}=~"sac|grpo"}}[1h])'),
            [each for each, _ in server.query(f'last_over_time({every}=~"program|llm-program"}}[1h])')],
            tmp_path,
        )


def _run(folder: Path, run: str, command: tuple[str, ...], port: int) -> None:
    """A demo, from start to end; it stays up until its last step was scraped."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("RLTEL_", "OTEL_"))}
    settings = {
        "RLTEL_RUN_DIR": str(folder),
        "RLTEL_RUN_ID": run,
        "RLTEL_PROMETHEUS_PORT": str(port),
        "RLTEL_PROMETHEUS_LINGER_S": "30",
        "RLTEL_OTLP_ENABLED": "0",
    }
    script, *arguments = command
    ran = subprocess.run(
        [sys.executable, REPOSITORY / "examples" / script, *arguments],
        cwd=folder.parent,
        env={**clean, **settings},
        capture_output=True,
        text=True,
        timeout=800,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
