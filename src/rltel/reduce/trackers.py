"""The process's trackers by name, and their export."""

import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager

from rltel.record.entries import Kinds, Taken, read
from rltel.record.kinds import Kind
from rltel.record.recorder import Recorder, timeline
from rltel.record.tracker import Tracker
from rltel.reduce.snapshot import Snapshot, merged
from rltel.reduce.stats import Stats


class StatsTracker(Tracker):
    """A tracker that exports itself."""

    def export(self, *, reset: bool = True) -> Stats:
        """What was recorded since the last export, as a flat dict over merged states."""
        with _taken([self], reset) as snapshot:
            return Stats(snapshot)


class Trackers:
    """Named trackers; the default one has the empty name."""

    def __init__(self, recorder: Recorder = timeline) -> None:
        self._recorder = recorder
        self._lock = threading.Lock()
        self._kinds = Kinds()
        self._by_name: dict[str, StatsTracker] = {}
        self.default = self.get("")

    def get(self, name: str = "") -> StatsTracker:
        """The tracker of this name, made at first use."""
        name = name.strip("/")
        found = self._by_name.get(name)
        if found is None:
            with self._lock:
                found = self._by_name.setdefault(name, StatsTracker(name, self._recorder, self._kinds))
        return found

    def all(self) -> list[StatsTracker]:
        """Every tracker, the default one first."""
        return list(self._by_name.values())

    def claim(self, kinds: Mapping[str, Kind]) -> None:
        """Make each key a metric of its kind, in whichever tracker: all of them, or (raising `RecordError`) none."""
        self._kinds.claim(kinds)

    def reset(self) -> None:
        """Forget what every tracker recorded (after a fork, in the child)."""
        self._lock = threading.Lock()
        for tracker in self.all():
            tracker.reset()

    def export_all(self, *, reset: bool = True) -> Stats:
        """Everything that any tracker recorded since the last export. If it fails, nothing is lost."""
        with _taken(self.all(), reset) as snapshot:
            return Stats(snapshot)

    @contextmanager
    def taken(self, *, reset: bool = True) -> Iterator[Snapshot]:
        """A snapshot of all trackers; what happens inside decides whether it counts as exported."""
        with _taken(self.all(), reset) as snapshot:
            yield snapshot


@contextmanager
def _taken(trackers: Iterable[StatsTracker], reset: bool) -> Iterator[Snapshot]:
    taken: list[tuple[StatsTracker, Taken]] = []
    keep = not reset
    try:
        taken.extend((tracker, tracker.cut()) for tracker in trackers)
        read([states for _, states in taken])
        yield merged(Snapshot.of_states(states, tracker.name) for tracker, states in taken)
    except BaseException:
        keep = True
        raise
    finally:
        for tracker, states in taken:
            if keep:
                tracker.put_back(states)
            else:
                tracker.exported(states)
