"""A device with a clock of its own: its rate, its resolution, float32 milliseconds, streams that queue."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from rltel.core.errors import RecordError
from rltel.record.device.event_source import StreamRef

OWN = 1 << 20  # keys of streams that the timeline makes for itself


@dataclass
class SimulatedEvent:
    """Completes at this host time, which only the simulation knows."""

    done_ns: int | None = None


@dataclass
class SimulatedDevice:
    """One or more devices and the host that drives them. All times are of the host, in nanoseconds.

    Args:
        rate: of the device's clock, relative to the host's.
        resolution_ns: of the device's clock.
        visible_ns: how long after an event completed the host can see that.
        one_queue: events of all streams go through one queue, as with CUDA_DEVICE_MAX_CONNECTIONS=1.
        latency_ns: how long it takes the device to come to what it is given.
        record_ns, query_ns: what a call costs the host.
        looks_late: whether a query looks at its end, or at its beginning.
    """

    host_ns: int = 5_000_000_000
    rate: float = 1.0
    offset_ns: int = 987_654_321_012
    resolution_ns: int = 32
    visible_ns: int = 800
    one_queue: bool = False
    latency_ns: int = 3_000
    record_ns: int = 1_500
    query_ns: int = 400
    looks_late: bool = True
    in_use: bool = True
    capturing: bool = False
    broken: Exception | None = None
    current: int = 0
    calls: list[tuple[str, int]] = field(default_factory=list)
    """Each call with the thread that made it."""
    free_at: dict[tuple[str, int], int] = field(default_factory=dict)
    elapsed: list[float] = field(default_factory=list)

    # --- the host ---------------------------------------------------------------------------------------------------

    def now(self) -> int:
        self.host_ns += 50
        return self.host_ns

    def advance(self, ms: float) -> None:
        self.host_ns += round(ms * 1e6)

    def sleep(self, seconds: float) -> None:
        self.advance(seconds * 1e3)

    def run(self, ms: float, stream: int = 0, device: str = "cuda:0") -> None:
        """Put work on a stream."""
        self.free_at[device, stream] = max(self.host_ns, self.free_at.get((device, stream), 0)) + round(ms * 1e6)

    def wait(self, stream: int, other: int, device: str = "cuda:0") -> None:
        """What comes next on `stream` waits for what is on the other."""
        until = self.free_at.get((device, other), 0)
        self.free_at[device, stream] = max(until, self.free_at.get((device, stream), 0))

    def count(self, call: str) -> int:
        return sum(name == call for name, _ in self.calls)

    # --- the event source -------------------------------------------------------------------------------------------

    def _called(self, call: str, costs_ns: int = 0) -> None:
        self.calls.append((call, threading.get_ident()))
        self.host_ns += costs_ns
        if self.broken is not None:
            raise self.broken

    def ready(self) -> bool:
        return self.in_use

    def stream(self, given: Any) -> StreamRef:
        if given is None:
            return StreamRef("cuda:0", self.current, None)
        if isinstance(given, int):
            return StreamRef("cuda:0", given, None)
        if isinstance(given, StreamRef):
            return given
        raise RecordError(f"expected a stream, got {given!r}")

    def is_capturing(self, stream: StreamRef | None = None) -> bool:
        return self.capturing

    def own_stream(self, device: str) -> StreamRef:
        return StreamRef(device, OWN, None)

    def new_event(self, device: str) -> SimulatedEvent:
        self._called("new_event")
        return SimulatedEvent()

    def record(self, event: SimulatedEvent, stream: StreamRef) -> None:
        assert not self.capturing
        self._called("record", self.record_ns)
        queues = self.free_at if self.one_queue else ((stream.device, stream.key),)
        event.done_ns = max(self.host_ns + self.latency_ns, *(self.free_at.get(queue, 0) for queue in queues), 0)

    def query(self, event: SimulatedEvent) -> bool:
        assert not self.capturing
        early_ns = self.host_ns
        self._called("query", self.query_ns)
        assert event.done_ns is not None
        return (self.host_ns if self.looks_late else early_ns) >= event.done_ns + self.visible_ns

    def elapsed_ms(self, first: SimulatedEvent, second: SimulatedEvent) -> float:
        self._called("elapsed")
        ticks = self._ticks(second) - self._ticks(first)
        self.elapsed.append(abs(ticks * self.resolution_ns / 1e6))
        return float(np.float32(ticks * self.resolution_ns / 1e6))

    def _ticks(self, event: SimulatedEvent) -> int:
        assert event.done_ns is not None
        assert event.done_ns <= self.host_ns, "not completed"
        return int((event.done_ns * self.rate + self.offset_ns) // self.resolution_ns)
