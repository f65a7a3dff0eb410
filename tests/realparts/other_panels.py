"""A trainer that records what neither demo has, or in another way, so that the panels for it are asked it, too.

Run as a program; everything is the same in every step, so that what a store should answer is known: `GAUGES`.
"""

from __future__ import annotations

import sys
import time

STEPS = 12
LAYERS = 2
MOST_SERIES = 50
"""Of one metric: more keys than this are recorded of one."""
SHARES = (0.7, 0.2, 0.1, 0.0)
"""Of a layer's assignments: the last expert is dead."""
OF_THE_CRITIC = (0.1, 0.2, 0.3, 0.4)
"""The same of another model with as many layers, under a scope of its own."""

GAUGES = {
    # as gauges, where the GRPO demo records values
    "Train/approx_kl": 0.02,
    "Train/clip_fraction": 0.1,
    # in no demo
    "Train/behavior_to_current_log_prob_delta": 0.3,
    "Train/vtrace_rho_clip_fraction": 0.05,
    "Train/vtrace_rho_p99": 1.5,
    "Policy/mean_std": 0.8,
    "Train/ring_available_slots": 2.0,
    "Train/rollouts_read": 3.0,
    "Train/replay_ingress_depth": 8.0,
    "Train/replay_ingress_occupancy": 5.0,
    "Train/replay_ingress_high_water": 7.0,
    "Train/replay_ingress_dropped_batches": 1.0,
    "Perf/collector_inference_queue_depth": 4.0,
    "Perf/collector_inference_action_backlog": 1.0,
    "Perf/collector_inference_max_action_backlog": 2.0,
    "Perf/collector_inference_in_flight": 3.0,
    "Perf/collector_inference_max_in_flight": 6.0,
    "Perf/collector_inference_publication_lag": 1.0,
    "Perf/collector_inference_max_publication_lag": 2.0,
    "Perf/dp_gradient_sync_calls_per_rank": 16.0,
    "Episode/timeout_rate": 0.25,
    "Episode_Termination/fell": 5.0,
    "reward/upright": 0.9,
    "reward/torque": -0.1,
}
SCALARS = {
    "Perf/learner_checkpoint_ms": 50.0,
    "Perf/collection_time": 0.2,
    "Perf/collector_env_step_ms": 20.0,
    "Perf/collector_env_step_backend_ms": 15.0,
}


def main() -> int:
    """The run; returns the exit code."""
    import rltel
    from rltel.rl import moe

    names = {"max_series_per_metric": MOST_SERIES}
    rltel.init({"run": {"algo": "appo", "task": "rest", "backend": "none"}, "names": names})
    learner = rltel.learner("appo")
    for step in range(STEPS):
        with learner.iteration(step=step), learner.phase("learning"):
            time.sleep(0.25)
        rltel.gauge({**GAUGES, "Train/replay_ingress_backpressure_wait_ms": 50.0 * step})
        rltel.scalar({f"Episode/{number}": 1.0 for number in range(MOST_SERIES + 10)})
        rltel.scalar(SCALARS)
        moe.record({layer: [int(1000 * share) for share in SHARES] for layer in range(LAYERS)})
        with rltel.scope("critic"):
            moe.record({layer: [int(1000 * share) for share in OF_THE_CRITIC] for layer in range(LAYERS)})
        rltel.commit(step=step)
    rltel.shutdown()
    return 0


if __name__ == "__main__":
    sys.exit(main())
