"""Robot RL: returns, episodes, losses, and what lies between collector and learner."""

from rltel.dashboards.dashboard import Dashboard, Row
from rltel.dashboards.panel import Bound, Panel, Query
from rltel.dashboards.promql import either, latest, rate
from rltel.dashboards.series import series

_INGRESS_NEEDED = "a replay ingress with slots: unilab-rl's SAC has one, the demo writes through a pipe"
_VTRACE_NEEDED = "APPO's weights of old samples"
_DELTA_NEEDED = "log probabilities of the policy that acted beside those of the one that learns: APPO's"
_RING_NEEDED = "APPO's ring of rollouts"
_TERMS_NEEDED = "an environment with reward terms: Pendulum has one reward"

_EPISODES = Row(
    "Episodes",
    [
        Panel(
            "Return",
            "Mean return of the last 100 finished episodes.",
            [Query(latest(series("Train/mean_reward")), "{{rl_run_id}}")],
            "none",
        ),
        Panel(
            "Episode length",
            "Mean length of the last 100 finished episodes. Shorter and shorter: the robot falls; as long as the "
            "limit: it survives.",
            [Query(latest(series("Train/mean_episode_length")), "{{rl_run_id}}")],
            "suffix: steps",
        ),
        Panel(
            "Reward terms",
            "Mean of each weighted term of the reward. One that outgrows the others is what is learned.",
            [Query(either(series("reward/{term}")), "{{rl_run_id}} {{rl_reward_term}}", _TERMS_NEEDED)],
            "none",
        ),
        Panel(
            "Terminations",
            "Environments that were reset in an iteration, by cause.",
            [
                Query(
                    either(series("Episode_Termination/{term}")),
                    "{{rl_run_id}} {{rl_termination_term}}",
                    "an environment that says why: Pendulum's episodes all end by time",
                )
            ],
            "suffix: environments",
        ),
        Panel(
            "Ended by time",
            "Share of finished episodes that ended by time.",
            [
                Query(
                    either(series("Episode/timeout_rate")),
                    "{{rl_run_id}}",
                    "an environment that says why: Pendulum's episodes all end by time",
                )
            ],
            "percentunit",
        ),
        Panel(
            "Environment steps",
            "Environment steps a second, of all ranks.",
            [Query(latest(series("Perf/total_fps"), "sum"), "{{rl_run_id}}")],
            "suffix: steps/s",
        ),
    ],
)

_LEARNER = Row(
    "Learner",
    [
        Panel(
            "Losses",
            "Losses of the updates, weighted over the window.",
            [Query(either(series("Loss/{loss}")), "{{rl_run_id}} {{rl_loss_type}}")],
            "none",
        ),
        Panel(
            "Gradient norms",
            "Norms before clipping, weighted over the window.",
            [Query(either(series("Train/{norm}_gradient_norm")), "{{rl_run_id}} {{rl_gradient_norm_type}}")],
            "none",
        ),
        Panel(
            "Policy",
            "Entropy temperature (SAC) and standard deviation of the actions (PPO). Near 0 there is no exploration.",
            [
                Query(either(series("Policy/temperature")), "{{rl_run_id}} temperature"),
                Query(
                    either(series("Policy/mean_std")), "{{rl_run_id}} std", "a policy with a std of its own: PPO, APPO"
                ),
            ],
            "none",
        ),
        Panel(
            "Targets of the critic",
            "Largest and smallest target value of the updates. They should stay near the returns above.",
            [
                Query(latest(series("Train/target_q_max")), "{{rl_run_id}} max"),
                Query(latest(series("Train/target_q_min")), "{{rl_run_id}} min"),
            ],
            "none",
        ),
        Panel(
            "Learning rate",
            "Of the optimizer.",
            [Query(either(series("Loss/learning_rate")), "{{rl_run_id}}")],
            "sci",
        ),
        Panel(
            "Update size",
            "Estimated KL of an update, in nats, and the share of samples whose ratio was clipped. Above 0.3 clipped: "
            "steps are too large.",
            [
                Query(either(series("Train/approx_kl")), "{{rl_run_id}} KL"),
                Query(either(series("Train/clip_fraction")), "{{rl_run_id}} clipped"),
                Query(
                    either(series("Train/behavior_to_current_log_prob_delta")), "{{rl_run_id}} log prob", _DELTA_NEEDED
                ),
            ],
            "none",
            [Bound(0.3, "orange")],
        ),
        Panel(
            "V-trace",
            "Share of weights that were clipped, and the 99th percentile before clipping: how stale the rollouts are.",
            [
                Query(either(series("Train/vtrace_rho_clip_fraction")), "{{rl_run_id}} clipped", _VTRACE_NEEDED),
                Query(latest(series("Train/vtrace_rho_p99")), "{{rl_run_id}} p99", _VTRACE_NEEDED),
            ],
            "none",
        ),
        Panel(
            "Gradient synchronisation",
            "All-reduces of one rank in an iteration. Their time is a part of a phase in Learner and collectors.",
            [
                Query(
                    latest(series("Perf/dp_gradient_sync_calls_per_rank")),
                    "{{rl_run_id}} calls",
                    "several ranks",
                )
            ],
            "suffix: calls",
        ),
    ],
)

_REPLAY = Row(
    "Replay and rollouts",
    [
        Panel(
            "Replay ingress",
            "Slots between collector and replay: how many there are, are in use, and were at most.",
            [
                Query(
                    latest(series(f"Train/replay_ingress_{key}"), "sum"), f"{{{{rl_run_id}}}} {title}", _INGRESS_NEEDED
                )
                for key, title in (("depth", "slots"), ("occupancy", "in use"), ("high_water", "at most"))
            ],
            "suffix: slots",
        ),
        Panel(
            "Ingress backpressure",
            "Which part of its time the collector waited for a slot. Above a tenth, the learner's copies hold it up.",
            [
                Query(
                    rate(series("Train/replay_ingress_backpressure_wait_ms")),
                    "{{rl_run_id}}",
                    _INGRESS_NEEDED,
                )
            ],
            "percentunit",
            [Bound(0.1, "orange"), Bound(0.5)],
        ),
        Panel(
            "Ingress drops",
            "Batches that found no slot and were lost, since the run began.",
            [
                Query(
                    latest(series("Train/replay_ingress_dropped_batches"), "sum"),
                    "{{rl_run_id}}",
                    _INGRESS_NEEDED,
                )
            ],
            "suffix: batches",
            [Bound(1)],
        ),
        Panel(
            "Ring",
            "Rollouts that wait in the ring, and were read in an iteration.",
            [
                Query(latest(series("Train/ring_available_slots"), "sum"), "{{rl_run_id}} waiting", _RING_NEEDED),
                Query(latest(series("Train/rollouts_read"), "sum"), "{{rl_run_id}} read", _RING_NEEDED),
            ],
            "suffix: rollouts",
        ),
    ],
)

DASHBOARD = Dashboard(
    "robot",
    "Robot RL",
    "Returns, episodes, terminations, losses, and what lies between collectors and learner.",
    [_EPISODES, _LEARNER, _REPLAY],
)
