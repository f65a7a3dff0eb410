"""Where a moment on a device lies on the host clock.

An anchor is an event whose completion the host observed: not yet at one reading, done at the next. Device times are
given relative to an anchor (``elapsed_time`` is float32 milliseconds) and drawn on the line through it and the next
one, since two clocks do not run at one rate. That line is right if the rates stay the same between two anchors.
"""

import math
from typing import Any, NamedTuple

RESOLUTION_NS = 500  # of elapsed_time, as CUDA documents it
MAX_DRIFT = 500e-6  # of the rates, where nothing was measured: crystals and a slewed system clock stay below this


class Anchor:
    """An event that completed between two readings of the host clock."""

    __slots__ = ("early_ns", "event", "late_ns", "length_ms", "next")

    def __init__(self, event: Any, early_ns: int, late_ns: int) -> None:
        self.event = event
        self.early_ns = early_ns
        self.late_ns = late_ns
        self.next: Anchor | None = None
        self.length_ms = 0.0
        """Device time to the next one."""

    @property
    def host_ns(self) -> int:
        """The best guess."""
        return (self.early_ns + self.late_ns) // 2

    @property
    def half_ns(self) -> float:
        """How far it may be off."""
        return (self.late_ns - self.early_ns) / 2

    def tighten(self, other: "Anchor", after_ns: float) -> None:
        """Narrow it down by another one, so much device time earlier."""
        drift = abs(after_ns) * MAX_DRIFT + RESOLUTION_NS + rounding_ns(after_ns)
        early = max(self.early_ns, math.floor(other.early_ns + after_ns - drift))
        late = min(self.late_ns, math.ceil(other.late_ns + after_ns + drift))
        if early <= late:
            self.early_ns, self.late_ns = early, late


class HostTime(NamedTuple):
    """A moment on the host clock, how far it may be off, and host nanoseconds per device millisecond around it."""

    ns: int
    uncertainty_ns: float
    rate: float
    rate_uncertainty: float
    """Relative to the rate."""


class Position(NamedTuple):
    """A moment on the device: milliseconds after an anchor."""

    anchor: Anchor
    after_ms: float

    def is_between(self) -> bool:
        """Whether the anchor after it is known, too."""
        return self.anchor.next is not None

    def on_host(self) -> HostTime:
        """The same moment on the host clock: on the line through both anchors, or by the one that is known."""
        anchor, after_ms = self
        around = RESOLUTION_NS + rounding_ns(after_ms * 1e6)
        following = anchor.next
        if following is None or not anchor.length_ms > 0:
            distance = after_ms * 1e6
            off = anchor.half_ns + abs(distance) * MAX_DRIFT
            return HostTime(anchor.host_ns + round(distance), off + around, 1e6, MAX_DRIFT)
        length_ns = following.host_ns - anchor.host_ns
        part = after_ms / anchor.length_ms
        off = abs(1 - part) * anchor.half_ns + abs(part) * (following.half_ns + rounding_ns(anchor.length_ms * 1e6))
        host_ns = anchor.host_ns + round(part * length_ns)
        off_rate = (anchor.half_ns + following.half_ns + 2 * RESOLUTION_NS) / max(length_ns, 1)
        if off_rate > MAX_DRIFT:  # too short a way to measure a rate
            return HostTime(host_ns, off + around, 1e6, MAX_DRIFT)
        return HostTime(host_ns, off + around, length_ns / anchor.length_ms, off_rate)


def rounding_ns(ns: float) -> float:
    """How far a time given as float32 milliseconds may be off for that: a unit of its last place."""
    return math.ldexp(1e6, math.frexp(ns / 1e6)[1] - 24)
