"""rsl_rl's own configuration as plain data: it holds classes, dataclasses and tensors, and sometimes secrets."""

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

from rltel.core.redact import covered, redact, secrets_in

_NUM_ENVS = ("num_envs",), ("scene", "num_envs"), ("env", "num_envs")
"""Where environments keep how many they are: plain ones, Isaac Lab and mjlab, legged_gym."""


def plain(value: Any) -> Any:
    """A copy that JSON can hold, without secrets. What it cannot hold is spelled out by its type."""
    made = _plain(value)
    return covered(redact(made), set(secrets_in(made)))


def num_envs_in(env_cfg: Any) -> int | None:
    """How many environments the environment's configuration says that there are; None if it does not say."""
    for path in _NUM_ENVS:
        found = env_cfg
        for name in path:
            found = found.get(name) if isinstance(found, Mapping) else getattr(found, name, None)
        if isinstance(found, int) and found > 0:
            return found
    return None


def _plain(value: Any) -> Any:
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [_plain(item) for item in value]
    if isinstance(value, type) or callable(value):
        return f"{getattr(value, '__module__', '')}:{getattr(value, '__qualname__', type(value).__qualname__)}"
    if dataclasses.is_dataclass(value):
        return {field.name: _plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if hasattr(value, "__dict__") and not hasattr(value, "dtype"):
        return {name: _plain(item) for name, item in vars(value).items() if not name.startswith("_")}
    return f"<{type(value).__qualname__}>"
