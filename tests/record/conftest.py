from __future__ import annotations

from collections.abc import Callable

import pytest

from rltel.record import fold
from rltel.record.recorder import Recorder
from rltel.record.tracker import Tracker


class Clock:
    """Stands still until it is told to go on."""

    def __init__(self) -> None:
        self.ns = 1_000_000_000
        self.readings = 0

    def __call__(self) -> int:
        self.readings += 1
        return self.ns

    def tick(self, seconds: float) -> None:
        self.ns += round(seconds * 1e9)

    def fail_after(self, seconds: float) -> None:
        self.tick(seconds)
        raise ZeroDivisionError


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def recorder(clock: Clock) -> Recorder:
    return Recorder(now=clock)


@pytest.fixture
def tracker(recorder: Recorder) -> Tracker:
    return Tracker(recorder=recorder)


@pytest.fixture
def taken(tracker: Tracker) -> Callable[..., dict[str, float]]:
    """Takes what a tracker recorded, as a flat dict."""

    def take(of: Tracker = tracker) -> dict[str, float]:
        states = of.take()
        of.exported(states)
        return {f"{key}{value.suffix}": value.value for key, state in states.items() for value in state.values()}

    return take


@pytest.fixture
def on_a_device(monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes the CPU count as a device whose numbers nobody may wait for."""
    monkeypatch.setattr(fold, "_HOST", "none")
