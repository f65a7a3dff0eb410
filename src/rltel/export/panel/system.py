"""What no metric says: the sizes and settings that `rltel.system` is told for the panel."""

import math
from collections.abc import Mapping
from typing import Any

from rltel.core.errors import RecordError
from rltel.core.wording import suggestion

_COUNTS = ("buffer", "environments", "batch", "rows", "max_iterations", "gpus")
_TEXTS = ("algo", "task", "status")
MPS = ("on", "ambient", "off")
_NEEDED = {
    **dict.fromkeys(_COUNTS, "a whole number >= 0"),
    **dict.fromkeys(_TEXTS, "text"),
    "timeout_rate": "a number from 0 to 1",
    "rows_per_s": "a number >= 0",
    "mps": "one of " + ", ".join(f'"{each}"' for each in MPS),
}
FIELDS = tuple(_NEEDED)


class SystemFacts:
    """Holds what was told last. May be told from any thread.

    ``buffer``: transitions in the replay, of all ranks. ``environments``: of all ranks. ``batch``: rows of one rank's
    batch. ``rows``: replay rows that one rank learns from in an iteration, for Rows/s; ``rows_per_s``: the same as a
    rate of all ranks, where the trainer knows it (it wins). ``timeout_rate``: ended by time, of all episodes.
    ``mps``: CUDA MPS. ``max_iterations``, ``gpus``, ``algo``, ``task``, ``status``: for title and header.
    """

    def __init__(self) -> None:
        self._facts: dict[str, Any] = {}

    def tell(self, **facts: Any) -> None:
        """Take these in; None takes one back; what is not named stays.

        Raises `RecordError` for a name that there is not, or a value that cannot be. Nothing is taken in then.
        """
        checked = {name: _checked(name, value) for name, value in facts.items()}
        self._facts.update(checked)  # one step for all threads, as is the copy below: no lock that a fork could hold

    def __call__(self) -> Mapping[str, Any]:
        """What is known now."""
        return {name: value for name, value in dict(self._facts).items() if value is not None}


def _checked(name: str, value: Any) -> Any:
    needed = _NEEDED.get(name)
    if needed is None:
        raise RecordError(f'system: no field "{name}"{suggestion(name, FIELDS)}; there are {", ".join(FIELDS)}')
    if value is None:
        return None
    fitting = _fitting(name, value)
    if fitting is None:
        raise RecordError(f"system: {name}: expected {needed}, got {value!r}")
    return fitting


def _fitting(name: str, value: Any) -> Any:
    """The value as a plain one (NumPy's numbers come in, too); None if it does not fit."""
    if name in _TEXTS or name == "mps":
        return value if isinstance(value, str) and (name != "mps" or value in MPS) else None
    if isinstance(value, bool):
        return None
    if name in _COUNTS:
        return int(value) if hasattr(value, "__index__") and int(value) >= 0 else None
    try:
        number = float(value)
    except (TypeError, ValueError):
        return None
    highest = 1.0 if name == "timeout_rate" else math.inf
    return number if 0 <= number <= highest and math.isfinite(number) else None
