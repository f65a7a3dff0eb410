"""Counters of the runtime manifest, kept by those who move the data. They hold two kinds of maximum.

``max_*`` of the flight belong to a report: they begin anew once a report has been *accepted*. The high-water mark of
the ingress belongs to the run and never begins anew.
"""

import queue
from collections.abc import Callable
from threading import Lock
from typing import Literal


class InFlight:
    """Requests on their way from a collector to the learner and back, each counted where it passes. Thread-safe."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._requested = 0
        self._taken = 0
        self._consumed = 0
        self._peak = 0

    def requested(self) -> None:
        """The collector has published a request."""
        with self._lock:
            self._requested += 1
            self._peak = max(self._peak, self._requested - self._consumed)

    def taken(self) -> None:
        """The learner has taken the oldest request."""
        with self._lock:
            self._taken += 1

    def consumed(self) -> None:
        """The collector has used the answer to the oldest request."""
        with self._lock:
            self._consumed += 1

    def fields(self) -> dict[str, int]:
        """``inference_flight``: what is waiting and under way now, and the most since the last accepted report."""
        with self._lock:
            return self._fields()

    def publish(self, send: Callable[[dict[str, int]], object]) -> bool:
        """Hand the fields to ``send``; the maxima begin anew only if it accepts them.

        A ``send`` that returns False or raises ``queue.Full`` has not accepted: False comes back, and the next report
        holds this one's maxima as well. Any other error passes on, and keeps them, too.
        """
        with self._lock:
            fields, peak = self._fields(), self._peak
            self._peak = self._requested - self._consumed  # what is under way was there at the new window's begin
        accepted = False
        try:
            accepted = send(fields) is not False
        except queue.Full:
            pass
        finally:
            if not accepted:
                with self._lock:
                    self._peak = max(self._peak, peak)
        return accepted

    def _fields(self) -> dict[str, int]:
        # One request has one publication: the lag is what is under way, as in the producer that named these fields.
        lag = self._requested - self._consumed
        waiting = max(self._requested - self._taken, 0)
        return {
            "queue_depth": waiting,
            "publication_lag": lag,
            "max_in_flight": self._peak,
            "max_publication_lag": self._peak,
        }


class ReplayIngress:
    """Batches on their way to the replay buffer, through ``depth`` slots of ``slot_rows`` rows each. Thread-safe."""

    def __init__(self, depth: int, slot_rows: int) -> None:
        if depth < 1 or slot_rows < 1:
            raise ValueError(f"replay ingress: expected at least one slot and one row, got {depth} of {slot_rows}")
        self._lock = Lock()
        self._counts: dict[str, float] = {
            "ingress_depth": depth,
            "ingress_slot_rows": slot_rows,
            "published_sequence": 0,
            "release_sequence": 0,
            "high_water_occupancy": 0,
            "backpressure_waits": 0,
            "backpressure_wait_s": 0.0,
            "early_returns": 0,
            "dropped_batches": 0,
            "closed_returns": 0,
            "stop_returns": 0,
        }

    def published(self) -> None:
        """A slot was filled."""
        with self._lock:
            self._counts["published_sequence"] += 1
            self._counts["high_water_occupancy"] = max(self._counts["high_water_occupancy"], self._occupancy())

    def released(self) -> None:
        """The oldest filled slot was emptied into the buffer."""
        with self._lock:
            self._counts["release_sequence"] += 1

    def waited(self, seconds: float) -> None:
        """A writer found all slots full and waited."""
        with self._lock:
            self._counts["backpressure_waits"] += 1
            self._counts["backpressure_wait_s"] += seconds

    def dropped(self, why: Literal["closed", "stop"]) -> None:
        """A batch was given up, because the ring was closed or the run told to stop."""
        with self._lock:
            for name in ("early_returns", "dropped_batches", f"{why}_returns"):
                self._counts[name] += 1

    def fields(self) -> dict[str, float]:
        """``replay_ingress``: all since the run's begin."""
        with self._lock:
            return {**self._counts, "occupancy": self._occupancy()}

    def _occupancy(self) -> float:
        return self._counts["published_sequence"] - self._counts["release_sequence"]
