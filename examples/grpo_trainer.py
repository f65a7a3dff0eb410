"""A trainer rank of `grpo_arithmetic.py`, started by torchrun: a short supervised warm-up, then GRPO.

The objective is PPO's, decoupled (AReaL): the clipped ratio is against the policy as it was when the update began, and
what the rollout's older policy said is an importance weight beside it.
"""

from __future__ import annotations

import argparse
import json
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from multiprocessing.connection import Connection, Listener

import numpy as np
import torch
from grpo_batch import Batch, batch_of, record_groups
from grpo_controller import WORKERS
from grpo_messages import Group, Published, Shard
from grpo_model import Policy, dimensions, packed, padded, routers
from grpo_task import MOST_ANSWER_TOKENS, PAD, STOP, problems, reward_of, text_of
from torch import Tensor, distributed
from torch.nn import functional

import rltel
from rltel.rl import advantages, groups, moe, sessions, staleness, train_infer
from rltel.rl.throughput import Throughput

WARM_UP_ROWS, WARM_UP_RATE = 64, 1e-3
LEARNING_RATE = 2e-4
MINI_BATCHES, MICRO_BATCHES = 2, 2
CLIP = 0.2
MOST_WEIGHT = 5.0
"""Of a token: by how much the policy may have moved since the rollout."""
EVALUATED = 128
EVALUATE_EVERY = 25


class Trainer:
    """One rank. Every rank has its own groups; gradients are of all."""

    def __init__(self, seed: int, experts: bool, link: Connection) -> None:
        self.rank, self.world = distributed.get_rank(), distributed.get_world_size()
        self.link = link
        torch.manual_seed(seed)  # all ranks begin alike
        self.policy = Policy(experts)
        self.optimizer = torch.optim.AdamW(self.policy.parameters(), WARM_UP_RATE, betas=(0.9, 0.95))
        self.random = np.random.default_rng([seed, self.rank])
        self.clock = rltel.learner("llm")
        self.loads = moe.attach(self.policy, contracts=[routers])
        self.perf = Throughput(dimensions(experts), peak_flops=measured_peak())
        self.version = 0

    # --- warm-up ----------------------------------------------------------------------------------------------------

    def warm_up(self, steps: int) -> None:
        """Learns from a sloppy teacher how an answer looks, and to be right now and then."""
        for step in range(steps):
            drawn = problems(self.random, WARM_UP_ROWS)
            with rltel.slice("warm_up"):
                loss = self.imitate([(each.prompt, each.taught(self.random)) for each in drawn])
            rltel.log({"sft/loss": loss}, step=step, axis="sft")
        for group in self.optimizer.param_groups:
            group["lr"] = LEARNING_RATE

    def imitate(self, examples: list[tuple[list[int], list[int]]]) -> float:
        """One step towards these answers to these prompts."""
        tokens = padded([prompt + answer for prompt, answer in examples])
        targets = tokens[:, 1:].clone()
        for row, (prompt, _) in enumerate(examples):
            targets[row, : len(prompt) - 1] = PAD
        with self.loads.paused():
            logits = self.policy(tokens[:, :-1])
        loss = functional.cross_entropy(logits.transpose(1, 2), targets, ignore_index=PAD)
        ((loss + self.policy.imbalance()) / self.world).backward()  # type: ignore[no-untyped-call]  # torch's stub
        self.sync_gradients()
        self.step_optimizer()
        return loss.item()

    # --- GRPO -------------------------------------------------------------------------------------------------------

    def run(self, iterations: int) -> None:
        """All updates, each one step of the run's record; evaluations are between them, on an axis of their own."""
        self.evaluate(0)
        if self.rank == 0:
            self.link.send(self.published())
        for step in range(iterations):
            with rltel.step(step, reduce_group=distributed.group.WORLD), self.clock.iteration(step=step):
                given = self.sample()
                if given:
                    self.train(step, given)
                    self.sync()
            if not given:
                rltel.summary(status="interrupted")
                return
            self.show(step, given)
            if (step + 1) % EVALUATE_EVERY == 0 or step + 1 == iterations:
                self.evaluate(step + 1)

    def sample(self) -> list[Group]:
        """Waits for the next groups; none if the controller wants no more."""
        with self.clock.phase("sample"):
            with self.clock.phase("batch_wait"):
                shard: Shard | None = self.link.recv()
            if shard is None:
                return []
            if shard.payload is not None:
                rltel.absorb(shard.payload)
        return shard.groups

    def train(self, step: int, given: list[Group]) -> None:
        """One update. An arrow comes in from every rollout that it consumes."""
        rollouts = [rollout for group in given for rollout in group.rollouts]
        tickets = [rollout.ticket for rollout in rollouts if rollout.accepted]
        consumed = sessions.consume(tickets, policy_version=self.version, step=step)
        with self.clock.phase("train", flow=consumed.flows, **{"rl.policy.version": self.version}):
            with self.clock.phase("advantages"):
                batch = batch_of(given)
            with self.clock.phase("old_logprobs"), torch.no_grad():
                proximal, logits = self.log_probs(batch)
            record_groups(rollouts)
            groups.record_entropy(logits=logits, mask=batch.said)
            with rltel.scope("ppo_actor"):
                train_infer.record(proximal, batch.log_probs, batch.said)
                advantages.record(batch.advantages, batch.mask)
                with rltel.scope("update"):
                    staleness.record(batch.versions, batch.said, self.version)
                    for rows in torch.randperm(len(batch.tokens)).chunk(MINI_BATCHES):
                        self.update(batch.of(rows), proximal[rows])
        self.loads.record()
        self.perf.settle()

    def update(self, batch: Batch, proximal: Tensor) -> None:
        """One step of the optimizer."""
        total = batch.mask.sum()
        distributed.all_reduce(total)
        with self.perf.batch(batch.attention):
            for rows in torch.arange(len(batch.tokens)).chunk(MICRO_BATCHES):
                self.accumulate(batch.of(rows), proximal[rows], total)
            with self.clock.phase("gradient_sync"):
                self.sync_gradients()
            with self.clock.phase("optimizer"):
                norm = self.step_optimizer()
        rltel.scalar({"grad_norm": norm, "lr": self.optimizer.param_groups[0]["lr"]})

    def accumulate(self, batch: Batch, proximal: Tensor, total: Tensor) -> None:
        """The gradients of a micro-batch, of ``total`` tokens in the whole of all ranks."""
        with self.clock.phase("forward"):
            new, _ = self.log_probs(batch)
            change = new - proximal
            ratio = change.exp()
            clipped = ratio.clamp(1 - CLIP, 1 + CLIP)
            surrogate = torch.minimum(ratio * batch.advantages, clipped * batch.advantages)
            weight = (proximal - batch.log_probs).exp().clamp(max=MOST_WEIGHT)
            loss = -surrogate * weight
        with self.clock.phase("backward"):
            whole = torch.where(batch.mask, loss, 0).sum() / total
            (whole + self.policy.imbalance() / (MICRO_BATCHES * self.world)).backward()  # type: ignore[no-untyped-call]  # torch's stub
        rltel.denominator(n_valid_tokens=batch.mask)
        rltel.stat(
            actor_loss=loss.detach(),
            importance_weight=ratio.detach(),
            behave_importance_weight=weight,
            approx_kl=-change.detach(),
            clip_ratio=(surrogate != ratio * batch.advantages).float(),
            denominator="n_valid_tokens",
        )

    def sync_gradients(self) -> None:
        """Adds up the ranks' gradients."""
        parameters = list(self.policy.parameters())
        flat = torch.cat([self.gradient(each).flatten() for each in parameters])
        distributed.all_reduce(flat)
        for parameter, part in zip(parameters, torch.split(flat, [each.numel() for each in parameters]), strict=True):
            parameter.grad = part.view_as(parameter)

    def step_optimizer(self) -> Tensor:
        """Returns the norm of the gradients before clipping."""
        norm = torch.nn.utils.clip_grad_norm_(self.policy.parameters(), 1.0)
        self.optimizer.step()
        self.optimizer.zero_grad()
        return norm

    @staticmethod
    def gradient(parameter: Tensor) -> Tensor:
        """Of an expert to which no token went there is none."""
        return torch.zeros_like(parameter) if parameter.grad is None else parameter.grad

    def log_probs(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """Of what was said, and all logits, at prediction positions."""
        logits = self.policy(batch.tokens)
        following = batch.tokens.roll(-1, 1).unsqueeze(-1)
        return logits.log_softmax(-1).gather(-1, following).squeeze(-1), logits

    def sync(self) -> None:
        """A new version of the policy."""
        self.version += 1
        with self.clock.phase("sync", **{"rl.policy.version": self.version}):
            if self.rank == 0:
                with self.clock.phase("weight_gather"):
                    published = self.published()
                with self.clock.phase("weight_publish", flow=published.flows):
                    self.link.send(published)

    def published(self) -> Published:
        """What goes from rank 0 to the controller, who hands it to the workers."""
        return Published(self.version, packed(self.policy), [rltel.new_flow() for _ in range(WORKERS)])

    # --- what is looked at ------------------------------------------------------------------------------------------

    def evaluate(self, step: int) -> None:
        """On problems that no training sees, with the likeliest answer to each."""
        if self.rank != 0:
            return
        drawn = problems(np.random.default_rng(0), EVALUATED, held_out=True)
        with rltel.slice("evaluate"), torch.no_grad():
            rows = [each.prompt for each in drawn]
            for _ in range(MOST_ANSWER_TOKENS):
                following = self.policy.next_log_probs(rows).argmax(-1).tolist()
                rows = [row if row[-1] == STOP else [*row, token] for row, token in zip(rows, following, strict=True)]
        right = [reward_of(each, row[len(each.prompt) :]) for each, row in zip(drawn, rows, strict=True)]
        rltel.log({"eval/accuracy": float(np.mean(right))}, step=step, axis="eval")

    def show(self, step: int, given: list[Group]) -> None:
        """Some answers, to be looked at."""
        if self.rank != 0 or step % EVALUATE_EVERY:
            return
        every = [(group.order.problem, rollout) for group in given for rollout in group.rollouts]
        rows = groups.sample_completions(
            [text_of(problem.prompt) for problem, _ in every],
            [text_of(rollout.said) for _, rollout in every],
            [rollout.reward for _, rollout in every],
            best=1,
            worst=2,
            random=3,
            step=step,
        )
        rltel.log_table("samples", rows, step=step)


def measured_peak() -> float:
    """FLOPs a second of a large matrix product on this rank's thread: what its model's are measured against."""
    matrix = torch.randn(512, 512)
    seconds = []
    for _ in range(20):  # some of which nobody disturbs
        begun = time.perf_counter()
        matrix @ matrix
        seconds.append(time.perf_counter() - begun)
    return 2 * 512**3 / min(seconds)


def main() -> None:
    """Entry point of a rank. A closed pipe means that the controller is gone, and ends it quietly."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--config", type=json.loads, required=True)
    parser.add_argument("--sockets", required=True)
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--experts", type=int, required=True)
    parser.add_argument("--warm-up", type=int, required=True)
    parser.add_argument("--iterations", type=int, required=True)
    given = parser.parse_args()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the controller decides what Ctrl+C means
    torch.set_num_threads(1)
    distributed.init_process_group("gloo")
    rltel.init(given.config, role="learner")
    with suppress(EOFError, OSError), controller(f"{given.sockets}/{distributed.get_rank()}") as link:
        trainer = Trainer(given.seed, bool(given.experts), link)
        trainer.warm_up(given.warm_up)
        trainer.run(given.iterations)
    rltel.shutdown()
    distributed.destroy_process_group()


@contextmanager
def controller(path: str) -> Iterator[Connection]:
    """The controller, once it has come."""
    with Listener(path) as listener, listener.accept() as link:
        yield link


if __name__ == "__main__":
    main()
