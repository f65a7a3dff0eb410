"""The controller of `grpo_arithmetic.py`: who answers what, what an update is made of, and where weights go.

    workers   ... groups ...> controller ... shards ...> ranks
    workers   <... weights ... controller <... weights ... rank 0

Rollouts are a few versions old, on purpose: so many are ordered ahead that an update need not wait for workers.
"""

from __future__ import annotations

from collections.abc import Sequence
from multiprocessing.connection import Connection
from queue import Queue
from threading import Thread

import numpy as np
from grpo_messages import Group, Order, Published, Shard
from grpo_task import problems

import rltel

WORKERS, RANKS = 2, 2
GROUP_SIZE = 8
GROUPS = 16
"""Of an update, over all ranks."""
MOST_STALENESS = 2
"""How many updates' worth of groups may be ordered beside the one that is next."""


class Controller:
    """Runs the rounds. An update takes the groups that came first."""

    def __init__(self, workers: Sequence[Connection], ranks: Sequence[Connection], seed: int) -> None:
        self.workers = workers
        self.ranks = ranks
        self.random = np.random.default_rng(seed)
        self.clock = rltel.phase_clock("controller", "llm")
        self.ordered = 0
        self.version = 0
        self.stops = False
        """Whether to end after this round."""
        self.arrived: Queue[Group | OSError | EOFError] = Queue()
        for worker in workers:  # always read, so that no worker waits to be heard while we wait to be heard by it
            Thread(target=self._listen, args=(worker,), daemon=True).start()

    def run(self, iterations: int) -> None:
        """From the first policy to the last; `stop` may end it before."""
        self.publish(self.ranks[0].recv())
        for _ in range(iterations):
            if self.stops:
                break
            with self.clock.cycle():
                self.order()
                shards = self.collect()
                with self.clock.phase("batch_dispatch"):
                    for rank, shard in zip(self.ranks, shards, strict=True):
                        rank.send(shard)
                with self.clock.phase("train_wait"):
                    published = self.ranks[0].recv()
                with self.clock.phase("weight_update"):
                    self.publish(published)

    def stop(self, *_: object) -> None:
        """After this round; a signal's handler."""
        self.stops = True

    def order(self) -> None:
        """As many groups as may be under way, in turns to the workers."""
        most = (self.version + 1 + MOST_STALENESS) * GROUPS
        for problem in problems(self.random, most - self.ordered):
            worker = self.workers[self.ordered % len(self.workers)]
            worker.send(Order(self.ordered, problem, GROUP_SIZE, rltel.inject()))
            self.ordered += 1

    def collect(self) -> list[Shard]:
        """The next update's groups, shared out to the ranks; the first gets what workers recorded, merged."""
        with self.clock.phase("rollout_wait"):
            groups = [self.next_group() for _ in range(GROUPS)]
        rltel.gauge({"controller/groups_ready": self.arrived.qsize()})
        parts = [groups[rank :: len(self.ranks)] for rank in range(len(self.ranks))]
        return [Shard(part, rltel.export_payload() if rank == 0 else None) for rank, part in enumerate(parts)]

    def next_group(self) -> Group:
        """Waits for one; takes over its numbers."""
        group = self.arrived.get()
        if isinstance(group, Exception):
            raise RuntimeError("a rollout worker has died") from group
        rltel.absorb(group.payload)
        return group._replace(payload={})  # it need not go further

    def publish(self, published: Published) -> None:
        """To all workers."""
        self.version = published.version
        for worker, flow in zip(self.workers, published.flows, strict=True):
            worker.send(published._replace(flows=[flow]))

    def _listen(self, worker: Connection) -> None:
        try:
            while True:
                self.arrived.put(worker.recv())
        except (OSError, EOFError) as ended:
            self.arrived.put(ended)
