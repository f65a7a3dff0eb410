"""GRPO on sums: two torchrun ranks, two rollout workers, a controller; every measure of LLM RL shows real values."""

import os
import re
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rltel
from export.making import environment, wait_until
from realparts.requirements import REPOSITORY
from realparts.trace_processor import query
from rltel.core.claims import start_of
from rltel.export.jsonl import Line
from rltel.rl import sessions

pytestmark = [
    pytest.mark.xdist_group("demo"),  # one after the other: two demos at once would share two cores
    pytest.mark.timeout(900),  # a whole training is in the first test's time, however busy the machine
]

EXAMPLE = REPOSITORY / "examples" / "grpo_arithmetic.py"
ITERATIONS, WARM_UP = 40, 170
ROLLOUTS = 128
"""Of an update: 16 groups of 8."""

_QUERIES = {
    "consumed": """
        with rollout as (select id, ts, ts + dur ended from slice where name = 'rollout'),
        train as (select id, ts from slice where name = 'train')
        select count(*) n, count(distinct r.id) rollouts, count(distinct t.id) updates, min(t.ts - r.ended) least
        from flow f join rollout r on f.slice_out = r.id join train t on f.slice_in = t.id
    """,
    "weights": """
        select o.name source, i.name target, count(*) n, min(i.ts - o.ts) least
        from flow f join slice o on f.slice_out = o.id join slice i on f.slice_in = i.id
        where i.name = 'weight_load' group by 1, 2
    """,
    "at_once": """
        select count(distinct e.id) n from slice e join slice t
        on e.name = 'engine_step' and t.name = 'train' and e.ts < t.ts + t.dur and t.ts < e.ts + e.dur
    """,
    "processes": "select name from process where name is not null order by 1",
    "errors": "select name, value from stats where severity in ('error', 'data_loss') and value > 0",
}


def command(folder: Path, *options: str) -> dict[str, Any]:
    """How the example is started."""
    return {
        "args": [sys.executable, str(EXAMPLE), "--log-root", str(folder / "logs"), *options],
        "cwd": folder,
        "env": environment(RLTEL_PROMETHEUS_PORT="0", RLTEL_OTLP_ENABLED="0"),
        "stdout": subprocess.PIPE,
        "stderr": subprocess.STDOUT,
        "text": True,
    }


def run_dir_in(folder: Path) -> Path:
    (found,) = (folder / "logs").glob("grpo/arithmetic/*")
    return found


@dataclass
class Training:
    """What one run of the example left."""

    run_dir: Path
    said: str

    @cached_property
    def lines(self) -> list[Line]:
        """The writer's record."""
        return list(rltel.read_jsonl(self.run_dir))

    @property
    def updates(self) -> list[Mapping[str, Any]]:
        """The values of each."""
        return [line.values for line in self.lines if line.axis == "train" and "groups/pass@1" in line.values]

    @cached_property
    def rows(self) -> dict[str, list[dict[str, Any]]]:
        """What the timeline answers."""
        answers = query(self.run_dir / "timeline.pftrace", *_QUERIES.values())
        return dict(zip(_QUERIES, answers, strict=True))


@pytest.fixture(scope="module")
def training(tmp_path_factory: pytest.TempPathFactory) -> Training:
    folder = tmp_path_factory.mktemp("grpo")
    options = ("--iterations", str(ITERATIONS), "--warm-up", str(WARM_UP))
    process = subprocess.run(**command(folder, *options), timeout=800, check=False)
    assert process.returncode == 0, process.stdout
    assert "Traceback" not in process.stdout
    return Training(run_dir_in(folder), process.stdout)


def test_it_learns(training: Training) -> None:
    """In its whole length (`make demo-llm`) it goes from under one half to over nine tenths."""
    rewards = [values["groups/reward/avg"] for values in training.updates]
    assert len(rewards) == ITERATIONS
    assert np.mean(rewards[-8:]) > np.mean(rewards[:8]) + 0.05
    accuracy = [line.values["eval/accuracy"] for line in training.lines if line.axis == "eval"]
    assert len(accuracy) == 3
    assert accuracy[-1] > accuracy[0]
    assert "reward " in training.said


def test_an_update_has_every_rank_and_worker_in_it(training: Training) -> None:
    for values in training.updates:
        assert values["groups/n_groups"] == 16
        assert values["groups/n_rollouts"] == ROLLOUTS
        tokens = values["ppo_actor/train_infer/n_valid_tokens"]
        assert tokens == values["ppo_actor/update/version_stats/n_valid_generated_tokens"]
        assert tokens == pytest.approx(ROLLOUTS * values["groups/length/avg"])
        assert values["ppo_actor/update/n_valid_tokens"] <= tokens, "what was cut off is not learned from"
        assert values["train_perf/devices"] == 2
        assert 0 < values["train_perf/mfu"] < 2, "the peak is measured, too, while others have the cores"


def test_rollouts_are_stale_and_engines_differ(training: Training) -> None:
    """How many are is a matter of pace, of workers and ranks."""
    at = "ppo_actor/update/version_stats/"
    assert np.mean([values[at + "sample_staleness_theta_max"] >= 1 for values in training.updates]) > 0.5
    for values in training.updates[3:]:
        assert values[at + "future_token_fraction"] == 0
        assert values["ppo_actor/train_infer/logp_abs_diff/avg"] > 0
        assert 0 < values["ppo_actor/train_infer/effective_sample_size"] < 1
    assert max(values[at + "stale_token_fraction"] for values in training.updates) > 0.5


def test_loads_of_experts_are_of_training_alone(training: Training) -> None:
    """Of mini-batches once, padding included: not of recomputed logprobs, evaluations or the warm-up."""
    for values in training.updates:
        loads = [values[f"moe_balance/layer_2/expert_{expert}/tokens"] for expert in range(4)]
        assert sum(loads) % ROLLOUTS == 0, "two experts a token; each rank's half of the rollouts is of one length"
        longest = sum(loads) / 2 / ROLLOUTS
        assert 8 <= longest <= 11
        assert 1 <= values["moe_balance/layer_2/max_over_ideal"] <= 4


def test_each_rollout_is_a_line_of_its_own_with_the_update_that_consumed_it(training: Training) -> None:
    every = list(sessions.read(training.run_dir))
    assert {session["status"] for session in every} <= {"accepted", "rejected", "dropped"}
    consumed = [by["step"] for session in every for by in session["consumed"]]
    assert all(session["status"] == "accepted" for session in every if session["consumed"])
    per_update = Counter(consumed)
    assert sorted(per_update) == list(range(ITERATIONS))
    for step, values in enumerate(training.updates):
        assert per_update[step] == values["rollout/sessions/consumed"]
        whole = 1 - values["groups/truncated_fraction"]
        assert per_update[step] == pytest.approx(ROLLOUTS * whole)
    assert all("policy_versions" in session for session in every if session["status"] != "dropped")


_INTERRUPTED = """
import asyncio, sys
from multiprocessing import Pipe
from threading import Thread
import rltel, torch
from grpo_messages import Order, Published
from grpo_model import Policy, packed
from grpo_task import Problem
from grpo_worker import Engine, Worker

class Interrupted(Engine):
    "New weights are in the mail once the first tokens are said."
    def step(self):
        super().step()
        if self.version == 3:
            Thread(target=controller.send, args=(Published(4, weights, [2]),)).start()
            link.poll(None)

def control():
    controller.send(Published(3, weights, [1]))
    controller.send(Order(0, Problem(47, 85), 16, {}))
    for rollout in controller.recv().rollouts:
        print(*rollout.versions)
    controller.send(None)

rltel.init({"trace": {"enabled": True}}, role="rollout", run_dir=sys.argv[1])
torch.manual_seed(1)
weights = packed(Policy(experts=False))
controller, link = Pipe()
Thread(target=control).start()
asyncio.run(Worker(Interrupted(seed=1, experts=False), link).serve())
rltel.shutdown(linger=False)
"""


def test_new_weights_may_come_in_the_middle_of_an_answer(tmp_path: Path) -> None:
    """Whether they do in a short training is a matter of its pace; here they come after the first tokens."""
    said = subprocess.run(
        [sys.executable, "-c", _INTERRUPTED, str(tmp_path)],
        env=environment(PYTHONPATH=str(EXAMPLE.parent), RLTEL_OTLP_ENABLED="0"),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert said.returncode == 0, said.stderr
    answers = [list(map(int, line.split())) for line in said.stdout.splitlines()]
    assert len(answers) == 16
    assert all(answer == [3] + [4] * (len(answer) - 1) for answer in answers)
    every = list(sessions.read(tmp_path))
    assert Counter(tuple(session["policy_versions"]) for session in every) == Counter(
        tuple(sorted(set(answer))) for answer in answers
    )
    assert any(session["policy_versions"] == [3, 4] for session in every)


def test_an_arrow_leads_from_each_rollout_to_its_update(training: Training) -> None:
    (row,) = training.rows["consumed"]
    consumed = sum(values["rollout/sessions/consumed"] for values in training.updates)
    assert row["n"] == row["rollouts"] == consumed
    assert row["updates"] == 2 * ITERATIONS, "on both ranks"
    assert row["least"] > 0


def test_arrows_lead_from_weights_to_where_they_are_loaded(training: Training) -> None:
    """In each worker, but for the first policy, which is published before there are iterations, and the last."""
    (row,) = training.rows["weights"]
    assert row["source"] == "weight_publish"
    assert 2 * (ITERATIONS - 1) <= row["n"] <= 2 * ITERATIONS
    assert row["least"] > 0


def test_workers_generate_while_ranks_train(training: Training) -> None:
    (row,) = training.rows["at_once"]
    assert row["n"] > ITERATIONS
    assert training.rows["errors"] == []
    names = [row["name"] for row in training.rows["processes"]]
    assert Counter(name.split()[0] for name in names) == {"controller": 1, "learner": 2, "rollout": 2}


@pytest.mark.parametrize("victim", ["the user says stop", "a worker dies"])
def test_nobody_is_left_behind(victim: str, tmp_path: Path) -> None:
    options = ("--iterations", "10000", "--warm-up", "2", "--no-moe")
    process = subprocess.Popen(**command(tmp_path, *options), start_new_session=True)
    with process:
        assert process.stdout is not None
        for line in process.stdout:
            if line.startswith("step "):
                break
        # One worker alone may have answered for the first step, while the other still starts.
        wait_until(lambda: len(workers_of(process.pid)) == 2, "both workers are there", timeout=120)
        family = {pid: start_of(pid) for pid in descendants(process.pid)}
        if victim == "a worker dies":
            os.kill(workers_of(process.pid)[0], signal.SIGKILL)
        else:
            os.killpg(process.pid, signal.SIGINT)
        said = process.stdout.read()
    assert process.returncode == (1 if victim == "a worker dies" else 0), said
    wait_until(
        lambda: not any(start_of(pid) == start for pid, start in family.items() if start), "all end", timeout=120
    )
    summary = (run_dir_in(tmp_path) / "run_summary.json").read_text()
    assert '"status": "interrupted"' in summary


def descendants(pid: int) -> list[int]:
    """Of a process, all of them."""
    try:
        children = [int(each) for each in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:  # it has ended meanwhile
        return []
    return [*children, *(grandchild for child in children for grandchild in descendants(child))]


def workers_of(pid: int) -> list[int]:
    """The rollout workers among a process's children that have come so far as to leave Ctrl+C to it."""
    return [each for each in descendants(pid) if is_spawned(each) and ignores_interrupts(each)]


def is_spawned(pid: int) -> bool:
    """Whether multiprocessing has started it; torchrun's ranks are others' children."""
    try:
        return b"spawn_main" in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False


def ignores_interrupts(pid: int) -> bool:
    """Whether it has said so."""
    try:
        (ignored,) = re.findall(r"^SigIgn:\s*(\w+)", Path(f"/proc/{pid}/status").read_text(), re.MULTILINE)
    except OSError:
        return False
    return bool(int(ignored, 16) >> (signal.SIGINT - 1) & 1)
