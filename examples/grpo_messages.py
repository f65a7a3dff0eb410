"""What the processes of `grpo_arithmetic.py` tell each other: plain data for a pipe."""

from __future__ import annotations

from typing import Any, NamedTuple

from grpo_task import Problem

from rltel.rl import sessions


class Order(NamedTuple):
    """Controller to worker: a problem, to be answered by a group of rollouts."""

    number: int
    problem: Problem
    size: int
    headers: dict[str, str]


class Published(NamedTuple):
    """Rank 0 to controller, controller to each worker: a version of the policy."""

    version: int
    weights: bytes
    flows: list[int]
    """Arrows to where it is loaded: one for each worker."""


class Rollout(NamedTuple):
    """One answer. The three lists are of the answer's tokens."""

    said: list[int]
    log_probs: list[float]
    """Of the engine that chose them."""
    versions: list[int]
    """Of the policy: new weights may arrive in the middle of an answer."""
    reward: float
    accepted: bool
    """An answer that was cut off counts for its group, and nothing is learned from it."""
    ticket: sessions.Ticket


class Group(NamedTuple):
    """Worker to controller: what came of an order, with what rltel recorded on the way."""

    order: Order
    rollouts: list[Rollout]
    payload: dict[str, Any]


class Shard(NamedTuple):
    """Controller to a rank: its part of an update's groups. Rank 0 gets what the workers recorded, too."""

    groups: list[Group]
    payload: dict[str, Any] | None
