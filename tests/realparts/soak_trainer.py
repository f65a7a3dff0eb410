"""A small trainer for soaks, which trains nothing and misbehaves as it is told. Needs the standard library only."""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

SUMMARY: dict[str, Any] = {"status": "completed", "metric_schema_version": 1, "total_env_steps": 66560}
SHUTDOWN: dict[str, Any] = {
    "classification": "normal_completion",
    "owner": "learner",
    "phase": "close/end",
    "exception": None,
    "cleanup": {"errors": []},
}
MANIFEST: dict[str, Any] = {
    "schema_version": 1,
    "inference_ring_capacity": 1,
    "collector_metrics_interval": 100,
    "collector_backend_device": None,
    "inference_flight": {"queue_depth": 0, "publication_lag": 0, "max_in_flight": 1, "max_publication_lag": 1},
    "replay_ingress": {
        "ingress_depth": 2,
        "ingress_slot_rows": 1024,
        "published_sequence": 65,
        "release_sequence": 65,
        "occupancy": 0,
        "high_water_occupancy": 2,
        "backpressure_waits": 0,
        "backpressure_wait_s": 0.0,
        "early_returns": 0,
        "dropped_batches": 0,
        "closed_returns": 0,
        "stop_returns": 0,
    },
    "shutdown": SHUTDOWN,
}
FULL = {**SUMMARY, "runtime_manifest": MANIFEST}
_LONG_S = 600.0  # only a test that goes wrong lasts so long


def command(behaviour: str, *more: str | Path) -> list[str]:
    """The command line of a training that behaves so (a function below)."""
    return [sys.executable, "-I", "-S", __file__, behaviour, *map(str, more)]


def failed(classification: str, **changed: Any) -> dict[str, Any]:
    """A summary of a run that failed, with its producer's word for it."""
    shutdown = {**SHUTDOWN, "classification": classification, "owner": "collector", **changed}
    return {**SUMMARY, "status": "failed", "runtime_manifest": {**MANIFEST, "shutdown": shutdown}}


# --- in a process of its own ------------------------------------------------------------------------------------------


def completes(folder: Path) -> None:
    """Trains a little, and ends well."""
    step(folder)
    summarise(folder, FULL)


def completes_without_manifest(folder: Path) -> None:
    """As a trainer that has none, PPO."""
    step(folder)
    summarise(folder, SUMMARY)


def writes(folder: Path, text: str, code: str = "0") -> None:
    """Ends with this summary, whatever it is, and this exit code."""
    step(folder)
    (folder / "run_summary.json").write_text(text)
    sys.exit(int(code))


def writes_no_summary(folder: Path) -> None:
    """Ends well and leaves nothing."""
    step(folder)


def loses_its_collector(folder: Path) -> None:
    """Somebody kills the collector; the learner notices, says so, and ends."""
    collector = sleeper()
    step(folder)
    collector.kill()
    code = collector.wait()
    error = {"type": "RuntimeError", "message": f"the collector ended with {code}"}
    summarise(folder, failed("collector_failure", phase="train/step", exception=error))
    sys.exit(1)


def hangs(folder: Path) -> None:
    """Stops getting on; told to end, it does, and says that somebody told it to."""

    def leave(number: int, _: Any) -> None:
        summarise(folder, failed("external_cancellation", owner="external"))
        sys.exit(128 + number)

    signal.signal(signal.SIGTERM, leave)
    signal.signal(signal.SIGINT, leave)
    sleeper()
    step(folder)
    (folder / "hangs").touch()
    time.sleep(_LONG_S)


def hangs_deaf(folder: Path) -> None:
    """Stops getting on, and takes no notice of SIGTERM; nor does its collector."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    sleeper()
    step(folder)
    time.sleep(_LONG_S)


def hangs_but_its_clock_goes_on(folder: Path) -> None:
    """The loop hangs, while a thread keeps writing the summary of a run that is running."""

    def write() -> None:
        for number in range(100_000):
            summarise(folder, {**SUMMARY, "status": "running", "updated": "x" * number})
            time.sleep(0.05)

    threading.Thread(target=write, daemon=True).start()
    step(folder)
    time.sleep(_LONG_S)


def fails_and_hangs(folder: Path) -> None:
    """Loses its collector, says so, and hangs while it takes things apart."""
    step(folder)
    summarise(folder, failed("collector_failure"))
    time.sleep(_LONG_S)


def never_begins(_: Path) -> None:
    """Compiles for ever."""
    time.sleep(_LONG_S)


def leaks_a_child(folder: Path, note: str) -> None:
    """Leaves a process behind that has left its session and its parent."""
    pid = os.fork()
    if pid == 0:
        os.setsid()
        if os.fork() == 0:
            Path(note).write_text(str(os.getpid()))
            time.sleep(_LONG_S)
        os._exit(0)
    os.waitpid(pid, 0)
    wait_for(Path(note).exists)
    completes(folder)


def leaks_a_busy_child(folder: Path, note: str) -> None:
    """Leaves a process behind that starts a thread after it has been seen."""
    code = (
        "import sys, threading, time, pathlib\n"
        "open(sys.argv[1] + '.up', 'w').close()\n"
        "while not pathlib.Path(sys.argv[1] + '.seen').exists(): time.sleep(0.01)\n"
        f"threading.Thread(target=time.sleep, args=({_LONG_S},), daemon=True).start()\n"
        "open(sys.argv[1], 'w').close()\n"
        f"time.sleep({_LONG_S})\n"
    )
    subprocess.Popen([sys.executable, "-I", "-S", "-c", code, note])
    wait_for(Path(note + ".up").exists)
    time.sleep(3.0)  # some samples see it
    Path(note + ".seen").touch()
    wait_for(Path(note).exists)
    completes(folder)


def leaks_memory(folder: Path) -> None:
    """4 MiB more each step."""
    held = []
    for number in range(200):
        held.append(bytearray(os.urandom(1 << 12) * 1024))
        step(folder, number)
        time.sleep(0.05)
    time.sleep(_LONG_S)


def leaks_descriptors(folder: Path) -> None:
    """A pipe more each step."""
    for number in range(400):
        os.pipe()
        step(folder, number)
        time.sleep(0.05)
    time.sleep(_LONG_S)


def leaks_processes(folder: Path) -> None:
    """A collector more each step."""
    for number in range(40):
        sleeper()
        step(folder, number)
        time.sleep(0.2)
    time.sleep(_LONG_S)


def goes_on(folder: Path, steps: str = "100000") -> None:
    """Trains until it is told to end, then says that it was interrupted."""
    sleeper()
    try:
        for number in range(int(steps)):
            step(folder, number)
            time.sleep(0.02)
        summarise(folder, FULL)
    except KeyboardInterrupt:
        summarise(folder, {**SUMMARY, "status": "interrupted"})
        sys.exit(130)


def orphans_come_and_go(folder: Path) -> None:
    """Daemons that end before the training does."""
    for number in range(5):
        if os.fork() == 0:
            if os.fork() == 0:
                os.setsid()
                time.sleep(0.1)
            os._exit(0)
        os.wait()
        step(folder, number)
    time.sleep(1.0)
    completes(folder)


def step(folder: Path, number: int = 0) -> None:
    """A line of progress."""
    with (folder / "progress.jsonl").open("a") as file:
        file.write(f"{number}\n")


def summarise(folder: Path, summary: dict[str, Any]) -> None:
    """Write the summary whole."""
    draft = folder / ".draft"
    draft.write_text(json.dumps(summary))
    draft.replace(folder / "run_summary.json")


def sleeper() -> subprocess.Popen[bytes]:
    """A collector; it ends with its parent, in case that is killed by a test that goes wrong."""
    return subprocess.Popen([sys.executable, "-I", "-S", __file__, "sleeps", str(os.getpid())])


def sleeps(_: Path, parent: str) -> None:
    """A collector, as deaf as its parent."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(1, signal.SIGKILL, 0, 0, 0)
    while os.getppid() == int(parent):
        time.sleep(0.1)


def wait_for(holds: Callable[[], bool]) -> None:
    """Until it holds."""
    deadline = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.01)


if __name__ == "__main__":
    globals()[sys.argv[1]](Path(os.environ["RLTEL_RUN_DIR"]), *sys.argv[2:])
