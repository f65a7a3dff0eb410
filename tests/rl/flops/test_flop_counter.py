"""Estimates against what torch counts in a real model of `transformers`, tiny and with random weights.

torch counts the matrix products that run. With eager attention those are ours, but for the pairs of query and key that
the mask hides: eager attention computes them all, L x L, and we count what a causal model needs. That is the whole
difference, to the last operation.
"""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from realparts.requirements import need_package
from rltel.rl.flops import flops_estimator
from rltel.rl.flops.work import causal_pairs

transformers = need_package("transformers")

LENGTH = 12
WINDOW = 5
SIZES = {
    "vocab_size": 61,
    "hidden_size": 24,
    "intermediate_size": 40,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 64,
    "pad_token_id": 0,
}
EXPERTS = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 12}
QWEN_WINDOW = {"use_sliding_window": True, "sliding_window": WINDOW, "max_window_layers": 1}
MODELS: dict[str, tuple[str, str, dict[str, Any], int, list[int | None]]] = {
    "llama": ("LlamaConfig", "LlamaForCausalLM", {}, 6, [None] * 4),
    "mistral": ("MistralConfig", "MistralForCausalLM", {"sliding_window": WINDOW}, 6, [WINDOW] * 4),
    "qwen2": ("Qwen2Config", "Qwen2ForCausalLM", {}, 6, [None] * 4),
    "qwen2, window": ("Qwen2Config", "Qwen2ForCausalLM", QWEN_WINDOW, 6, [None] + [WINDOW] * 3),
    "qwen3": ("Qwen3Config", "Qwen3ForCausalLM", {"head_dim": 8}, 8, [None] * 4),
    "gemma": ("GemmaConfig", "GemmaForCausalLM", {"head_dim": 8}, 8, [None] * 4),
    "gemma2": (
        "Gemma2Config",
        "Gemma2ForCausalLM",
        {"head_dim": 8, "sliding_window": WINDOW},
        8,
        [WINDOW, None, WINDOW, None],
    ),
    "gemma3": ("Gemma3TextConfig", "Gemma3ForCausalLM", {"head_dim": 8, "sliding_window": WINDOW}, 8, [WINDOW] * 4),
    "qwen3_moe": ("Qwen3MoeConfig", "Qwen3MoeForCausalLM", {"head_dim": 8, **EXPERTS}, 8, [None] * 4),
    "qwen3_moe, one dense layer": (
        "Qwen3MoeConfig",
        "Qwen3MoeForCausalLM",
        {"head_dim": 8, **EXPERTS, "mlp_only_layers": [1]},
        8,
        [None] * 4,
    ),
}


def config_of(name: str) -> Any:
    config_class, _, changes, *_ = MODELS[name]
    config = getattr(transformers, config_class)(**SIZES, **changes)
    config._attn_implementation = "eager"  # its products are counted one by one, forwards and backwards
    config._experts_implementation = "eager"
    return config


def counted_by_torch(name: str, config: Any) -> int:
    """A forward and a backward pass over one sequence."""
    torch.manual_seed(0)
    model = getattr(transformers, MODELS[name][1])(config).train()
    tokens = torch.randint(1, SIZES["vocab_size"], (1, LENGTH))
    with FlopCounterMode(display=False) as counter:
        model(input_ids=tokens).logits.sum().backward()
    return counter.get_total_flops()


@pytest.mark.parametrize("name", MODELS)
def test_differs_from_torch_by_the_hidden_pairs_alone(name: str) -> None:
    config = config_of(name)
    *_, head_dim, windows = MODELS[name]
    hidden = sum(LENGTH * LENGTH - causal_pairs(LENGTH, window) for window in windows)
    estimate = flops_estimator(config)
    assert estimate is not None
    assert counted_by_torch(name, config) == estimate(LENGTH) + 3 * 4 * 4 * head_dim * hidden


@pytest.mark.parametrize("name", MODELS)
def test_a_saved_checkpoint_says_the_same_as_its_config(name: str, tmp_path: Path) -> None:
    config = config_of(name)
    config.save_pretrained(tmp_path)
    saved, given = flops_estimator(tmp_path), flops_estimator(config)
    assert saved is not None
    assert given is not None
    assert [saved(length) for length in (1, 7, 100)] == [given(length) for length in (1, 7, 100)]


def test_recomputation_is_not_counted() -> None:
    """With checkpointing torch counts most of the forward pass twice; the model's own work is the same."""
    config = config_of("llama")
    plain = counted_by_torch("llama", config)
    model = transformers.LlamaForCausalLM(config).train()
    model.activation_checkpointing_enable()
    with FlopCounterMode(display=False) as counter:
        model(input_ids=torch.ones(1, LENGTH, dtype=torch.long)).logits.sum().backward()
    assert counter.get_total_flops() > plain


def test_the_vision_model_s_text_part_counts() -> None:
    text = config_of("gemma3")
    whole = transformers.Gemma3Config(text_config=text.to_dict())
    inner, outer = flops_estimator(text), flops_estimator(whole)
    assert inner is not None
    assert outer is not None
    assert inner(50) == outer(50)


CRITICS = ["llama", "qwen2", "qwen3", "qwen3_moe"]


def of_one_value(name: str) -> tuple[Any, Any]:
    config = config_of(name)
    config.num_labels = 1
    return getattr(transformers, MODELS[name][1].replace("ForCausalLM", "ForTokenClassification"))(config), config


@pytest.mark.parametrize("name", CRITICS)
def test_a_critic_has_no_language_model_s_head(name: str) -> None:
    """A head of one value a token: the model says so itself, its config alone cannot."""
    model, config = of_one_value(name)
    head_dim = MODELS[name][3]
    hidden = 4 * (LENGTH * LENGTH - causal_pairs(LENGTH, None))
    tokens = torch.randint(1, SIZES["vocab_size"], (1, LENGTH))
    with FlopCounterMode(display=False) as counter:
        model.train()(input_ids=tokens).logits.sum().backward()
    for estimate in (flops_estimator(model), flops_estimator(config, head=1)):
        assert estimate is not None
        assert counter.get_total_flops() == estimate(LENGTH) + 3 * 4 * 4 * head_dim * hidden


def test_a_body_alone_has_no_head_and_one_with_a_critic_s_on_top_has_that() -> None:
    config = config_of("qwen3")
    body = transformers.Qwen3Model(config)

    class Critic(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.config, self.body, self.value = config, body, torch.nn.Linear(24, 2)

    for model, head in ((body, None), (Critic(), 2), (transformers.Qwen3ForCausalLM(config), "lm")):
        found, said = flops_estimator(model), flops_estimator(config, head=head)
        assert found is not None
        assert said is not None
        assert found(LENGTH) == said(LENGTH)


def test_what_is_said_of_the_head_holds_for_a_model_too() -> None:
    model, config = of_one_value("llama")
    found, said = flops_estimator(model, head="lm"), flops_estimator(config)
    assert found is not None
    assert said is not None
    assert found(LENGTH) == said(LENGTH)
