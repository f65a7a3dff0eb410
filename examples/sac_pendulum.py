"""Soft actor-critic on Pendulum-v1, split into two processes the way a robot-RL system is.

The *learner* (this process) owns the networks and the replay buffer. The *collector* (a spawned process) owns the
environments. They talk over one duplex pipe:

    collector tick k:       request(k) -> wait for actions(k) -> step -> extract -> replay write(k) [-> metrics]
    learner iteration k:    wait for request(k) -> infer -> release actions(k) -> ingest -> sample -> learn

Between a release and the next request both sides work: the collector steps its environments while the learner
learns. The overlap doesn't cost reproducibility. Tick k's replay write always precedes request(k + 1) in the pipe and
the learner reads up to exactly one request per iteration, so update k sees the transitions of the ticks before k,
whatever the timing, and a seed gives the same parameters bit for bit (on one machine and one build of torch).
"""

from __future__ import annotations

import os
import signal

if __name__ == "__main__":
    # Importing torch takes a second: a Ctrl+C in that time has nothing to clean up and shouldn't print a traceback.
    signal.signal(signal.SIGINT, lambda *_: os._exit(130))

import argparse
import copy
import hashlib
import json
import math
import multiprocessing
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import NamedTuple, TypeAlias, cast

import gymnasium
import numpy as np
import torch
from gymnasium.vector import SyncVectorEnv
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.functional import softplus
from torch.nn.utils import get_total_norm

FloatArray: TypeAlias = NDArray[np.float32]
BoolArray: TypeAlias = NDArray[np.bool_]
StepResult: TypeAlias = tuple[FloatArray, FloatArray, BoolArray, BoolArray]  # next obs, reward, terminated, truncated

ENV_ID = "Pendulum-v1"
EPISODE_STEPS = 200
OBS_DIM, ACTION_DIM = 3, 1
MAX_TORQUE = 2.0  # the policy acts in [-1, 1]
ROW_COLUMNS = [OBS_DIM, ACTION_DIM, 1, OBS_DIM, 1]  # obs, action, reward, next obs, terminated

HIDDEN = 64
BATCH_SIZE = 128
LEARNING_RATE = 2e-3
TAU = 0.01
GAMMA = 0.99
REWARD_SCALE = 0.1
TARGET_ENTROPY = -float(ACTION_DIM)
RANDOM_STEPS = 500
REPLAY_ROWS = 100_000

METRICS_EVERY_TICKS = 50
EVAL_SEEDS: list[int | None] = list(range(10_000, 10_010))
JOIN_SECONDS = 0.8


@dataclass(frozen=True)
class Config:
    """What a run is determined by (`stamps` only says where its timings go)."""

    seed: int
    ticks: int
    num_envs: int
    updates_per_tick: int
    stamps: Path | None


class InferenceRequest(NamedTuple):
    """Collector to learner: the observations of a tick. The answer is Actions, or None when the run is over."""

    tick: int
    obs: FloatArray


class ReplayWrite(NamedTuple):
    """Collector to learner: a tick's transitions, one packed row per environment; rows that aren't valid are resets."""

    tick: int
    rows: FloatArray
    valid: BoolArray


class Metrics(NamedTuple):
    """Collector to learner: what only the collector knows, sent now and then."""

    tick: int
    values: dict[str, float]


class Farewell(NamedTuple):
    """Collector to learner, its last message: the returns of all whole episodes, and its timings."""

    episode_returns: list[float]
    stamps: list[dict[str, str | int]]


class Actions(NamedTuple):
    """Learner to collector: the answer to a request."""

    tick: int
    values: FloatArray


Message: TypeAlias = InferenceRequest | ReplayWrite | Metrics | Farewell


class Stamps:
    """The example's own timings: an independent record that an instrumented run can be checked against."""

    def __init__(self, who: str, enabled: bool) -> None:
        self.who = who
        self.enabled = enabled
        self.rows: list[dict[str, str | int]] = []

    @contextmanager
    def span(self, what: str) -> Iterator[None]:
        """Times its body on CLOCK_MONOTONIC, which the processes of a host share."""
        begin = time.monotonic_ns()
        yield
        if self.enabled:
            end = time.monotonic_ns()
            self.rows.append({"who": self.who, "what": what, "begin_ns": begin, "end_ns": end})


class EpisodeLog:
    """Returns and lengths of finished episodes; an episode joined midway (see Collector._stagger) doesn't count."""

    def __init__(self, num_envs: int) -> None:
        self.whole = np.arange(num_envs) == 0
        self.running_return = np.zeros(num_envs)
        self.running_length = np.zeros(num_envs, dtype=np.int64)
        self.returns: list[float] = []
        self.lengths: list[int] = []

    def record(self, reward: FloatArray, valid: BoolArray, done: BoolArray) -> None:
        """Adds a tick; rows that aren't valid are resets and belong to no episode."""
        self.running_return += reward * valid
        self.running_length += valid
        self.returns += self.running_return[done & self.whole].tolist()
        self.lengths += self.running_length[done & self.whole].tolist()
        self.whole |= done
        self.running_return[done] = 0.0
        self.running_length[done] = 0

    def summary(self) -> dict[str, float]:
        """The mean over the last 100 episodes, and how many there were in all."""
        return {
            "episode_return_mean": mean(self.returns[-100:]),
            "episode_length_mean": mean(self.lengths[-100:]),
            "episodes_finished": float(len(self.returns)),
        }


class Collector:
    """Steps the environments with the learner's actions; every method of a tick is one phase of it."""

    def __init__(self, config: Config, link: Connection) -> None:
        self.link = link
        self.stamps = Stamps("collector", config.stamps is not None)
        self.envs = make_envs(config.num_envs)
        self.episodes = EpisodeLog(config.num_envs)
        self.tick = 0
        env_seed = stream_seeds(config.seed)["envs"]
        self.obs: FloatArray = self.envs.reset(seed=[env_seed + i for i in range(config.num_envs)])[0]
        self.resetting = np.zeros(config.num_envs, dtype=np.bool_)
        self._stagger()

    def _stagger(self) -> None:
        """Steps environment i into its first episode, so that the episodes don't all end at the same tick."""
        for index, env in enumerate(self.envs.envs):
            for _ in range(index * EPISODE_STEPS // self.envs.num_envs):
                self.obs[index] = env.step(np.zeros(ACTION_DIM, dtype=np.float32))[0]

    def run(self) -> None:
        """Ticks until the learner says stop, then says farewell."""
        while self.run_tick():
            pass
        self.link.send(Farewell(self.episodes.returns, self.stamps.rows))

    def run_tick(self) -> bool:
        """One tick; False if the learner said stop."""
        self.inference_request()
        actions = self.learner_action_wait()
        if actions is None:
            return False
        result = self.env_step(actions)
        self.replay_write(self.transition_extract(actions, result))
        self.tick += 1
        if self.tick % METRICS_EVERY_TICKS == 0:
            self.metrics_publish()
        return True

    def inference_request(self) -> None:
        """Asks the learner for actions; it decides the random ones too, so the collector holds no policy at all."""
        self.link.send(InferenceRequest(self.tick, self.obs))

    def learner_action_wait(self) -> FloatArray | None:
        """Waits for the answer; None means stop."""
        reply: Actions | None = self.link.recv()
        return None if reply is None else reply.values

    def env_step(self, actions: FloatArray) -> StepResult:
        """Steps all environments; those that finished on the last tick reset instead and ignore their action."""
        with self.stamps.span("env_step"):
            next_obs, reward, terminated, truncated, _ = self.envs.step(actions * MAX_TORQUE)
        return next_obs, reward.astype(np.float32), terminated, truncated

    def transition_extract(self, actions: FloatArray, result: StepResult) -> ReplayWrite:
        """Packs the tick's transitions, marks the reset rows as not valid, and moves on to the next observations."""
        next_obs, reward, terminated, truncated = result
        valid, done = ~self.resetting, terminated | truncated
        rows = np.column_stack((self.obs, actions, reward, next_obs, terminated)).astype(np.float32, copy=False)
        self.episodes.record(reward, valid, done)
        self.obs, self.resetting = next_obs, done
        return ReplayWrite(self.tick, rows, valid)

    def replay_write(self, write: ReplayWrite) -> None:
        """Sends the tick's transitions as a message of their own; the learner ingests them after the next request."""
        self.link.send(write)

    def metrics_publish(self) -> None:
        """Sends the collector's own statistics."""
        self.link.send(Metrics(self.tick, self.episodes.summary()))


def collector_main(config: Config, link: Connection) -> None:
    """Entry point of the collector process; a closed pipe means that the learner is gone, and ends it quietly."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl+C reaches the whole group; the learner decides what it means
    torch.set_num_threads(1)
    collector = Collector(config, link)
    with suppress(EOFError, OSError):
        collector.run()


def mlp(inputs: int, outputs: int) -> nn.Sequential:
    """Two hidden layers, as everywhere in this example."""
    first, second, last = nn.Linear(inputs, HIDDEN), nn.Linear(HIDDEN, HIDDEN), nn.Linear(HIDDEN, outputs)
    return nn.Sequential(first, nn.ReLU(), second, nn.ReLU(), last)


class Policy(nn.Module):
    """A tanh-squashed Gaussian; the noise is an argument, so that the caller owns the randomness."""

    def __init__(self) -> None:
        super().__init__()
        self.net = mlp(OBS_DIM, 2 * ACTION_DIM)

    def sample(self, obs: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
        """Actions in [-1, 1] and their log-probabilities, differentiable through the noise."""
        location, log_std = self.net(obs).split(ACTION_DIM, dim=-1)
        log_std = log_std.clamp(-5.0, 2.0)
        raw = location + log_std.exp() * noise
        gaussian = -0.5 * noise.square() - log_std - 0.5 * math.log(2.0 * math.pi)
        squash = 2.0 * (math.log(2.0) - raw - softplus(-2.0 * raw))  # log(1 - tanh(raw)^2), stable for large |raw|
        return raw.tanh(), (gaussian - squash).sum(-1)

    def act(self, obs: Tensor) -> Tensor:
        """The deterministic action."""
        location: Tensor = self.net(obs)[..., :ACTION_DIM]
        return location.tanh()


class TwinCritics(nn.Module):
    """Two independent Q functions; their minimum counters the overestimation of one."""

    def __init__(self) -> None:
        super().__init__()
        self.nets = nn.ModuleList([mlp(OBS_DIM + ACTION_DIM, 1) for _ in range(2)])

    def values(self, obs: Tensor, action: Tensor) -> Tensor:
        """Both values, shaped (2, batch)."""
        inputs = torch.cat((obs, action), dim=-1)
        return torch.stack([net(inputs).squeeze(-1) for net in self.nets])


class Batch(NamedTuple):
    """A minibatch; `valid` is 0 on reset rows, which no loss may count."""

    obs: Tensor
    action: Tensor
    reward: Tensor
    next_obs: Tensor
    terminated: Tensor
    valid: Tensor


@dataclass(frozen=True)
class UpdateStats:
    """What one update computed, left as tensors: whether they're worth a read is for the reader to decide."""

    critic_loss: Tensor
    actor_loss: Tensor
    alpha: Tensor
    alpha_loss: Tensor
    entropy: Tensor
    critic_grad_norm: Tensor
    actor_grad_norm: Tensor
    target_q: Tensor  # per sample; only where `valid`
    target_q_min: Tensor
    target_q_max: Tensor
    valid: Tensor
    learning_rate: float


def masked_mean(values: Tensor, valid: Tensor) -> Tensor:
    """The mean over valid samples (0 if there are none)."""
    return (values * valid).sum() / valid.sum().clamp(min=1.0)


def step_optimizer(optimizer: torch.optim.Optimizer, loss: Tensor, parameters: list[Tensor]) -> Tensor:
    """One gradient step on these parameters only, and the gradient's norm."""
    optimizer.zero_grad()
    loss.backward(inputs=parameters)  # type: ignore[no-untyped-call]
    optimizer.step()
    return get_total_norm([p.grad for p in parameters if p.grad is not None])


class Sac:
    """Soft actor-critic with an automatic temperature."""

    def __init__(self, noise_seed: int) -> None:
        self.policy = Policy()
        self.critics = TwinCritics()
        self.target_critics = copy.deepcopy(self.critics).requires_grad_(False)
        self.log_alpha = torch.zeros((), requires_grad=True)
        self.noise = torch.Generator().manual_seed(noise_seed)
        self.policy_parameters: list[Tensor] = list(self.policy.parameters())
        self.critic_parameters: list[Tensor] = list(self.critics.parameters())
        self.policy_optimizer = torch.optim.Adam(self.policy_parameters, lr=LEARNING_RATE, fused=True)
        self.critic_optimizer = torch.optim.Adam(self.critic_parameters, lr=LEARNING_RATE, fused=True)
        self.alpha_optimizer = torch.optim.Adam([self.log_alpha], lr=LEARNING_RATE, fused=True)

    def update(self, batch: Batch) -> UpdateStats:
        """One step of critics, policy, temperature and target critics, in this order."""
        alpha = self.log_alpha.detach().exp()
        target_q = self._target_q(batch, alpha)
        critic_loss, critic_grad_norm = self._update_critics(batch, target_q)
        actor_loss, actor_grad_norm, log_prob = self._update_policy(batch, alpha)
        alpha_loss = self._update_temperature(batch, log_prob)
        self._update_target_critics()
        valid = batch.valid > 0.0
        return UpdateStats(
            critic_loss=critic_loss,
            actor_loss=actor_loss,
            alpha=alpha,
            alpha_loss=alpha_loss,
            entropy=-masked_mean(log_prob, batch.valid),
            critic_grad_norm=critic_grad_norm,
            actor_grad_norm=actor_grad_norm,
            target_q=target_q,
            target_q_min=target_q.where(valid, math.inf).min(),
            target_q_max=target_q.where(valid, -math.inf).max(),
            valid=valid,
            learning_rate=float(self.critic_optimizer.param_groups[0]["lr"]),
        )

    def _sample(self, obs: Tensor) -> tuple[Tensor, Tensor]:
        return self.policy.sample(obs, torch.randn(len(obs), ACTION_DIM, generator=self.noise))

    @torch.no_grad()
    def _target_q(self, batch: Batch, alpha: Tensor) -> Tensor:
        """The soft Bellman target; a truncated episode still bootstraps, only a terminated one doesn't."""
        action, log_prob = self._sample(batch.next_obs)
        value = self.target_critics.values(batch.next_obs, action).amin(0) - alpha * log_prob
        return REWARD_SCALE * batch.reward + GAMMA * (1.0 - batch.terminated) * value

    def _update_critics(self, batch: Batch, target_q: Tensor) -> tuple[Tensor, Tensor]:
        error = self.critics.values(batch.obs, batch.action) - target_q
        loss = masked_mean(error.square().sum(0), batch.valid)
        return loss.detach(), step_optimizer(self.critic_optimizer, loss, self.critic_parameters)

    def _update_policy(self, batch: Batch, alpha: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        action, log_prob = self._sample(batch.obs)
        loss = masked_mean(alpha * log_prob - self.critics.values(batch.obs, action).amin(0), batch.valid)
        norm = step_optimizer(self.policy_optimizer, loss, self.policy_parameters)
        return loss.detach(), norm, log_prob.detach()

    def _update_temperature(self, batch: Batch, log_prob: Tensor) -> Tensor:
        loss = -self.log_alpha * masked_mean(log_prob + TARGET_ENTROPY, batch.valid)
        step_optimizer(self.alpha_optimizer, loss, [self.log_alpha])
        return loss.detach()

    @torch.no_grad()
    def _update_target_critics(self) -> None:
        for target, source in zip(self.target_critics.parameters(), self.critic_parameters, strict=True):
            target.lerp_(source, TAU)

    def parameter_hash(self) -> str:
        """Equal exactly if all parameters are equal bit for bit."""
        modules = nn.ModuleList([self.policy, self.critics, self.target_critics])
        parameters = [*modules.parameters(), self.log_alpha]
        return hashlib.sha256(b"".join(p.detach().numpy().tobytes() for p in parameters)).hexdigest()


class Replay:
    """A ring of packed transition rows, reset rows included: they keep their place and carry valid = False."""

    def __init__(self, seed: int) -> None:
        self.rows = np.zeros((REPLAY_ROWS, sum(ROW_COLUMNS)), dtype=np.float32)
        self.valid = np.zeros(REPLAY_ROWS, dtype=np.bool_)
        self.written = 0
        self.rng = np.random.default_rng(seed)

    def ingest(self, write: ReplayWrite) -> None:
        """Appends a tick, overwriting the oldest rows once the ring is full."""
        slots = (self.written + np.arange(len(write.rows))) % REPLAY_ROWS
        self.rows[slots] = write.rows
        self.valid[slots] = write.valid
        self.written += len(write.rows)

    def sample(self) -> Batch:
        """A minibatch drawn uniformly, with replacement."""
        slots = self.rng.integers(min(self.written, REPLAY_ROWS), size=BATCH_SIZE)
        columns = torch.split(torch.from_numpy(self.rows[slots]), ROW_COLUMNS, dim=1)
        obs, action, reward, next_obs, terminated = columns
        valid = torch.from_numpy(self.valid[slots].astype(np.float32))
        return Batch(obs, action, reward.squeeze(1), next_obs, terminated.squeeze(1), valid)


class Learner:
    """Answers the collector's requests and learns from what it wrote; every method of an iteration is one phase."""

    def __init__(self, config: Config, link: Connection) -> None:
        seeds = stream_seeds(config.seed)
        torch.manual_seed(seeds["init"])
        self.config = config
        self.link = link
        self.stamps = Stamps("learner", config.stamps is not None)
        self.sac = Sac(seeds["update_noise"])
        self.replay = Replay(seeds["minibatch"])
        self.action_noise = torch.Generator().manual_seed(seeds["action_noise"])
        self.pending: list[ReplayWrite] = []
        self.env_steps = 0
        self.metrics: dict[str, float] = {}
        self.updates: list[UpdateStats] = []  # of the current iteration

    def run(self) -> Farewell:
        """All iterations; then takes the last tick's write and answers the request after it with stop."""
        for tick in range(self.config.ticks):
            self.run_iteration(tick)
        self.collector_wait()
        self.replay_batch_wait()
        self.link.send(None)
        return cast(Farewell, self.link.recv())

    def run_iteration(self, tick: int) -> None:
        """Serves tick `tick`, then learns from the ticks before it while the collector steps."""
        request = self.collector_wait()
        actions = self.inference(request.obs)
        self.collector_release(tick, actions)
        self.replay_batch_wait()
        if self.env_steps >= RANDOM_STEPS:
            self.learning(self.replay_sample())

    def collector_wait(self) -> InferenceRequest:
        """Reads up to the next request and keeps what came before it, which is the whole of the last tick's output."""
        while True:
            message: Message = self.link.recv()
            if isinstance(message, InferenceRequest):
                return message
            if isinstance(message, ReplayWrite):
                self.pending.append(message)
            elif isinstance(message, Metrics):
                self.metrics = message.values

    def inference(self, obs: FloatArray) -> FloatArray:
        """Observations in, actions out."""
        return self.inference_d2h(self.inference_forward(self.inference_h2d(obs)))

    def inference_h2d(self, obs: FloatArray) -> Tensor:
        """Moves the observations to where the policy lives."""
        return torch.from_numpy(obs)

    @torch.no_grad()
    def inference_forward(self, obs: Tensor) -> Tensor:
        """Samples actions from the policy, or uniformly at the start of the run."""
        if self.env_steps < RANDOM_STEPS:
            return torch.rand(len(obs), ACTION_DIM, generator=self.action_noise) * 2.0 - 1.0
        return self.sac.policy.sample(obs, torch.randn(len(obs), ACTION_DIM, generator=self.action_noise))[0]

    def inference_d2h(self, actions: Tensor) -> FloatArray:
        """Moves the actions to where they can be sent from."""
        return cast(FloatArray, actions.numpy())

    def collector_release(self, tick: int, actions: FloatArray) -> None:
        """Sends the actions: from here on the collector works in parallel."""
        self.link.send(Actions(tick, actions))

    def replay_batch_wait(self) -> None:
        """Ingests what the collector wrote before this iteration's request."""
        for write in self.pending:
            self.replay.ingest(write)
            self.env_steps += int(write.valid.sum())
        self.pending.clear()

    def replay_sample(self) -> list[Batch]:
        """Draws the minibatches of this iteration's updates."""
        return [self.replay.sample() for _ in range(self.config.updates_per_tick)]

    def learning(self, batches: list[Batch]) -> None:
        """Updates once per minibatch and keeps what each update computed until the next iteration."""
        with self.stamps.span("learning"):
            self.updates = [self.sac.update(batch) for batch in batches]


def make_envs(num_envs: int) -> SyncVectorEnv:
    """Vectorised environments that reset on the step after an episode's end (Gymnasium's default, NEXT_STEP)."""
    return SyncVectorEnv([partial(gymnasium.make, ENV_ID, disable_env_checker=True)] * num_envs)


def stream_seeds(seed: int) -> dict[str, int]:
    """An own seed for every consumer of randomness, so that none can shift another's numbers."""
    names = ("init", "envs", "action_noise", "update_noise", "minibatch")
    return dict(zip(names, np.random.SeedSequence(seed).generate_state(len(names)).tolist(), strict=True))


def mean(values: list[float] | list[int]) -> float:
    """The mean, or nan of nothing."""
    return float(np.mean(values)) if values else math.nan


@contextmanager
def interrupts_held() -> Iterator[None]:
    """Delays Ctrl+C past its body; a process started in it inherits the blocked signal and never sees one.

    The mask alone wouldn't hold it here: it's this thread's, and NumPy's threads still take the signal.
    """
    held: list[int] = []
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    handler = signal.signal(signal.SIGINT, lambda signum, _: held.append(signum))
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
        signal.signal(signal.SIGINT, handler)
        if held:
            raise KeyboardInterrupt


@contextmanager
def running_collector(config: Config) -> Iterator[tuple[BaseProcess, Connection]]:
    """Runs the collector process for the length of its body, and leaves none behind however that ends."""
    context = multiprocessing.get_context("spawn")
    link, collector_link = context.Pipe(duplex=True)
    process = context.Process(target=collector_main, args=(config, collector_link), name="collector", daemon=True)
    resource_tracker.ensure_running()  # Process.start would start it, and that would lift the block below
    try:
        with interrupts_held():
            process.start()
            collector_link.close()  # else this process would keep the pipe open and never see its end
        yield process, link
    finally:
        with interrupts_held():
            link.close()  # tells the collector to stop, wherever it is
            if process.pid is not None:
                stop_process(process)


def stop_process(process: BaseProcess) -> None:
    """Gives a process that was told to stop a bounded time for it, then insists."""
    process.join(JOIN_SECONDS)
    for insist in (process.terminate, process.kill):
        if process.exitcode is None:
            insist()
            process.join(JOIN_SECONDS / 4)


def evaluate(policy: Policy) -> float:
    """The deterministic policy's mean return over one episode for each fixed seed."""
    envs = make_envs(len(EVAL_SEEDS))
    obs, _ = envs.reset(seed=EVAL_SEEDS)
    returns = np.zeros(len(EVAL_SEEDS))
    with torch.no_grad():
        for _ in range(EPISODE_STEPS):
            obs, reward, *_ = envs.step(policy.act(torch.from_numpy(obs)).numpy() * MAX_TORQUE)
            returns += reward
    return float(returns.mean())


def train(config: Config) -> None:
    """One run from start to summary."""
    begin = time.monotonic()
    torch.set_num_threads(1)
    with running_collector(config) as (process, link):
        learner = Learner(config, link)
        try:
            farewell = learner.run()
        except (EOFError, OSError):
            process.join(JOIN_SECONDS)
            sys.exit(f"error: the collector process died (exit code {process.exitcode})")
    evaluation = evaluate(learner.sac.policy)
    returns = farewell.episode_returns
    print(f"ticks              {config.ticks}")
    print(f"env steps          {learner.env_steps}")
    print(f"first 20 episodes  {mean(returns[:20]):.1f}")
    print(f"last 20 episodes   {mean(returns[-20:]):.1f}")
    print(f"evaluation return  {evaluation:.1f}")
    print(f"parameter hash     {learner.sac.parameter_hash()}")
    print(f"wall seconds       {time.monotonic() - begin:.1f}", flush=True)
    if config.stamps is not None:
        rows = learner.stamps.rows + farewell.stamps
        config.stamps.write_text("".join(json.dumps(row) + "\n" for row in rows))


def parse_args(argv: list[str] | None = None) -> Config:
    """The command line."""
    parser = argparse.ArgumentParser(description="Two-process soft actor-critic on Pendulum-v1.")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--ticks", type=int, default=8000, help="ticks of all environments together")
    parser.add_argument("--num-envs", type=int, default=4)
    parser.add_argument("--updates-per-tick", type=int, default=1)
    parser.add_argument("--stamps", type=Path, metavar="FILE", help="write timings of both processes as JSON lines")
    config = Config(**vars(parser.parse_args(argv)))
    if min(config.ticks, config.num_envs, config.updates_per_tick) < 1 or config.seed < 0:
        parser.error("the seed can't be negative, and the other numbers must be positive")
    return config


def main(argv: list[str] | None = None) -> int:
    """Returns the exit code: 0, or 130 after Ctrl+C (train exits with 1 if the collector dies)."""
    config = parse_args(argv)
    torch.optim.Adam([torch.zeros(1)])  # the first one imports a second's worth of torch, so while Ctrl+C is harmless
    try:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        train(config)
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    exit_code = main()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # nothing is left to interrupt but the interpreter's own teardown
    sys.exit(exit_code)
