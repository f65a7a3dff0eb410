"""Dense decoders: Llama, Mistral, Qwen2, Qwen3 and Gemma, which differ in their heads and in what layers attend to."""

from collections.abc import Sequence
from typing import Any

from rltel.rl.flops.config import FULL, SLIDING, Dimensions
from rltel.rl.flops.work import Attention, FlopsEstimator, attention_projections, estimator, gated_mlp, linear


def llama(config: Any) -> FlopsEstimator:
    """Every layer attends to everything before."""
    of = Dimensions(config)
    return _dense(of, of.head_dim(may_be_derived=True), [None] * of.layers)


def mistral(config: Any) -> FlopsEstimator:
    """Every layer has the sliding window, if there is one."""
    of = Dimensions(config)
    return _dense(of, of.head_dim(may_be_derived=True), [_window(of)] * of.layers)


def qwen2(config: Any) -> FlopsEstimator:
    """Layers from ``max_window_layers`` on have the sliding window, where ``use_sliding_window`` is set."""
    of = Dimensions(config)
    return _dense(of, of.head_dim(may_be_derived=True), _qwen_windows(of))


def qwen3(config: Any) -> FlopsEstimator:
    """As `qwen2`, with heads of a size of their own."""
    of = Dimensions(config)
    return _dense(of, of.head_dim(may_be_derived=False), _qwen_windows(of))


def gemma(config: Any) -> FlopsEstimator:
    """Gemma 1: every layer attends to everything before; GeGLU, and heads of a size of their own."""
    of = Dimensions(config)
    return _gemma(of, [None] * of.layers)


def gemma2(config: Any) -> FlopsEstimator:
    """Every second layer attends to everything before, the others (the first among them) to a window."""
    of = Dimensions(config)
    return _gemma(of, _local_and_global(of, 2))


def gemma3(config: Any) -> FlopsEstimator:
    """As `gemma2`, but every sixth, or as ``sliding_window_pattern`` says."""
    of = Dimensions(config)
    return _gemma(of, _local_and_global(of, of.size("sliding_window_pattern", 6)))


def _dense(of: Dimensions, head_dim: int, windows: Sequence[int | None]) -> FlopsEstimator:
    layer = attention_projections(of.hidden, of.heads, of.kv_heads, head_dim)
    layer += gated_mlp(of.hidden, of.size("intermediate_size"))
    per_token = of.layers * layer + linear(of.hidden, of.vocabulary)
    return estimator(per_token, Attention(of.heads, head_dim, windows))


def _gemma(of: Dimensions, windows: Sequence[int | None]) -> FlopsEstimator:
    if of.flag("use_bidirectional_attention"):
        raise of.wrong("use_bidirectional_attention", "a causal model", True)
    return _dense(of, of.head_dim(may_be_derived=False), windows)


def _window(of: Dimensions) -> int | None:
    """0 is no window, as None is."""
    return of.size("sliding_window", 0, least=0) or None


def _qwen_windows(of: Dimensions) -> list[int | None]:
    window = _window(of) if of.flag("use_sliding_window") else None
    first = of.layers if window is None else min(of.size("max_window_layers", least=0), of.layers)
    types = of.layer_types([FULL] * first + [SLIDING] * (of.layers - first), FULL, SLIDING)
    return of.windows(types, window)


def _local_and_global(of: Dimensions, period: int) -> list[int | None]:
    by_period = [FULL if layer % period == 0 else SLIDING for layer in range(1, of.layers + 1)]
    return of.windows(of.layer_types(by_period, FULL, SLIDING), _window(of))
