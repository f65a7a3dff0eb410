"""How the process's telemetry itself does goes along with commits, at their times.

So a store that is only sent to can say what was lost, too.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence

from rltel.export.accounts import account_points, start_point
from rltel.export.commit import Commit
from rltel.export.points import Point
from rltel.export.sink import Destination
from rltel.names.otel import Namer

EVERY_NS = 5_000_000_000
"""As often as accounts are sent at most: a trainer may commit a hundred times a second, and these change slowly."""
FIRST_NS = 1_000_000_000
"""The same of a process that has only begun: the pauses double until they are that long."""


def nobody() -> Iterable[Destination]:
    """No accounts."""
    return ()


class OwnMetrics:
    """What commits take along: when the process began, each; and one in a while, what its destinations had.

    Args:
        started_ns: when the process began, in ns since the epoch.
        destinations: the accounts of all.
        namer: what named the keys; None where nobody can tell.
    """

    def __init__(
        self, started_ns: int, destinations: Callable[[], Iterable[Destination]] = nobody, namer: Namer | None = None
    ) -> None:
        self._started_s = started_ns / 1e9
        self._destinations = destinations
        self._namer = namer
        self._due_ns = 0
        self._pause_ns = FIRST_NS
        self._last: tuple[int, Sequence[Point]] = (-1, ())
        # Points of a series share their labels: the encoder remembers each dict that it has seen.
        self._labels: dict[tuple[tuple[str, str], ...], Mapping[str, str]] = {}

    def of(self, commit: Commit) -> Sequence[Point]:
        """Those that go with this commit. One that is sent again takes the same: a point is not to change."""
        # With each, so that a replay says the same as the process itself.
        start = self._shared(start_point(commit.identity.incarnation, self._started_s))
        if commit.number != self._last[0] and self._is_due(commit.time_ns):
            made = account_points(list(self._destinations()), self._namer)
            self._last = commit.number, [self._shared(point) for point in made]
        return [start, *self._last[1]] if commit.number == self._last[0] else [start]

    def _is_due(self, time_ns: int) -> bool:
        if self._due_ns - self._pause_ns <= time_ns < self._due_ns:  # after a clock was set back, it is at once
            return False
        self._pause_ns = min(2 * self._pause_ns, EVERY_NS) if self._due_ns else FIRST_NS
        self._due_ns = time_ns + self._pause_ns
        return True

    def _shared(self, point: Point) -> Point:
        labels = point.attributes
        return point._replace(attributes=self._labels.setdefault(tuple(labels.items()), labels))
