"""Where on its axes something was measured: checked at the call, since a destination that cannot hold it loses it."""

from operator import index
from typing import Any

from rltel.core.errors import RecordError

_LIMIT = 2**63  # destinations hold steps as signed integers of 64 bits


def check_steps(**steps: Any) -> None:
    """Refuse steps that are no whole numbers from 0 to 2**63 - 1. None is none; a ``step`` there has to be.

    Raises `RecordError`.
    """
    for name, value in steps.items():
        if value is not None or name == "step":
            wrong = step_problem(value)
            if wrong:
                raise RecordError(f"commit: {name}: {wrong}")


def check_axis(axis: Any) -> None:
    """Refuse what is no name of an axis. Raises `RecordError`."""
    if not isinstance(axis, str):
        raise RecordError(f"commit: axis: expected text, got {axis!r}")
    if not axis.strip():
        raise RecordError(f'commit: axis: expected what the step counts, as "train" or "rollout", got {axis!r}')


def step_problem(value: Any) -> str:
    """What is wrong with a step, if it is no whole number (also NumPy's or torch's) that a destination can hold."""
    try:
        number = -1 if isinstance(value, bool) else index(value)
    except TypeError:  # a tensor of several, say, has an __index__ too
        number = -1
    if number >= _LIMIT:
        return f"expected a whole number < 2**63, got one of {number.bit_length()} bits"
    return "" if number >= 0 else f"expected a whole number >= 0, got {_shown(value)}"


def _shown(value: Any) -> str:
    """Not the digits of a huge number, which Python may refuse to write."""
    if isinstance(value, int) and value < -_LIMIT:
        return f"a negative one of {value.bit_length()} bits"
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."
