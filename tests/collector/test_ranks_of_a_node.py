"""Three ranks of one host, found by `prometheus_sd/` and scraped by a real Prometheus with our own scrape config."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from export.making import environment, wait_until
from realparts.processes import accepts, free_port, parent_death_prefix, tail
from realparts.prometheus import Prometheus, Vector, prometheus
from realparts.requirements import REPOSITORY

CONFIGS = REPOSITORY / "collector-config"
RANKS = 3

_TRAINER = """
import os, sys, time
from pathlib import Path
import rltel
telemetry = rltel.init()
rltel.log({"mine": float(os.environ["MINE"])}, step=1)
Path(sys.argv[1]).write_text(telemetry.prometheus_url)
while not Path(sys.argv[2]).exists():
    time.sleep(0.05)
rltel.shutdown()
"""


class Trainer:
    """A process that serves until it is told to end."""

    def __init__(self, folder: Path, name: str, **environ: str) -> None:
        self.said, self.end, self.log = (folder / f"{name}.{what}" for what in ("url", "end", "log"))
        arguments = [sys.executable, "-c", _TRAINER, str(self.said), str(self.end)]
        with self.log.open("w") as log:
            self.process = subprocess.Popen(
                [*parent_death_prefix(), *arguments], env=environment(**environ), stdout=log, stderr=log
            )

    @property
    def port(self) -> int:
        """Where it serves. Waits until it does."""
        wait_until(lambda: self.said.exists() and self.said.read_text(), f"to serve: {tail(self.log)}", timeout=200)
        return int(self.said.read_text().split(":")[2].split("/")[0])


@contextmanager
def trainer(folder: Path, name: str, **environ: str) -> Iterator[Trainer]:
    made = Trainer(folder, name, **environ)
    try:
        yield made
    finally:
        made.process.kill()
        made.process.wait()


def of_run(folder: Path, run: str, port: int, rank: int, mine: float) -> dict[str, str]:
    """As torchrun starts ranks of one host."""
    return {
        "RLTEL_RUN_ID": run,
        "RLTEL_RUN_DIR": str(folder / "runs" / run),
        "RANK": str(rank),
        "LOCAL_RANK": str(rank),
        "WORLD_SIZE": str(RANKS),
        "RLTEL_PROMETHEUS_ENABLED": "1",
        "RLTEL_PROMETHEUS_PORT": str(port),
        "RLTEL_PROMETHEUS_ADVERTISE": "localhost",
        "MINE": str(mine),
    }


@contextmanager
def watching(folder: Path) -> Iterator[Prometheus]:
    """Prometheus with the scrape config of `prometheus.yaml`, and the script beside it that gathers what there is."""
    (scrape,) = (
        job
        for job in yaml.safe_load((CONFIGS / "prometheus.yaml").read_text())["scrape_configs"]
        if job["job_name"] == "rltel"
    )
    options: dict[str, Any] = {
        name: value for name, value in scrape.items() if name not in ("job_name", "file_sd_configs", "scrape_interval")
    }
    targets = folder / "targets" / "rltel.json"
    command = [str(CONFIGS / "gather_targets.sh"), str(folder / "runs"), str(targets), "1"]
    gathering = subprocess.Popen([*parent_death_prefix(), *command])
    try:
        with prometheus(tmp_path=folder, file_sd=targets.parent / "*.json", **options) as server:
            yield server
    finally:
        gathering.kill()
        gathering.wait()


pytestmark = pytest.mark.timeout(900)  # longer than what it waits for, so that that is what is said


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "runs").mkdir()
    return tmp_path


def test_every_rank_of_a_node_is_found_and_says_who_it_is(folder: Path) -> None:
    """Ports follow each other from the configured one on, in whatever order the ranks came; labels do not."""
    first = free_port()
    with watching(folder) as server, ExitStack() as all_ranks:
        ranks = [
            all_ranks.enter_context(trainer(folder, f"rank{rank}", **of_run(folder, "run-a", first, rank, 10.0 + rank)))
            for rank in range(RANKS)
        ]
        assert ranks[0].port == first, "the writer has the first claim on it"
        assert len({each.port for each in ranks}) == RANKS
        found = server.wait_for("rl_stats_mine", lambda vector: len(vector) == RANKS, timeout=200)
        assert {(labels["rl_run_id"], labels["rl_role"], labels["rl_rank"], value) for labels, value in found} == {
            ("run-a", "learner", str(rank), 10.0 + rank) for rank in range(RANKS)
        }
        assert {labels["instance"] for labels, _ in found} == {f"localhost:{each.port}" for each in ranks}
        for each in ranks:
            each.end.touch()
            each.process.wait(200)
        server.wait_for("count(up) or vector(0)", lambda vector: vector[0][1] == 0, timeout=200)


def test_another_run_on_a_dead_process_s_port_is_not_taken_for_it(folder: Path) -> None:
    """What was killed stays in `prometheus_sd/`: it is down, and does not show another run's numbers as its own."""
    port = free_port()
    with watching(folder) as server, trainer(folder, "a", **of_run(folder, "run-a", port, 0, 1.0)) as first:
        assert first.port == port
        server.wait_for("rl_stats_mine == 1", timeout=200)
        first.process.kill()
        first.process.wait()
        wait_until(lambda: not accepts(port), "the port is free again")
        with trainer(folder, "b", **of_run(folder, "run-b", port, 0, 2.0)) as second:
            assert second.port == port
            server.wait_for("rl_stats_mine == 2", timeout=200)
            server.wait_for('up{rl_run_id="run-a"} == 0', timeout=200)
            wait_until(lambda: server.query('count_over_time(up{rl_run_id="run-a"}[1m]) > 8'), "more scrapes", 200)
            of_the_dead = server.query('last_over_time(rl_stats_mine{rl_run_id="run-a"}[10m])')
            assert {value for _, value in of_the_dead} == {1.0}
            server.wait_for("up == 1", is_of_the_second, timeout=200)  # a scrape may take too long now and then


def is_of_the_second(up: Vector) -> bool:
    """Whether it alone is up."""
    return {labels["rl_run_id"] for labels, _ in up} == {"run-b"}
