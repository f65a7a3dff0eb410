"""rsl_rl's own runner with our writer and clocks: what one run of the example leaves, read by the official readers."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import urllib.request
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path
from typing import Any

import pytest

import rltel
from realparts.requirements import REPOSITORY
from realparts.tensorboard_reader import scalars
from realparts.trace_processor import query
from rltel.record.kinds import Moments
from rltel.record.phase_sets import PPO_LEARNER

pytestmark = [
    pytest.mark.xdist_group("demo"),  # one after the other: two demos at once would share two cores
    pytest.mark.timeout(900),  # a whole training is in the first test's time, however busy the machine
]

EXAMPLE = REPOSITORY / "examples" / "ppo_rsl_rl.py"
ITERATIONS = 60
STEPS_PER_ENV = 24
NUM_ENVS = 128

_TABLES = """
    create perfetto table loop as
    select id, ts, ts + dur ended, dur, extract_arg(arg_set_id, 'debug.rl_loop_iteration') number
    from slice where category = 'rl.loop';
    create perfetto table phase as
    select s.id, s.ts, s.ts + s.dur ended, s.dur, s.name, s.category kind, s.parent_id, loop.number
    from slice s join loop on s.parent_id = loop.id;
"""
_QUERIES = {
    "loops": "select number, dur from loop order by ts",
    "order": "select number, name from phase group by number, name order by number, min(ts)",
    "sums": "select l.number, l.dur wall, sum(p.dur) phases from loop l join phase p using (number) group by 1",
    "parts": """
        select p.name whole, s.name part, count(*) n, min(s.ts >= p.ts and s.ts + s.dur <= p.ended) inside
        from slice s join phase p on s.parent_id = p.id where s.category = 'nested' group by 1, 2
    """,
    "times": """
        select name, sum(dur) ns from slice where category in ('exclusive', 'nested') group by 1
        union all select 'iteration', sum(dur) from loop
    """,
    # One process does one thing after the other.
    "overlaps": """
        select count(*) n from phase a join phase b on a.id < b.id and a.ts < b.ended and b.ts < a.ended
    """,
    "processes": "select name from process where name is not null",
    "errors": "select name, value from stats where severity in ('error', 'data_loss') and value > 0",
}


@dataclass
class Training:
    """What one run of the example left, and what its endpoint said at the end."""

    run_dir: Path
    rows: dict[str, list[dict[str, Any]]]
    scraped: str

    def lines(self) -> list[Any]:
        return list(rltel.read_jsonl(self.run_dir))


@pytest.fixture(scope="module")
def training(tmp_path_factory: pytest.TempPathFactory) -> Training:
    tmp_path = tmp_path_factory.mktemp("ppo")
    environ = {name: value for name, value in os.environ.items() if not name.startswith(("RLTEL_", "OTEL_"))}
    process = subprocess.Popen(
        [sys.executable, EXAMPLE, "--iterations", str(ITERATIONS), "--log-root", tmp_path / "logs", "--console"],
        cwd=tmp_path,
        # It waits at its end until the last step was scraped, however slow this machine is.
        env={**environ, "RLTEL_PROMETHEUS_PORT": "0", "RLTEL_PROMETHEUS_LINGER_S": "120"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    scraped = _last_scrape(process)
    _, err = process.communicate(timeout=600)
    assert process.returncode == 0, err
    (run_dir,) = (tmp_path / "logs").glob("rsl_rl_ppo/CartPoles/*")
    first, *others = _QUERIES.values()
    rows = query(run_dir / "timeline.pftrace", _TABLES + first, *others)
    return Training(run_dir, dict(zip(_QUERIES, rows, strict=True)), scraped)


def _last_scrape(process: subprocess.Popen[str]) -> str:
    """Scrapes until the program has ended; its last answer."""
    assert process.stderr is not None
    url = ""
    while not url:
        line = process.stderr.readline()
        assert line, "it ended without naming its endpoint"
        if line.startswith("rltel: run") and "prometheus " in line:
            url = line.partition("prometheus ")[2].split(",")[0].strip()
    scraped = ""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    while process.poll() is None:
        try:
            with opener.open(url, timeout=60) as response:
                scraped = response.read().decode()
        except (OSError, HTTPException):  # it ends, or was too busy: it waits for a scrape as long as it is there
            time.sleep(0.02)
    return scraped


def test_it_is_rsl_rls_own_training_and_it_learns(training: Training) -> None:
    returns = [line.values["Train/mean_reward"] for line in training.lines() if "Train/mean_reward" in line.values]
    assert max(returns) > 4 * returns[0] > 0
    assert (training.run_dir / f"model_{ITERATIONS - 1}.pt").is_file()
    assert (training.run_dir / "git").is_dir()


def test_one_line_an_iteration_with_steps_and_environment_steps(training: Training) -> None:
    found = [(line.step, line.env_steps) for line in training.lines()]
    assert found == [(number, (number + 1) * STEPS_PER_ENV * NUM_ENVS) for number in range(ITERATIONS)]


def test_reward_and_termination_terms_arrive_under_their_own_names(training: Training) -> None:
    values = training.lines()[-1].values
    terms = ("reward/alive", "reward/angle", "reward/effort")
    ends = tuple(f"Episode_Termination/{end}" for end in ("cart_left", "pole_fell", "time_out"))
    assert set(terms + ends) < values.keys()
    assert values["reward/alive"] == 1.0


def test_tensorboard_has_every_number_of_the_record(training: Training) -> None:
    shown = scalars(training.run_dir)
    for tag in ("Train/mean_reward", "Loss/surrogate", "Perf/collection_time", "Perf/iteration_time", "reward/angle"):
        recorded = {line.step: line.values[tag] for line in training.lines() if tag in line.values}
        assert {point.step: point.value for point in shown[tag]} == pytest.approx(recorded, rel=1e-6), tag


def test_the_endpoint_showed_the_last_step(training: Training) -> None:
    last = training.lines()[-1].values["Train/mean_reward"]
    (shown,) = [line for line in training.scraped.splitlines() if line.startswith("rl_environment_reward_mean")]
    assert float(shown.rpartition(" ")[2]) == pytest.approx(last)
    assert "rl_sample_duration_seconds_count" in training.scraped


def test_the_trace_processor_finds_no_fault_and_one_process(training: Training) -> None:
    assert training.rows["errors"] == []
    assert training.rows["processes"] == [{"name": "learner 0"}]


def test_every_iteration_collects_then_learns_then_logs_and_nothing_overlaps(training: Training) -> None:
    order: dict[int, list[str]] = {}
    for row in training.rows["order"]:
        order.setdefault(row["number"], []).append(row["name"])
    usual = ["collection", "learning", "logging"]
    saved = {number for number in range(ITERATIONS) if number % 50 == 0} | {ITERATIONS - 1}
    assert order == {n: [*usual, "checkpoint"] if n in saved else usual for n in range(ITERATIONS)}
    assert training.rows["overlaps"] == [{"n": 0}]


def test_phases_add_up_to_at_most_the_iteration(training: Training) -> None:
    assert len(training.rows["sums"]) == ITERATIONS
    assert all(0 < row["phases"] <= row["wall"] for row in training.rows["sums"])


def test_parts_lie_inside_their_phases(training: Training) -> None:
    parts = {(row["whole"], row["part"]): row for row in training.rows["parts"]}
    each_step = dict.fromkeys(("mlp_infer", "env_step", "rollout_write", "episode_log"), ITERATIONS * STEPS_PER_ENV)
    expected = {("collection", part): n for part, n in each_step.items()}
    expected |= {("learning", part): ITERATIONS for part in ("returns", "update")}
    assert {key: row["n"] for key, row in parts.items()} == expected
    assert all(row["inside"] for row in parts.values())


def test_the_record_has_the_same_times_as_the_picture(training: Training) -> None:
    drawn = {row["name"]: row["ns"] / 1e9 for row in training.rows["times"]}
    keys = {"iteration": PPO_LEARNER.loop_key, **{phase.name: phase.key for phase in PPO_LEARNER.phases}}
    assert drawn.keys() == keys.keys()
    for name, key in keys.items():
        states = [Moments(*line.snapshot[key].state.moments) for line in training.lines() if key in line.snapshot]
        assert sum(moments.total for moments in states) == pytest.approx(drawn[name], rel=1e-9), name


def test_the_configuration_is_beside_it(training: Training) -> None:
    kept = json.loads((training.run_dir / "rsl_rl_config.json").read_text())
    assert kept["metric_schema_version"] == 1
    assert kept["train_cfg"]["num_steps_per_env"] == STEPS_PER_ENV
    assert kept["env_cfg"]["num_envs"] == NUM_ENVS
