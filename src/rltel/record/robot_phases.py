"""The phase sets of robot RL, with the keys of UniLab's metric schema.

What each is of the ``rl.*`` proposal: *sample* is where actors generate (the learner's action inference; a whole
rollout), *reward* is "scoring or environment step" (the environment's step), *train* the update, *sync* the weights on
their way to the actors.
"""

from collections.abc import Iterable

from rltel.names.phases import PhaseKind
from rltel.record.kinds import PHASE_MS, PHASE_S
from rltel.record.phase import Phase, PhaseSet

_STEP_PARTS = ("action_validate", "apply_action", "action_backend", "backend", "update_state", "reset_done")


def _millis(prefix: str, kind: PhaseKind, names: Iterable[str], parent: str | None = None) -> tuple[Phase, ...]:
    return tuple(Phase(name, kind, f"Perf/{prefix}{name}_ms", PHASE_MS, parent) for name in names)


def _env_step(*, per_call: bool) -> tuple[Phase, ...]:
    """The environment's step and its parts. The device's wait for physics belongs to ``backend_step``."""
    whole = Phase("env_step", "exclusive", "Perf/collector_env_step_ms", PHASE_MS, rl="reward", per_call=per_call)
    parts = (
        Phase(
            "backend_step" if part == "backend" else part,
            "nested",
            f"Perf/collector_env_step_{part}_ms",
            PHASE_MS,
            "env_step",
            per_call=per_call,
        )
        for part in _STEP_PARTS
    )
    return whole, *parts


_LEARNING = Phase("learning", "exclusive", "Perf/learning_time", PHASE_S, rl="train")
_SAC_LEARNER = (
    *_millis("learner_", "exclusive", ("collector_wait",)),
    Phase("inference", "exclusive", "Perf/learner_inference_ms", PHASE_MS, rl="sample"),
    *_millis("learner_", "exclusive", ("collector_release", "replay_batch_wait", "replay_sample")),
    _LEARNING,
    *_millis("learner_", "nested", ("inference_h2d", "inference_forward", "inference_d2h"), "inference"),
    # The schema calls it background. It runs inside Learning, and is summed over the iteration: a nested phase.
    Phase("dp_gradient_sync", "nested", "Perf/dp_gradient_sync_ms_per_rank", PHASE_MS, "learning"),
    *_millis("", "background", ("replay_ingress_h2d_submit",)),
)
_SAC_COLLECTOR = (
    *_millis("collector_", "exclusive", ("inference_request", "learner_action_wait")),
    *_env_step(per_call=False),
    *_millis("collector_", "exclusive", ("transition_extract", "replay_write", "metrics_publish")),
)

SAC_LEARNER = PhaseSet("sac", "learner", "iteration", "Perf/iteration_time", _SAC_LEARNER)
SAC_COLLECTOR = PhaseSet("sac", "collector", "cycle", None, _SAC_COLLECTOR, "sample")
FLASHSAC_LEARNER = PhaseSet("flashsac", "learner", "iteration", "Perf/iteration_time", _SAC_LEARNER)
FLASHSAC_COLLECTOR = PhaseSet("flashsac", "collector", "cycle", None, _SAC_COLLECTOR, "sample")

APPO_LEARNER = PhaseSet(
    "appo",
    "learner",
    "iteration",
    "Perf/iteration_time",
    (
        *_millis("learner_", "exclusive", ("collector_wait", "replay_stage", "replay_sample")),
        _LEARNING,
        Phase("weight_publish", "exclusive", "Perf/learner_weight_publish_ms", PHASE_MS, rl="sync"),
    ),
)
# Its keys are times of one step, while its loop is a whole rollout: each call is one observation.
APPO_COLLECTOR = PhaseSet(
    "appo",
    "collector",
    "rollout",
    "Perf/collection_time",
    (
        Phase("mlp_infer", "exclusive", "Perf/collector_mlp_infer_ms", PHASE_MS, per_call=True),
        *_env_step(per_call=True),
    ),
    "sample",
)

# One process collects, then learns, then logs. A step of the environments is one observation, as in appo.
PPO_LEARNER = PhaseSet(
    "ppo",
    "learner",
    "iteration",
    "Perf/iteration_time",
    (
        Phase("collection", "exclusive", "Perf/collection_time", PHASE_S, rl="sample"),
        _LEARNING,
        *_millis("learner_", "exclusive", ("logging", "checkpoint")),
        Phase("mlp_infer", "nested", "Perf/collector_mlp_infer_ms", PHASE_MS, "collection", per_call=True),
        Phase("env_step", "nested", "Perf/collector_env_step_ms", PHASE_MS, "collection", rl="reward", per_call=True),
        *_millis("collector_", "nested", ("rollout_write", "episode_log"), "collection"),
        *_millis("learner_", "nested", ("returns", "update"), "learning"),
    ),
)

ROBOT_SETS = (
    SAC_LEARNER,
    SAC_COLLECTOR,
    FLASHSAC_LEARNER,
    FLASHSAC_COLLECTOR,
    APPO_LEARNER,
    APPO_COLLECTOR,
    PPO_LEARNER,
)
