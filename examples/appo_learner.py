"""The clock of unilab-rl's APPO learner."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from queue import Empty
from threading import Event, Thread
from typing import Any

from appo_hooks import Call, Payloads, arrow, wrapped

import rltel
from rltel.record.phase_sets import APPO_COLLECTOR, APPO_LEARNER

TIMED = {phase.key for phases in (APPO_LEARNER, APPO_COLLECTOR) for phase in phases.phases}
TIMED |= {"Perf/iteration_time", "Perf/collection_time"}
"""UniLab's tags for what our clocks time. Its own numbers for these are kept under ``unilab/``, to compare."""


class LearnerHooks:
    """The clock of `APPORunner.learn`. An iteration lasts from the first draining of metrics to the logging."""

    def __init__(self, payloads: Payloads) -> None:
        self.clock = rltel.learner("appo")
        self.payloads = payloads
        self.iteration: Any = None
        self.done = 0
        self.staged = 0
        """The rollout that is being staged, by its number in the ring."""
        self.read = 0
        """Rollouts up to here were read, or overwritten before they could be."""

    @contextmanager
    def attached(self) -> Iterator[None]:
        """Times the runner inside. An iteration that it leaves by an exception is ended and marked."""
        from uni_rl.algos.appo.learner import APPOLearner
        from uni_rl.algos.appo.runner import APPORunner
        from uni_rl.algos.appo.staging import TensorRolloutStagingPool
        from uni_rl.ipc import SharedWeightSync, TensorRolloutRingBuffer
        from uni_rl.logging import OffPolicyLogger

        wrappers = {
            (APPORunner, "_drain_metrics"): self._begin_iteration,
            (TensorRolloutRingBuffer, "wait_for_data"): self._collector_wait,
            (TensorRolloutRingBuffer, "read_tensor_views"): self._note_rollout,
            (TensorRolloutStagingPool, "stage_tensor_views"): self._replay_stage,
            (TensorRolloutStagingPool, "batch"): self._phase("replay_sample"),
            (APPOLearner, "process_batch"): self._phase("learning", part="targets"),
            (APPOLearner, "update"): self._phase("learning", part="update"),
            (SharedWeightSync, "write_weights"): self._weight_publish,
            (OffPolicyLogger, "log_step"): self._end_iteration,
            (OffPolicyLogger, "_write_backend_scalars"): self._commit,
        }
        with wrapped(wrappers), ExitStack() as open_at_the_end:
            open_at_the_end.push(self._leave)
            yield

    def absorb(self) -> None:
        """What the collector has recorded so far becomes part of the next commit."""
        with suppress(Empty):
            while True:
                rltel.absorb(self.payloads.get_nowait())

    @contextmanager
    def absorbing(self) -> Iterator[None]:
        """Takes what the collector sends while it ends: its process waits until all that it sent is taken."""
        is_over = Event()

        def absorb() -> None:
            while not is_over.wait(0.02):
                self.absorb()

        thread = Thread(target=absorb)
        thread.start()
        try:
            yield
        finally:
            is_over.set()
            thread.join()
            self.absorb()

    def _leave(self, kind: Any, error: Any, trace: Any) -> None:
        iteration, self.iteration = self.iteration, None
        if iteration is not None:
            iteration.__exit__(kind, error, trace)

    def _begin_iteration(self, original: Call) -> Call:
        def drain_metrics(*args: Any) -> None:
            if self.iteration is None:  # it drains twice an iteration
                self.iteration = self.clock.iteration(step=self.done + 1)
                self.iteration.__enter__()
            original(*args)

        return drain_metrics

    def _end_iteration(self, original: Call) -> Call:
        def log_step(logger: Any, iteration: int, **given: Any) -> None:
            self._leave(None, None, None)
            self.done = iteration
            with rltel.slice("log"):
                original(logger, iteration=iteration, **given)

        return log_step

    def _phase(self, name: str, **attributes: Any) -> Callable[[Call], Call]:
        def wrap(original: Call) -> Call:
            def timed(*args: Any, **given: Any) -> Any:
                with self.clock.phase(name, **attributes):
                    return original(*args, **given)

            return timed

        return wrap

    def _collector_wait(self, original: Call) -> Call:
        def wait_for_data(ring: Any, timeout: float = 60.0) -> bool:
            with self.clock.phase("collector_wait", ring_slots=ring.available()):
                return bool(original(ring, timeout))

        return wait_for_data

    def _note_rollout(self, original: Call) -> Call:
        def read_tensor_views(ring: Any) -> Any:
            views = original(ring)  # it passes over rollouts that were overwritten meanwhile
            number = int(ring._read_ptr.value)
            rltel.count({"rollouts/read": 1, "rollouts/overwritten": max(0, number - self.read)})
            self.read, self.staged = number + 1, arrow(ring.name["obs"], number)
            return views

        return read_tensor_views

    def _replay_stage(self, original: Call) -> Call:
        def stage_tensor_views(pool: Any, raw_views: Any) -> Any:
            with self.clock.phase("replay_stage", flow=self.staged):
                return original(pool, raw_views)

        return stage_tensor_views

    def _weight_publish(self, original: Call) -> Call:
        def write_weights(sync: Any, state_dict: Any) -> None:
            if self.iteration is None:  # the first weights, before the loop
                original(sync, state_dict)
                return
            version = sync.version + 1
            with self.clock.phase("weight_publish", flow=arrow(sync.name, version), version=version):
                original(sync, state_dict)

        return write_weights

    def _commit(self, original: Call) -> Call:
        def write_backend_scalars(logger: Any, scalars: dict[str, float], iteration: int) -> None:
            original(logger, scalars, iteration)
            rltel.gauge({f"unilab/{tag}" if tag in TIMED else tag: value for tag, value in scalars.items()})
            self.absorb()
            rltel.commit(step=iteration, env_steps=logger._total_steps)

        return write_backend_scalars
