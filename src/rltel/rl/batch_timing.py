"""How long a batch took: on the device where one works, and else by the host's clock. Nothing waits for a device.

A pair of events on the stream measures the time from when the stream came to the batch until it was done with it.
Waits and gaps of the stream in between count; what other streams do, and this one does not wait for, does not.
"""

import time
from collections.abc import Callable
from typing import Any, Protocol

from rltel.record.device.event_source import EventSource, StreamRef

NANOSECOND = 1e-9
MILLISECOND = 1e-3


class Timed(Protocol):
    """One batch, from when it began."""

    def end(self) -> None:
        """It has been submitted."""

    def seconds(self) -> float | None:
        """How long it took; None while it is not done. Does not wait for that."""


class OnHost:
    """By the host's clock. ``synchronize`` waits for devices that have no events (an NPU, say)."""

    def __init__(self, now: Callable[[], int], synchronize: Callable[[], object] | None) -> None:
        self._now = now
        self._synchronize = synchronize
        self._begin_ns = self._read()
        self._end_ns: int | None = None

    def end(self) -> None:
        """See `Timed.end`."""
        self._end_ns = self._read()

    def seconds(self) -> float | None:
        """See `Timed.seconds`."""
        return None if self._end_ns is None else (self._end_ns - self._begin_ns) * NANOSECOND

    def _read(self) -> int:
        if self._synchronize is not None:
            self._synchronize()
        return self._now()


class OnDevice:
    """By a pair of events on the stream that is current when it begins."""

    def __init__(self, source: EventSource, stream: StreamRef) -> None:
        self._source = source
        self._stream = stream
        self._begin = self._recorded()
        self._end: Any = None

    def end(self) -> None:
        """See `Timed.end`."""
        self._end = self._recorded()

    def seconds(self) -> float | None:
        """See `Timed.seconds`."""
        if self._end is None or not self._source.query(self._end):
            return None
        return self._source.elapsed_ms(self._begin, self._end) * MILLISECOND

    def _recorded(self) -> Any:
        event = self._source.new_event(self._stream.device)
        self._source.record(event, self._stream)
        return event


class BatchTimer:
    """Begins to time batches.

    Args:
        source: whose events time what a device does; used from when it has a device in use.
        now: the host's clock, in nanoseconds.
        synchronize: called before and after a batch that the host's clock times.
    """

    def __init__(
        self,
        source: EventSource,
        now: Callable[[], int] = time.perf_counter_ns,
        synchronize: Callable[[], object] | None = None,
    ) -> None:
        self._source = source
        self._now = now
        self._synchronize = synchronize

    def is_capturing(self) -> bool:
        """Whether a graph is being captured: what is called then does not run."""
        return self._synchronize is None and self._source.ready() and self._source.is_capturing()

    def begin(self) -> Timed:
        """From now on."""
        if self._synchronize is None and self._source.ready():
            return OnDevice(self._source, self._source.stream(None))
        return OnHost(self._now, self._synchronize)
