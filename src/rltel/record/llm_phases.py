"""The phase sets of LLM post-training (PPO, GRPO), on the ``rl.*`` names.

The learner's keys are ``timeperf/<phase>``. Workers' payloads meet them in one process, so other roles lead with their
name: ``timeperf/rollout/<phase>``. A learner that generates by itself uses its own ``prefill`` and ``decode``, or a
clock with the rollout's set beside its own.
"""

from collections.abc import Iterable

from rltel.names.phases import PhaseKind, RlPart
from rltel.record.kinds import TIMING
from rltel.record.phase import Phase, PhaseSet


def _timed(
    prefix: str, kind: PhaseKind, names: Iterable[str], parent: str | None = None, rl: RlPart | None = None
) -> tuple[Phase, ...]:
    return tuple(Phase(name, kind, f"timeperf/{prefix}{name}", TIMING, parent, rl) for name in names)


def _part(name: RlPart, children: Iterable[str]) -> tuple[Phase, ...]:
    """One of the proposal's four parts of an iteration, with what it is made of."""
    return *_timed("", "exclusive", (name,), rl=name), *_timed("", "nested", children, parent=name)


LLM_LEARNER = PhaseSet(
    "llm",
    "learner",
    "iteration",
    "timeperf/iteration",
    (
        *_part("sample", ("batch_wait", "generate", "prefill", "decode", "tool_call")),
        *_part("reward", ("reward_model", "verify")),
        *_part(
            "train",
            (
                *("old_logprobs", "ref_logprobs", "values", "advantages"),  # what the update is made from
                *("forward", "backward", "gradient_sync", "optimizer"),
            ),
        ),
        *_part("sync", ("weight_gather", "weight_publish", "weight_transfer", "weight_load")),
        *_timed("", "exclusive", ("evaluate", "checkpoint")),
        *_timed("", "background", ("checkpoint_write",)),
    ),
)
LLM_ROLLOUT = PhaseSet(
    "llm",
    "rollout",
    "session",
    "timeperf/rollout/session",
    (
        *_timed("rollout/", "exclusive", ("queue_wait", "generate", "tool_call", "env_step")),
        *_timed("rollout/", "exclusive", ("reward",), rl="reward"),
        *_timed("rollout/", "exclusive", ("result_publish",)),
        *_timed("rollout/", "nested", ("prefill", "decode"), parent="generate"),
        # Weights arrive whenever the learner sends them, and hold up every session of the worker.
        *_timed("rollout/", "background", ("weight_load",), rl="sync"),
    ),
    "sample",
)
LLM_CONTROLLER = PhaseSet(
    "llm",
    "controller",
    "round",
    "timeperf/controller/round",
    (
        *_timed("controller/", "exclusive", ("rollout_wait",), rl="sample"),
        *_timed("controller/", "exclusive", ("reward_wait",), rl="reward"),
        *_timed("controller/", "exclusive", ("batch_dispatch",)),
        *_timed("controller/", "exclusive", ("train_wait",), rl="train"),
        *_timed("controller/", "exclusive", ("weight_update",), rl="sync"),
        *_timed("controller/", "exclusive", ("evaluate", "checkpoint")),
    ),
)

LLM_SETS = (LLM_LEARNER, LLM_ROLLOUT, LLM_CONTROLLER)
