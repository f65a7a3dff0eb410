"""Takes the anchors of a device, and renews them: a long way from one, float32 milliseconds are coarse."""

import threading
from collections.abc import Callable
from typing import Any, NamedTuple

from rltel.record.device.anchors import Anchor, Position
from rltel.record.device.event_source import EventSource

RENEW_NS = 2_000_000_000
RETRY_NS = 250_000_000  # after a try that found the device busy
OVERDUE_NS = 3 * RENEW_NS  # then a wide anchor is better than none
SPIN_NS = 50_000  # at most this long, for all tries together
TRIES = 4
TIGHT_NS = 10_000  # no need for another try
VISIBLE_NS = 2_000  # an event's time is taken on the device; the host sees its completion up to this much later
_KEPT = 16  # anchors: work that began before the oldest is placed by it all the same


class DeviceClock:
    """The anchors of one device. Used by one thread at a time (the device timeline's lock)."""

    def __init__(self, device: str, source: EventSource, now: Callable[[], int]) -> None:
        self._device = device
        self._source = source
        self._now = now
        self._stream = source.own_stream(device)
        self._anchors: list[Anchor] = []
        self._waiting: _Waiting | None = None
        self._wide: Anchor | None = None
        self._tried_ns = 0

    @property
    def is_anchored(self) -> bool:
        """Whether there is an anchor to measure from."""
        return bool(self._anchors)

    def age_ns(self, now_ns: int) -> int:
        """How old the newest anchor is."""
        return now_ns - self._anchors[-1].late_ns if self._anchors else OVERDUE_NS

    def position(self, event: Any) -> Position:
        """Where a completed event lies: after the last anchor that came before it."""
        for anchor in reversed(self._anchors):
            after_ms = self._source.elapsed_ms(anchor.event, event)
            if after_ms >= 0:
                break
        return Position(anchor, after_ms)

    def renew(self, *, at_once: bool = False) -> bool:
        """Take a new anchor if it is time for one (or ``at_once``); whether there is one.

        Spins for at most `SPIN_NS`, all in all.
        """
        now_ns = self._now()
        self._observe(now_ns)
        age_ns = self.age_ns(now_ns)
        is_due = age_ns >= RENEW_NS and now_ns - self._tried_ns >= RETRY_NS
        if self._waiting is None and (is_due or at_once or not self._anchors):
            self._tried_ns = now_ns
            tight = self._spin(now_ns + SPIN_NS)
            if tight is not None:
                self._wide = None
                return self._append(tight)
        if self._wide is not None and (age_ns >= OVERDUE_NS or at_once):
            wide, self._wide = self._wide, None
            return self._append(wide)
        return False

    def _spin(self, until_ns: int) -> Anchor | None:
        """The tightest of a few tries; None if the device is too busy for any."""
        best: Anchor | None = None
        for _ in range(TRIES):
            event = self._source.new_event(self._device)
            early_ns = before_ns = self._now()
            self._source.record(event, self._stream)
            while not self._source.query(event):
                early_ns = before_ns
                before_ns = self._now()
                if before_ns >= until_ns:
                    if best is None:
                        self._waiting = _Waiting(event, early_ns, threading.get_ident())
                    return best
            tried = Anchor(event, early_ns - VISIBLE_NS, self._now())
            if best is None or tried.half_ns < best.half_ns:
                best = tried
            if best.late_ns - best.early_ns <= TIGHT_NS + VISIBLE_NS or self._now() >= until_ns:
                break
        return best

    def _observe(self, now_ns: int) -> None:
        """Look again after an event that took longer than a spin. Only the thread that recorded it may."""
        waiting = self._waiting
        if waiting is None:
            return
        if waiting.thread != threading.get_ident():
            if now_ns - waiting.early_ns >= OVERDUE_NS:
                self._waiting = None  # whoever recorded it does not come any more
            return
        if not self._source.query(waiting.event):
            self._waiting = waiting._replace(early_ns=now_ns)
            return
        self._waiting = None
        seen = Anchor(waiting.event, waiting.early_ns - VISIBLE_NS, self._now())
        if self._wide is None or seen.half_ns <= self._wide.half_ns:
            self._wide = seen

    def _append(self, anchor: Anchor) -> bool:
        if self._anchors:
            last = self._anchors[-1]
            length_ms = self._source.elapsed_ms(last.event, anchor.event)
            if length_ms <= 0:
                return False  # no later than what we have
            anchor.tighten(last, length_ms * 1e6)
            if len(self._anchors) == 1:  # nothing was placed by it yet; later ones stay as they are
                last.tighten(anchor, -length_ms * 1e6)
            last.length_ms, last.next = length_ms, anchor
        self._anchors = [*self._anchors[1 - _KEPT :], anchor]
        return True


class _Waiting(NamedTuple):
    """An event for an anchor that has not completed yet. ``early_ns``: then it had not."""

    event: Any
    early_ns: int
    thread: int
