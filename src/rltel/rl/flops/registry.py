"""Which architecture's FLOPs are estimated how."""

import logging
import math
from collections.abc import Callable
from numbers import Real
from typing import Any

from rltel.core.errors import RecordError
from rltel.rl.flops import dense, qwen_moe
from rltel.rl.flops.config import Dimensions, text_config
from rltel.rl.flops.head import Head, checked_head, with_head
from rltel.rl.flops.work import FlopsEstimator

_log = logging.getLogger("rltel")
FlopsFactory = Callable[[Any], FlopsEstimator]
"""A text model's config (an object with attributes) in, its estimator out."""

_factories: dict[str, FlopsFactory] = {
    "llama": dense.llama,
    "mistral": dense.mistral,
    "qwen2": dense.qwen2,
    "qwen3": dense.qwen3,
    "gemma": dense.gemma,
    "gemma2": dense.gemma2,
    "gemma3": dense.gemma3,
    "gemma3_text": dense.gemma3,
    "qwen3_moe": qwen_moe.qwen3_moe,
    "qwen3_5_moe": qwen_moe.qwen3_5_moe,
    "qwen3_5_moe_text": qwen_moe.qwen3_5_moe,
}
_ours = frozenset(_factories.values())
_said: set[str] = set()


def register_flops_estimator(model_type: str, factory: FlopsFactory) -> None:
    """Estimate this model type's FLOPs by a factory of your own, which replaces one that is there.

    Args:
        model_type: as in the model's config (its text model's, where it has several).
        factory: called with that config, an object with attributes; returns a function of one sequence's length
            (tokens) that returns the FLOPs of training on it, forward and backward.

    It holds in this process: call it in every training worker. Raises `RecordError` for another sort of argument.
    """
    if not isinstance(model_type, str) or not model_type:
        raise RecordError(f"register_flops_estimator: model_type: expected a name, got {model_type!r}")
    if not callable(factory):
        raise RecordError(f"register_flops_estimator: factory: expected a function of a config, got {factory!r}")
    _factories[model_type] = factory


def flops_estimator(config: Any, *, head: Head = "auto") -> FlopsEstimator | None:
    """The estimator for a model; None, said once, if none is registered for its type.

    Args:
        config: a Hugging Face config object (or a model that has one), a mapping with the same names, or the path of a
            local checkpoint. Where it has a ``text_config``, that counts.
        head: which head counts. ``auto``: the one that a given model has; with a config alone, a language model's.
            ``lm``: a language model's. A number: so many outputs (1: a critic's value). None: none.

    Packed sequences count one by one: sum over their lengths, since attention grows with the square of each.
    Raises `RecordError` that names the field if the config cannot be right, or the estimator's answer for one token;
    and for a ``head`` where `register_flops_estimator` put a factory, which alone knows what it counts.
    """
    checked_head(head)
    text, types = text_config(config)
    factory = next((_factories[each] for each in types if each in _factories), None)
    if factory is None:
        _say_once(types[0])
        return None
    estimate = factory(text)
    if not callable(estimate):
        raise RecordError(f"flops: {types[0]}: expected its factory to return a function, got {estimate!r}")
    if factory in _ours:
        estimate = with_head(estimate, Dimensions(text), head, config)
    elif head != "auto":
        raise RecordError(
            f"flops: {types[0]}: head: expected none, as its own factory says what it counts, got {head!r}"
        )
    checked_flops(estimate, 1, types[0])
    return estimate


def checked_flops(estimate: FlopsEstimator, length: int, model: str = "the estimator") -> float:
    """An estimator's answer. Raises `RecordError` if it is no finite number >= 0, and what the estimator raises."""
    flops = estimate(length)
    if not isinstance(flops, Real) or not 0 <= flops < math.inf:
        raise RecordError(f"flops: {model}: expected a finite number >= 0 for a length of {length}, got {flops!r}")
    return float(flops)


def _say_once(model_type: str) -> None:
    if model_type not in _said:
        _said.add(model_type)
        _log.warning(
            "flops: no estimator for the model type %r (have %s): FLOPs are left out; register_flops_estimator adds "
            "one (said once)",
            model_type,
            ", ".join(sorted(_factories)),
        )
