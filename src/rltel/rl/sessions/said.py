"""What callers say about a session, in a form that can be kept: small, detached from tensors, never waited for."""

from collections.abc import Mapping
from operator import index
from typing import Any

from rltel.core.errors import RecordError
from rltel.record.fold import is_tensor, on_device
from rltel.record.inputs import summary
from rltel.record.spans import spelled

MAX_TEXT = 500
_VERSIONS = 1 << 62  # so that the difference of two is a number of 64 bits
_FLOWS = 1 << 64


def text_of(given: Any) -> str:
    """Text of bounded length."""
    text = spelled(given)
    return text if len(text) <= MAX_TEXT else f"{text[:MAX_TEXT]}..."


def kept(attributes: Mapping[str, Any]) -> dict[str, Any]:
    """A copy that holds no tensor and no array: single numbers on the host as such, of others only what they are."""
    return {name: _kept(value) for name, value in attributes.items()}


def _kept(value: Any) -> Any:
    if not hasattr(value, "dtype"):
        return value
    single = _single(value)
    return summary(value) if single is None else single


def _single(value: Any) -> Any | None:
    """The number that a tensor or array on the host holds; None if it holds several, or lies on a device."""
    if on_device(value) or (is_tensor(value) and value.device.type == "meta"):
        return None
    numbers = value.numel() if is_tensor(value) else getattr(value, "size", 0)
    return value.item() if numbers == 1 else None


def amount(name: str, given: Any) -> float:
    """What is added to a counter. Raises `RecordError` for what is no number on the host."""
    found = _single(given) if hasattr(given, "dtype") else given
    if not isinstance(found, (int, float)):
        raise RecordError(f"session: add({name}): expected a number, got {summary(given)}")
    return found


def as_version(what: str, given: Any) -> int:
    """A policy's version, or a step. Raises `RecordError` for what is no whole number (within 2^62)."""
    try:
        found = index(given)
    except (TypeError, ValueError):  # torch raises the second for several numbers
        found = _VERSIONS
    if not -_VERSIONS < found < _VERSIONS:
        raise RecordError(f"session: {what}: expected a whole number (within 2^62), got {summary(given)}")
    return found


def as_flow(given: Any) -> int:
    """An arrow's id. Raises `RecordError` for what is none."""
    try:
        found = index(given)
    except (TypeError, ValueError):
        found = -1
    if not 0 <= found < _FLOWS:
        raise RecordError(f"session: flow: expected a number from rltel.new_flow(), got {summary(given)}")
    return found
