"""The task, the policy and the loss of `llm_rollouts.py`: sums of digits, with a calculator. No telemetry in here.

A prompt is ``a+b=``, ``a+b+c=`` and so on. The calculator's two digits come after it, and then the policy's own two. It
starts knowing neither how to add nor what the calculator is good for.
"""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

IntArray: TypeAlias = NDArray[np.int64]
FloatArray: TypeAlias = NDArray[np.float32]
Weights: TypeAlias = dict[str, FloatArray]

PLUS, EQUALS = 10, 11
VOCABULARY = 12
DIGITS = 10
"""The policy says digits only."""
ANSWER_TOKENS = 2
MOST_TERMS = 4
HIDDEN = 48


class Spoken(NamedTuple):
    """What a rollout leaves for the update: each token of it, and which of them the policy chose."""

    tokens: list[int]
    chosen: list[bool]
    log_probs: list[float]
    """Under the policy that spoke; 0 where it didn't."""
    correct: float
    """The share of its digits that are right."""


class Batch(NamedTuple):
    """Rollouts, padded: tensors of shape ``(rollouts, tokens)``, and one number per rollout."""

    tokens: Tensor
    chosen: Tensor
    log_probs: Tensor
    advantage: Tensor


class Policy(nn.Module):
    """A recurrent language model."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, 24)
        self.gru = nn.GRU(24, HIDDEN, batch_first=True)
        self.head = nn.Linear(HIDDEN, DIGITS)

    def forward(self, tokens: Tensor, state: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Logits after each token, and the state after the last: ``(rows, tokens, DIGITS)``, ``(1, rows, HIDDEN)``."""
        hidden, state = self.gru(self.embedding(tokens), state)
        return self.head(hidden), state

    def weights(self) -> Weights:
        """A copy of the parameters, as plain data for a pipe."""
        return {name: value.numpy().copy() for name, value in self.state_dict().items()}

    def load(self, weights: Weights) -> None:
        """Takes over what `weights` of another gave."""
        self.load_state_dict({name: torch.from_numpy(value) for name, value in weights.items()})


def prompt_of(terms: list[int]) -> list[int]:
    """``a+b=``."""
    return [*[token for term in terms for token in (term, PLUS)][:-1], EQUALS]


def calculator(prompt: list[int]) -> list[int]:
    """The two digits of the sum."""
    return list(divmod(sum(prompt[::2]), 10))


def correctness(prompt: list[int], answer: list[int]) -> float:
    """The share of the answer's digits that are right."""
    right = calculator(prompt)
    return sum(given == wanted for given, wanted in zip(answer, right, strict=True)) / len(right)


def text_of(tokens: list[int]) -> str:
    """Tokens as people write them."""
    return "".join({PLUS: "+", EQUALS: "="}.get(token, str(token)) for token in tokens)


def padded(spoken: list[Spoken], advantage: Tensor) -> Batch:
    """Rollouts of different lengths as one batch."""
    width = max(len(each.tokens) for each in spoken)
    tokens = torch.zeros(len(spoken), width, dtype=torch.int64)
    chosen = torch.zeros(len(spoken), width, dtype=torch.bool)
    log_probs = torch.zeros(len(spoken), width)
    for row, each in enumerate(spoken):
        length = len(each.tokens)
        tokens[row, :length] = torch.tensor(each.tokens)
        chosen[row, :length] = torch.tensor(each.chosen)
        log_probs[row, :length] = torch.tensor(each.log_probs)
    return Batch(tokens, chosen, log_probs, advantage)


def group_advantages(reward: Tensor, group_size: int) -> Tensor:
    """GRPO's: how much better than the others on the same prompt, in standard deviations."""
    groups = reward.view(-1, group_size)
    deviation = groups.std(1, keepdim=True, correction=0)
    return ((groups - groups.mean(1, keepdim=True)) / (deviation + 1e-4)).view(-1)


class Losses(NamedTuple):
    """Per token, shape ``(rollouts, tokens)``; only those that were chosen mean something."""

    surrogate: Tensor
    log_probs: Tensor
    ratio: Tensor
    entropy: Tensor


def losses(policy: Policy, batch: Batch) -> Losses:
    """The clipped surrogate against the policy that spoke."""
    logits, _ = policy(batch.tokens)
    log_probs = logits[:, :-1].log_softmax(-1)  # what follows a token is said by the logits after it
    said = batch.tokens[:, 1:].clamp(max=DIGITS - 1)
    new = log_probs.gather(-1, said.unsqueeze(-1)).squeeze(-1)
    ratio = (new - batch.log_probs[:, 1:]).exp()
    advantage = batch.advantage.unsqueeze(1)
    surrogate = -torch.minimum(ratio * advantage, ratio.clamp(0.8, 1.2) * advantage)
    entropy = -(log_probs.exp() * log_probs).sum(-1)
    return Losses(surrogate, new, ratio, entropy)
