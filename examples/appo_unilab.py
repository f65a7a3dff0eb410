"""unilab-rl's own asynchronous PPO on CPU, with rltel's clocks attached to its learner and its collector.

Everything that trains is unilab-rl's (`APPORunner`: this process learns, a process that it spawns collects, a ring in
shared memory lies between them); the clocks are in `appo_learner.py` and `appo_collector.py`. It needs unilab-rl 1.4.15
on the path, and rsl-rl-lib:

    pip install rsl-rl-lib omegaconf && pip install --no-deps unilab-rl==1.4.15
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import sys
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from appo_collector import CollectorHooks, TimedEnv
from appo_env import PointMasses
from appo_hooks import Payloads
from appo_learner import LearnerHooks

import rltel
from rltel.traces.merge import merge

TASK = "PointMasses"
STEPS_PER_ENV = 24

NET = {"class_name": "rsl_rl.models.MLPModel", "hidden_dims": [64, 64]}
GAUSSIAN = {"class_name": "rsl_rl.modules.distribution.GaussianDistribution", "init_std": 0.5}
ALGORITHM = {"enable_compile": False, "gamma": 0.97, "num_learning_epochs": 2, "num_mini_batches": 2}


@dataclass(frozen=True)
class Attach:
    """What the collector's process needs to join the run."""

    learner_pid: int
    config: dict[str, Any]
    headers: dict[str, str]
    payloads: Payloads


def telemetry_config(log_root: str) -> dict[str, Any]:
    """What rltel is switched on for. Every setting can be overridden by its ``RLTEL_*`` variable."""
    return {
        "run": {"algo": "appo", "task": TASK, "backend": "unilab", "log_root": log_root},
        "trace": {"enabled": True},
        "tensorboard": {"path": "{run_dir}/tb"},
        "console": {"enabled": True, "interval_s": 5.0},
    }


def make_env(attach: Attach, num_envs: int, overrides: Mapping[str, Any] | None) -> Any:
    """The factory that the runner calls: for a look at the shapes in the learner, then for good in the collector."""
    torch.set_num_threads(1)
    env = PointMasses(num_envs, overrides)
    if os.getpid() == attach.learner_pid:
        return env
    telemetry = ExitStack()
    telemetry.callback(rltel.shutdown, linger=False)
    rltel.init(attach.config, role="collector")
    telemetry.enter_context(rltel.attached(attach.headers))
    hooks = CollectorHooks(attach.payloads)
    hooks.attach()
    return TimedEnv(env, hooks, telemetry)


def train(seed: int, iterations: int, num_envs: int, log_root: str) -> Path:
    """One run from start to end; returns its directory."""
    from uni_rl.algos.appo.runner import APPORunner

    torch.set_num_threads(1)
    config = telemetry_config(log_root)
    running = rltel.init(config)
    assert running.run_dir is not None  # tracing is on
    payloads: Payloads = multiprocessing.get_context("spawn").Queue()
    hooks = LearnerHooks(payloads)
    attach = Attach(os.getpid(), config, rltel.inject(), payloads)
    runner = APPORunner(
        TASK,
        {},
        {"actor": {**NET, "distribution_cfg": GAUSSIAN}, "critic": NET, "algorithm": ALGORITHM},
        partial(make_env, attach),
        device="cpu",
        collector_device="cpu",
        num_envs=num_envs,
        steps_per_env=STEPS_PER_ENV,
        seed=seed,
    )
    try:
        with hooks.attached():
            runner.learn(iterations, save_interval=0, log_dir=str(running.run_dir / "unilab"), logger_type="no_print")
    finally:
        with hooks.absorbing():
            runner.close()  # without it the collector never closes its environment
    rltel.commit(step=iterations + 1)
    rltel.shutdown()
    return running.run_dir


def main(argv: list[str] | None = None) -> int:
    """Returns the exit code."""
    parser = argparse.ArgumentParser(description="unilab-rl's APPO on point masses, with telemetry.")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--iterations", type=int, default=40)
    parser.add_argument("--num-envs", type=int, default=64)
    parser.add_argument("--log-root", default="logs", help="where run directories are made")
    given = parser.parse_args(argv)
    if min(given.iterations, given.num_envs) < 1 or given.seed < 0:
        parser.error("the seed can't be negative, and the other numbers must be positive")
    run_dir = train(given.seed, given.iterations, given.num_envs, given.log_root)
    rewards = [
        line.values["Train/mean_reward"] for line in rltel.read_jsonl(run_dir) if "Train/mean_reward" in line.values
    ]
    print(f"mean return    {rewards[0]:.2f} at first, {rewards[-1]:.2f} at last")
    print(f"run directory  {run_dir}")
    print(f"timeline       {merge(run_dir, run_dir / 'timeline.pftrace').path}  (open it at https://ui.perfetto.dev)")
    return 0


if __name__ == "__main__":
    sys.exit(main())
