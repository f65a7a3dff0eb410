"""Tags that the metric schema removed are not emitted: left out of each commit, counted, and said once."""

import logging
from collections.abc import Callable

from rltel.core.wording import printable
from rltel.names.schema import Removed, removed
from rltel.reduce.snapshot import Metric, Snapshot

_log = logging.getLogger("rltel")


class RemovedTags:
    """Takes them out of snapshots. A key is looked up once; after that a commit costs a set operation.

    ``dropped``: counts by reason, and says whether it is the first time (`Destination.dropped`).
    """

    def __init__(self, dropped: Callable[[str, int], bool]) -> None:
        self._dropped = dropped
        self._fine: set[str] = set()

    def without(self, snapshot: Snapshot) -> Snapshot:
        """The snapshot without them; the same one if it has none."""
        if self._fine.issuperset(snapshot.keys()):
            return snapshot
        new = snapshot.keys() - self._fine
        gone = {key: why for key in new if (why := _removed(key, snapshot[key])) is not None}
        self._fine |= new - gone.keys()
        if not gone:
            return snapshot
        if self._dropped("removed_tag", len(gone)):
            key, why = next(iter(gone.items()))
            _log.warning(
                "%s: %s... is not emitted any more (%s); record %s "
                "(left out, counted in rltel_dropped_total; said once)",
                *(printable(key), why.prefix, why.about, why.instead),
            )
        return Snapshot({key: metric for key, metric in snapshot.items() if key not in gone})


def _removed(key: str, metric: Metric) -> Removed | None:
    return removed(key.removeprefix(f"{metric.tracker}/") if metric.tracker else key)
