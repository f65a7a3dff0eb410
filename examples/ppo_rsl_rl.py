"""rsl_rl's own `OnPolicyRunner` (PPO) on 128 cart-poles, with rltel as its log writer and clocks on its loop.

Everything that trains is rsl_rl's. Telemetry comes in at two places: ``cfg["logger"]`` names the writer and holds its
settings, and ``instrument`` draws where the time goes.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import torch
from ppo_env import CartPoles
from rsl_rl.runners import OnPolicyRunner

import rltel
from rltel.integrations.rsl_rl import instrument
from rltel.traces.merge import merge

TASK = "CartPoles"
STEPS_PER_ENV = 24
NET = {"class_name": "MLPModel", "hidden_dims": [32, 32], "activation": "elu"}


@dataclass(frozen=True)
class Config:
    """The command line."""

    seed: int
    iterations: int
    num_envs: int
    log_root: str
    console: bool
    panel: bool


def train_config(logger: dict[str, Any]) -> dict[str, Any]:
    """rsl_rl's configuration. ``logger``: the writer and its settings."""
    return {
        "num_steps_per_env": STEPS_PER_ENV,
        "save_interval": 50,
        "obs_groups": {"actor": ["policy"], "critic": ["policy"]},
        "algorithm": {"class_name": "PPO", "num_mini_batches": 4, "num_learning_epochs": 4, "entropy_coef": 0.0},
        "actor": {**NET, "distribution_cfg": {"class_name": "GaussianDistribution", "init_std": 0.5}},
        "critic": NET,
        "logger": logger,
    }


def logger_config(config: Config) -> dict[str, Any]:
    """What rltel is switched on for. Every setting can be overridden by its ``RLTEL_*`` variable."""
    return {
        "class_name": "rltel.integrations.rsl_rl:RltelLogWriter",
        "run": {"algo": "ppo", "task": TASK, "backend": "torch"},
        "trace": {"enabled": True},
        "prometheus": {"enabled": True},
        "console": {"enabled": config.console, "interval_s": 5.0},
        "terminal": {"enabled": config.panel},
    }


def train(config: Config) -> Path:
    """One run from start to end; returns its directory."""
    torch.manual_seed(config.seed)
    torch.set_num_threads(1)  # the networks are small: a second thread would only wait
    log_dir = Path(config.log_root, "rsl_rl_ppo", TASK, f"{datetime.now():%Y-%m-%d_%H-%M-%S}")
    env = CartPoles(config.num_envs, config.seed)
    runner = OnPolicyRunner(env, train_config(logger_config(config)), log_dir=str(log_dir), device="cpu")
    with instrument(runner, quiet=config.console or config.panel):
        runner.learn(config.iterations, init_at_random_ep_len=True)
    return log_dir


def main(argv: list[str] | None = None) -> int:
    """Returns the exit code."""
    parser = argparse.ArgumentParser(description="rsl_rl's PPO on cart-poles, with telemetry.")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--iterations", type=int, default=100)
    parser.add_argument("--num-envs", type=int, default=128)
    parser.add_argument("--log-root", default="logs", help="where run directories are made")
    parser.add_argument("--console", action="store_true", help="one line every 5 s, instead of rsl_rl's text")
    parser.add_argument("--panel", action="store_true", help="the live panel, instead of rsl_rl's text")
    config = Config(**vars(parser.parse_args(argv)))
    if min(config.iterations, config.num_envs) < 1 or config.seed < 0:
        parser.error("the seed can't be negative, and the other numbers must be positive")
    run_dir = train(config)
    rewards = [
        line.values["Train/mean_reward"] for line in rltel.read_jsonl(run_dir) if "Train/mean_reward" in line.values
    ]
    if rewards:
        print(f"mean return    {rewards[0]:.1f} at first, {rewards[-1]:.1f} at last")
    print(f"run directory  {run_dir}")
    print(f"timeline       {merge(run_dir, run_dir / 'timeline.pftrace').path}  (open it at https://ui.perfetto.dev)")
    return 0


if __name__ == "__main__":
    sys.exit(main())
