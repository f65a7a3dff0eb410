"""The clock of unilab-rl's APPO collector, put in place by the environment's factory, in the collector's process."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

from appo_hooks import Call, Payloads, arrow, wrapped

import rltel


class CollectorHooks:
    """The clock of `appo_collector_fn`: from a look at the weights' version to the rollout's place in the ring."""

    def __init__(self, payloads: Payloads) -> None:
        self.clock = rltel.collector("appo")
        self.payloads = payloads
        self.rollout: Any = None
        self.infer: Any = None
        self.actor_weights: Any = None
        self.policy_version = 0
        self.done = 0
        self.is_ready = False
        self._closing = ExitStack()

    def attach(self) -> None:
        """Times the collector's loop from the environment's reset on."""
        from rsl_rl.models import MLPModel
        from uni_rl.ipc import SharedWeightSync, TensorRolloutRingBuffer

        wrappers = {
            (SharedWeightSync, "version"): self._begin_rollout,
            (SharedWeightSync, "read_weights_into"): self._weight_pull,
            (MLPModel, "forward"): self._begin_inference,
            (MLPModel, "get_output_log_prob"): self._end_inference,
            (TensorRolloutRingBuffer, "signal_write_done"): self._end_rollout,
        }
        self._closing.enter_context(wrapped(wrappers))

    def close(self) -> None:
        """Sends what was recorded since the last rollout."""
        self._closing.close()
        self.payloads.put(rltel.export_payload())

    def _begin_rollout(self, original: Call) -> Call:
        def version(weights: Any) -> int:
            if self.is_ready and self.rollout is None:
                self.actor_weights = weights  # it looks at the actor's first
                self.rollout = self.clock.cycle(step=self.done)
                self.rollout.__enter__()
            return int(original(weights))

        return version

    def _weight_pull(self, original: Call) -> Call:
        def read_weights_into(weights: Any, state_dict: Any) -> int:
            seen = weights.version  # what is read may be newer still: it is read without a lock
            with rltel.slice("weight_pull", flow=arrow(weights.name, seen), attributes={"version": seen}):
                version = int(original(weights, state_dict))
            if weights is self.actor_weights or self.actor_weights is None:
                self.policy_version = version
            return version

        return read_weights_into

    def _begin_inference(self, original: Call) -> Call:
        def forward(model: Any, *args: Any, **given: Any) -> Any:
            if given.get("stochastic_output") and self.rollout is not None:
                self.infer = self.clock.phase("mlp_infer")
                self.infer.__enter__()
            return original(model, *args, **given)

        return forward

    def _end_inference(self, original: Call) -> Call:
        def get_output_log_prob(model: Any, outputs: Any) -> Any:
            log_prob = original(model, outputs)
            infer, self.infer = self.infer, None
            if infer is not None:
                infer.__exit__(None, None, None)
            return log_prob

        return get_output_log_prob

    def _end_rollout(self, original: Call) -> Call:
        def signal_write_done(ring: Any) -> None:
            number = int(ring._write_ptr.value)
            self.rollout.set(**{"rl.policy.version": self.policy_version, "ring_number": number})
            with rltel.slice("ring_publish", flow=arrow(ring.name["obs"], number)):
                original(ring)
            rollout, self.rollout = self.rollout, None
            rollout.__exit__(None, None, None)
            self.done += 1
            self.payloads.put(rltel.export_payload())

        return signal_write_done


class TimedEnv:
    """An environment whose steps are the clock's, and whose close ends the collector's telemetry."""

    def __init__(self, env: Any, hooks: CollectorHooks, telemetry: ExitStack) -> None:
        self._env = env
        self._hooks = hooks
        self._telemetry = telemetry

    def __getattr__(self, name: str) -> Any:
        return getattr(self._env, name)

    def reset(self, env_indices: Any) -> Any:
        """The collector resets once, right before its loop."""
        result = self._env.reset(env_indices)
        self._hooks.is_ready = True
        return result

    def step(self, actions: Any) -> Any:
        """One step of all environments."""
        with self._hooks.clock.phase("env_step"):
            return self._env.step(actions)

    def close(self) -> None:
        """The last that the collector calls."""
        self._env.close()
        self._hooks.close()
        self._telemetry.close()
