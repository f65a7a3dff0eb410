"""What a replay needs to know of a destination."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from rltel.core.config import TelemetryConfig
from rltel.core.identity import Identity
from rltel.export.points import Point
from rltel.export.sink import Sink


@dataclass(frozen=True, slots=True)
class Setting:
    """What all targets are made of."""

    config: TelemetryConfig
    run_dir: Path
    environ: Mapping[str, str]


class Target:
    """One destination of a replay. ``place``: where it is, as the ledger has it."""

    name: str
    place: str
    of_writer = False
    """Whether it gets the writer's commits only."""
    sums = False
    """Whether it gets points, which are sums over all of a process's commits."""
    at_once = False
    """Whether it takes a process's commits together, at the flush, and so needs those that it had, too."""
    ordered = False
    """Whether its sinks `note` what it had already, since nothing before that may follow it."""
    note = ""
    """What a user should know before, as one sentence; mostly empty."""

    def open(self, identity: Identity, started_ns: int) -> Sink:
        """The sink for one process's commits; ``started_ns`` is the time of the first. May return an earlier one."""
        raise NotImplementedError

    def seen(self, points: Sequence[Point]) -> None:
        """Points that the destination has had by the process itself, of keys that did not come before."""

    def close(self) -> None:
        """The end: everything has to have arrived then, or it raises."""
