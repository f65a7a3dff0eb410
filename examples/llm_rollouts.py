"""Asynchronous GRPO on a toy task, with rltel switched on: a trainer, and a worker whose rollouts overlap.

    worker:   rollouts of order k + 1, with the policy of update k - 1        (all at once, on one engine)
    trainer:  wait for the rollouts of order k -> reward -> update k -> publish the policy, order k + 2

While the trainer updates, the worker is a whole order ahead: every update but the first is on rollouts of a policy that
is one version old. Which version that is depends on no timing, so a seed gives the same training every time.
"""

from __future__ import annotations

import argparse
import multiprocessing
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np
import torch
from llm_policy import (
    ANSWER_TOKENS,
    MOST_TERMS,
    Batch,
    Losses,
    Policy,
    Weights,
    group_advantages,
    losses,
    padded,
    text_of,
)
from llm_report import report
from llm_worker import Harvest, Order, worker_main
from otlp_receiver import otlp_is_wanted
from torch import Tensor

import rltel
from rltel.rl import groups, sessions, staleness, train_infer
from rltel.traces.merge import merge

GROUPS, GROUP_SIZE = 8, 8
MICRO_BATCHES = 2
LEARNING_RATE = 1e-2
ENTROPY = 0.01
AHEAD = 2
"""Orders that the worker has at the start: one to work on, and one to go on with."""


def telemetry_config(log_root: str) -> dict[str, Any]:
    """What rltel is switched on for. Every setting can be overridden by its ``RLTEL_*`` variable."""
    return {
        "run": {"algo": "grpo", "task": "sums", "backend": "toy", "log_root": log_root},
        "trace": {"enabled": True},
        "prometheus": {"enabled": True},
        "tensorboard": {"path": "{run_dir}/tb"},
        "console": {"enabled": True, "interval_s": 5.0},
        "otlp": {"enabled": otlp_is_wanted()},
    }


class Trainer:
    """Orders rollouts and learns from them; every method of an iteration is one phase."""

    def __init__(self, seed: int, link: Connection) -> None:
        torch.manual_seed(seed)
        self.link = link
        self.clock = rltel.learner("llm")
        self.policy = Policy()
        self.optimizer = torch.optim.Adam(self.policy.parameters(), lr=LEARNING_RATE)
        self.prompts = np.random.default_rng(seed)
        self.version = 0
        self.ordered = 0
        self.samples: list[dict[str, Any]] = []
        """Some of the last rollouts, to look at."""

    def run(self, iterations: int) -> None:
        """All iterations; the orders that are still open at the end are taken, too, so that nothing is lost."""
        for first in range(AHEAD):
            self.order(self.policy.weights() if first == 0 else None, rltel.new_flow())
        for step in range(iterations):
            with self.clock.iteration(step=step):
                harvest = self.sample()
                reward = self.reward(harvest)
                self.train(step, harvest, reward)
                self.sync()
            with rltel.slice("log"):
                self.log(step, harvest, reward)
        for _ in range(AHEAD):
            rltel.absorb(self.link.recv().payload)
        self.link.send(None)
        rltel.commit(step=iterations)

    def sample(self) -> Harvest:
        """Waits for the next order's rollouts."""
        with self.clock.phase("sample"):
            with self.clock.phase("batch_wait"):
                harvest: Harvest = self.link.recv()
            rltel.absorb(harvest.payload)
        return harvest

    def reward(self, harvest: Harvest) -> Tensor:
        """What the answers are worth: a part that is right is worth something, the whole twice as much."""
        with self.clock.phase("reward"):
            correct = torch.tensor([rollout.spoken.correct for rollout in harvest.rollouts])
            reward = (correct + (correct == 1.0)) / 2.0
        lengths = [len(rollout.spoken.tokens) for rollout in harvest.rollouts]
        groups.record(reward, group_size=GROUP_SIZE, correct=correct == 1.0, k=(1, 2, 4, 8), lengths=lengths)
        return reward

    def train(self, step: int, harvest: Harvest, reward: Tensor) -> None:
        """One update. An arrow comes in from every rollout that it consumes."""
        tickets = [rollout.ticket for rollout in harvest.rollouts]
        consumed = sessions.consume(tickets, policy_version=self.version, step=step)
        with self.clock.phase("train", flow=consumed.flows, **{"rl.policy.version": self.version}):
            with self.clock.phase("advantages"):
                batch = padded([each.spoken for each in harvest.rollouts], group_advantages(reward, GROUP_SIZE))
                tokens = int(batch.chosen.sum())
            self.record_staleness(harvest, batch)
            self.optimizer.zero_grad()
            for micro in zip(*(part.chunk(MICRO_BATCHES) for part in batch), strict=True):
                self.accumulate(Batch(*micro), tokens)
            with self.clock.phase("optimizer"):
                norm = torch.nn.utils.clip_grad_norm_(self.policy.parameters(), 1.0)
                self.optimizer.step()
        rltel.scalar({"policy/gradient_norm": norm})

    def accumulate(self, batch: Batch, tokens: int) -> None:
        """The gradients of a micro-batch, of ``tokens`` chosen tokens in the whole batch."""
        with self.clock.phase("forward"):
            per_token = losses(self.policy, batch)
            mask = batch.chosen[:, 1:]
            loss = ((per_token.surrogate - ENTROPY * per_token.entropy) * mask).sum() / tokens
        with self.clock.phase("backward"):
            loss.backward()  # type: ignore[no-untyped-call]  # torch's stub
        self.record_tokens(per_token, batch, mask)

    def record_staleness(self, harvest: Harvest, batch: Batch) -> None:
        """How old the tokens of this update are: once an update, whatever its micro-batches."""
        chosen = batch.chosen[:, 1:]  # a token is predicted one place before its own
        versions = torch.where(chosen, harvest.policy_version, -1)
        with rltel.scope("ppo_actor"), rltel.scope("update"):
            staleness.record(versions, chosen, self.version)

    def record_tokens(self, per_token: Losses, batch: Batch, mask: Tensor) -> None:
        """What the policy says now of the tokens that were chosen, against what it said when it chose them."""
        groups.record_entropy(per_token.entropy.detach(), mask)
        with rltel.scope("ppo_actor"):
            train_infer.record(per_token.log_probs.detach(), batch.log_probs[:, 1:], mask)
        with rltel.scope("policy"):
            rltel.denominator(n_chosen_tokens=mask)
            rltel.stat(
                surrogate=per_token.surrogate.detach(),
                ratio=per_token.ratio.detach(),
                entropy=per_token.entropy.detach(),
                denominator="n_chosen_tokens",
            )

    def sync(self) -> None:
        """The new policy goes out with the next order."""
        self.version += 1
        flow = rltel.new_flow()
        with self.clock.phase("sync", **{"rl.policy.version": self.version}):
            with self.clock.phase("weight_gather"):
                weights = self.policy.weights()
            with self.clock.phase("weight_publish", flow=flow):
                self.order(weights, flow)

    def order(self, weights: Weights | None, flow: int) -> None:
        """Sums for the worker to do."""
        lengths = self.prompts.integers(2, MOST_TERMS + 1, size=GROUPS)
        sums: list[list[int]] = [self.prompts.integers(10, size=length).tolist() for length in lengths]
        self.link.send(Order(self.ordered, sums, GROUP_SIZE, self.version, weights, flow, rltel.inject()))
        self.ordered += 1

    def log(self, step: int, harvest: Harvest, reward: Tensor) -> None:
        """One step of the run's record: everything recorded since the last, here and in the worker."""
        spoken = [text_of(each.spoken.tokens) for each in harvest.rollouts]
        prompts, answers = zip(*((text[:-ANSWER_TOKENS], text[-ANSWER_TOKENS:]) for text in spoken), strict=True)
        self.samples = groups.sample_completions(
            prompts, answers, reward.tolist(), best=1, worst=1, random=2, step=step
        )
        rltel.scalar({"reward": float(reward.mean())})
        rltel.distribution(seq_len=[len(each.spoken.tokens) for each in harvest.rollouts])
        rltel.gauge({"policy/version": self.version, "policy/staleness": self.version - 1 - harvest.policy_version})
        rltel.count(rollouts=len(harvest.rollouts))
        rltel.commit(step=step)


@contextmanager
def running_worker(config: dict[str, Any], seed: int) -> Iterator[Connection]:
    """Runs the worker's process for the length of the body, and leaves none behind however that ends."""
    context = multiprocessing.get_context("spawn")
    link, worker_link = context.Pipe(duplex=True)
    process = context.Process(target=worker_main, args=(config, seed, worker_link), name="rollout", daemon=True)
    process.start()
    worker_link.close()  # else this process would keep the pipe open and never see its end
    try:
        yield link
    finally:
        link.close()  # tells the worker to stop, wherever it is
        process.join(10.0)
        if process.exitcode is None:
            process.kill()


def train(seed: int, iterations: int, log_root: str) -> tuple[Path, list[dict[str, Any]]]:
    """One run from start to end; returns its directory, and samples of the last rollouts."""
    torch.set_num_threads(1)
    config = telemetry_config(log_root)
    running = rltel.init(config)
    assert running.run_dir is not None  # tracing is on
    with running_worker(config, seed) as link:
        trainer = Trainer(seed, link)
        trainer.run(iterations)
    rltel.shutdown()
    return running.run_dir, trainer.samples


def main(argv: list[str] | None = None) -> int:
    """Returns the exit code."""
    parser = argparse.ArgumentParser(description="Asynchronous GRPO on sums of digits, with telemetry.")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--iterations", type=int, default=100)
    parser.add_argument("--log-root", default="logs", help="where run directories are made")
    given = parser.parse_args(argv)
    if given.iterations < 1 or given.seed < 0:
        parser.error("the seed can't be negative, and there must be an iteration")
    run_dir, samples = train(given.seed, given.iterations, given.log_root)
    report(run_dir, samples)
    print(f"run directory   {run_dir}")
    print(f"timeline        {merge(run_dir, run_dir / 'timeline.pftrace').path}  (open it at https://ui.perfetto.dev)")
    return 0


if __name__ == "__main__":
    sys.exit(main())
