"""Where a model's dimensions come from."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from rltel.core.errors import RecordError
from rltel.rl.flops.config import FULL, LINEAR, SLIDING, Dimensions, text_config

LLAMA = {
    "model_type": "llama",
    "hidden_size": 24,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "vocab_size": 61,
    "intermediate_size": 40,
}


def dimensions(**changes: Any) -> Dimensions:
    return Dimensions(SimpleNamespace(**{**LLAMA, **changes}))


def test_a_mapping_an_object_a_directory_and_its_file_are_the_same(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(LLAMA))
    given = [LLAMA, SimpleNamespace(**LLAMA), tmp_path, str(tmp_path), tmp_path / "config.json"]
    assert [text_config(each)[0].hidden_size for each in given] == [24] * 5
    assert all(text_config(each)[1] == ["llama"] for each in given)


def test_the_text_model_counts_and_its_type_comes_first() -> None:
    text, types = text_config({"model_type": "gemma3", "vision_config": {}, "text_config": LLAMA})
    assert (text.hidden_size, types) == (24, ["llama", "gemma3"])


def test_a_model_knows_its_config() -> None:
    model = SimpleNamespace(config=SimpleNamespace(**LLAMA))
    assert text_config(model)[0].hidden_size == 24
    assert text_config(SimpleNamespace(config=LLAMA, **LLAMA))[0].hidden_size == 24  # a config may have one, too


def test_lists_of_a_config_library_are_lists() -> None:
    from omegaconf import OmegaConf

    text, _ = text_config(OmegaConf.create({**LLAMA, "layer_types": [FULL] * 4}))
    assert list(Dimensions(text).layer_types([], FULL)) == [FULL] * 4


@pytest.mark.parametrize("given", [FULL, 3, {FULL: 1}])
def test_what_is_no_list_is_refused(given: object) -> None:
    with pytest.raises(RecordError, match="layer_types: expected a list, got"):
        dimensions(layer_types=given).items("layer_types")


def test_a_text_config_without_a_type_goes_by_the_outer_one() -> None:
    without = {name: value for name, value in LLAMA.items() if name != "model_type"}
    assert text_config({"model_type": "gemma3", "text_config": SimpleNamespace(**LLAMA)})[1] == ["llama", "gemma3"]
    assert text_config({"model_type": "gemma3", "text_config": without})[1] == ["gemma3"]


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (7, "got int"),
        ({}, "model_type: expected a name"),
        ({"model_type": 3}, "model_type: expected a name"),
        ({"model_type": ""}, "model_type: expected a name"),
        ("no/such/checkpoint", "config.json of a local checkpoint"),
    ],
)
def test_what_is_no_config_is_refused(given: object, says: str) -> None:
    with pytest.raises(RecordError, match=says):
        text_config(given)


@pytest.mark.parametrize("text", ["{", "[1]", '{"model_type": '])
def test_a_broken_file_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "config.json").write_text(text)
    with pytest.raises(RecordError, match=r"config\.json"):
        text_config(tmp_path)


@pytest.mark.parametrize("value", [0, -1, 2.0, True, "24", [24]])
def test_a_wrong_dimension_is_named_with_what_was_given(value: object) -> None:
    with pytest.raises(RecordError, match=r"llama: hidden_size: expected a whole number >= 1, got"):
        dimensions(hidden_size=value)


def test_a_missing_dimension_is_named() -> None:
    with pytest.raises(RecordError, match=r"llama: vocab_size: expected a whole number >= 1, got None"):
        dimensions(vocab_size=None)


def test_keys_have_as_many_heads_as_queries_unless_it_is_said() -> None:
    assert dimensions().kv_heads == 4
    assert dimensions(num_key_value_heads=2).kv_heads == 2


def test_heads_share_the_hidden_size_only_where_the_family_says_so() -> None:
    assert dimensions().head_dim(may_be_derived=True) == 6
    assert dimensions(head_dim=8).head_dim(may_be_derived=True) == 8
    with pytest.raises(RecordError, match="head_dim"):
        dimensions().head_dim(may_be_derived=False)


def test_layer_types_are_checked_for_their_number_and_names() -> None:
    types = [FULL, SLIDING, FULL, FULL]
    assert dimensions(layer_types=types).layer_types([FULL] * 4, FULL, SLIDING) == types
    assert dimensions(layer_types=[]).layer_types([FULL] * 4, FULL) == [FULL] * 4
    with pytest.raises(RecordError, match=r"layer_types: expected .* 4 layers, got '3 of them'"):
        dimensions(layer_types=types[:3]).layer_types([], FULL, SLIDING)
    with pytest.raises(RecordError, match=r"layer_types: expected .*, got \['sliding_attention'\]"):
        dimensions(layer_types=types).layer_types([], FULL, LINEAR)
    with pytest.raises(RecordError, match=r"layer_types: expected a list, got 'full_attention'"):
        dimensions(layer_types=FULL).layer_types([], FULL)


def test_a_sliding_layer_needs_a_window() -> None:
    assert dimensions().windows([FULL, SLIDING], 5) == [None, 5]
    with pytest.raises(RecordError, match="sliding_window"):
        dimensions().windows([FULL, SLIDING], None)
