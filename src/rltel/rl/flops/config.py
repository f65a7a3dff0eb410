"""Reads the dimensions of a model from what describes it: a Hugging Face config, a mapping, a checkpoint's directory.

The text model's part is what counts: where there is a ``text_config``, its dimensions are read.
"""

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from rltel.core.errors import RecordError

FULL, SLIDING, LINEAR = "full_attention", "sliding_attention", "linear_attention"


def text_config(given: Any) -> tuple[Any, list[str]]:
    """The text model's config as an object with attributes, and the model types to look for, the text model's first.

    Args:
        given: a Hugging Face config (or a model that has one), a mapping with the same names, or the path of a local
            checkpoint: its directory, or its ``config.json``.

    Raises `RecordError` if it is none of these, or names no model type.
    """
    whole = _as_object(given)
    part = getattr(whole, "text_config", None)
    text = whole if part is None else _as_object(part)
    sources = (whole,) if part is None else (text, whole)
    types = [found for each in sources if (found := getattr(each, "model_type", None))]
    if not types or not all(isinstance(each, str) for each in types):
        raise RecordError(f"flops: model_type: expected a name in the model's config, got {types or None}")
    return text, types


def _as_object(given: Any) -> Any:
    if isinstance(given, (str, os.PathLike)):
        given = _read(Path(given))
    if isinstance(given, Mapping):
        return SimpleNamespace(**{str(name): value for name, value in given.items()})
    if not hasattr(given, "model_type"):
        given = getattr(given, "config", given)  # a model knows its own
    if not hasattr(given, "model_type"):
        raise RecordError(
            "flops: expected a model's config (an object with model_type, a mapping, or the directory of a local "
            f"checkpoint), got {type(given).__name__}"
        )
    return given


def _read(path: Path) -> Mapping[str, Any]:
    file = path / "config.json" if path.is_dir() else path
    try:
        read = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise RecordError(f"flops: {file}: expected the config.json of a local checkpoint: {error}") from error
    if not isinstance(read, Mapping):
        raise RecordError(f"flops: {file}: expected a JSON object, got {type(read).__name__}")
    return read


class Dimensions:
    """The dimensions of one text model, each checked as it is read. Errors are `RecordError` and name the field."""

    def __init__(self, config: Any) -> None:
        self._config = config
        self._type = getattr(config, "model_type", "the model")
        self.layers = self.size("num_hidden_layers")
        self.hidden = self.size("hidden_size")
        self.heads = self.size("num_attention_heads")
        self.kv_heads = self.size("num_key_value_heads", self.heads)
        self.vocabulary = self.size("vocab_size")

    def size(self, name: str, default: int | None = None, *, least: int = 1) -> int:
        """A whole number. What is missing (or None) is the default, if there is one."""
        value = getattr(self._config, name, None)
        if value is None and default is not None:
            return default
        if isinstance(value, bool) or not isinstance(value, int) or value < least:
            raise self.wrong(name, f"a whole number >= {least}", value)
        return value

    def has(self, name: str) -> bool:
        """Whether the config has this field."""
        return getattr(self._config, name, None) is not None

    def head_dim(self, *, may_be_derived: bool) -> int:
        """Of each attention head. Only some families derive a missing one from the hidden size."""
        return self.size("head_dim", self.hidden // self.heads if may_be_derived else None)

    def flag(self, name: str) -> bool:
        """Whether it is set."""
        return bool(getattr(self._config, name, False))

    def items(self, name: str) -> Sequence[Any] | None:
        """A list, or None where there is none (or an empty one)."""
        value = getattr(self._config, name, None)
        if value is not None and (isinstance(value, (str, bytes)) or not isinstance(value, Sequence)):
            raise self.wrong(name, "a list", value)
        return value or None

    def layer_types(self, default: Sequence[str], *allowed: str) -> Sequence[str]:
        """What each layer attends to: ``layer_types``, if the config has it."""
        found = self.items("layer_types") or default
        strange = [each for each in found if each not in allowed]
        if strange or len(found) != self.layers:
            what = f"one of {', '.join(allowed)} for each of {self.layers} layers"
            raise self.wrong("layer_types", what, strange or f"{len(found)} of them")
        return found

    def windows(self, types: Sequence[str], window: int | None) -> list[int | None]:
        """How many keys each layer's queries see at most, themselves included; None: all before them."""
        if window is None and SLIDING in types:
            raise self.wrong("sliding_window", f"a number, as layer_types has {SLIDING}", None)
        return [window if each == SLIDING else None for each in types]

    def wrong(self, name: str, needed: str, given: Any) -> RecordError:
        """An error about a field."""
        return RecordError(f"flops: {self._type}: {name}: expected {needed}, got {given!r}")
