"""What sessions leave in a tracker: how many ended how, how long their phases took, how many are under way."""

from collections.abc import Callable, Sequence
from typing import Any

from rltel.record.kinds import TIMING
from rltel.record.tracker import Tracker

RESERVED = ("total", "queue", "idle")
"""Times of a session that are no phases; a phase cannot have their names."""


class SessionNumbers:
    """The metrics of one tracker's sessions. They lie at the tracker's root, whatever scopes are around a caller."""

    def __init__(self, tracker: Tracker) -> None:
        self._tracker = tracker
        self._appenders: dict[str, Callable[[int], None]] = {}
        self.in_flight = 0
        """Sessions that were submitted and have not ended."""

    def call_timing(self, phase: str) -> Callable[[int], None]:
        """Records one call of a phase, in nanoseconds: ``timeperf/<phase>``, as ``record_timing`` would."""
        return self._appender(f"timeperf/{phase}")

    def session_time(self, name: str, duration_ns: int) -> None:
        """Records a time of one session: ``timeperf/session/<phase>``, and ``total``, ``queue`` and ``idle``."""
        self._appender(f"timeperf/session/{name}")(duration_ns)

    def _appender(self, key: str) -> Callable[[int], None]:
        found = self._appenders.get(key)
        if found is None:
            found = self._appenders[key] = self._tracker.timing_appender(key, TIMING)
        return found

    def ended(self, status: str) -> None:
        """One more ended like that: ``sessions/<status>``."""
        with self._tracker.disable_scope():
            self._tracker.count({f"sessions/{status}": 1})

    def show_in_flight(self) -> None:
        """``sessions/in_flight``: a gauge, whose sum over processes is the run's."""
        shown = -1
        while shown != self.in_flight:  # another thread may have shown an older number meanwhile
            shown = self.in_flight
            with self._tracker.disable_scope():
                self._tracker.gauge({"sessions/in_flight": shown}, ranks="sum")

    def consumed(self, count: int, staleness: Sequence[int]) -> None:
        """An update took this many, of which so many have an age: ``sessions/consumed``, ``sessions/staleness``."""
        values: dict[str, Any] = {"sessions/staleness": staleness}
        with self._tracker.disable_scope():
            self._tracker.count({"sessions/consumed": count})
            if staleness:
                self._tracker.distribution(values)
