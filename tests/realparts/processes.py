"""Starts a server for the length of a ``with`` block, on loopback ports that nothing else uses."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from random import SystemRandom

HOST = "127.0.0.1"

# Below the ports that the kernel gives to outgoing connections, so that none of these takes one
# meanwhile.
_PORTS = range(20_000, 32_000)
_STARTS = 3
_STOP_TIMEOUT = 5.0
_POLL = 0.02

# A seeded generator would give the same "random" ports to every test worker.
_random = SystemRandom()

# Ignores the proxies of the environment: these servers are on this machine.
_opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))


def free_port() -> int:
    """A loopback port that can be bound right now."""
    while True:
        port = _random.choice(_PORTS)
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((HOST, port))
            except OSError:
                continue
            return port


def accepts(port: int) -> bool:
    """Whether something listens on the loopback port."""
    try:
        with socket.create_connection((HOST, port), timeout=1):
            return True
    except OSError:
        return False


def http_get(url: str, timeout: float = 60.0) -> bytes:
    """The body at ``url``; raises what `urllib.request.urlopen` raises."""
    with _opener.open(url, timeout=timeout) as response:
        body: bytes = response.read()
    return body


@contextmanager
def server(
    command: Callable[[Sequence[int]], Sequence[str]],
    *,
    ports: int,
    ready: Callable[[Sequence[int]], bool],
    log: Path,
    timeout: float = 60.0,
) -> Iterator[Sequence[int]]:
    """Runs a server; yields its ports; always stops it.

    A server that ends before it is ready, as it does when one of its ports was taken in the
    meantime, or that is not ready in time, is started again with other ports. Where ``setpriv`` is
    there it also ends with the thread that started it, so that a killed test run leaves nothing
    behind: enter this from a thread that outlives the block.

    Args:
        command: Makes the command line from the ports.
        ports: How many ports it needs.
        ready: Tells from the ports whether the server answers.
        log: Where its output goes.
        timeout: Seconds until it must be ready.

    Raises:
        RuntimeError: It did not start; the message ends with its output.
    """
    for _ in range(_STARTS):
        chosen = [free_port() for _ in range(ports)]
        with log.open("wb") as output:
            process = subprocess.Popen(
                [*parent_death_prefix(), *command(chosen)],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=_environment(os.environ),
            )
        try:
            if _becomes_ready(process, ready, chosen, timeout):
                yield chosen
                return
        finally:
            _stop(process)
    raise RuntimeError(f"{command([0] * ports)[0]} did not start; its output ends:\n{tail(log)}")


def tail(log: Path, limit: int = 4000) -> str:
    """The end of a log file."""
    return log.read_text(errors="replace")[-limit:] if log.exists() else ""


@cache
def parent_death_prefix() -> tuple[str, ...]:
    """A prefix that ends a command with the thread that started it; empty where none does."""
    setpriv = shutil.which("setpriv")
    if setpriv is None:
        return ()
    prefix = (setpriv, "--pdeathsig", "TERM")
    works = subprocess.run([*prefix, "true"], capture_output=True, check=False).returncode == 0
    return prefix if works else ()


def _becomes_ready(
    process: subprocess.Popen[bytes],
    ready: Callable[[Sequence[int]], bool],
    ports: Sequence[int],
    timeout: float,
) -> bool:
    deadline = time.monotonic() + timeout
    while time.monotonic() < deadline:
        # In this order, so that one that ended since another has its port does not pass for ready.
        if ready(ports) and process.poll() is None:
            return True
        if process.poll() is not None:
            return False
        time.sleep(_POLL)
    return False


def _stop(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(_STOP_TIMEOUT)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _environment(inherited: Mapping[str, str]) -> dict[str, str]:
    """Without what would change how the servers run or where they connect."""
    return {
        name: value
        for name, value in inherited.items()
        if not name.startswith(("ROTEL_", "OTEL_")) and not name.lower().endswith("_proxy")
    }
