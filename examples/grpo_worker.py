"""A rollout worker of `grpo_arithmetic.py`: many rollouts at once, as asyncio tasks on one engine.

The engine works as real ones do: rollouts join and leave its batch between tokens, and so do new weights.
"""

from __future__ import annotations

import asyncio
import signal
from collections import deque
from contextlib import suppress
from contextvars import copy_context
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from typing import Any

import torch
from grpo_messages import Group, Order, Published, Rollout
from grpo_model import Policy, unpacked
from grpo_task import MOST_ANSWER_TOKENS, STOP, Problem, reward_of

import rltel
from rltel.rl import sessions

MOST_AT_ONCE = 64
"""Rows of the engine's batch; who comes later waits."""


@dataclass(eq=False)
class Answer:
    """One row of the engine's batch."""

    prompt: list[int]
    done: asyncio.Future[None]
    said: list[int] = field(default_factory=list)
    log_probs: list[float] = field(default_factory=list)
    versions: list[int] = field(default_factory=list)

    def is_whole(self) -> bool:
        """Whether it has its stop."""
        return bool(self.said) and self.said[-1] == STOP

    def ends(self) -> bool:
        """Whether nothing more is said."""
        return self.is_whole() or len(self.said) == MOST_ANSWER_TOKENS


class Engine:
    """Continuous batching, without a cache: answers are five tokens long."""

    def __init__(self, seed: int, experts: bool) -> None:
        self.policy = Policy(experts).eval()
        self.random = torch.Generator().manual_seed(seed)
        self.version = -1
        self.waiting: deque[Answer] = deque()
        self.running: list[Answer] = []

    def load(self, published: Published) -> None:
        """Takes over new weights, for the next token of whoever is at it."""
        with rltel.slice("weight_load", flow=published.flows, attributes={"rl.policy.version": published.version}):
            self.policy.load_state_dict(unpacked(published.weights))
        self.version = published.version

    async def answer(self, prompt: list[int]) -> Answer:
        """From the prompt to the stop, or until it is too long."""
        asked = Answer(prompt, asyncio.get_running_loop().create_future())
        self.waiting.append(asked)
        await asked.done
        return asked

    @property
    def is_idle(self) -> bool:
        """Whether nobody waits for a token."""
        return not (self.waiting or self.running)

    @torch.no_grad()
    def step(self) -> None:
        """One token for each row."""
        while self.waiting and len(self.running) < MOST_AT_ONCE:
            self.running.append(self.waiting.popleft())
        rltel.gauge({"engine/running": len(self.running), "engine/waiting": len(self.waiting)}, ranks="sum")
        with rltel.slice("engine_step", attributes={"rows": len(self.running)}):
            log_probs = self.policy.next_log_probs([row.prompt + row.said for row in self.running])
            tokens = torch.multinomial(log_probs.exp(), 1, generator=self.random)
            spoken = log_probs.gather(1, tokens)
        chosen = zip(self.running, tokens.flatten().tolist(), spoken.flatten().tolist(), strict=True)
        for row, token, log_prob in chosen:
            row.said.append(token)
            row.log_probs.append(log_prob)
            row.versions.append(self.version)
            if row.ends():
                row.done.set_result(None)
        self.running = [row for row in self.running if not row.ends()]


class Worker:
    """Carries out orders as they come; groups leave as they are done, in whatever order."""

    def __init__(self, engine: Engine, link: Connection) -> None:
        self.engine = engine
        self.link = link
        self.groups: set[asyncio.Task[None]] = set()

    async def serve(self) -> None:
        """Until the controller says None; what is not answered by then is dropped."""
        while self.read_mail():
            await asyncio.sleep(0)  # rollouts that have just begun hand in their prompts
            if not self.engine.is_idle:
                self.engine.step()
            await asyncio.sleep(0)  # those that are done go on
        for session in sessions.in_flight():
            session.drop("the training has ended")
        for group in self.groups:
            group.cancel()

    def read_mail(self) -> bool:
        """Takes what has come; waits for it only if there is nothing else to do. Returns whether to go on."""
        while self.link.poll(None if self.engine.is_idle and not self.groups else 0):
            message = self.link.recv()
            if message is None:
                return False
            if isinstance(message, Published):
                self.engine.load(message)
            else:
                self.begin(message)
        return True

    def begin(self, order: Order) -> None:
        """A group of rollouts, which belong to the round of the controller that ordered them."""
        with rltel.attached(order.headers):
            group = asyncio.get_running_loop().create_task(self.group(order), context=copy_context())
        self.groups.add(group)
        group.add_done_callback(self.groups.discard)

    async def group(self, order: Order) -> None:
        """All rollouts of a problem, at once."""
        rollouts = await asyncio.gather(*(self.rollout(order) for _ in range(order.size)))
        self.link.send(Group(order, rollouts, rltel.export_payload()))

    async def rollout(self, order: Order) -> Rollout:
        """One of them: from its prompt to its reward."""
        with sessions.submit(group=order.number) as session:
            with session.phase("generate"):
                answer = await self.engine.answer(order.problem.prompt)
            for version in sorted(set(answer.versions)):
                session.used_policy(version)
            reward = self.judge(session, order.problem, answer)
        return Rollout(
            answer.said, answer.log_probs, answer.versions, reward, session.status == "accepted", session.ticket()
        )

    def judge(self, session: sessions.Session, problem: Problem, answer: Answer) -> float:
        """The reward; answers without an end are not trained on (DAPO's overlong filtering)."""
        with session.phase("reward"):
            reward = reward_of(problem, answer.said)
        session.set(reward=reward)
        session.add(tokens=len(answer.said))
        if not answer.is_whole():
            session.reject("cut off")
        return reward


def worker_main(config: dict[str, Any], seed: int, experts: bool, link: Connection) -> None:
    """Entry point of the worker's process; a closed pipe means that the controller is gone, and ends it quietly."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl+C reaches the whole group; the controller decides what it means
    torch.set_num_threads(1)
    rltel.init(config, role="rollout")
    with suppress(EOFError, OSError):
        asyncio.run(Worker(Engine(seed, experts), link).serve())
    rltel.shutdown(linger=False)
