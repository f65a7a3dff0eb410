"""Trains with rsl_rl's real runner on the example's environment, for a second."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from realparts.requirements import REPOSITORY

ENVS = 16
STEPS = 8
ITERATIONS = 12
EXAMPLES = REPOSITORY / "examples"
OURS = "rltel.integrations.rsl_rl:RltelLogWriter"
NET = {"class_name": "MLPModel", "hidden_dims": [8]}


def environment(seed: int = 3, **more: Any) -> Any:
    """The example's cart-poles, with episodes that end within an iteration or two."""
    if str(EXAMPLES) not in sys.path:
        sys.path.append(str(EXAMPLES))
    from ppo_env import CartPoles

    return CartPoles(ENVS, seed, **{"max_episode_length": 10, **more})


def config(logger: Any, **more: Any) -> dict[str, Any]:
    """rsl_rl's configuration."""
    return {
        "num_steps_per_env": STEPS,
        "save_interval": 5,
        "obs_groups": {"actor": ["policy"], "critic": ["policy"]},
        "algorithm": {"class_name": "PPO", "num_mini_batches": 2, "num_learning_epochs": 2},
        "actor": {**NET, "distribution_cfg": {"class_name": "GaussianDistribution", "init_std": 0.5}},
        "critic": NET,
        "logger": logger,
        **more,
    }


def runner(log_dir: Path | None, logger: Any, *, env: Any = None, seed: int = 3, **more: Any) -> Any:
    """An ``OnPolicyRunner``, seeded, on one thread."""
    from rsl_rl.runners import OnPolicyRunner

    torch.set_num_threads(1)
    torch.manual_seed(seed)
    env = environment(seed) if env is None else env
    return OnPolicyRunner(env, config(logger, **more), log_dir=None if log_dir is None else str(log_dir), device="cpu")


def parameters(trained: Any) -> list[float]:
    """Everything that was learned."""
    return [float(x) for tensor in trained.alg.actor.state_dict().values() for x in tensor.flatten()]


class FailsAt:
    """Makes a call of a training do something else, from its ``number``-th call on."""

    def __init__(self, original: Callable[..., Any], number: int, instead: Callable[[], Any]) -> None:
        self._original = original
        self._left = number
        self._instead = instead

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if self._left == 0:
            self._instead()
        self._left = max(self._left - 1, 0)
        return self._original(*args, **kwargs)
