"""LLM RL: rollouts, how far trainer and rollout engine are apart, groups, experts, throughput."""

from rltel.dashboards.dashboard import Dashboard, Row
from rltel.dashboards.panel import Bound, Panel, Query
from rltel.dashboards.promql import Expr, a_second, grown, latest, mean, own, quantile, rate, weighted
from rltel.dashboards.series import Series, series

_LAYER = ("rl_run_id", "rl_tracker", "rl_scope", "rl_moe_layer")
_OF_LAYER = "{{rl_run_id}} {{rl_tracker}} {{rl_scope}} layer {{rl_moe_layer}}"
_DEAD_NEEDED = "a dead expert: those of the demo all get tokens"
_GAP = "ppo_actor/train_infer"
_SESSION = series("timeperf/{timing}").only(rl_tracker="rollout")
_WHOLE = _SESSION.only(rl_timing="session/total")


def _session_parts() -> Expr:
    parts = _SESSION.only('rl_timing=~"session/.+"', 'rl_timing!="session/total"')
    return own(f"{grown(parts, '_sum')} / on (rl_run_id) group_left () ({grown(_WHOLE, '_count')} > 0)")


def _by_layer(key: str) -> Series:
    """An actor's and a critic's layer 3 are two."""
    return series(key).only('rl_moe_layer=~"$layer"').also_by("rl_tracker", "rl_scope")


def _tokens() -> Expr:
    """Of each expert; those without a layer of their own are in the overflow series."""
    return latest(_by_layer("moe_balance/layer_{layer}/expert_{expert}/tokens").only('rl_moe_layer!=""'))


def _shares() -> Expr:
    layer = ", ".join(_LAYER)
    return own(f"100 * {_tokens()} / on ({layer}) group_left () sum by ({layer}) ({_tokens()})")


def _dead_experts() -> Expr:
    return own(f"count by ({', '.join(_LAYER)}) ({_tokens()} == 0)")


_SESSIONS = Row(
    "Rollout sessions",
    [
        Panel(
            "In flight",
            "Rollouts that were submitted and have not ended. Long at the engine's limit: it is the bottleneck.",
            [Query(latest(series("rollout/sessions/in_flight"), "sum"), "{{rl_run_id}}")],
            "suffix: rollouts",
        ),
        Panel(
            "Ended and consumed",
            "Rollouts a second that ended, by how, and that updates consumed. Rejected or failed ones are wasted work.",
            [
                Query(rate(series("rollout/sessions/{status}")), "{{rl_run_id}} {{rl_session_status}}"),
                Query(rate(series("rollout/sessions/consumed")), "{{rl_run_id}} consumed"),
            ],
            "suffix: rollouts/s",
        ),
        Panel(
            "Staleness",
            "Policy versions between a rollout's oldest token and the update that consumed it: mean and top hundredth.",
            [
                Query(mean(series("rollout/sessions/staleness")), "{{rl_run_id}} mean"),
                Query(quantile(0.99, series("rollout/sessions/staleness")), "{{rl_run_id}} p99"),
            ],
            "suffix: versions",
            [Bound(4, "orange"), Bound(8)],
        ),
        Panel(
            "A rollout's time",
            "Mean wall time of one rollout, by what it was doing. Much idle or queue time: the engine has too many.",
            [Query(_session_parts(), "{{rl_run_id}} {{rl_timing}}")],
            "s",
            look="stacked",
        ),
        Panel(
            "Whole rollouts",
            "Wall time of rollouts: median and slowest hundredth. The slowest hold up a synchronous update.",
            [
                Query(quantile(0.5, _WHOLE), "{{rl_run_id}} p50"),
                Query(quantile(0.99, _WHOLE), "{{rl_run_id}} p99"),
            ],
            "s",
        ),
        Panel(
            "Rollouts at once",
            "Seconds of rollouts in a second: how many ran at a time, on average.",
            [Query(own(a_second(_WHOLE, "_sum")), "{{rl_run_id}}")],
            "suffix: rollouts",
        ),
    ],
)

_BETWEEN = Row(
    "Trainer against rollout engine",
    [
        Panel(
            "Log probabilities apart",
            "Mean difference of a token's log probabilities, in nats: trainer less rollout, and its magnitude. The "
            "same weights should give nearly 0: more is numerics, a wrong temperature, or weights that did not arrive.",
            [
                Query(weighted(series(f"{_GAP}/logp_abs_diff")), "{{rl_run_id}} magnitude"),
                Query(weighted(series(f"{_GAP}/logp_diff")), "{{rl_run_id}} difference"),
            ],
            "suffix: nats",
            [Bound(0.1, "orange"), Bound(0.5)],
        ),
        Panel(
            "KL divergence",
            "Sample estimates of KL(rollout, trainer), in nats.",
            [Query(weighted(series(f"{_GAP}/kl_{{estimator}}")), "{{rl_run_id}} {{rl_train_infer_kl_estimator}}")],
            "suffix: nats",
            [Bound(0.05, "orange"), Bound(0.1)],
        ),
        Panel(
            "Importance ratios outside",
            "Share of tokens whose probability ratio is outside each threshold. Above a hundredth for 2 the update "
            "learns from another policy's tokens.",
            [
                Query(
                    weighted(series(f"{_GAP}/ratio_outside_{{threshold}}")),
                    "{{rl_run_id}} {{rl_train_infer_threshold}}",
                )
            ],
            "percentunit",
            [Bound(0.01, "orange"), Bound(0.1)],
        ),
        Panel(
            "Effective sample size",
            "Share of tokens that count, given their importance weights. Below one half most of the batch is wasted.",
            [Query(latest(series(f"{_GAP}/effective_sample_size")), "{{rl_run_id}}")],
            "percentunit",
            [Bound(0.5, "orange"), Bound(0.8, "green")],
            base="red",
        ),
        Panel(
            "Importance weight",
            "Mean ratio of a token's probabilities, trainer over rollout. Far from 1 either side is wrong.",
            [Query(weighted(series(f"{_GAP}/importance_weight")), "{{rl_run_id}}")],
            "none",
        ),
        Panel(
            "Negative log probability",
            "Of sampled tokens, in nats, by who says so.",
            [Query(weighted(series(f"{_GAP}/{{source}}_nll")), "{{rl_run_id}} {{rl_train_infer_source}}")],
            "suffix: nats",
        ),
        Panel(
            "Tokens of other versions",
            "Share of generated tokens whose policy is older (stale) or newer (future) than the current version.",
            [
                Query(
                    weighted(series("ppo_actor/update/version_stats/{age}_token_fraction")),
                    "{{rl_run_id}} {{rl_policy_age}}",
                )
            ],
            "percentunit",
        ),
        Panel(
            "Tokens' staleness",
            "Policy versions between a token and the update that learns from it: mean and highest hundredth.",
            [
                Query(mean(series("ppo_actor/update/version_stats/sample_staleness")), "{{rl_run_id}} mean"),
                Query(quantile(0.99, series("ppo_actor/update/version_stats/sample_staleness")), "{{rl_run_id}} p99"),
            ],
            "suffix: versions",
            [Bound(4, "orange"), Bound(8)],
        ),
        Panel(
            "Advantages",
            "Share of tokens whose advantage is positive, negative, zero. All zero: nothing is learned.",
            [
                Query(
                    weighted(series("ppo_actor/advantage_{sign}_fraction")),
                    "{{rl_run_id}} {{rl_advantage_sign}}",
                )
            ],
            "percentunit",
        ),
    ],
)

_GROUPS = Row(
    "Groups of rollouts",
    [
        Panel(
            "Reward",
            "Mean reward of rollouts, and how often at least one of k is right.",
            [
                Query(mean(series("groups/reward")), "{{rl_run_id}} reward"),
                Query(weighted(series("groups/pass@{k}")), "{{rl_run_id}} pass@{{rl_group_k}}"),
            ],
            "none",
        ),
        Panel(
            "Rewards",
            "How many rollouts had which reward. Two bands are a task that is solved or not, nothing between.",
            [
                Query(
                    own(f"sum by (rl_run_id, le) (increase({series('groups/reward').part('_bucket')}[$window]))"),
                    "{{le}}",
                )
            ],
            "none",
            look="heatmap",
        ),
        Panel(
            "Groups that teach nothing",
            "Share of groups without variance, all correct or none correct; of rollouts that were truncated. Above one "
            "half most rollouts are wasted: change the mix of prompts.",
            [Query(weighted(series("groups/{part}_fraction")), "{{rl_run_id}} {{rl_group_part}}")],
            "percentunit",
            [Bound(0.5, "orange"), Bound(0.9)],
        ),
        Panel(
            "Best of k",
            "Unbiased estimate of the highest reward of k rollouts of a prompt.",
            [Query(weighted(series("groups/best@{k}")), "{{rl_run_id}} best@{{rl_group_k}}")],
            "none",
        ),
        Panel(
            "Length",
            "Tokens of rollouts: mean, median, longest hundredth. At the limit they are truncated.",
            [
                Query(mean(series("groups/length")), "{{rl_run_id}} mean"),
                Query(quantile(0.5, series("groups/length")), "{{rl_run_id}} p50"),
                Query(quantile(0.99, series("groups/length")), "{{rl_run_id}} p99"),
            ],
            "suffix: tokens",
        ),
        Panel(
            "Entropy of tokens",
            "Of the distributions that tokens were drawn from, in nats. A collapse to 0 ends exploration.",
            [Query(mean(series("groups/entropy")), "{{rl_run_id}}")],
            "suffix: nats",
        ),
    ],
)

_EXPERTS = Row(
    "Experts",
    [
        Panel(
            "Load of experts",
            "Share of a layer's assignments that each expert got, in percent. A dark row is hot, a pale one is dead.",
            [
                Query(
                    _shares(),
                    "{{rl_tracker}} {{rl_scope}} {{rl_moe_layer}}/{{rl_moe_expert}}",
                )
            ],
            "percent",
            look="heatmap",
            width=12,
        ),
        Panel(
            "Busiest over mean",
            "Load of the busiest expert over the mean load of its layer. 1 is perfect; above 2 it holds up the others.",
            [
                Query(
                    latest(_by_layer("moe_balance/layer_{layer}/max_over_ideal")),
                    _OF_LAYER,
                )
            ],
            "none",
            [Bound(2, "orange"), Bound(4)],
            width=12,
        ),
        Panel(
            "Balance",
            "Entropy of the experts' shares over its maximum: 1 is perfect balance, 0 all on one expert.",
            [
                Query(
                    latest(_by_layer("moe_balance/layer_{layer}/normalized_entropy")),
                    _OF_LAYER,
                )
            ],
            "percentunit",
            width=12,
        ),
        Panel(
            "Experts without a token",
            "How many experts of a layer got nothing in the last interval. Those that stay are dead.",
            [Query(_dead_experts(), _OF_LAYER, _DEAD_NEEDED)],
            "suffix: experts",
            [Bound(1, "orange")],
            width=12,
        ),
    ],
)

_THROUGHPUT = Row(
    "Throughput",
    [
        Panel(
            "Tokens",
            "Tokens trained on, a second, of all ranks over the time of the slowest.",
            [Query(latest(series("train_perf/tokens_per_second"), "sum"), "{{rl_run_id}}")],
            "suffix: tokens/s",
        ),
        Panel(
            "Model FLOPs utilisation",
            "Share of the devices' peak that the model's arithmetic used.",
            [Query(latest(series("train_perf/mfu")), "{{rl_run_id}}")],
            "percentunit",
            [Bound(0.2, "orange"), Bound(0.35, "green")],
            base="red",
        ),
        Panel(
            "Floating-point operations",
            "Estimated operations of forward and backward passes, a second, of all ranks.",
            [Query(latest(series("train_perf/estimated_flops_per_second"), "sum"), "{{rl_run_id}}")],
            "flops",
        ),
    ],
)

DASHBOARD = Dashboard(
    "llm",
    "LLM RL",
    "Rollout sessions, trainer against rollout engine, groups, experts, throughput.",
    [_SESSIONS, _BETWEEN, _GROUPS, _EXPERTS, _THROUGHPUT],
    layers=True,
)
