"""What an update of `grpo_arithmetic.py` learns from: groups of rollouts as tensors, with their advantages."""

from __future__ import annotations

from typing import NamedTuple

import torch
from grpo_controller import GROUP_SIZE
from grpo_messages import Group, Rollout
from grpo_model import padded
from grpo_task import PAD, STOP
from torch import Tensor

from rltel.rl import groups


class Batch(NamedTuple):
    """Rollouts, ``[rows, length]``; all but the tokens at prediction positions: one place before the token's own."""

    tokens: Tensor
    attention: Tensor
    said: Tensor
    """Where the rollout chose what comes next."""
    mask: Tensor
    """Where something is learned: answers that were not cut off."""
    log_probs: Tensor
    versions: Tensor
    advantages: Tensor

    def of(self, rows: Tensor) -> Batch:
        """Some of its rows."""
        return Batch(*(part[rows] for part in self))


def batch_of(given: list[Group]) -> Batch:
    """Advantages are GRPO's: how much better than the others on the same problem, in standard deviations."""
    reward = torch.tensor([[rollout.reward for rollout in group.rollouts] for group in given])
    spread = reward.std(1, keepdim=True, correction=0)
    better = ((reward - reward.mean(1, keepdim=True)) / (spread + 1e-4)).view(-1, 1)
    pairs = [(group.order.problem.prompt, rollout) for group in given for rollout in group.rollouts]
    tokens = padded([prompt + rollout.said for prompt, rollout in pairs])
    said, log_probs = torch.zeros_like(tokens, dtype=torch.bool), torch.zeros(tokens.shape)
    versions = torch.full_like(tokens, -1)
    for row, (prompt, rollout) in enumerate(pairs):
        here = slice(len(prompt) - 1, len(prompt) - 1 + len(rollout.said))
        said[row, here] = True
        log_probs[row, here] = torch.tensor(rollout.log_probs)
        versions[row, here] = torch.tensor(rollout.versions)
    accepted = torch.tensor([rollout.accepted for _, rollout in pairs]).unsqueeze(1)
    return Batch(tokens, tokens != PAD, said, said & accepted, log_probs, versions, better.expand(tokens.shape))


def record_groups(rollouts: list[Rollout]) -> None:
    """What the groups of an update are like."""
    rewards = [rollout.reward for rollout in rollouts]
    groups.record(
        rewards,
        group_size=GROUP_SIZE,
        correct=[reward == 1.0 for reward in rewards],
        k=(1, 2, 4, GROUP_SIZE),
        lengths=[len(rollout.said) for rollout in rollouts],
        truncated=[rollout.said[-1] != STOP for rollout in rollouts],
    )
    groups.record_repetition([rollout.said for rollout in rollouts], n=2)
