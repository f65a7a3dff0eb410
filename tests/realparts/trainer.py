"""A small training with telemetry of any config: what the tests of faults run in a process of its own, and break.

It fits a linear policy with numpy, the same every time from its seed, so a test can say that the training's result is
what it is without telemetry. It prints every step that it has committed, its result, and when its last statement ran.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import random
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from prometheus_client.parser import text_string_to_metric_families

TESTS = Path(__file__).parents[1]
STEPS, SEED = 40, 42

# --- in the tests -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Ended:
    """A training that has ended."""

    code: int
    out: list[str]
    err: str
    ended: float
    """When it was seen to have ended, on the monotonic clock, which all processes of a machine share."""

    def said(self, what: str) -> list[Any]:
        """What it printed under this name."""
        return [json.loads(line[len(what) :]) for line in self.out if line.startswith(f"{what} ")]

    @property
    def committed(self) -> list[int]:
        """Steps whose `commit` returned."""
        return self.said("committed")

    @property
    def result(self) -> str:
        """What the training came to, and where it left the generators of random numbers."""
        assert self.said("result"), self.err
        return str(self.said("result")[0])

    @property
    def dropped(self) -> dict[tuple[str, str], int]:
        """Of the last scrape that it printed (``scrape()``): what was lost, by destination and reason."""
        found = {}
        for family in text_string_to_metric_families(self.said("scraped")[-1]):
            for sample in family.samples:
                if sample.name == "rltel_dropped_total":
                    found[sample.labels["destination"], sample.labels["reason"]] = int(sample.value)
        return found

    @property
    def exit_s(self) -> float:
        """Seconds from its last statement to its end."""
        return self.ended - float(self.said("last")[0])


class Running:
    """A training that runs. Its output is read as it comes."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self._out: list[str] = []
        self._err: list[str] = []
        self._readers = [_reading(process.stdout, self._out), _reading(process.stderr, self._err)]

    def wait_for(self, step: int, timeout: float = 120.0) -> None:
        """Until this step is committed."""
        deadline = time.monotonic() + timeout
        while f"committed {step}" not in self._out:
            assert self.process.poll() is None, "".join(self._err)
            assert time.monotonic() < deadline, f"step {step} was not committed in {timeout} s: {self._err}"
            time.sleep(0.005)

    def end(self, timeout: float = 250.0) -> Ended:
        """Wait for its end."""
        self.process.wait(timeout)
        ended = time.monotonic()
        for reader in self._readers:
            reader.join(30)  # what it started may still hold the pipes
        return Ended(self.process.returncode, list(self._out), "\n".join(self._err), ended)


def _reading(pipe: Any, into: list[str]) -> threading.Thread:
    def read() -> None:
        while line := pipe.readline():
            into.append(line.rstrip("\n"))

    thread = threading.Thread(target=read, daemon=True)
    thread.start()
    return thread


@contextmanager
def started(
    config: Mapping[str, Any] | None,
    run_dir: Path | None = None,
    *,
    steps: int = STEPS,
    seed: int = SEED,
    before: str = "",
    at: Mapping[int, str] | None = None,
    after: str = "",
    pause_s: float = 0.0,
    command: Sequence[str] = (sys.executable,),
    environ: Mapping[str, str] | None = None,
) -> Iterator[Running]:
    """Start a training; it is killed at the end of the block, if it is still there.

    Args:
        config: for ``rltel.init``; None: without rltel, which is not even imported.
        run_dir: the run directory.
        steps: how many.
        seed: of ``random`` and numpy.
        before: a program that runs before ``rltel.init``, once the generators are seeded.
        at: programs that run before these steps. ``rltel``, ``telemetry``, ``step``, ``os``, ``scrape()``, ``say()``
            are there.
        after: one that runs after the last.
        pause_s: after each step.
        command: what runs the program.
        environ: variables beside those of this process, without those that set up telemetry.
    """
    task = {
        "config": None if config is None else dict(config),
        "run_dir": None if run_dir is None else str(run_dir),
        "steps": steps,
        "seed": seed,
        "before": before,
        "at": {str(step): code for step, code in (at or {}).items()},
        "after": after,
        "pause_s": pause_s,
    }
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("RLTEL_", "OTEL_", "WANDB_"))}
    paths = {"PYTHONPATH": str(TESTS), "PYTHONUNBUFFERED": "1"}
    if run_dir is not None:
        paths["HOME"] = str(run_dir.parent)  # tracking packages keep things there
    process = subprocess.Popen(
        [*command, str(Path(__file__)), json.dumps(task)],
        env={**kept, **paths, **(environ or {})},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        stdin=subprocess.DEVNULL,
        text=True,
    )
    try:
        yield Running(process)
    finally:
        process.kill()
        process.wait()


def trained(config: Mapping[str, Any] | None, run_dir: Path | None = None, **how: Any) -> Ended:
    """A training from start to end; see `started`."""
    with started(config, run_dir, **how) as running:
        return running.end()


@cache
def plain_result(steps: int = STEPS, seed: int = SEED) -> str:
    """What the training comes to where rltel is not even imported."""
    return trained(None, steps=steps, seed=seed).result


def replayed(run_dir: Path, to: str, endpoint: str | None = None) -> dict[str, Any]:
    """What ``rltel replay`` reports."""
    where = () if endpoint is None else ("--endpoint", endpoint)
    code = "from rltel.cli import app; app()"
    ran = subprocess.run(
        [sys.executable, "-c", code, "replay", str(run_dir), "--to", to, "--json", *where],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    report: dict[str, Any] = json.loads(ran.stdout)
    return report


# --- in the process ---------------------------------------------------------------------------------------------------


class Hanging:
    """A destination that hangs at one of its calls: ``write``, ``flush`` or ``close``."""

    name = "hanging"

    def __init__(self, at: str, seconds: float) -> None:
        self._at, self._seconds = at, seconds

    def describe(self) -> str:
        return f"hangs at {self._at}"

    def write(self, *_: object) -> None:
        self._hang("write")

    def flush(self) -> None:
        self._hang("flush")

    def close(self) -> None:
        self._hang("close")

    def _hang(self, at: str) -> None:
        if at == self._at:
            time.sleep(self._seconds)


class _Off:
    """Stands where rltel would: does nothing."""

    def __getattr__(self, name: str) -> Callable[..., Any]:
        return lambda *_, **__: contextlib.nullcontext()


class _Training:
    """Fits a policy to noisy rewards."""

    def __init__(self, rltel: Any) -> None:
        self._rltel = rltel
        self.weights = np.zeros(8)

    def step(self, number: int) -> None:
        """One iteration: a rollout, an update, a commit."""
        rltel = self._rltel
        with rltel.slice("iteration"):
            with rltel.record_timing("rollout"):
                states = np.random.standard_normal((32, 8))
                rewards = states @ np.arange(8) + random.random()
            with rltel.record_timing("update"):
                errors = states @ self.weights - rewards
                self.weights -= 0.05 * states.T @ errors / len(errors)
            rltel.count(episodes=1)
            rltel.scalar(reward=float(rewards.mean()))
            rltel.stat(loss=errors**2)
            rltel.distribution(seq_len=np.arange(1, 33))
        rltel.commit(step=number)

    def digest(self) -> str:
        """Of the weights, and of what the program would draw next."""
        left = (random.getstate(), np.random.get_state()[1].tolist())
        return hashlib.sha256(self.weights.tobytes() + repr(left).encode()).hexdigest()


def _say(what: str, value: Any) -> None:
    os.write(1, f"{what} {json.dumps(value)}\n".encode())


def _scrape(rltel: Any, telemetry: Any) -> None:
    """Print what the endpoint says once everything has arrived."""
    rltel.flush(60)
    with urllib.request.urlopen(telemetry.prometheus_url, timeout=30) as response:
        _say("scraped", response.read().decode())


def _main(task: Mapping[str, Any]) -> None:
    random.seed(task["seed"])
    np.random.seed(task["seed"])
    scope: dict[str, Any] = {"os": os, "sys": sys, "time": time, "say": _say, "run_dir": task["run_dir"]}
    exec(task["before"], scope)
    rltel: Any = _Off()
    if task["config"] is not None:
        import rltel
        from rltel.process import process  # `rltel.init` takes no sinks

        scope["telemetry"] = process.init(task["config"], run_dir=task["run_dir"], **scope.get("injected", {}))
        scope["scrape"] = lambda: _scrape(rltel, scope["telemetry"])
    scope["rltel"] = rltel
    training = _Training(rltel)
    for step in range(task["steps"]):
        exec(task["at"].get(str(step), ""), {**scope, "step": step})
        training.step(step)
        _say("committed", step)
        if task["pause_s"]:
            time.sleep(task["pause_s"])
    exec(task["after"], scope)
    _say("result", training.digest())
    _say("last", time.monotonic())


if __name__ == "__main__":
    _main(json.loads(sys.argv[1]))
