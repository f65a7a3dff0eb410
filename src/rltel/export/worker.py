"""A thread with a bounded queue, for one destination that may be slow or away: it delays nobody else.

What a destination cannot take now is tried again, with pauses that grow, while later things wait behind it in the
bounded queue. So an outage costs nothing that fits into the queue.
"""

import random
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from rltel.export.sink import Destination, Waiting

_WAIT_S = 0.02
_FIRST_PAUSE_S = 0.25
_LONGEST_PAUSE_S = 30.0
_MAX_TRIES = 15  # about five minutes: what is refused for so long must not block what comes after it


class Parcel(NamedTuple):
    """Something to be sent. ``items``: how many of what the destination counts are in it.

    ``send`` raises if none arrived, and returns how many the receiver did not take (None: it took all).
    """

    send: Callable[[], int | None]
    size_bytes: int
    items: int


class Worker:
    """Sends parcels in their order. The oldest go, and are counted, when there is no room."""

    def __init__(
        self,
        name: str,
        close: Callable[[], None],
        destination: Destination,
        queue_bytes: int,
        *,
        first_pause_s: float = _FIRST_PAUSE_S,
    ) -> None:
        self.destination = destination
        self._first_pause_s = first_pause_s
        self._jitter = random.Random()  # noqa: S311  # spreads the ranks' retries; the program's own numbers stay as seeded
        self._hurrying = False
        self._close = close
        self._queue_bytes = queue_bytes
        self._queue: deque[Parcel] = deque()
        self._held_bytes = 0
        self._sending: Parcel | None = None
        self._given_up = False  # whether what is on its way was counted as lost
        self._closing = False
        self._changed = threading.Condition()
        destination.queue = self.waiting
        self._thread = threading.Thread(target=self._run, name=f"rltel-{name}", daemon=True)
        self._thread.start()

    def put_parcel(self, parcel: Parcel) -> None:
        """Queue one."""
        with self._changed:
            if self._closing:
                self.destination.dropped("shutdown", parcel.items)
                return
            self._queue.append(parcel)
            self._held_bytes += parcel.size_bytes
            while self._held_bytes > self._queue_bytes and len(self._queue) > 1:
                oldest = self._queue.popleft()
                self._held_bytes -= oldest.size_bytes
                self.destination.dropped("queue_full", oldest.items)
            self._changed.notify_all()

    def waiting(self) -> Waiting:
        """What is in the queue, and on its way."""
        with self._changed:
            sending = 0 if self._sending is None else self._sending.items
            return Waiting(sum(parcel.items for parcel in self._queue) + sending, self._held_bytes)

    def wait_empty(self, deadline: float) -> bool:
        """Wait until everything queued was handled; False if the deadline (monotonic) comes first."""
        with self._changed:
            return self._changed.wait_for(
                lambda: not self._queue and self._sending is None, max(0.0, deadline - time.monotonic())
            )

    def begin_close(self, deadline: float) -> None:
        """Take nothing more, make no more pauses, and close when what is queued was handled. Does not wait."""
        with self._changed:
            self._hurrying = self._closing = True
            self._changed.notify_all()

    def close(self, deadline: float) -> None:
        """Handle what is queued until the deadline, without pauses; the rest is dropped and counted."""
        self.begin_close(deadline)
        self.wait_empty(deadline)
        with self._changed:
            left = list(self._queue)
            self._queue.clear()
            if self._sending is not None and not self._given_up:
                self._given_up = True
                left.append(self._sending)
            if left:
                self.destination.dropped("shutdown", sum(parcel.items for parcel in left))
            self._changed.notify_all()
        self._thread.join(max(0.0, deadline - time.monotonic()) + _WAIT_S)

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._queue or self._closing)
                if not self._queue:
                    break
                parcel = self._queue.popleft()
                self._held_bytes -= parcel.size_bytes
                self._sending = parcel
            self._deliver(parcel)
            with self._changed:
                self._sending = None
                self._changed.notify_all()
        try:
            self._close()
        except Exception as error:  # the destination's end must not be the program's
            self.destination.failed(error, count=0)

    def _deliver(self, parcel: Parcel) -> None:
        """Send it, again and again where that may help."""
        for tries in range(1, _MAX_TRIES + 1):
            try:
                with self.destination.timed():
                    refused = parcel.send() or 0
            except Exception as error:  # whatever a destination does, it must not end its thread
                if tries < _MAX_TRIES and may_try_again(error) and self._pause(tries, error):
                    continue
                if not self._given_up:
                    self.destination.failed(error, count=parcel.items)
            else:
                if not self._given_up:
                    self.destination.exported(max(parcel.items - refused, 0))
            return

    def _pause(self, tries: int, error: Exception) -> bool:
        """Wait until it is time to try again. False if the end is near: there is no time to wait."""
        self.destination.waiting(error)
        asked: float | None = getattr(error, "retry_after_s", None)
        longest = min(self._first_pause_s * 2 ** (tries - 1), _LONGEST_PAUSE_S)
        pause_s = max(asked or 0.0, longest * self._jitter.uniform(0.5, 1.0))
        with self._changed:
            hurrying_before = self._hurrying
            self._changed.wait_for(lambda: self._hurrying, pause_s)
            return not hurrying_before


def may_try_again(error: Exception) -> bool:
    """Whether the same may arrive later: the other side was away, or said so."""
    told: bool | None = getattr(error, "retryable", None)
    return isinstance(error, (ConnectionError, TimeoutError)) if told is None else told
