"""Hooks that belong to one model and stay with it."""

from collections.abc import Callable
from typing import Any


class Staying:
    """A module's hook, for this module alone.

    A model that is copied or pickled takes its hooks along: a copy that trains on its own would count as the model that
    was attached to, and a checkpoint of a whole module would not pickle. So what travels is a hook that does nothing.
    """

    def __init__(self, hook: Callable[..., None]) -> None:
        self._hook = hook

    def __call__(self, *arguments: Any) -> None:
        """Called by the module."""
        self._hook(*arguments)

    def __reduce__(self) -> tuple[Callable[[], Callable[..., None]], tuple[()]]:
        return _nothing, ()


def _nothing() -> Callable[..., None]:
    return _does_nothing


def _does_nothing(*_: Any) -> None:
    """The hook of a copy."""
