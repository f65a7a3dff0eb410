"""Mixtures of experts: AReaL's vectors, and what the configs may say besides."""

import json
from pathlib import Path
from typing import Any

import pytest

from rltel.core.errors import RecordError
from rltel.rl.flops import flops_estimator

VECTORS = {
    vector["id"]: vector
    for vector in json.loads((Path(__file__).parents[2] / "vectors" / "areal_throughput_vectors.json").read_text())[
        "vectors"
    ]
    if vector["id"].startswith("flops_")
}
SMALL: dict[str, Any] = VECTORS["flops_small_qwen3_moe"]["input"]["config"]
HYBRID: dict[str, Any] = VECTORS["flops_qwen3_5_35b_a3b_dims"]["input"]["config"]


def flops(config: Any, length: int = 10) -> float:
    estimate = flops_estimator(config)
    assert estimate is not None
    return estimate(length)


def without(config: dict[str, Any], *names: str) -> dict[str, Any]:
    return {name: value for name, value in config.items() if name not in names}


def test_there_are_vectors_of_both_models() -> None:
    assert {"flops_qwen3_30b_a3b_dims", "flops_qwen3_5_35b_a3b_dims"} <= VECTORS.keys()


@pytest.mark.parametrize("name", VECTORS)
def test_areal_vector(name: str) -> None:
    vector = VECTORS[name]
    estimate = flops_estimator(vector["input"]["config"])
    assert estimate is not None
    assert {length: estimate(int(length)) for length in vector["output"]} == vector["output"]


def test_hybrid_is_found_under_both_types_and_inside_a_vision_model() -> None:
    outer = {"model_type": "qwen3_5_moe", "text_config": HYBRID}
    assert flops(HYBRID) == flops({**HYBRID, "model_type": "qwen3_5_moe"}) == flops(outer)


def test_without_layer_types_every_fourth_layer_is_full() -> None:
    assert flops(without(HYBRID, "layer_types")) == flops(HYBRID)
    by_interval = {**without(HYBRID, "layer_types"), "full_attention_interval": 2}
    assert flops(by_interval) == flops({**HYBRID, "layer_types": ["linear_attention", "full_attention"] * 20})


def test_only_full_layers_grow_with_the_square() -> None:
    linear = {**HYBRID, "layer_types": ["linear_attention"] * 40}
    assert flops(linear, 4096) == 4096 * flops(linear, 1)
    assert flops(HYBRID, 4096) > 4096 * flops(HYBRID, 1)


def test_a_model_of_full_layers_needs_no_linear_dimensions() -> None:
    full = {**HYBRID, "layer_types": ["full_attention"] * 40}
    names = [name for name in full if name.startswith("linear_")]
    assert flops(without(full, *names)) == flops(full)
    with pytest.raises(RecordError, match="linear_"):
        flops_estimator(without(HYBRID, *names))


@pytest.mark.parametrize(
    "types",
    [["full_attention"] * 39, ["full_attention"] * 39 + ["sliding_attention"], ["full_attention"] * 39 + ["full"]],
)
def test_layer_types_that_cannot_be_right_are_refused(types: list[str]) -> None:
    with pytest.raises(RecordError, match="layer_types"):
        flops_estimator({**HYBRID, "layer_types": types})


def test_without_shared_experts_there_is_no_gate_for_them() -> None:
    less = flops(HYBRID, 1) - flops({**HYBRID, "shared_expert_intermediate_size": 0}, 1)
    assert less == 3 * 40 * (6 * 2048 * 512 + 2 * 2048)


def test_heads_share_the_hidden_size_where_transformers_config_does_not_say_theirs() -> None:
    """As ``Qwen3MoeConfig()`` has it, without a ``head_dim``."""
    from transformers import Qwen3MoeConfig

    config = Qwen3MoeConfig(num_hidden_layers=2, hidden_size=64, num_attention_heads=4, num_key_value_heads=2)
    assert not hasattr(config, "head_dim")
    assert flops(config) == flops({**config.to_dict(), "head_dim": 16})
    assert flops(config) == flops({**config.to_dict(), "head_dim": None})


def test_dense_layers_between_sparse_ones_count_as_dense() -> None:
    """AReaL takes every layer for a sparse one."""
    dense = {**SMALL, "intermediate_size": 100}
    sparse_mlp = 6 * 64 * 2 * 32 + 2 * 64 * 8
    listed = {**dense, "mlp_only_layers": [0]}
    assert flops(listed, 1) - flops(SMALL, 1) == 3 * (6 * 64 * 100 - sparse_mlp)
    assert flops({**dense, "decoder_sparse_step": 2}, 1) == flops(listed, 1)
    with pytest.raises(RecordError, match="intermediate_size"):
        flops_estimator({**SMALL, "mlp_only_layers": [0]})


def test_a_window_counts_where_it_is_used() -> None:
    windowed = {**SMALL, "sliding_window": 4, "use_sliding_window": True}
    assert flops(windowed, 4) == flops(SMALL, 4)
    assert flops(SMALL, 10) - flops(windowed, 10) == 3 * 2 * 4 * 4 * 16 * (6 * 7 // 2)
    assert flops({**windowed, "use_sliding_window": False}, 10) == flops(SMALL, 10)


@pytest.mark.parametrize("name", ["num_experts", "num_experts_per_tok", "moe_intermediate_size"])
def test_what_is_missing_is_named(name: str) -> None:
    with pytest.raises(RecordError, match=name):
        flops_estimator(without(SMALL, name))
