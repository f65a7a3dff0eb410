"""The policy of `grpo_arithmetic.py`: a transformer of about a million parameters, with or without experts.

No telemetry in here, but for one function: which experts a router chose, in the words of `rltel.rl.moe`.
"""

from __future__ import annotations

import io
from typing import Any

import torch
from grpo_task import MOST_TOKENS, PAD, VOCABULARY
from torch import Tensor, nn
from torch.nn import functional

from rltel.rl import moe
from rltel.rl.moe.contracts import chosen

HIDDEN, LAYERS, HEADS, INTERMEDIATE = 144, 4, 4, 384
EXPERTS, EXPERTS_PER_TOKEN, EXPERT_INTERMEDIATE = 4, 2, 192
SPARSE_LAYER = 2
"""The layer that has experts, if any has."""
BALANCE = 0.01
"""How much the loss that spreads tokens over experts weighs."""


def dimensions(experts: bool) -> dict[str, Any]:
    """The model's, as Hugging Face's config files say them: what an estimate of its FLOPs is made from."""
    dense = {
        "model_type": "llama",
        "hidden_size": HIDDEN,
        "intermediate_size": INTERMEDIATE,
        "num_hidden_layers": LAYERS,
        "num_attention_heads": HEADS,
        "num_key_value_heads": HEADS,
        "head_dim": HIDDEN // HEADS,
        "vocab_size": VOCABULARY,
    }
    if not experts:
        return dense
    return dense | {
        "model_type": "qwen3_moe",
        "num_experts": EXPERTS,
        "num_experts_per_tok": EXPERTS_PER_TOKEN,
        "moe_intermediate_size": EXPERT_INTERMEDIATE,
        "mlp_only_layers": [layer for layer in range(LAYERS) if layer != SPARSE_LAYER],
    }


class Attention(nn.Module):
    """Causal self-attention. Rows are padded on the right, so that no token sees what pads its row."""

    def __init__(self) -> None:
        super().__init__()
        self.query_key_value = nn.Linear(HIDDEN, 3 * HIDDEN, bias=False)
        self.output = nn.Linear(HIDDEN, HIDDEN, bias=False)

    def forward(self, hidden: Tensor) -> Tensor:
        """``[rows, length, hidden]`` to the same."""
        query, key, value = (
            part.unflatten(-1, (HEADS, -1)).transpose(1, 2) for part in self.query_key_value(hidden).chunk(3, -1)
        )
        mixed = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        output: Tensor = self.output(mixed.transpose(1, 2).flatten(2))
        return output


class FeedForward(nn.Module):
    """SwiGLU."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.gate_up = nn.Linear(HIDDEN, 2 * width, bias=False)
        self.down = nn.Linear(width, HIDDEN, bias=False)

    def forward(self, hidden: Tensor) -> Tensor:
        """``[..., hidden]`` to the same."""
        gate, up = self.gate_up(hidden).chunk(2, -1)
        output: Tensor = self.down(functional.silu(gate) * up)
        return output


class Router(nn.Module):
    """Which experts take a token."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = nn.Linear(HIDDEN, EXPERTS, bias=False)

    def forward(self, tokens: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Returns the logits ``[tokens, experts]``, the weights of the chosen, and who they are ``[tokens, 2]``."""
        logits = self.gate(tokens)
        top, experts = logits.topk(EXPERTS_PER_TOKEN, dim=-1)
        return logits, top.softmax(-1), experts


class Experts(nn.Module):
    """A mixture of feed-forward layers, of which a token goes to two."""

    def __init__(self) -> None:
        super().__init__()
        self.router = Router()
        self.experts = nn.ModuleList(FeedForward(EXPERT_INTERMEDIATE) for _ in range(EXPERTS))
        self.imbalance = torch.zeros(())
        """Of the last forward: 1 if all experts are used alike, up to their number (Switch Transformer, equation 4)."""

    def forward(self, hidden: Tensor) -> Tensor:
        """``[rows, length, hidden]`` to the same."""
        tokens = hidden.flatten(0, -2)
        logits, weights, experts = self.router(tokens)
        shares = functional.one_hot(experts, EXPERTS).float().mean((0, 1))
        self.imbalance = EXPERTS * (shares * logits.softmax(-1).mean(0)).sum()
        mixed = torch.zeros_like(tokens)
        for number, expert in enumerate(self.experts):
            rows, place = (experts == number).nonzero(as_tuple=True)
            mixed = mixed.index_add(0, rows, expert(tokens[rows]) * weights[rows, place].unsqueeze(-1))
        return mixed.view_as(hidden)


class Layer(nn.Module):
    """A pre-norm transformer layer."""

    def __init__(self, feed_forward: nn.Module) -> None:
        super().__init__()
        self.before_attention, self.before_feed_forward = nn.RMSNorm(HIDDEN), nn.RMSNorm(HIDDEN)
        self.attention = Attention()
        self.feed_forward = feed_forward

    def forward(self, hidden: Tensor) -> Tensor:
        """``[rows, length, hidden]`` to the same."""
        attended: Tensor = hidden + self.attention(self.before_attention(hidden))
        output: Tensor = attended + self.feed_forward(self.before_feed_forward(attended))
        return output


class Policy(nn.Module):
    """A language model of sums."""

    def __init__(self, experts: bool) -> None:
        super().__init__()
        self.tokens = nn.Embedding(VOCABULARY, HIDDEN)
        self.places = nn.Embedding(MOST_TOKENS, HIDDEN)
        self.layers = nn.ModuleList(
            Layer(Experts() if experts and number == SPARSE_LAYER else FeedForward(INTERMEDIATE))
            for number in range(LAYERS)
        )
        self.norm = nn.RMSNorm(HIDDEN)
        self.head = nn.Linear(HIDDEN, VOCABULARY, bias=False)

    def forward(self, tokens: Tensor) -> Tensor:
        """Logits ``[rows, length, vocabulary]`` of what follows each token ``[rows, length]``."""
        hidden = self.tokens(tokens) + self.places(torch.arange(tokens.shape[1]))
        for layer in self.layers:
            hidden = layer(hidden)
        logits: Tensor = self.head(self.norm(hidden))
        return logits

    def imbalance(self) -> Tensor:
        """Of the experts in the last forward, to be added to the loss; 0 without experts."""
        uneven = [layer.feed_forward.imbalance for layer in self.layers if isinstance(layer.feed_forward, Experts)]
        return BALANCE * torch.stack(uneven).sum() if uneven else torch.zeros(())

    def next_log_probs(self, rows: list[list[int]]) -> Tensor:
        """Of what may follow each row, ``[rows, vocabulary]``."""
        tokens = padded(rows)
        last = torch.tensor([len(row) - 1 for row in rows])
        logits: Tensor = self(tokens)[torch.arange(len(rows)), last]
        return logits.log_softmax(-1)


def padded(rows: list[list[int]]) -> Tensor:
    """Rows of different lengths as one ``[rows, length]``."""
    width = max(map(len, rows))
    return torch.tensor([row + [PAD] * (width - len(row)) for row in rows])


def packed(policy: Policy) -> bytes:
    """The weights as inference engines hold them, in bfloat16.

    So what a rollout says its probabilities were is not quite what the trainer computes, also of the same version.
    """
    stream = io.BytesIO()
    torch.save({name: value.to(torch.bfloat16) for name, value in policy.state_dict().items()}, stream)
    return stream.getvalue()


def unpacked(weights: bytes) -> dict[str, Tensor]:
    """What `packed` gave, for ``load_state_dict``."""
    loaded: dict[str, Tensor] = torch.load(io.BytesIO(weights), weights_only=True)
    return loaded


def routers(path: str, module: nn.Module) -> moe.Router | None:
    """How `rltel.rl.moe` reads our router: a contract (see ``docs/moe.md``)."""
    if not isinstance(module, Router):
        return None
    layer = int(path.split(".")[path.split(".").index("layers") + 1])
    return moe.Router(layer, lambda output: chosen(output[2], EXPERTS), EXPERTS)
