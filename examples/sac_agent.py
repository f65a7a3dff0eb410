"""The agent of `sac_pendulum.py`: soft actor-critic in plain torch, and its replay buffer. No telemetry in here."""

from __future__ import annotations

import copy
import hashlib
import math
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.functional import softplus
from torch.nn.utils import get_total_norm

FloatArray: TypeAlias = NDArray[np.float32]
BoolArray: TypeAlias = NDArray[np.bool_]

OBS_DIM, ACTION_DIM = 3, 1
ROW_COLUMNS = [OBS_DIM, ACTION_DIM, 1, OBS_DIM, 1]  # obs, action, reward, next obs, terminated

HIDDEN = 64
BATCH_SIZE = 128
LEARNING_RATE = 2e-3
TAU = 0.01
GAMMA = 0.99
REWARD_SCALE = 0.1
TARGET_ENTROPY = -float(ACTION_DIM)
REPLAY_ROWS = 100_000


def mlp(inputs: int, outputs: int) -> nn.Sequential:
    """Two hidden layers, as everywhere in this example."""
    first, second, last = nn.Linear(inputs, HIDDEN), nn.Linear(HIDDEN, HIDDEN), nn.Linear(HIDDEN, outputs)
    return nn.Sequential(first, nn.ReLU(), second, nn.ReLU(), last)


class Policy(nn.Module):
    """A tanh-squashed Gaussian; the noise is an argument, so that the caller owns the randomness."""

    def __init__(self) -> None:
        super().__init__()
        self.net = mlp(OBS_DIM, 2 * ACTION_DIM)

    def sample(self, obs: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
        """Actions in [-1, 1] and their log-probabilities, differentiable through the noise."""
        location, log_std = self.net(obs).split(ACTION_DIM, dim=-1)
        log_std = log_std.clamp(-5.0, 2.0)
        raw = location + log_std.exp() * noise
        gaussian = -0.5 * noise.square() - log_std - 0.5 * math.log(2.0 * math.pi)
        squash = 2.0 * (math.log(2.0) - raw - softplus(-2.0 * raw))  # log(1 - tanh(raw)^2), stable for large |raw|
        return raw.tanh(), (gaussian - squash).sum(-1)

    def act(self, obs: Tensor) -> Tensor:
        """The deterministic action."""
        location: Tensor = self.net(obs)[..., :ACTION_DIM]
        return location.tanh()


class TwinCritics(nn.Module):
    """Two independent Q functions; their minimum counters the overestimation of one."""

    def __init__(self) -> None:
        super().__init__()
        self.nets = nn.ModuleList([mlp(OBS_DIM + ACTION_DIM, 1) for _ in range(2)])

    def values(self, obs: Tensor, action: Tensor) -> Tensor:
        """Both values, shaped (2, batch)."""
        inputs = torch.cat((obs, action), dim=-1)
        return torch.stack([net(inputs).squeeze(-1) for net in self.nets])


class Batch(NamedTuple):
    """A minibatch; `valid` is 0 on reset rows, which no loss may count."""

    obs: Tensor
    action: Tensor
    reward: Tensor
    next_obs: Tensor
    terminated: Tensor
    valid: Tensor


@dataclass(frozen=True)
class UpdateStats:
    """What one update computed, left as tensors: whether they're worth a read is for the reader to decide."""

    critic_loss: Tensor
    actor_loss: Tensor
    alpha: Tensor
    alpha_loss: Tensor
    entropy: Tensor
    critic_grad_norm: Tensor
    actor_grad_norm: Tensor
    target_q: Tensor  # per sample; only where `valid`
    target_q_min: Tensor
    target_q_max: Tensor
    valid: Tensor
    learning_rate: float


def masked_mean(values: Tensor, valid: Tensor) -> Tensor:
    """The mean over valid samples (0 if there are none)."""
    return (values * valid).sum() / valid.sum().clamp(min=1.0)


def step_optimizer(optimizer: torch.optim.Optimizer, loss: Tensor, parameters: list[Tensor]) -> Tensor:
    """One gradient step on these parameters only, and the gradient's norm."""
    optimizer.zero_grad()
    loss.backward(inputs=parameters)  # type: ignore[no-untyped-call]
    optimizer.step()
    return get_total_norm([p.grad for p in parameters if p.grad is not None])


class Sac:
    """Soft actor-critic with an automatic temperature."""

    def __init__(self, noise_seed: int) -> None:
        self.policy = Policy()
        self.critics = TwinCritics()
        self.target_critics = copy.deepcopy(self.critics).requires_grad_(False)
        self.log_alpha = torch.zeros((), requires_grad=True)
        self.noise = torch.Generator().manual_seed(noise_seed)
        self.policy_parameters: list[Tensor] = list(self.policy.parameters())
        self.critic_parameters: list[Tensor] = list(self.critics.parameters())
        self.policy_optimizer = torch.optim.Adam(self.policy_parameters, lr=LEARNING_RATE, fused=True)
        self.critic_optimizer = torch.optim.Adam(self.critic_parameters, lr=LEARNING_RATE, fused=True)
        self.alpha_optimizer = torch.optim.Adam([self.log_alpha], lr=LEARNING_RATE, fused=True)

    def update(self, batch: Batch) -> UpdateStats:
        """One step of critics, policy, temperature and target critics, in this order."""
        alpha = self.log_alpha.detach().exp()
        target_q = self._target_q(batch, alpha)
        critic_loss, critic_grad_norm = self._update_critics(batch, target_q)
        actor_loss, actor_grad_norm, log_prob = self._update_policy(batch, alpha)
        alpha_loss = self._update_temperature(batch, log_prob)
        self._update_target_critics()
        valid = batch.valid > 0.0
        return UpdateStats(
            critic_loss=critic_loss,
            actor_loss=actor_loss,
            alpha=alpha,
            alpha_loss=alpha_loss,
            entropy=-masked_mean(log_prob, batch.valid),
            critic_grad_norm=critic_grad_norm,
            actor_grad_norm=actor_grad_norm,
            target_q=target_q,
            target_q_min=target_q.where(valid, math.inf).min(),
            target_q_max=target_q.where(valid, -math.inf).max(),
            valid=valid,
            learning_rate=float(self.critic_optimizer.param_groups[0]["lr"]),
        )

    def _sample(self, obs: Tensor) -> tuple[Tensor, Tensor]:
        return self.policy.sample(obs, torch.randn(len(obs), ACTION_DIM, generator=self.noise))

    @torch.no_grad()
    def _target_q(self, batch: Batch, alpha: Tensor) -> Tensor:
        """The soft Bellman target; a truncated episode still bootstraps, only a terminated one doesn't."""
        action, log_prob = self._sample(batch.next_obs)
        value = self.target_critics.values(batch.next_obs, action).amin(0) - alpha * log_prob
        return REWARD_SCALE * batch.reward + GAMMA * (1.0 - batch.terminated) * value

    def _update_critics(self, batch: Batch, target_q: Tensor) -> tuple[Tensor, Tensor]:
        error = self.critics.values(batch.obs, batch.action) - target_q
        loss = masked_mean(error.square().sum(0), batch.valid)
        return loss.detach(), step_optimizer(self.critic_optimizer, loss, self.critic_parameters)

    def _update_policy(self, batch: Batch, alpha: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        action, log_prob = self._sample(batch.obs)
        loss = masked_mean(alpha * log_prob - self.critics.values(batch.obs, action).amin(0), batch.valid)
        norm = step_optimizer(self.policy_optimizer, loss, self.policy_parameters)
        return loss.detach(), norm, log_prob.detach()

    def _update_temperature(self, batch: Batch, log_prob: Tensor) -> Tensor:
        loss = -self.log_alpha * masked_mean(log_prob + TARGET_ENTROPY, batch.valid)
        step_optimizer(self.alpha_optimizer, loss, [self.log_alpha])
        return loss.detach()

    @torch.no_grad()
    def _update_target_critics(self) -> None:
        for target, source in zip(self.target_critics.parameters(), self.critic_parameters, strict=True):
            target.lerp_(source, TAU)

    def parameter_hash(self) -> str:
        """Equal exactly if all parameters are equal bit for bit."""
        modules = nn.ModuleList([self.policy, self.critics, self.target_critics])
        parameters = [*modules.parameters(), self.log_alpha]
        return hashlib.sha256(b"".join(p.detach().numpy().tobytes() for p in parameters)).hexdigest()


class Replay:
    """A ring of packed transition rows, reset rows included: they keep their place and carry valid = False."""

    def __init__(self, seed: int) -> None:
        self.rows = np.zeros((REPLAY_ROWS, sum(ROW_COLUMNS)), dtype=np.float32)
        self.valid = np.zeros(REPLAY_ROWS, dtype=np.bool_)
        self.written = 0
        self.rng = np.random.default_rng(seed)

    def ingest(self, rows: FloatArray, valid: BoolArray) -> None:
        """Appends a tick, overwriting the oldest rows once the ring is full."""
        slots = (self.written + np.arange(len(rows))) % REPLAY_ROWS
        self.rows[slots] = rows
        self.valid[slots] = valid
        self.written += len(rows)

    def sample(self) -> Batch:
        """A minibatch drawn uniformly, with replacement."""
        slots = self.rng.integers(min(self.written, REPLAY_ROWS), size=BATCH_SIZE)
        columns = torch.split(torch.from_numpy(self.rows[slots]), ROW_COLUMNS, dim=1)
        obs, action, reward, next_obs, terminated = columns
        valid = torch.from_numpy(self.valid[slots].astype(np.float32))
        return Batch(obs, action, reward.squeeze(1), next_obs, terminated.squeeze(1), valid)
