"""Measures of reinforcement learning, recorded into trackers: what is measured, and how it merges.

Each module is one measure with a ``record`` of its own: ``from rltel.rl import train_infer``. Keys follow the caller's
scope; inputs lie at prediction positions already, unless a function says that it shifts them.
"""

from importlib import import_module
from types import ModuleType

_MEASURES = ("advantages", "flops", "groups", "moe", "sessions", "staleness", "throughput", "train_infer")


def __getattr__(name: str) -> ModuleType:
    """``rltel.rl.train_infer`` without an import of its own; what nobody uses is not imported."""
    if name in _MEASURES:
        return import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
