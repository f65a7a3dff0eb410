"""The one protocol of all destinations, and the count of what reached each and what did not."""

import logging
import threading
from collections.abc import Sequence
from typing import Protocol

from rltel.export.commit import Commit
from rltel.export.points import Point

_log = logging.getLogger("rltel")


class Destination:
    """The account of one destination: exported, and dropped by reason. The first failure of a kind is logged."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._lock = threading.Lock()
        self._exported = 0
        self._dropped: dict[str, int] = {}

    def exported(self, count: int = 1) -> None:
        """This many commits arrived."""
        with self._lock:
            self._exported += count

    def dropped(self, reason: str, count: int = 1) -> bool:
        """This many were lost; True if it is the first time for this reason."""
        with self._lock:
            first = reason not in self._dropped
            self._dropped[reason] = self._dropped.get(reason, 0) + count
        return first

    def failed(self, error: BaseException, reason: str = "error", count: int = 1) -> None:
        """Lost because of an exception: counted, and said once for each reason."""
        if self.dropped(reason, count):
            _log.warning("%s: %s (counted in rltel_dropped_total; said once)", self.name, error)

    @property
    def exported_total(self) -> int:
        """Commits that arrived."""
        return self._exported

    @property
    def dropped_totals(self) -> dict[str, int]:
        """Commits that did not, by reason."""
        with self._lock:
            return dict(self._dropped)


class Sink(Protocol):
    """A destination. All its methods are called from one thread of the pipeline."""

    name: str

    def describe(self) -> str:
        """Where things go, for the line at the start. No secrets."""

    def write(self, commit: Commit, points: Sequence[Point]) -> None:
        """Take one commit. May raise: the pipeline counts it."""

    def flush(self) -> None:
        """Bring what was written to where a reader finds it. Called every flush interval."""

    def close(self) -> None:
        """The end. Flushes first."""
