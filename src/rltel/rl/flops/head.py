"""The head on top of a model: a language model's, a critic's few outputs, or none."""

from collections.abc import Callable
from typing import Any, Literal

from rltel.core.errors import RecordError
from rltel.rl.flops.config import Dimensions
from rltel.rl.flops.work import TRAINING, FlopsEstimator, linear

Head = Literal["auto", "lm"] | int | None
"""``auto``: what a given model has, and of a config alone the language model's. ``lm``: that of a language
model, one output for each token of the vocabulary. A number: so many for each token (1: a value). None: none."""


def checked_head(head: Any) -> Head:
    """Raises `RecordError` for what is no head."""
    is_number = isinstance(head, int) and not isinstance(head, bool) and head >= 0
    if head is None or is_number or (isinstance(head, str) and head in ("auto", "lm")):
        return head  # type: ignore[no-any-return]  # checked
    raise RecordError(f'flops: head: expected "auto", "lm", None or a number of outputs >= 0, got {head!r:.60}')


def with_head(estimate: FlopsEstimator, of: Dimensions, head: Head, given: Any) -> FlopsEstimator:
    """The estimate of a language model, with this head in place of the language model's.

    Args:
        estimate: with a head of as many outputs as the vocabulary has tokens.
        given: what the user gave, maybe a model: ``auto`` looks at it.
    """
    outputs = _outputs_of(given, of) if head == "auto" else head or 0
    if outputs == "lm":
        return estimate
    difference = TRAINING * (linear(of.hidden, int(outputs)) - linear(of.hidden, of.vocabulary))
    return lambda length: estimate(length) + difference * length


def _outputs_of(given: Any, of: Dimensions) -> int | Literal["lm"]:
    """A model of transformers says whether it has a language model's head; of others, what is on top shows it."""
    output_embeddings: Callable[[], Any] | None = getattr(given, "get_output_embeddings", None)
    children: Callable[[], Any] | None = getattr(given, "children", None)
    if not callable(children) or (output_embeddings is not None and output_embeddings() is not None):
        return "lm"
    found = [each.out_features for each in children() if getattr(each, "in_features", None) == of.hidden]
    return "lm" if output_embeddings is None and not found else sum(found)
