"""Qwen's mixtures of experts: Qwen3 (30B-A3B, say), and the hybrid Qwen3.5 (35B-A3B) with linear attention.

Of the experts, those count that a token is routed to; the router counts, and shared experts with their gate.
"""

from typing import Any

from rltel.rl.flops.config import FULL, LINEAR, Dimensions
from rltel.rl.flops.work import Attention, FlopsEstimator, attention_projections, estimator, gated_mlp, linear


def qwen3_moe(config: Any) -> FlopsEstimator:
    """Layers of ``mlp_only_layers``, and those that ``decoder_sparse_step`` passes over, are dense."""
    of = Dimensions(config)
    head_dim = of.head_dim(may_be_derived=True)  # transformers' config of these has none unless it is given
    attention = attention_projections(of.hidden, of.heads, of.kv_heads, head_dim)
    dense = _dense_layers(of)
    mlps = (of.layers - dense) * _experts(of)
    if dense:
        mlps += dense * gated_mlp(of.hidden, of.size("intermediate_size"))
    per_token = of.layers * attention + mlps + linear(of.hidden, of.vocabulary)
    window = (of.size("sliding_window", 0, least=0) or None) if of.flag("use_sliding_window") else None
    return estimator(per_token, Attention(of.heads, head_dim, [window] * of.layers))


def qwen3_5_moe(config: Any) -> FlopsEstimator:
    """Every ``full_attention_interval``-th layer (or as ``layer_types`` says) has attention with a gated output.

    The others have a gated delta rule, whose work grows with the length, not with its square.
    """
    of = Dimensions(config)
    head_dim = of.head_dim(may_be_derived=False)
    period = of.size("full_attention_interval", 4)
    by_period = [FULL if layer % period == 0 else LINEAR for layer in range(1, of.layers + 1)]
    full = of.layer_types(by_period, FULL, LINEAR).count(FULL)
    shared = of.size("shared_expert_intermediate_size", 0, least=0)
    mlp = _experts(of)
    if shared:
        mlp += gated_mlp(of.hidden, shared) + linear(of.hidden, 1)
    per_token = of.layers * mlp + linear(of.hidden, of.vocabulary)
    per_token += full * attention_projections(of.hidden, of.heads, of.kv_heads, head_dim, gated=True)
    if full < of.layers:
        per_token += (of.layers - full) * _gated_delta_rule(of)
    return estimator(per_token, Attention(of.heads, head_dim, [None] * full))


def _experts(of: Dimensions) -> int:
    """The router, and the experts that one token is sent to."""
    each = gated_mlp(of.hidden, of.size("moe_intermediate_size"))
    # Since its fifth version transformers saves the number under the second name.
    experts = "num_local_experts" if of.has("num_local_experts") else "num_experts"
    return of.size("num_experts_per_tok") * each + linear(of.hidden, of.size(experts))


def _dense_layers(of: Dimensions) -> int:
    listed = of.items("mlp_only_layers") or ()
    step = of.size("decoder_sparse_step", 1)
    return sum(layer in listed or (layer + 1) % step != 0 for layer in range(of.layers))


def _gated_delta_rule(of: Dimensions) -> int:
    """Projections, the depthwise convolution, and the recurrence, per token.

    The recurrence is three multiply-adds for each element of a head's state (what it predicts, its update, the
    readout): the mathematics, not what a kernel that works in chunks does besides.
    """
    key_dim, value_dim = of.size("linear_key_head_dim"), of.size("linear_value_head_dim")
    value_heads = of.size("linear_num_value_heads")
    keys, values = of.size("linear_num_key_heads") * key_dim, value_heads * value_dim
    inputs = linear(of.hidden, 2 * keys + 2 * values + 2 * value_heads)  # queries, keys, values, their gate; two rates
    convolution = linear(of.size("linear_conv_kernel_dim"), 2 * keys + values)
    recurrence = 3 * value_heads * linear(key_dim, value_dim)
    return inputs + linear(values, of.hidden) + convolution + recurrence
