"""The first look: does it learn, is it fast, is anything wrong."""

from rltel.dashboards.dashboard import Dashboard, Row
from rltel.dashboards.panel import Bound, Panel, Query
from rltel.dashboards.phases import LOOP, WAITS, iterations, phases, share_of_cycle, share_of_iteration
from rltel.dashboards.promql import either, highest, increase, latest, mean, quantile, rate, weighted
from rltel.dashboards.series import named, series

DROPPED = named("rltel.dropped_total", "destination", "reason")
NONFINITE = named("rl.stats.nonfinite_total", "rl_key")

_NOW = Row(
    "Now",
    [
        Panel(
            "Step",
            "Step of the last commit, on each axis. One that stands still is a run that hangs, or has ended.",
            [Query(highest(named("rl.step", "rl_axis", key="step")), "{{rl_run_id}} {{rl_axis}}")],
            "none",
            look="number",
            width=6,
            height=4,
        ),
        Panel(
            "Environment steps",
            "Environment steps so far, where the trainer counts them.",
            [Query(highest(named("rl.env_steps", key="env_steps")), "{{rl_run_id}}")],
            "short",
            look="number",
            width=6,
            height=4,
        ),
        Panel(
            "Iterations",
            "Iterations of the learner in a second of iterating, whatever the number of ranks. None at all: see "
            "Learner and collectors for what it waits for.",
            [Query(iterations(), "{{rl_run_id}}")],
            "suffix: /s",
            look="number",
            width=6,
            height=4,
        ),
        Panel(
            "Mean iteration",
            "Wall time of one iteration of the learner. Learner and collectors says where it goes.",
            [Query(mean(LOOP), "{{rl_run_id}}")],
            "s",
            look="number",
            width=6,
            height=4,
        ),
    ],
)

_LEARNING = Row(
    "Does it learn",
    [
        Panel(
            "Reward",
            "What the run is for: the mean return of the last 100 finished episodes, or the mean reward of the "
            "window's rollouts. Flat or falling for long: look at KL, entropy and loss, then at a rollout itself.",
            [
                Query(latest(series("Train/mean_reward")), "{{rl_run_id}} episodes"),
                Query(mean(series("groups/reward")), "{{rl_run_id}} rollouts"),
            ],
            "none",
        ),
        Panel(
            "Loss",
            "Losses of the updates, weighted over the window. An actor's says little by itself; a critic's that "
            "grows without end is a critic that diverges.",
            [Query(either(series("Loss/{loss}").only('rl_loss_type!="entropy"')), "{{rl_run_id}} {{rl_loss_type}}")],
            "none",
        ),
        Panel(
            "KL divergence",
            "How far the policy moved from the one that acted, in nats. Above 0.1 an update is no longer a small step: "
            "lower the learning rate or the number of epochs; for LLMs look at the train/infer gap.",
            [
                Query(either(series("Train/approx_kl")), "{{rl_run_id}} update"),
                Query(
                    weighted(series("ppo_actor/train_infer/kl_{estimator}", rl_train_infer_kl_estimator="k3")),
                    "{{rl_run_id}} train/infer k3",
                ),
            ],
            "suffix: nats",
            [Bound(0.05, "orange"), Bound(0.1)],
        ),
        Panel(
            "Entropy",
            "How undecided the policy is, in nats. A collapse to 0 ends exploration; for continuous actions it may be "
            "negative.",
            [
                Query(either(series("Loss/{loss}", rl_loss_type="entropy")), "{{rl_run_id}} actions"),
                Query(mean(series("groups/entropy")), "{{rl_run_id}} tokens"),
            ],
            "suffix: nats",
        ),
        Panel(
            "Staleness",
            "Policy versions between generation and the update that learns from it. More than about 4: the importance "
            "weights pay for it; give the rollouts less of a lead.",
            [
                Query(
                    mean(series("ppo_actor/update/version_stats/sample_staleness")),
                    "{{rl_run_id}} tokens",
                ),
                Query(mean(series("rollout/sessions/staleness")), "{{rl_run_id}} rollouts"),
            ],
            "suffix: versions",
            [Bound(4, "orange"), Bound(8)],
        ),
        Panel(
            "Gradient norm",
            "Norm of the gradients before clipping, weighted over the window. Spikes come before a loss that diverges.",
            [Query(either(series("Train/{norm}_gradient_norm")), "{{rl_run_id}} {{rl_gradient_norm_type}}")],
            "none",
        ),
    ],
)

_GOLDEN = Row(
    "Golden signals",
    [
        Panel(
            "Latency: iteration",
            "Median and slowest hundredth of the learner's iterations. Bounds of the buckets are powers of two.",
            [
                Query(quantile(0.5, LOOP), "{{rl_run_id}} p50"),
                Query(quantile(0.99, LOOP), "{{rl_run_id}} p99"),
            ],
            "s",
        ),
        Panel(
            "Traffic: environment steps",
            "Environment steps a second, of all ranks.",
            [Query(latest(series("Perf/total_fps"), "sum"), "{{rl_run_id}}")],
            "suffix: steps/s",
        ),
        Panel(
            "Traffic: rollouts and tokens",
            "Rollouts that updates consumed, and tokens trained on, a second.",
            [
                Query(rate(series("rollout/sessions/consumed")), "{{rl_run_id}} rollouts"),
                Query(rate(series("train_perf/tokens")), "{{rl_run_id}} tokens"),
            ],
            "suffix: /s",
        ),
        Panel(
            "Errors: values that are not finite",
            "NaN and infinities in the window, by key. Any is a fault: the first key of a step is where to look.",
            [Query(increase(NONFINITE), "{{rl_run_id}} {{rl_key}}")],
            "none",
            [Bound(1)],
        ),
        Panel(
            "Errors: telemetry lost",
            "Commits and records that a destination lost in the window. See Telemetry health.",
            [Query(increase(DROPPED), "{{rl_run_id}} {{destination}} {{reason}}")],
            "none",
            [Bound(1, "orange")],
        ),
        Panel(
            "Saturation: who waits",
            "Which part of its time each side waits for the other. The side that does not wait is what to speed up.",
            [
                Query(
                    share_of_iteration(phases("learner", "exclusive").only(f'rl_phase=~"{WAITS}|sample"')),
                    "{{rl_run_id}} learner",
                ),
                Query(
                    share_of_cycle(phases("collector", "exclusive").only(f'rl_phase=~"{WAITS}"')),
                    "{{rl_run_id}} collectors",
                ),
            ],
            "percentunit",
            [Bound(0.5, "orange"), Bound(0.8)],
        ),
    ],
)

DASHBOARD = Dashboard(
    "overview",
    "Overview",
    "Does it learn, is it fast, is anything wrong: the runs side by side.",
    [_NOW, _LEARNING, _GOLDEN],
)
