"""The process's trackers by name, and their export: local, or reduced over ranks."""

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from rltel.record.entries import Kinds, Taken, read
from rltel.record.kinds import GAUGE_MEAN, Kind
from rltel.record.recorder import Recorder, timeline
from rltel.record.tracker import Tracker
from rltel.reduce.derived import Derived, Finish, with_derived
from rltel.reduce.ranks import RankReducer
from rltel.reduce.readers import Readers
from rltel.reduce.snapshot import Metric, Snapshot, merged, succeeded
from rltel.reduce.stats import Stats


class StatsTracker(Tracker):
    """A tracker that exports itself."""

    def __init__(self, name: str = "", recorder: Recorder = timeline, kinds: Kinds | None = None) -> None:
        super().__init__(name, recorder, kinds)
        self._reducer = RankReducer()
        self.readers: Readers | None = None
        """Of the trackers that this one belongs to."""

    def export(
        self, key: str | None = None, reduce_group: Any = None, key_sync_group: Any = None, reset: bool = True
    ) -> Stats:
        """What was recorded since the last export, as a flat dict over merged states.

        ``key``: only this one (KeyError if it is not there); every rank of the group must then have it. The groups are
        as in `Trackers.export_all`.
        """
        with _consumed([self], self.readers or Readers(), "", reset, self._owns(key), key) as export:
            return Stats(export.reduced(self._reducer, reduce_group, key_sync_group))

    def _owns(self, key: str | None) -> Callable[[str, Metric], bool]:
        """What of all that is pending this export is about."""
        only = None if key is None else self._key(key)
        return lambda found, metric: metric.tracker == self.name and only in (None, found)


class Trackers:
    """Named trackers; the default one has the empty name."""

    def __init__(self, recorder: Recorder = timeline) -> None:
        self._recorder = recorder
        self._lock = threading.Lock()
        self._kinds = Kinds()
        self._by_name: dict[str, StatsTracker] = {}
        self._readers = Readers()
        self._derived: dict[str, Derived] = {}
        self._reducers: dict[str, RankReducer] = {"": RankReducer()}
        self.default = self.get("")

    def get(self, name: str = "") -> StatsTracker:
        """The tracker of this name, made at first use."""
        name = name.strip("/")
        found = self._by_name.get(name)
        if found is None:
            with self._lock:
                found = self._by_name.setdefault(name, StatsTracker(name, self._recorder, self._kinds))
                found.readers = self._readers
        return found

    def all(self) -> list[StatsTracker]:
        """Every tracker, the default one first."""
        return list(self._by_name.values())

    def claim(self, kinds: Mapping[str, Kind]) -> None:
        """Make each key a metric of its kind, in whichever tracker: all of them, or (raising `RecordError`) none."""
        self._kinds.claim(kinds)

    def kind_of(self, key: str) -> Kind | None:
        """The kind of a key; None if nobody recorded it yet."""
        return self._kinds.of(key)

    def add_reader(self, name: str) -> None:
        """A second consumer of all trackers, with a pending state of its own: neither drains the other."""
        self._readers.add(name)
        self._reducers.setdefault(name, RankReducer())

    def derive(self, key: str, finish: Finish, **arguments: str) -> None:
        """A number that every export computes from others, after they were merged over batches, workers and ranks.

        Args:
            key: of the new number, a gauge. A second call replaces the first.
            finish: called with the arguments by name; None leaves the key out.
            arguments: names of `finish`'s parameters, each with the key of the flat dict that it takes.

        Example: ``derive("perf/tokens_per_second", lambda tokens, seconds: tokens / seconds if seconds else None,
        tokens="perf/tokens", seconds="perf/seconds")``.
        """
        self._kinds.claim({key: GAUGE_MEAN})
        self._derived[key] = Derived(key, finish, arguments)

    def reset(self) -> None:
        """Forget what every tracker recorded (after a fork, in the child)."""
        self._lock = threading.Lock()
        self._readers.reset()
        for tracker in self.all():
            tracker.reset()

    def export_all(
        self,
        reduce_group: Any = None,
        key_sync_group: Any = None,
        reset: bool = True,
        reader: str | None = None,
        outliers: bool = False,
        is_writer: bool | None = None,
        step: int | None = None,
    ) -> Stats:
        """Everything that any tracker recorded since the last export. If it fails, nothing is lost.

        Args:
            reduce_group: a ``torch.distributed`` group to reduce over; all its ranks must call this, and all get the
                same. Keys that were recorded with a ``reduce_group`` of their own are reduced over that.
            key_sync_group: a larger group over which keys are agreed on, as when context-parallel ranks have keys that
                others lack.
            reset: whether what is exported counts as taken.
            reader: a consumer added by `add_reader`; None is the main one.
            outliers: also say which rank of the group holds each extreme (``k/min_rank``, ``k/max_rank``). The extremes
                are then gathered instead of reduced: the cost grows with the number of ranks.
            is_writer: whether this process's value counts for gauges that merge by ``writer``.
            step: which all ranks must be at, if given.

        Raises `ReductionError` on every rank alike if one of them cannot export, and where a peer died (from what the
        group raises). Nothing is reset then.
        """
        name = reader or ""
        reducer = self._reducers.get(name) or RankReducer()  # an unknown reader fails in `read`, for all ranks to hear
        with _consumed(self.all(), self._readers, name, reset) as export:
            snapshot = export.reduced(reducer, reduce_group, key_sync_group, outliers, is_writer, step)
        return Stats(with_derived(snapshot, self._derived))

    @contextmanager
    def taken(self, *, reset: bool = True, derive: bool = False) -> Iterator[Snapshot]:
        """A snapshot of all trackers; what happens inside decides whether it counts as exported.

        ``derive``: with what is derived, which must not be merged any further.
        """
        with _consumed(self.all(), self._readers, "", reset) as export:
            yield with_derived(export.read(), self._derived if derive else {})


class _Export:
    """One export under way: what was cut from trackers, and what it takes to put it back.

    Cutting waits for `read`, so that a failure there is one that the other ranks hear of.
    """

    def __init__(self, trackers: Iterable[StatsTracker], only: str | None) -> None:
        self._trackers = list(trackers)
        self._only = only
        self._taken: list[tuple[StatsTracker, Taken]] = []
        self.pending: Callable[[], Snapshot] = Snapshot
        self.was_pending = Snapshot()
        self.fresh = Snapshot()

    def read(self) -> Snapshot:
        """What was recorded, and before it what is pending for this consumer."""
        pending = self.was_pending = self.pending()
        for tracker in self._trackers:
            self._taken.append((tracker, tracker.cut(self._only)))
        read([states for _, states in self._taken])
        self.fresh = merged(Snapshot.of_states(states, tracker.name) for tracker, states in self._taken)
        return succeeded(pending, self.fresh) if pending else self.fresh

    def put_back(self) -> None:
        """It failed, or was only a look."""
        for tracker, states in self._taken:
            tracker.put_back(states)

    def done(self) -> None:
        """It arrived."""
        for tracker, states in self._taken:
            tracker.exported(states)

    def reduced(
        self,
        reducer: RankReducer,
        group: Any,
        key_sync_group: Any = None,
        outliers: bool = False,
        is_writer: bool | None = None,
        step: int | None = None,
    ) -> Snapshot:
        if group is None:
            return self.read()
        own_groups = {key: own for tracker in self._trackers for key, own in tracker.own_groups().items()}
        return reducer.reduce(
            self.read,
            group,
            key_sync_group=key_sync_group,
            own_groups=own_groups,
            is_writer=is_writer,
            outliers=outliers,
            step=step,
        )


@contextmanager
def _exported(trackers: Iterable[StatsTracker], reset: bool, only: str | None = None) -> Iterator[_Export]:
    export = _Export(trackers, only)
    try:
        yield export
    except BaseException:
        export.put_back()
        raise
    if reset:
        export.done()
    else:
        export.put_back()


@contextmanager
def _consumed(
    trackers: Iterable[StatsTracker],
    readers: Readers,
    reader: str,
    reset: bool,
    wanted: Callable[[str, Metric], bool] | None = None,
    only: str | None = None,
) -> Iterator[_Export]:
    """One consumer's export: what it takes is pending for the others, what it leaves is pending for itself."""
    with _exported(trackers, reset, only) as export:
        export.pending = lambda: readers.take(reader, wanted)
        try:
            yield export
        except BaseException:
            readers.give_back(reader, export.was_pending)
            raise
    if reset:
        readers.pass_on(export.fresh, reader)
    else:
        readers.give_back(reader, export.was_pending)


of_process = Trackers()
"""This process's own: what the functions of the package record into."""
