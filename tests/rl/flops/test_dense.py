"""Dense families: each from its formula written out, and what tells the families apart."""

from typing import Any

import pytest

from rltel.core.errors import RecordError
from rltel.rl.flops import flops_estimator
from rltel.rl.flops.work import causal_pairs

LENGTHS = [0, 1, 3, 10, 4096, 40_000]


def config(model_type: str, **changes: Any) -> dict[str, Any]:
    """Dimensions of which no two are alike."""
    made = {
        "model_type": model_type,
        "hidden_size": 96,
        "intermediate_size": 200,
        "num_hidden_layers": 6,
        "num_attention_heads": 8,
        "num_key_value_heads": 2,
        "vocab_size": 1000,
        **changes,
    }
    return {name: value for name, value in made.items() if value is not ...}


def expected(length: int, head_dim: int, windows: list[int | None]) -> float:
    h, f, heads, kv_heads, vocabulary = 96, 200, 8, 2, 1000
    layer = 2 * h * head_dim * (2 * heads + 2 * kv_heads) + 6 * h * f
    attention = sum(4 * heads * head_dim * causal_pairs(length, window) for window in windows)
    return 3.0 * ((6 * layer + 2 * h * vocabulary) * length + attention)


def estimates(given: dict[str, Any]) -> list[float]:
    estimate = flops_estimator(given)
    assert estimate is not None
    return [estimate(length) for length in LENGTHS]


ALL = [None] * 6
WINDOW = 32
FAMILIES = {
    "llama": (config("llama"), 12, ALL),
    "llama with heads of its own": (config("llama", head_dim=16), 16, ALL),
    "mistral": (config("mistral", sliding_window=WINDOW), 12, [WINDOW] * 6),
    "mistral without a window": (config("mistral", sliding_window=None), 12, ALL),
    "qwen2": (config("qwen2", use_sliding_window=False, sliding_window=WINDOW, max_window_layers=4), 12, ALL),
    "qwen2 with a window": (
        config("qwen2", use_sliding_window=True, sliding_window=WINDOW, max_window_layers=4),
        12,
        [None] * 4 + [WINDOW] * 2,
    ),
    "qwen2 with a window for no layer": (
        config("qwen2", use_sliding_window=True, sliding_window=WINDOW, max_window_layers=28),
        12,
        ALL,
    ),
    "qwen3": (config("qwen3", head_dim=16), 16, ALL),
    "qwen3 by layer types": (
        config(
            "qwen3",
            head_dim=16,
            use_sliding_window=True,
            sliding_window=WINDOW,
            max_window_layers=0,
            layer_types=["sliding_attention"] + ["full_attention"] * 5,
        ),
        16,
        [WINDOW] + [None] * 5,
    ),
    "gemma": (config("gemma", head_dim=16), 16, ALL),
    "gemma2": (config("gemma2", head_dim=16, sliding_window=WINDOW), 16, [WINDOW, None] * 3),
    "gemma3_text": (config("gemma3_text", head_dim=16, sliding_window=WINDOW), 16, [WINDOW] * 5 + [None]),
    "gemma3 with its pattern": (
        config("gemma3_text", head_dim=16, sliding_window=WINDOW, sliding_window_pattern=3),
        16,
        [WINDOW, WINDOW, None] * 2,
    ),
    "gemma3 inside a vision model": (
        {"model_type": "gemma3", "text_config": config("gemma3_text", head_dim=16, sliding_window=WINDOW)},
        16,
        [WINDOW] * 5 + [None],
    ),
}


@pytest.mark.parametrize("name", FAMILIES)
def test_flops_are_those_of_the_formula(name: str) -> None:
    given, head_dim, windows = FAMILIES[name]
    assert estimates(given) == [expected(length, head_dim, windows) for length in LENGTHS]


def test_a_window_longer_than_the_sequence_changes_nothing() -> None:
    short = [0, 1, 3, 10]
    wide, without = (flops_estimator(config("mistral", sliding_window=window)) for window in (10, None))
    assert wide is not None
    assert without is not None
    assert [wide(length) for length in short] == [without(length) for length in short]
    assert wide(11) < without(11)


@pytest.mark.parametrize("model_type", ["qwen3", "gemma", "gemma2", "gemma3_text"])
def test_a_family_with_heads_of_its_own_must_say_their_size(model_type: str) -> None:
    with pytest.raises(RecordError, match="head_dim"):
        flops_estimator(config(model_type, sliding_window=WINDOW))


@pytest.mark.parametrize("model_type", ["gemma2", "gemma3_text"])
def test_local_layers_need_a_window(model_type: str) -> None:
    with pytest.raises(RecordError, match="sliding_window"):
        flops_estimator(config(model_type, head_dim=16))


def test_a_model_that_looks_ahead_is_refused() -> None:
    with pytest.raises(RecordError, match="use_bidirectional_attention: expected a causal model"):
        flops_estimator(config("gemma3_text", head_dim=16, sliding_window=4, use_bidirectional_attention=True))


def test_llama_3_8b_is_six_flops_a_parameter_and_token_and_attention() -> None:
    """The rule of thumb: 6 N per token, N without the embeddings that are only looked up."""
    given = {
        "model_type": "llama",
        "hidden_size": 4096,
        "intermediate_size": 14336,
        "num_hidden_layers": 32,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "vocab_size": 128256,
    }
    estimate = flops_estimator(given)
    assert estimate is not None
    matrices = 8_030_261_248 - 128256 * 4096 - 65 * 4096  # all parameters, without embeddings and norms
    attention = 3 * 32 * 2 * 32 * 128 * 8192 * 8193
    assert estimate(8192) == 6 * matrices * 8192 + attention
