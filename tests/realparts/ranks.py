"""Real ranks of ``torch.distributed`` (gloo) in processes of their own, which run what a test sends them."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import cloudpickle

_START_S = 200.0  # for all ranks to import torch, on a machine that is busy with other tests


class RankError(Exception):
    """What a rank raised, as text: exceptions of a test's own modules cannot always be unpickled."""

    def __init__(self, rank: int, kind: str, message: str, trace: str) -> None:
        super().__init__(f"rank {rank}: {kind}: {message}\n{trace}")
        self.rank, self.kind, self.message = rank, kind, message


class Ranks:
    """A running group. `run` calls one function on every rank; its results come back in the order of ranks."""

    def __init__(self, processes: Sequence[BaseProcess], links: Sequence[Connection]) -> None:
        self.processes = processes
        self._links = links

    def run(self, function: Callable[..., Any], *arguments: Any, timeout: float = 120.0) -> list[Any]:
        """Call ``function(rank, *arguments)`` everywhere. Raises `RankError` for the first rank that raised."""
        results = self.outcomes(function, *arguments, timeout=timeout)
        for result in results:
            if isinstance(result, RankError):
                raise result
        return results

    def outcomes(self, function: Callable[..., Any], *arguments: Any, timeout: float = 120.0) -> list[Any]:
        """As `run`, with a `RankError` in place of the result of each rank that raised, None for one that died."""
        module = sys.modules.get(function.__module__)
        if module is not None and not function.__module__.startswith("rltel"):
            cloudpickle.register_pickle_by_value(module)  # a test module cannot be imported in another process
        message = cloudpickle.dumps((function, arguments))
        for link in self._links:
            link.send_bytes(message)
        outcomes: list[Any] = [None] * len(self._links)
        waiting = dict(zip(self._links, range(len(self._links)), strict=True))
        while waiting:
            ready = wait(list(waiting), timeout)
            if not ready:
                raise TimeoutError(f"ranks {sorted(waiting.values())} did not answer within {timeout} s")
            for link in ready:
                rank = waiting.pop(link)  # type: ignore[call-overload]  # wait() returns what it was given
                outcomes[rank] = _received(link, rank)  # type: ignore[arg-type]  # as above
        return outcomes


def _received(link: Connection, rank: int) -> Any:
    try:
        failed, result = pickle.loads(link.recv_bytes())
    except EOFError:
        return None
    return RankError(rank, *result) if failed else result


@contextmanager
def ranks(world_size: int, tmp_path: Path, timeout_s: float = 30.0) -> Iterator[Ranks]:
    """A group of this many ranks. ``timeout_s``: after which gloo gives a dead peer up."""
    context = multiprocessing.get_context("spawn")
    processes, links = [], []
    store = tmp_path / f"store-{os.urandom(4).hex()}"
    for rank in range(world_size):
        ours, theirs = context.Pipe()
        process = context.Process(target=_serve, args=(rank, world_size, str(store), timeout_s, theirs), daemon=True)
        process.start()
        theirs.close()
        processes.append(process)
        links.append(ours)
    try:
        _meet(links)  # each has imported torch: what that takes is not the group's time
        _meet(links)  # each has made the group: one that ends now ends in it
        yield Ranks(processes, links)
    finally:
        for link in links:
            link.close()
        for process in processes:
            process.join(2)
            process.kill()


def _meet(links: Sequence[Connection]) -> None:
    """Wait for all ranks, then let them go on."""
    for link in links:
        if not link.poll(_START_S):
            raise TimeoutError(f"ranks did not start within {_START_S} s")
        link.recv_bytes()
    for link in links:
        link.send_bytes(b"")


def _met(link: Connection) -> None:
    link.send_bytes(b"")
    link.recv_bytes()


def _serve(rank: int, world_size: int, store: str, timeout_s: float, link: Connection) -> None:
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    limit = timedelta(seconds=timeout_s)
    _met(link)
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=world_size, timeout=limit)
    _met(link)
    while True:
        try:
            function, arguments = cloudpickle.loads(link.recv_bytes())
        except EOFError:
            os._exit(0)
        try:
            answer = (False, function(rank, *arguments))
        except Exception as error:
            answer = (True, (type(error).__name__, str(error), traceback.format_exc()))
        link.send_bytes(cloudpickle.dumps(answer))
