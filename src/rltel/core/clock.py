"""Clocks: intervals come from a monotonic clock; anchors tie it to the wall clock.

An anchor is one reading of the clocks at (nearly) the same moment. The wall clock may step; durations never see it.
"""

import hashlib
import platform
import time
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Protocol

_TRIES = 5  # the tightest of a few readings: a reading that was interrupted by the scheduler is too wide to use


@dataclass(frozen=True, slots=True)
class Anchor:
    """Readings of three clocks at one moment, in nanoseconds; ``width_ns`` bounds how far apart they were taken."""

    monotonic_ns: int
    realtime_ns: int
    boottime_ns: int
    width_ns: int

    def realtime_of(self, monotonic_ns: int) -> int:
        """The wall-clock time (ns since the epoch) of a monotonic reading, by this anchor."""
        return monotonic_ns - self.monotonic_ns + self.realtime_ns


class Clock(Protocol):
    """What rltel reads time from. Tests inject their own."""

    def monotonic_ns(self) -> int:
        """Nanoseconds on the clock that intervals are measured with."""

    def realtime_ns(self) -> int:
        """Nanoseconds since the epoch."""

    def anchor(self) -> Anchor:
        """The clocks read together."""

    def host(self) -> str:
        """An opaque id, equal for processes that read the same monotonic clock: those of one boot of one host."""


class SystemClock:
    """The real clocks. ``perf_counter_ns`` is CLOCK_MONOTONIC on Linux, shared by all processes of a host."""

    monotonic_ns = staticmethod(time.perf_counter_ns)
    realtime_ns = staticmethod(time.time_ns)

    def anchor(self) -> Anchor:
        """The tightest of a few joint readings."""
        return min((self._read() for _ in range(_TRIES)), key=lambda anchor: anchor.width_ns)

    def host(self) -> str:
        """Made from the kernel's id of this boot: it tells nothing about the machine."""
        return _host()

    def _read(self) -> Anchor:
        before = time.perf_counter_ns()
        realtime = time.time_ns()
        boottime = _boottime_ns()
        after = time.perf_counter_ns()
        return Anchor((before + after) // 2, realtime, boottime, after - before)


def _boottime_ns() -> int:
    """CLOCK_BOOTTIME where there is one, else the monotonic clock (same rate, no time asleep)."""
    boottime = getattr(time, "CLOCK_BOOTTIME", None)
    return time.perf_counter_ns() if boottime is None else time.clock_gettime_ns(boottime)


@cache
def _host() -> str:
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:  # not Linux: processes of one host agree on its name, and on when it booted to some minutes
        boot = f"{platform.node()} {(time.time_ns() - _boottime_ns()) // 600_000_000_000}"
    return hashlib.sha256(f"rltel {boot}".encode()).hexdigest()[:16]
