"""The environment of `ppo_rsl_rl.py`: cart-poles with a force as action, all stepped at once.

It satisfies rsl_rl's `VecEnv`, with reward and termination terms as manager-based robot environments have them. No
telemetry in here.
"""

from __future__ import annotations

from typing import Any

import torch
from tensordict import TensorDict
from torch import Tensor

DT = 0.02
FORCE = 10.0
CART, POLE, HALF_LENGTH, GRAVITY = 1.0, 0.1, 0.5, 9.8
MOST_PLACE, MOST_ANGLE = 2.4, 0.2
REWARD_WEIGHTS = {"alive": 1.0, "angle": -4.0, "effort": -0.05}


class CartPoles:
    """``num_envs`` cart-poles; observations are place, speed, angle and its speed, shape ``(num_envs, 4)``."""

    num_actions = 1
    device = torch.device("cpu")

    def __init__(self, num_envs: int, seed: int, max_episode_length: int = 250) -> None:
        self.num_envs = num_envs
        self.max_episode_length = max_episode_length
        self.cfg = {"num_envs": num_envs, "seed": seed, "dt": DT, "reward_weights": REWARD_WEIGHTS}
        self.episode_length_buf = torch.zeros(num_envs, dtype=torch.long)
        self._random = torch.Generator().manual_seed(seed)  # of its own: the policy's noise is another stream
        self.state = self._upright(num_envs)

    def get_observations(self) -> TensorDict:
        """Observations of all environments, in the group ``policy``."""
        return TensorDict({"policy": self.state.clone()}, batch_size=[self.num_envs])

    def step(self, actions: Tensor) -> tuple[TensorDict, Tensor, Tensor, dict[str, Any]]:
        """Push every cart, shape of ``actions`` ``(num_envs, 1)``; what is over starts anew."""
        push = actions[:, 0].clamp(-1.0, 1.0)
        self.state = _moved(self.state, FORCE * push)
        self.episode_length_buf += 1
        terms = {"alive": torch.ones(self.num_envs), "angle": self.state[:, 2].square(), "effort": push.square()}
        weighted = {name: term.mul(REWARD_WEIGHTS[name]) for name, term in terms.items()}
        ends = {
            "cart_left": self.state[:, 0].abs() > MOST_PLACE,
            "pole_fell": self.state[:, 2].abs() > MOST_ANGLE,
            "time_out": self.episode_length_buf >= self.max_episode_length,
        }
        over = torch.stack(list(ends.values())).any(0)
        log: dict[str, Any] = {f"reward/{name}": term.mean() for name, term in weighted.items()}
        log |= {f"Episode_Termination/{name}": float(fired.sum()) for name, fired in ends.items()}
        self._reset(over)
        reward = torch.stack(list(weighted.values())).sum(0)
        return self.get_observations(), reward, over.long(), {"time_outs": ends["time_out"], "log": log}

    def _reset(self, over: Tensor) -> None:
        self.state[over] = self._upright(int(over.sum()))
        self.episode_length_buf[over] = 0

    def _upright(self, count: int) -> Tensor:
        return torch.rand(count, 4, generator=self._random) * 0.1 - 0.05


def _moved(state: Tensor, force: Tensor) -> Tensor:
    """The equations of motion, one Euler step."""
    place, speed, angle, turn = state.unbind(1)
    sin, cos = angle.sin(), angle.cos()
    pull = (force + POLE * HALF_LENGTH * turn.square() * sin) / (CART + POLE)
    bend = (GRAVITY * sin - cos * pull) / (HALF_LENGTH * (4.0 / 3.0 - POLE * cos.square() / (CART + POLE)))
    push = pull - POLE * HALF_LENGTH * bend * cos / (CART + POLE)
    return torch.stack((place + DT * speed, speed + DT * push, angle + DT * turn, turn + DT * bend), dim=1)
