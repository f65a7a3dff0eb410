"""What trainers hand in, as data that JSON can hold."""

import math
from collections.abc import Mapping, Set
from enum import Enum
from os import PathLike, fspath
from typing import Any

import numpy as np

from rltel.core.errors import RecordError

_MAX_ITEMS = 10_000  # of an array: a file about a run is no place for a replay buffer


def plain(value: Any, name: str, *, lenient: bool = False) -> Any:
    """The value in dicts, lists, numbers and texts, copied. NaN and infinities become texts that ``float`` reads.

    ``lenient``: anything else is spelled out. Else it raises `RecordError`, which names what is wrong by its path;
    a tensor is refused too, since reading it waits for its device.
    """
    if value is None or isinstance(value, (bool, int, str)):
        return value.value if isinstance(value, Enum) else value
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else str(float(value))
    if isinstance(value, Mapping):
        return {str(key): plain(item, f"{name}.{key}", lenient=lenient) for key, item in value.items()}
    if isinstance(value, (list, tuple, Set)):
        return [plain(item, f"{name}[{place}]", lenient=lenient) for place, item in enumerate(value)]
    if isinstance(value, np.generic) or (isinstance(value, np.ndarray) and value.size <= _MAX_ITEMS):
        return plain(value.tolist(), name, lenient=lenient)
    if isinstance(value, Enum):
        return plain(value.value, name, lenient=lenient)
    if isinstance(value, PathLike):
        return str(fspath(value))
    if lenient:
        return str(value)
    raise RecordError(f"{name}: expected numbers, texts, lists and mappings, got {type(value).__name__}")
