"""What is counted, and how: the conventions that every architecture here shares.

A multiply-add is two FLOPs. Training is three times the forward pass: itself, and a backward pass that is taken as
twice as much. Counted is the dense-equivalent work of a model's matrices on one sequence, with causal attention: a
query sees the keys up to itself, L(L+1)/2 pairs in all. The language-model head counts for every token, tied or not;
embeddings are looked up.

Not counted: biases, norms, softmax, activations, rotary embeddings and whatever else is element-wise; recomputation of
activations; the optimizer; auxiliary heads for several tokens; vision encoders.
"""

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from rltel.core.errors import RecordError

FlopsEstimator = Callable[[int], float]
"""One sequence's length in tokens in, FLOPs of training on it (forward and backward) out."""

TRAINING = 3  # times the forward pass


@dataclass(frozen=True, slots=True)
class Attention:
    """Layers whose queries attend to keys. ``windows``: as in `causal_pairs`, one for each of these layers."""

    heads: int
    head_dim: int
    windows: Iterable[int | None]


def estimator(per_token: int, attention: Attention) -> FlopsEstimator:
    """FLOPs of a model with so much forward work per token, and this attention.

    Raises `RecordError` for a length that is no whole number >= 0.
    """
    per_pair = 4 * attention.heads * attention.head_dim  # scores and values: a multiply-add each, in every dimension
    layers = Counter(attention.windows)

    def estimate(length: int) -> float:
        if isinstance(length, bool) or not isinstance(length, int) or length < 0:
            raise RecordError(f"flops: length of a sequence: expected a whole number >= 0, got {length!r}")
        pairs = sum(count * causal_pairs(length, window) for window, count in layers.items())
        return float(TRAINING * (per_token * length + per_pair * pairs))

    return estimate


def causal_pairs(length: int, window: int | None) -> int:
    """How many pairs of query and key there are. ``window``: how many keys a query sees, itself included; None: all."""
    full = length if window is None else min(length, window)
    return full * (full + 1) // 2 + (length - full) * full


def linear(inputs: int, outputs: int) -> int:
    """One matrix, per token."""
    return 2 * inputs * outputs


def gated_mlp(hidden: int, width: int) -> int:
    """Gate, up and down projections (SwiGLU, GeGLU), per token."""
    return 3 * linear(hidden, width)


def attention_projections(hidden: int, heads: int, kv_heads: int, head_dim: int, *, gated: bool = False) -> int:
    """Query, key, value and output projections, per token. ``gated``: the query's also makes a gate for the output."""
    queries = (2 if gated else 1) * heads
    return linear(hidden, (queries + 2 * kv_heads) * head_dim) + linear(heads * head_dim, hidden)
