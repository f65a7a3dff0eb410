"""How far a run is, as its commits say: O(1) for each of them, whatever their number."""

import math
from typing import Any

from rltel.export.commit import Commit
from rltel.runs.throughput import WINDOW_ITERATIONS, Throughput

_AXIS, _EVALUATION = "train", "eval"
REWARD = "Train/mean_reward"
REWARDS = (REWARD, "rollout/reward", "reward", "groups/reward")
"""A robot's run has the first, a language model's one of the others; of several the first that a run has counts."""
LENGTH = "Train/mean_episode_length"


class Progress:
    """What is remembered of the commits of one process.

    Iterations are counted on the axis ``train``; in a run without it, on the axis of the first commit (``axis``, if
    that is known already).
    """

    def __init__(self, axis: str | None = None) -> None:
        self.commits = 0
        self.first_step: int | None = None
        self.last_step: int | None = None
        self.first_env_steps: int | None = None
        self.last_env_steps: int | None = None
        self.reward: float | None = None
        self.best_reward: float | None = None
        self.episode_length: float | None = None
        self.axis = axis
        self._reward_rank = len(REWARDS) - 1
        self._iterations = Throughput()
        self._env_steps = Throughput()

    def observe(self, commit: Commit, monotonic_ns: int) -> None:
        """Take one commit in."""
        self.commits += 1
        self._take_values(commit)
        if self.axis is None or (commit.axis == _AXIS != self.axis):
            self._begin(commit.axis)
        if commit.axis == self.axis:
            self._take_steps(commit, monotonic_ns)

    def _begin(self, axis: str) -> None:
        self.axis = axis
        self.first_step = self.last_step = None
        self._iterations, self._env_steps = Throughput(), Throughput()

    def _take_steps(self, commit: Commit, monotonic_ns: int) -> None:
        self.first_step = commit.step if self.first_step is None else self.first_step
        self.last_step = commit.step
        self._iterations.add(commit.step, commit.step, monotonic_ns)
        if commit.env_steps is not None:
            self.first_env_steps = commit.env_steps if self.first_env_steps is None else self.first_env_steps
            self.last_env_steps = commit.env_steps
            self._env_steps.add(commit.step, commit.env_steps, monotonic_ns)

    def _take_values(self, commit: Commit) -> None:
        may_be = REWARDS[: self._reward_rank + 1] if commit.axis != _EVALUATION else REWARDS[:1]
        for rank, key in enumerate(may_be):
            reward = _value(commit, key)
            if reward is not None:
                self._take_reward(rank, reward)
                break
        length = _value(commit, LENGTH)
        self.episode_length = self.episode_length if length is None else length

    def _take_reward(self, rank: int, reward: float) -> None:
        if rank < self._reward_rank:  # what came before was of another key
            self._reward_rank, self.best_reward = rank, None
        self.reward = reward
        self.best_reward = better(self.best_reward, reward)

    def rates(self) -> dict[str, Any]:
        """Rates per second, with UniLab's names where it has one."""
        return {
            "final_env_steps_per_sec": self._env_steps.last,
            "tail_env_steps_per_sec": self._env_steps.tail,
            "final_iterations_per_sec": self._iterations.last,
            "tail_iterations_per_sec": self._iterations.tail,
            "tail_iteration_count": self._iterations.iterations,
            "tail_window_iterations": WINDOW_ITERATIONS,
        }


def better(best: Any, reward: Any) -> float | None:
    """The higher of two rewards; NaN and what is no number is never the best."""
    found = [
        float(each)
        for each in (best, reward)
        if isinstance(each, (int, float)) and not isinstance(each, bool) and not math.isnan(each)
    ]
    return max(found, default=None)


def _value(commit: Commit, key: str) -> float | None:
    """A metric's first number: the average, for what has one. Plain numbers stay so: states are made elsewhere."""
    numbers = commit.snapshot.numbers
    if numbers is not None:
        found = numbers.get(key)
        return None if found is None else float(found)
    metric = commit.snapshot.get(key)
    values = () if metric is None else metric.state.values()
    return float(values[0].value) if values else None
