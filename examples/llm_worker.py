"""The rollout worker of `llm_rollouts.py`: a process in which many rollouts run at once, as asyncio tasks.

They share one inference engine (`llm_inference.py`), which serves whoever waits, a few at a time.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Coroutine
from contextlib import suppress
from contextvars import copy_context
from multiprocessing.connection import Connection
from typing import Any, NamedTuple

import numpy as np
import torch
from llm_inference import Engine, InferenceClient, users_tracing
from llm_policy import ANSWER_TOKENS, DIGITS, Spoken, Weights, calculator, correctness, prompt_of
from torch import Tensor

import rltel
from rltel.rl import sessions


class Order(NamedTuple):
    """Trainer to worker: which sums to do, with which policy. The answer is a Harvest; None instead ends the worker."""

    number: int
    sums: list[list[int]]
    group_size: int
    policy_version: int
    weights: Weights | None
    """None if the worker has them."""
    flow: int
    headers: dict[str, str]


class Rollout(NamedTuple):
    """One finished rollout, and what stands for it where the update consumes it."""

    spoken: Spoken
    ticket: sessions.Ticket


class Harvest(NamedTuple):
    """Worker to trainer: the rollouts of an order, group after group, and what rltel recorded of them."""

    number: int
    policy_version: int
    rollouts: list[Rollout]
    payload: dict[str, Any]


class Dialogue:
    """One rollout: the prompt is read, the calculator is called, the policy answers, and the answer is judged."""

    def __init__(self, client: InferenceClient, prompt: list[int], noise: np.random.Generator) -> None:
        self.client = client
        self.prompt = prompt
        self.noise = noise
        self.state: Tensor | None = None
        self.tokens: list[int] = []
        self.log_probs: list[float] = []

    async def run(self) -> Spoken:
        """From the prompt to the reward."""
        await self.read("prefill", self.prompt)
        with sessions.phase("tool_call"):
            result = calculator(self.prompt)
        answer = [self.say(await self.read("prefill", result))]
        while len(answer) < ANSWER_TOKENS:
            answer.append(self.say(await self.read("decode", answer[-1:])))
        with sessions.phase("reward"):
            correct = correctness(self.prompt, answer)
        unsaid = len(self.tokens)
        return Spoken(
            self.tokens + answer, [False] * unsaid + [True] * len(answer), [0.0] * unsaid + self.log_probs, correct
        )

    async def read(self, how: str, tokens: list[int]) -> Tensor:
        """Log-probabilities of what may be said after these tokens."""
        if how == "prefill":
            self.tokens += tokens
        with sessions.phase(how):
            log_probs, self.state = await self.client.complete(tokens, self.state)
        return log_probs

    def say(self, log_probs: Tensor) -> int:
        """Draws a digit."""
        digit = int(np.argmax(log_probs.numpy() + self.noise.gumbel(size=DIGITS)))
        self.log_probs.append(float(log_probs[digit]))
        return digit


class Worker:
    """Carries out orders, one after the other; the rollouts of one all at once."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.engine = Engine()
        self.client = InferenceClient(self.engine)

    async def carry_out(self, order: Order) -> list[Rollout]:
        """All rollouts of an order, in its order."""
        if order.weights is not None:
            with rltel.slice("weight_load", flow=order.flow, attributes={"rl.policy.version": order.policy_version}):
                self.engine.policy.load(order.weights)
        rollouts: list[Coroutine[Any, Any, Rollout]] = [
            self.rollout(order, index, prompt_of(terms))
            for index, terms in enumerate(terms for terms in order.sums for _ in range(order.group_size))
        ]
        return await asyncio.gather(*rollouts)

    async def rollout(self, order: Order, index: int, prompt: list[int]) -> Rollout:
        """One of them; its noise is its own, whoever else runs."""
        noise = np.random.default_rng([self.seed, order.number, index])
        with sessions.submit(order.policy_version, order=order.number, group=index // order.group_size) as session:
            spoken = await Dialogue(self.client, prompt, noise).run()
            session.set(correct=spoken.correct)
            session.add(tokens=len(spoken.tokens))
        numbers = rltel.get("rollout")
        numbers.scalar(correct=spoken.correct)
        numbers.distribution(tokens=[len(spoken.tokens)])
        return Rollout(spoken, session.ticket())


def worker_main(config: dict[str, Any], seed: int, link: Connection) -> None:
    """Entry point of the worker's process; a closed pipe means that the trainer is gone, and ends it quietly."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl+C reaches the whole group; the trainer decides what it means
    torch.set_num_threads(1)
    rltel.init(config, role="rollout")
    provider = users_tracing(to_collector=config["otlp"]["enabled"])
    with suppress(EOFError, OSError), asyncio.Runner() as loop:
        worker = Worker(seed)
        while (order := link.recv()) is not None:
            with rltel.attached(order.headers):
                # A Runner keeps the context of its first run, if it is not given one.
                rollouts = loop.run(worker.carry_out(order), context=copy_context())
            link.send(Harvest(order.number, order.policy_version, rollouts, rltel.export_payload()))
    provider.shutdown()
    rltel.shutdown(linger=False)
