"""The environment of `appo_unilab.py`: point masses that must come to rest at the origin, all stepped at once.

It satisfies unilab-rl's tensor contract (`uni_rl.env_contract`). No telemetry in here.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from torch import Tensor

STEPS = 48
"""Length of an episode. Nothing ends one early, so every end is a time-out."""
DT = 0.1


class PointMasses:
    """``num_envs`` point masses in a plane; observations are positions and velocities, shape ``(num_envs, 4)``."""

    observation_space = SimpleNamespace(shape=(4,))
    action_space = SimpleNamespace(shape=(2,))
    play_capabilities = SimpleNamespace(supports_physics_state_playback=False)
    cfg = SimpleNamespace(max_episode_seconds=STEPS * DT, ctrl_dt=DT)
    device = torch.device("cpu")

    def __init__(self, num_envs: int, overrides: Mapping[str, Any] | None = None) -> None:
        self.num_envs = num_envs
        self.obs_groups_spec = {"obs": 4}
        self.state: Any = None
        self.place = _anywhere(num_envs)
        self.velocity = torch.zeros(num_envs, 2)
        self.age = torch.zeros(num_envs, dtype=torch.int64)

    def init_state(self) -> Any:
        """The first state."""
        self.reset(None)
        return self.state

    def reset(self, env_indices: Tensor | None) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """New places for these environments, or for all."""
        rows = torch.arange(self.num_envs) if env_indices is None else env_indices
        self.place[rows] = _anywhere(len(rows))
        self.velocity[rows] = 0.0
        self.age[rows] = 0
        self.state = self._state(torch.zeros(self.num_envs), torch.zeros(self.num_envs, dtype=torch.bool), None)
        return {"obs": self.state.obs["obs"][rows]}, {}

    def step(self, actions: Tensor) -> Any:
        """Pushes every mass, shape of ``actions`` ``(num_envs, 2)``; those whose time is over start anew."""
        force = actions.clamp(-1.0, 1.0)
        self.velocity = 0.95 * self.velocity + DT * force
        self.place = self.place + DT * self.velocity
        reward = -self.place.square().sum(1) - 0.1 * self.velocity.square().sum(1)
        self.age += 1
        over = self.age >= STEPS
        last = {"obs": self._obs()} if bool(over.any()) else None
        self.place[over] = _anywhere(int(over.sum()))
        self.velocity[over] = 0.0
        self.age[over] = 0
        self.state = self._state(reward, over, last)
        return self.state

    def set_nan_guard(self, guard: Any) -> None:
        """It has none."""

    def close(self) -> None:
        """Nothing is held."""

    def _obs(self) -> Tensor:
        return torch.cat((self.place, self.velocity), dim=1)

    def _state(self, reward: Tensor, truncated: Tensor, last: dict[str, Tensor] | None) -> Any:
        return SimpleNamespace(
            obs={"obs": self._obs()},
            reward=reward,
            terminated=torch.zeros_like(truncated),
            truncated=truncated,
            info={"log": {"reward/distance": float(self.place.norm(dim=1).mean())}},
            final_observation=last,
        )


def _anywhere(count: int) -> Tensor:
    """Places in the square from -1 to 1. From NumPy's generator, so that the policy's noise stays its own."""
    return torch.from_numpy(np.random.uniform(-1.0, 1.0, (count, 2)).astype(np.float32))
