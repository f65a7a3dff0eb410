"""Soft actor-critic on Pendulum-v1, in two processes the way a robot-RL system is, with rltel switched on.

The *learner* (this process) owns the networks and the replay buffer. The *collector* (a spawned process) owns the
environments. They talk over one duplex pipe:

    collector tick k:       request(k) -> wait for actions(k) -> step -> extract -> replay write(k) [-> metrics]
    learner iteration k:    wait for request(k) -> infer -> release actions(k) -> ingest -> sample -> learn

Between a release and the next request both sides work: the collector steps its environments while the learner
learns. The overlap doesn't cost reproducibility. Tick k's replay write always precedes request(k + 1) in the pipe and
the learner reads up to exactly one request per iteration, so update k sees the transitions of the ticks before k,
whatever the timing, and a seed gives the same parameters bit for bit (on one machine and one build of torch), with
telemetry or without.
"""

from __future__ import annotations

import os
import signal

if __name__ == "__main__":
    # Importing torch takes a second: a Ctrl+C in that time has nothing to clean up and shouldn't print a traceback.
    signal.signal(signal.SIGINT, lambda *_: os._exit(130))

import argparse
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
from typing import Any, NamedTuple, TypeAlias, cast

import gymnasium
import numpy as np
import torch
from gymnasium.vector import SyncVectorEnv
from otlp_receiver import otlp_is_wanted
from sac_agent import (
    ACTION_DIM,
    BATCH_SIZE,
    REPLAY_ROWS,
    Batch,
    BoolArray,
    FloatArray,
    Policy,
    Replay,
    Sac,
    UpdateStats,
)
from torch import Tensor
from where_time_went import where_time_went

import rltel
from rltel.traces.merge import merge

StepResult: TypeAlias = tuple[FloatArray, FloatArray, BoolArray, BoolArray]  # next obs, reward, terminated, truncated

ENV_ID = "Pendulum-v1"
EPISODE_STEPS = 200
MAX_TORQUE = 2.0  # the policy acts in [-1, 1]
RANDOM_STEPS = 500

METRICS_EVERY_TICKS = 10  # the collector's numbers travel this often, and the learner commits as often
EVAL_SEEDS: list[int | None] = list(range(10_000, 10_010))
JOIN_SECONDS = 0.8


@dataclass(frozen=True)
class Config:
    """What a run is determined by (`stamps` and what follows only say what is written about it, and where)."""

    seed: int
    ticks: int
    num_envs: int
    updates_per_tick: int
    stamps: Path | None
    telemetry: bool
    log_root: str


def telemetry_config(config: Config) -> dict[str, Any]:
    """What rltel is switched on for. Every setting can be overridden by its ``RLTEL_*`` variable."""
    if not config.telemetry:
        return {}
    return {
        "run": {
            "algo": "sac",
            "task": ENV_ID,
            "backend": "gymnasium",
            "log_root": config.log_root,
            "config": {"seed": config.seed, "ticks": config.ticks, "num_envs": config.num_envs},
        },
        "trace": {"enabled": True},
        "prometheus": {"enabled": True, "linger_s": 30.0},
        "tensorboard": {"path": "{run_dir}/tb"},
        "terminal": {"enabled": True},  # where there is no screen: lines, as of the console
        "console": {"interval_s": 5.0},
        "otlp": {"enabled": otlp_is_wanted()},
    }


class InferenceRequest(NamedTuple):
    """Collector to learner: the observations of a tick. The answer is Actions, or None when the run is over."""

    tick: int
    obs: FloatArray
    flow: int


class ReplayWrite(NamedTuple):
    """Collector to learner: a tick's transitions, one packed row per environment; rows that aren't valid are resets."""

    tick: int
    rows: FloatArray
    valid: BoolArray
    flow: int


class Metrics(NamedTuple):
    """Collector to learner: what rltel recorded in the collector since the last time."""

    tick: int
    payload: dict[str, Any]


class Farewell(NamedTuple):
    """Collector to learner, its last message: the returns of all whole episodes, the last metrics, its timings."""

    episode_returns: list[float]
    payload: dict[str, Any]
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
        if done.any():
            self._finish(done)

    def _finish(self, done: BoolArray) -> None:
        finished = done & self.whole
        self.returns += self.running_return[finished].tolist()
        self.lengths += self.running_length[finished].tolist()
        rltel.count(episodes=int(finished.sum()))
        self.whole |= done
        self.running_return[done] = 0.0
        self.running_length[done] = 0

    def publish(self) -> None:
        """The means over the last 100 episodes; nothing before the first has ended."""
        if self.returns:
            rltel.gauge(
                {
                    "Train/mean_reward": mean(self.returns[-100:]),
                    "Train/mean_episode_length": mean(self.lengths[-100:]),
                }
            )


class Collector:
    """Steps the environments with the learner's actions; every method of a tick is one phase of it."""

    def __init__(self, config: Config, link: Connection) -> None:
        self.link = link
        self.clock = rltel.collector("sac")
        self.stamps = Stamps("collector", config.stamps is not None)
        self.envs = make_envs(config.num_envs)
        self.episodes = EpisodeLog(config.num_envs)
        self.tick = 0
        self.request_flow = 0
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
        going_on = True
        while going_on:
            with self.clock.cycle(step=self.tick):
                going_on = self.run_tick()
        self.link.send(Farewell(self.episodes.returns, rltel.export_payload(), self.stamps.rows))

    def run_tick(self) -> bool:
        """One tick; False if the learner said stop."""
        self.inference_request()
        actions = self.learner_action_wait()
        if actions is None:
            return False
        result = self.env_step(actions)
        self.replay_write(*self.transition_extract(actions, result))
        self.tick += 1
        if self.tick % METRICS_EVERY_TICKS == 0:
            self.metrics_publish()
        return True

    def inference_request(self) -> None:
        """Asks the learner for actions; it decides the random ones too, so the collector holds no policy at all."""
        self.request_flow = rltel.new_flow()
        with self.clock.phase("inference_request", flow=self.request_flow):
            self.link.send(InferenceRequest(self.tick, self.obs, self.request_flow))

    def learner_action_wait(self) -> FloatArray | None:
        """Waits for the answer; None means stop."""
        with self.clock.phase("learner_action_wait"):
            reply: Actions | None = self.link.recv()
        return None if reply is None else reply.values

    def env_step(self, actions: FloatArray) -> StepResult:
        """Steps all environments; those that finished on the last tick reset instead and ignore their action."""
        with self.clock.phase("env_step", flow=self.request_flow), self.stamps.span("env_step"):
            next_obs, reward, terminated, truncated, _ = self.envs.step(actions * MAX_TORQUE)
        return next_obs, reward.astype(np.float32), terminated, truncated

    def transition_extract(self, actions: FloatArray, result: StepResult) -> tuple[FloatArray, BoolArray]:
        """Packs the tick's transitions, marks the reset rows as not valid, and moves on to the next observations."""
        with self.clock.phase("transition_extract"):
            next_obs, reward, terminated, truncated = result
            valid, done = ~self.resetting, terminated | truncated
            columns = (self.obs, actions, reward, next_obs, terminated)
            rows = np.column_stack(columns).astype(np.float32, copy=False)
            self.episodes.record(reward, valid, done)
            self.obs, self.resetting = next_obs, done
        return rows, valid

    def replay_write(self, rows: FloatArray, valid: BoolArray) -> None:
        """Sends the tick's transitions as a message of their own; the learner ingests them after the next request."""
        flow = rltel.new_flow()
        with self.clock.phase("replay_write", flow=flow):
            self.link.send(ReplayWrite(self.tick, rows, valid, flow))

    def metrics_publish(self) -> None:
        """Sends what was recorded here; the learner's next commit contains it."""
        with self.clock.phase("metrics_publish"):
            self.episodes.publish()
            self.link.send(Metrics(self.tick, rltel.export_payload()))


def collector_main(config: Config, link: Connection, headers: dict[str, str]) -> None:
    """Entry point of the collector process; a closed pipe means that the learner is gone, and ends it quietly."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl+C reaches the whole group; the learner decides what it means
    torch.set_num_threads(1)
    rltel.init(telemetry_config(config), role="collector")
    with rltel.attached(headers):
        collector = Collector(config, link)
        with suppress(EOFError, OSError):
            collector.run()
    rltel.shutdown(linger=False)


class Learner:
    """Answers the collector's requests and learns from what it wrote; every method of an iteration is one phase."""

    def __init__(self, config: Config, link: Connection) -> None:
        seeds = stream_seeds(config.seed)
        torch.manual_seed(seeds["init"])
        self.config = config
        self.link = link
        self.clock = rltel.learner("sac")
        self.stamps = Stamps("learner", config.stamps is not None)
        self.sac = Sac(seeds["update_noise"])
        self.replay = Replay(seeds["minibatch"])
        self.action_noise = torch.Generator().manual_seed(seeds["action_noise"])
        self.pending: list[ReplayWrite] = []
        self.env_steps = 0
        self.committed_at = (time.monotonic(), 0)

    def run(self) -> Farewell:
        """All iterations; then takes the last tick's write and answers the request after it with stop."""
        for tick in range(self.config.ticks):
            updates = self.run_iteration(tick)
            with rltel.slice("log"):
                self.log(tick, updates)
        with self.clock.iteration(step=self.config.ticks):
            self.collector_wait()
            self.replay_batch_wait()
        self.link.send(None)
        farewell = cast(Farewell, self.link.recv())
        rltel.absorb(farewell.payload)
        self.commit(self.config.ticks)
        return farewell

    def run_iteration(self, tick: int) -> list[UpdateStats]:
        """Serves tick `tick`, then learns from the ticks before it while the collector steps."""
        with self.clock.iteration(step=tick):
            request = self.collector_wait()
            actions = self.inference(request)
            self.collector_release(tick, actions, request.flow)
            self.replay_batch_wait()
            return self.learning(self.replay_sample()) if self.env_steps >= RANDOM_STEPS else []

    def collector_wait(self) -> InferenceRequest:
        """Reads up to the next request and keeps what came before it, which is the whole of the last tick's output."""
        with self.clock.phase("collector_wait"):
            while True:
                message: Message = self.link.recv()
                if isinstance(message, InferenceRequest):
                    return message
                if isinstance(message, ReplayWrite):
                    self.pending.append(message)
                elif isinstance(message, Metrics):
                    rltel.absorb(message.payload)

    def inference(self, request: InferenceRequest) -> FloatArray:
        """Observations in, actions out."""
        with self.clock.phase("inference", flow=request.flow):
            return self.inference_d2h(self.inference_forward(self.inference_h2d(request.obs)))

    def inference_h2d(self, obs: FloatArray) -> Tensor:
        """Moves the observations to where the policy lives."""
        with self.clock.phase("inference_h2d"):
            return torch.from_numpy(obs)

    @torch.no_grad()
    def inference_forward(self, obs: Tensor) -> Tensor:
        """Samples actions from the policy, or uniformly at the start of the run."""
        with self.clock.phase("inference_forward"):
            if self.env_steps < RANDOM_STEPS:
                return torch.rand(len(obs), ACTION_DIM, generator=self.action_noise) * 2.0 - 1.0
            noise = torch.randn(len(obs), ACTION_DIM, generator=self.action_noise)
            return self.sac.policy.sample(obs, noise)[0]

    def inference_d2h(self, actions: Tensor) -> FloatArray:
        """Moves the actions to where they can be sent from."""
        with self.clock.phase("inference_d2h"):
            return cast(FloatArray, actions.numpy())

    def collector_release(self, tick: int, actions: FloatArray, flow: int) -> None:
        """Sends the actions: from here on the collector works in parallel."""
        with self.clock.phase("collector_release", flow=flow):
            self.link.send(Actions(tick, actions))

    def replay_batch_wait(self) -> None:
        """Ingests what the collector wrote before this iteration's request."""
        with self.clock.phase("replay_batch_wait"):
            for write in self.pending:
                with self.clock.phase("replay_ingress_h2d_submit", flow=write.flow):
                    self.replay.ingest(write.rows, write.valid)
                self.env_steps += int(write.valid.sum())
            self.pending.clear()

    def replay_sample(self) -> list[Batch]:
        """Draws the minibatches of this iteration's updates."""
        with self.clock.phase("replay_sample"):
            return [self.replay.sample() for _ in range(self.config.updates_per_tick)]

    def learning(self, batches: list[Batch]) -> list[UpdateStats]:
        """Updates once per minibatch."""
        with self.clock.phase("learning", batches=len(batches)), self.stamps.span("learning"):
            return [self.sac.update(batch) for batch in batches]

    def log(self, tick: int, updates: list[UpdateStats]) -> None:
        """Records what the iteration's updates computed, and commits every few iterations."""
        for update in updates:
            record_update(update)
        if (tick + 1) % METRICS_EVERY_TICKS == 0:
            self.commit(tick)

    def commit(self, tick: int) -> None:
        """One step of the run's record: everything recorded since the last, here and in the collector."""
        now, (before, steps_before) = time.monotonic(), self.committed_at
        self.committed_at = now, self.env_steps
        rltel.gauge({"Train/iteration": tick})
        rltel.gauge({"Perf/total_fps": (self.env_steps - steps_before) / (now - before)}, ranks="sum")
        rltel.system(buffer=min(self.replay.written, REPLAY_ROWS))
        rltel.commit(step=tick, env_steps=self.env_steps)


def record_update(update: UpdateStats) -> None:
    """One update's numbers: means over the updates of a commit; the target values over valid samples only."""
    rltel.scalar(
        {
            "Loss/critic": update.critic_loss,
            "Loss/actor": update.actor_loss,
            "Loss/temperature": update.alpha_loss,
            "Loss/entropy": update.entropy,
            "Loss/learning_rate": update.learning_rate,
            "Policy/temperature": update.alpha,
            "Train/actor_gradient_norm": update.actor_grad_norm,
            "Train/critic_gradient_norm": update.critic_grad_norm,
        }
    )
    rltel.stat({"Train/target_q_max": update.target_q}, mask=update.valid, reduce_type="max")
    rltel.stat({"Train/target_q_min": update.target_q}, mask=update.valid, reduce_type="min")
    with rltel.scope("replay"):
        rltel.denominator(valid_samples=update.valid)
        rltel.stat(target_q=update.target_q, denominator="valid_samples")


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
    arguments = (config, collector_link, rltel.inject())
    process = context.Process(target=collector_main, args=arguments, name="collector", daemon=True)
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


@contextmanager
def telemetry(config: Config) -> Iterator[rltel.Telemetry]:
    """Telemetry for the length of a run. Only a run that ended well lingers for its last scrape."""
    ended_well = False
    try:
        with interrupts_held():  # it imports what it writes with, and an import that is cut short is a confusing error
            running = rltel.init(telemetry_config(config))
        rows = BATCH_SIZE * config.updates_per_tick
        rltel.system(environments=config.num_envs, batch=BATCH_SIZE, rows=rows, max_iterations=config.ticks)
        yield running
        ended_well = True
    finally:
        if ended_well:
            rltel.shutdown()
        else:
            with interrupts_held():
                rltel.shutdown(linger=False)


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
    with telemetry(config) as running:
        with running_collector(config) as (process, link):
            learner = Learner(config, link)
            try:
                farewell = learner.run()
            except (EOFError, OSError):
                process.join(JOIN_SECONDS)
                rltel.summary(status="collector_died", error=f"exit code {process.exitcode}")
                sys.exit(f"error: the collector process died (exit code {process.exitcode})")
        evaluation = evaluate(learner.sac.policy)
        rltel.log({"eval/return": evaluation}, step=config.ticks, env_steps=learner.env_steps, axis="eval")
        seconds = time.monotonic() - begin
    returns = farewell.episode_returns
    print(f"ticks              {config.ticks}")
    print(f"env steps          {learner.env_steps}")
    print(f"first 20 episodes  {mean(returns[:20]):.1f}")
    print(f"last 20 episodes   {mean(returns[-20:]):.1f}")
    print(f"evaluation return  {evaluation:.1f}")
    print(f"parameter hash     {learner.sac.parameter_hash()}")
    print(f"wall seconds       {seconds:.1f}", flush=True)
    if config.stamps is not None:
        rows = learner.stamps.rows + farewell.stamps
        config.stamps.write_text("".join(json.dumps(row) + "\n" for row in rows))
    if running.run_dir is not None:
        show_what_was_written(running.run_dir)


def show_what_was_written(run_dir: Path) -> None:
    """Where the run's files are, how to look at them, and where the time went."""
    merged = merge(run_dir, run_dir / "timeline.pftrace")
    print()
    print(where_time_went(run_dir))
    print()
    print(f"run directory  {run_dir}")
    print(f"timeline       {merged.path}  (open it at https://ui.perfetto.dev; it stays on your machine)")
    print(f"TensorBoard    {Path(sys.executable).parent / 'tensorboard'} --logdir {run_dir / 'tb'}", flush=True)


def parse_args(argv: list[str] | None = None) -> Config:
    """The command line."""
    parser = argparse.ArgumentParser(description="Two-process soft actor-critic on Pendulum-v1.")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--ticks", type=int, default=8000, help="ticks of all environments together")
    parser.add_argument("--num-envs", type=int, default=4)
    parser.add_argument("--updates-per-tick", type=int, default=1)
    parser.add_argument("--telemetry", choices=("on", "off"), default="on")
    parser.add_argument("--log-root", default="logs", help="where run directories are made")
    parser.add_argument("--stamps", type=Path, metavar="FILE", help="write timings of both processes as JSON lines")
    given = vars(parser.parse_args(argv))
    config = Config(**{**given, "telemetry": given["telemetry"] == "on"})
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
