"""Asynchronous GRPO on sums, with rltel switched on: a small transformer learns to add, verifiably.

    controller (this process)    orders rollouts, makes updates of what comes, hands out weights    grpo_controller.py
    2 rollout workers            answer, all at once, with whatever weights they have               grpo_worker.py
    2 trainer ranks (torchrun)   a short supervised warm-up, then GRPO                              grpo_trainer.py

Nobody waits for anybody that need not: rollouts are a few versions old, and an answer may be begun with one policy and
ended with the next. So two runs of one seed are alike, not equal.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from multiprocessing.connection import Client, Connection
from pathlib import Path
from typing import Any

from grpo_controller import RANKS, WORKERS, Controller
from grpo_worker import worker_main
from llm_report import report
from otlp_receiver import otlp_is_wanted

import rltel
from rltel.traces.merge import merge

PATIENCE_S = 180.0
"""For a process to start, or to end."""


def telemetry_config(log_root: str) -> dict[str, Any]:
    """What rltel is switched on for. Every setting can be overridden by its ``RLTEL_*`` variable."""
    return {
        "run": {"algo": "grpo", "task": "arithmetic", "backend": "torch", "log_root": log_root},
        "trace": {"enabled": True},
        "prometheus": {"enabled": True},
        "tensorboard": {"path": "{run_dir}/tb"},
        "console": {"enabled": True, "interval_s": 5.0},
        "otlp": {"enabled": otlp_is_wanted()},
    }


@contextmanager
def running_worker(config: dict[str, Any], seed: int, experts: bool) -> Iterator[Connection]:
    """A rollout worker, for the length of the body; none is left behind however that ends."""
    context = multiprocessing.get_context("spawn")
    link, worker_link = context.Pipe(duplex=True)
    told = (config, seed, experts, worker_link)
    process = context.Process(target=worker_main, args=told, name="rollout", daemon=True)
    process.start()
    worker_link.close()  # else this process would keep the pipe open and never see its end
    try:
        yield link
    finally:
        tell_to_end(link)
        process.join(PATIENCE_S)
        if process.exitcode is None:
            process.kill()


@contextmanager
def running_ranks(given: argparse.Namespace, config: dict[str, Any]) -> Iterator[list[Connection]]:
    """The trainer's ranks, under torchrun; each listens at a socket of its own."""
    with tempfile.TemporaryDirectory(prefix="grpo-") as sockets, ExitStack() as links:
        said = {
            "config": json.dumps(config),
            "sockets": sockets,
            "seed": given.seed,
            "experts": int(given.moe),
            "warm-up": given.warm_up,
            "iterations": given.iterations,
        }
        process = subprocess.Popen(
            [
                *(sys.executable, "-m", "torch.distributed.run", f"--nproc-per-node={RANKS}"),
                *("--rdzv-backend=c10d", "--rdzv-endpoint=127.0.0.1:0", "--local-addr=127.0.0.1"),  # on any free port
                str(Path(__file__).with_name("grpo_trainer.py")),
                *(f"--{name}={value}" for name, value in said.items()),
            ],
            env=os.environ | {"OMP_NUM_THREADS": "1"},
            start_new_session=True,  # Ctrl+C is for this process, which tells the others
        )
        ranks: list[Connection] = []
        try:
            ranks.extend(links.enter_context(connected(f"{sockets}/{rank}", process)) for rank in range(RANKS))
            yield ranks
        finally:
            for link in ranks:
                tell_to_end(link)
            try:
                process.wait(PATIENCE_S)
            except subprocess.TimeoutExpired:
                process.terminate()
                process.wait()
        if process.returncode:
            raise RuntimeError(f"torchrun ended with {process.returncode}")


def tell_to_end(link: Connection) -> None:
    """Whoever is at the other end, unless it has ended."""
    with suppress(OSError):
        link.send(None)


def connected(path: str, process: subprocess.Popen[bytes]) -> Connection:
    """The rank that listens there, or will soon."""
    until = time.monotonic() + PATIENCE_S
    while True:
        try:
            return Client(path)
        except OSError:
            if process.poll() is not None or time.monotonic() > until:
                raise RuntimeError("the trainer's ranks did not start") from None
            time.sleep(0.05)


def train(given: argparse.Namespace) -> Path:
    """One run from start to end; returns its directory."""
    config = telemetry_config(given.log_root)
    running = rltel.init(config, role="controller")
    assert running.run_dir is not None  # tracing is on
    with ExitStack() as all_of_them:
        ranks = all_of_them.enter_context(running_ranks(given, config))
        workers = [
            all_of_them.enter_context(running_worker(config, given.seed + number, given.moe))
            for number in range(WORKERS)
        ]
        controller = Controller(workers, ranks, given.seed)
        signal.signal(signal.SIGINT, controller.stop)
        controller.run(given.iterations)
    rltel.shutdown(linger=False)
    return running.run_dir


def main(argv: list[str] | None = None) -> int:
    """Returns the exit code."""
    parser = argparse.ArgumentParser(description="Asynchronous GRPO on sums, with telemetry.")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--warm-up", type=int, default=220, help="supervised steps before GRPO")
    parser.add_argument("--iterations", type=int, default=150)
    parser.add_argument("--moe", action=argparse.BooleanOptionalAction, default=True, help="a layer of four experts")
    parser.add_argument("--log-root", default="logs", help="where run directories are made")
    given = parser.parse_args(argv)
    if given.iterations < 1 or given.seed < 0 or given.warm_up < 0:
        parser.error("neither the seed nor the warm-up can be negative, and there must be an iteration")
    run_dir = train(given)
    report(run_dir)
    print(f"run directory   {run_dir}")
    print(f"timeline        {merge(run_dir, run_dir / 'timeline.pftrace').path}  (open it at https://ui.perfetto.dev)")
    return 0


if __name__ == "__main__":
    sys.exit(main())
