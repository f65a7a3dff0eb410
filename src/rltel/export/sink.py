"""The one protocol of all destinations, and the count of what reached each and what did not."""

import errno
import logging
import threading
import time
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import accumulate
from typing import NamedTuple, Protocol

from rltel.export.commit import Commit
from rltel.export.points import Point

_log = logging.getLogger("rltel")


class Waiting(NamedTuple):
    """What a queue holds."""

    items: int
    size_bytes: int


class Book(Protocol):
    """Which commits a destination has had. Never raises."""

    def sent(self, first: int, last: int | None = None) -> None:
        """It has had these, or they are not for it."""

    def close(self) -> None:
        """Close it."""


class Durations(NamedTuple):
    """How long attempts took: ``counts[i]`` of them at most ``DURATION_BOUNDS[i]`` seconds, the last one all."""

    counts: Sequence[int]
    total_s: float


DURATION_BOUNDS = (0.0001, 0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0, 30.0)


class Destination:
    """The account of one destination: exported, and dropped by reason. The first failure of a kind is logged."""

    def __init__(self, name: str, now: Callable[[], float] = time.time) -> None:
        self.name = name
        self.queue: Callable[[], Waiting] | None = None
        """What waits for it, if it has a queue. Called when somebody looks."""
        self.ledger: Book | None = None
        """Where it is kept which commits it has had, for a replay of the rest."""
        self._now = now
        self._lock = threading.Lock()
        self._exported = 0
        self._dropped: dict[str, int] = {}
        self._retries = 0
        self._is_away = False
        self._last_success: float | None = None
        self._durations = [0] * (len(DURATION_BOUNDS) + 1)
        self._duration_s = 0.0

    def exported(self, count: int = 1) -> None:
        """This many commits arrived."""
        with self._lock:
            self._exported += count
            if count:
                self._last_success = self._now()
                self._is_away = False

    def has_had(self, commit: Commit) -> None:
        """This commit arrived, or is not for this destination."""
        if self.ledger is not None:
            self.ledger.sent(commit.number)

    @contextmanager
    def timed(self) -> Iterator[None]:
        """Counts how long an attempt takes, whether or not it succeeds."""
        began = time.perf_counter()
        try:
            yield
        finally:
            self.took(time.perf_counter() - began)

    def took(self, seconds: float) -> None:
        """An attempt took this long."""
        with self._lock:
            self._durations[bisect_left(DURATION_BOUNDS, seconds)] += 1
            self._duration_s += seconds

    def dropped(self, reason: str, count: int = 1) -> bool:
        """This many were lost; True if it is the first time for this reason."""
        with self._lock:
            first = reason not in self._dropped
            self._dropped[reason] = self._dropped.get(reason, 0) + count
        return first

    def failed(self, error: BaseException, reason: str | None = None, count: int = 1) -> None:
        """Lost because of an exception: counted, and said once for each reason (default: ``error``, or ``disk``)."""
        if self.dropped(reason or ("disk" if is_disk(error) else "error"), count):
            _log.warning("%s: %s (counted in rltel_dropped_total; said once)", self.name, error)

    def waiting(self, error: BaseException) -> None:
        """The destination is away; what it did not take is tried again. Said once for each outage."""
        with self._lock:
            self._retries += 1
            first, self._is_away = not self._is_away, True
        if first:
            _log.warning("%s: %s (will be tried again; said once for each outage)", self.name, error)

    @property
    def retries_total(self) -> int:
        """How many times something was tried again."""
        return self._retries

    @property
    def exported_total(self) -> int:
        """Commits (or records) that arrived."""
        return self._exported

    @property
    def last_success(self) -> float | None:
        """When something arrived last, in seconds since the epoch; None if nothing has."""
        return self._last_success

    @property
    def durations(self) -> Durations:
        """How long its attempts took."""
        with self._lock:
            return Durations(list(accumulate(self._durations)), self._duration_s)

    @property
    def dropped_totals(self) -> dict[str, int]:
        """Commits that did not, by reason."""
        with self._lock:
            return dict(self._dropped)


_DISK = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EIO}


def is_disk(error: BaseException) -> bool:
    """Whether a disk is the trouble: full, read-only, over a quota or broken."""
    return isinstance(error, OSError) and error.errno in _DISK


class PartlyTakenError(ConnectionError):
    """A receiver took most of what was sent, and refuses the rest for good: none of it may be sent again."""

    retryable = False


class Sink(Protocol):
    """A destination. All its methods are called from one thread of the pipeline.

    A local one that has a true attribute ``takes_every_commit`` also gets, without points, the commits that
    `run.log_interval` keeps from the others. Where all have a false ``takes_points``, none are made.
    """

    name: str

    def describe(self) -> str:
        """Where things go, for the line at the start. No secrets."""

    def write(self, commit: Commit, points: Sequence[Point]) -> None:
        """Take one commit. May raise: the pipeline counts it. (`PartlyTakenError`: and never sends it again.)"""

    def flush(self) -> None:
        """Bring what was written to where a reader finds it. Called every flush interval."""

    def close(self) -> None:
        """The end. Flushes first."""
