"""What the tests of destinations are made of: identities, commits, clocks, and what was recorded."""

import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from rltel.core.clock import Anchor
from rltel.core.identity import Identity
from rltel.export.commit import Commit
from rltel.export.points import Point, Totals, points_of
from rltel.names.otel import Namer
from rltel.record.recorder import Recorder
from rltel.reduce.snapshot import Snapshot
from rltel.reduce.trackers import Trackers

TIME_NS = 1_795_987_020_123_456_789
PATIENT = {"RLTEL_PIPELINE_SHUTDOWN_TIMEOUT_S": "60"}
"""Variables of a program whose end may take its time: where what arrives is tested, and not how long it takes."""


def identity(run_dir: Path | None = None, **changed: Any) -> Identity:
    """A learner's, the writer of a run of one process, unless told otherwise."""
    known = {
        "run_id": "run-1",
        "run_dir": run_dir,
        "role": "learner",
        "rank": 0,
        "world_size": 1,
        "index": 0,
        "incarnation": 1,
        "is_writer": True,
    }
    return Identity(**{**known, **changed})


def recorded(record: Callable[[Trackers], object]) -> Snapshot:
    """What a program records, as a snapshot."""
    trackers = Trackers(Recorder())
    record(trackers)
    with trackers.taken() as snapshot:
        return snapshot


def commit(numbers: Mapping[str, float] | Snapshot | None = None, **changed: Any) -> Commit:
    """A commit of plain numbers, or of a snapshot."""
    snapshot = numbers if isinstance(numbers, Snapshot) else Snapshot.of_numbers(numbers or {})
    known = {"identity": identity(), "number": 0, "time_ns": TIME_NS, "step": 1, "axis": "train", "snapshot": snapshot}
    return Commit(**{**known, **changed})


class Points:
    """Commits turned into points, one after the other, as a pipeline does it."""

    def __init__(self) -> None:
        self.namer = Namer()
        self.totals = Totals(self.namer)

    def of(self, made: Commit) -> list[Point]:
        self.totals.add(made)
        return points_of(made, self.totals)


def points_of_record(record: Callable[[Trackers], object]) -> list[Point]:
    """The points of one commit of what a program records."""
    return Points().of(commit(recorded(record)))


def point(points: Sequence[Point], name: str, **attributes: str) -> Point:
    """The only point of that name with these attributes (``rl_stat`` for ``rl.stat``) among its own."""
    wanted = {key.replace("_", "."): value for key, value in attributes.items()}
    (found,) = [each for each in points if each.name == name and wanted.items() <= each.attributes.items()]
    return found


class FakeClock:
    """A clock that stands still until it is told."""

    def __init__(self, monotonic_ns: int = 1_000, realtime_ns: int = TIME_NS, boottime_ns: int | None = None) -> None:
        self.now = monotonic_ns
        self._realtime_offset = realtime_ns - monotonic_ns
        self._boottime_offset = (monotonic_ns if boottime_ns is None else boottime_ns) - monotonic_ns

    def monotonic_ns(self) -> int:
        return self.now

    def realtime_ns(self) -> int:
        return self.now + self._realtime_offset

    def host(self) -> str:
        return "host-and-boot"

    def anchor(self) -> Anchor:
        return Anchor(self.now, self.realtime_ns(), self.now + self._boottime_offset, 0)


class ListSink:
    """Remembers what it got."""

    def __init__(self, name: str = "list") -> None:
        self.name = name
        self.commits: list[Commit] = []
        self.points: list[Sequence[Point]] = []
        self.flushes = 0
        self.closed = False

    def describe(self) -> str:
        return "a list"

    def write(self, made: Commit, points: Sequence[Point]) -> None:
        self.commits.append(made)
        self.points.append(points)

    def flush(self) -> None:
        self.flushes += 1

    def close(self) -> None:
        self.closed = True


def wait_until(holds: Callable[[], object], what: str, timeout: float = 60.0) -> None:
    """Return as soon as it holds; AssertionError if it never does."""
    deadline = time.monotonic() + timeout
    while not holds():
        if time.monotonic() > deadline:
            raise AssertionError(f"{what}: not within {timeout} s")
        time.sleep(0.005)


def environment(**changed: str) -> dict[str, str]:
    """This process's, without what would set up telemetry."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("RLTEL_", "OTEL_"))}
    return {**kept, **changed}


def run_python(
    code: str, *arguments: str | Path, timeout: float = 200.0, **environ: str
) -> subprocess.CompletedProcess[str]:
    """Run a program in a process of its own."""
    return subprocess.run(
        [sys.executable, "-c", code, *map(str, arguments)],
        env=environment(**environ),
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )
