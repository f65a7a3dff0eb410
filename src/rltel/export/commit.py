"""A commit: what one step measured, and everything a destination needs to know about it."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from operator import index

from rltel.core.identity import Identity
from rltel.core.wording import writable
from rltel.reduce.snapshot import Snapshot


@dataclass(frozen=True)
class Commit:
    """One committed step. Immutable, with no reference to anything that the trainer may change later.

    ``time_ns`` is the wall clock; ``step`` counts on ``axis`` (``train``, ``rollout`` ...).
    """

    identity: Identity
    number: int
    time_ns: int
    step: int
    axis: str
    snapshot: Snapshot
    env_steps: int | None = None
    epoch: int | None = None
    epoch_step: int | None = None

    def __post_init__(self) -> None:
        for name in ("step", "env_steps", "epoch", "epoch_step"):  # trainers count in NumPy's integers, too
            given = getattr(self, name)
            object.__setattr__(self, name, None if given is None else index(given))
        object.__setattr__(self, "axis", writable(self.axis))
        if writable(everything := "".join(self.snapshot)) is not everything:
            kept = Snapshot({writable(key): metric for key, metric in self.snapshot.items()})
            object.__setattr__(self, "snapshot", kept)

    @cached_property
    def values(self) -> Mapping[str, float]:
        """The flat numbers that destinations show: all but the ``__count`` partners, which only weight averages."""
        return {
            f"{key}{value.suffix}": value.value
            for key, metric in self.snapshot.items()
            for value in metric.state.values()
            if value.stat != "count"
        }

    def position(self, step_axis: str) -> int:
        """Where this commit stands on the x axis: environment steps if asked for and known, else the step."""
        return self.env_steps if step_axis == "env_steps" and self.env_steps is not None else self.step
