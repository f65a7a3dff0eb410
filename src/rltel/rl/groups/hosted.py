"""Sequences that callers hand over, as plain host values that compare and hash by what they are.

A tensor hashes by where it is: two of the same number would be two prompts, or two tokens that never repeat.
"""

from collections.abc import Hashable, Iterable, Mapping
from typing import Any

import numpy as np

from rltel.core.errors import RecordError
from rltel.record.fold import is_tensor
from rltel.record.inputs import summary

_PLAIN = frozenset({int, str, float, bool, bytes, np.int64, np.int32})


def hosted(what: str, given: Any, *, needed: str = "tokens") -> list[Hashable]:
    """The elements of a list, array or tensor (one on a device is waited for). Rows become tuples.

    Args:
        what, needed: who asks, and for what: for errors.

    Raises `RecordError` for text, for what has no elements in order, and for elements that do not hash.
    """
    given = _unboxed(given)
    if isinstance(given, (str, bytes, Mapping)) or not isinstance(given, Iterable):
        raise RecordError(f"{what}: expected {needed} (a list, an array or a tensor), got {summary(given)}")
    return _plain(what, list(given))


def _plain(what: str, items: list[Any]) -> list[Hashable]:
    """The types are asked of all at once: there may be many thousands of elements."""
    return items if set(map(type, items)) <= _PLAIN else [_hashable(what, each) for each in items]


def _unboxed(given: Any) -> Any:
    return given.tolist() if is_tensor(given) or isinstance(given, (np.ndarray, np.generic)) else given


def _hashable(what: str, given: Any) -> Hashable:
    found = _unboxed(given)
    if isinstance(found, (list, tuple)):
        return tuple(_plain(what, list(found)))
    try:
        hash(found)
    except TypeError:
        raise RecordError(f"{what}: expected numbers, texts or rows of them, got {summary(found)} among them") from None
    hashable: Hashable = found
    return hashable
