"""What is worth a look in an LLM run: groups of rows, and the keys that each row is known by.

A key is known by its last parts, whatever scopes a trainer has in front of them (``ppo_actor/update/grad_norm``,
``actor/grad_norm``, ``grad_norm``). ``/avg`` and ``/mean`` at the end do not count. ``*`` is a number.
"""

from typing import Literal, NamedTuple

Form = Literal["number", "count", "state", "notice", "alarm"]
"""``number`` and ``count`` are averages, the second of what is counted; a ``state`` is the latest; a ``notice`` takes a
row only where it is not 0, and an ``alarm`` is red then."""


class Measure(NamedTuple):
    """One row. Of several endings that a scope has, the first is shown."""

    text: str
    endings: tuple[str, ...]
    form: Form = "number"
    headline: str = ""
    """What the console's line calls it; empty: it is a detail, and goes sooner where there is little room."""


class Group(NamedTuple):
    """Rows below a title."""

    title: str
    measures: tuple[Measure, ...]


TERM = Measure("", ("reward/<term>", "rewards/<term>"))
"""A part of the reward, under its own name."""

OURS = frozenset({"groups", "moe_balance", "sessions", "train_infer", "train_perf", "version_stats"})
"""What `rltel.rl` records under: no robot's trainer has these."""

REWARDS = Group(
    "Rewards",
    (
        Measure(
            "Reward",
            ("task_reward", "reward", "raw_reward", "mean_reward", "groups/reward", "critic/score", "critic/rewards"),
            headline="reward",
        ),
        TERM,
        Measure("Final Reward", ("final_reward",)),
        Measure("Reward Std", ("reward_std", "groups/reward_std")),
        Measure("Pass@1", ("groups/pass@1", "pass@1"), headline="pass@1"),
        Measure("Accuracy", ("accuracy", "acc", "correct_rate"), headline="acc"),
        Measure("Pass@*", ("groups/pass@*", "pass@*")),
        Measure(
            "Response Length",
            (
                *("response_length", "response_len", "response_lengths", "completion_length"),
                *("completions/mean_length", "output_len", "gen_len", "groups/length"),
            ),
            headline="len",
        ),
        Measure("Sequence Length", ("seq_len", "seqlen", "sequence_length", "total_length"), headline="len"),
        Measure(
            "Truncated",
            (
                *("groups/truncated_fraction", "truncated_fraction", "truncated_ratio", "is_truncated"),
                *("no_eos_ratios", "completions/clipped_ratio", "response_length/clip_ratio"),
            ),
        ),
        Measure(
            "Zero-Variance Groups",
            ("groups/zero_variance_fraction", "zero_variance_fraction", "frac_reward_zero_std"),
            headline="zero_var",
        ),
        Measure("All Correct Groups", ("groups/all_correct_fraction",)),
        Measure("None Correct Groups", ("groups/none_correct_fraction",)),
        Measure("Repetition", ("groups/repetition",)),
        Measure("Loops", ("groups/loop_fraction",)),
    ),
)
POLICY = Group(
    "Loss and policy",
    (
        Measure("Actor Loss", ("actor_loss", "policy_loss", "pg_loss", "surrogate"), headline="loss"),
        Measure("Loss", ("loss",), headline="loss"),
        Measure("Value Loss", ("value_loss", "critic_loss", "vf_loss")),
        Measure("Ref KL", ("ref_kl", "kl_ref", "kl_loss", "kl"), headline="ref_kl"),
        Measure("Approx KL", ("approx_kl", "ppo_kl")),
        Measure("Entropy", ("entropy", "groups/entropy", "entropy_loss"), headline="entropy"),
        Measure(
            "Clip Fraction",
            ("clip_ratio", "clip_fraction", "clipfrac", "pg_clipfrac", "clip_ratio/region_mean"),
            headline="clip",
        ),
        Measure("Grad Norm", ("grad_norm", "gradient_norm"), headline="grad"),
        Measure("Importance Weight", ("importance_weight", "importance_ratio", "ratio")),
        Measure("Zero Advantages", ("advantage_zero_fraction",)),
        Measure("Learning Rate", ("lr", "learning_rate", "actor_lr")),
    ),
)
TRAIN_INFER = Group(
    "Train vs rollout",
    (
        Measure("KL k3", ("train_infer/kl_k3", "mismatch_kl", "train_rollout_kl"), headline="kl_k3"),
        Measure(
            "Logp Abs Diff",
            ("train_infer/logp_abs_diff", "train_rollout_logprob_abs_diff", "sampling_logp_difference"),
        ),
        Measure("Effective Samples", ("train_infer/effective_sample_size",)),
        Measure("Ratio Outside 2", ("train_infer/ratio_outside_2",)),
        Measure("KL k3 Overflow", ("train_infer/kl_k3_overflow_fraction",), "alarm"),
        Measure("Logp Not Finite", ("train_infer/nonfinite_logp_fraction",), "alarm"),
    ),
)
STALENESS = Group(
    "Staleness",
    (
        Measure(
            "Staleness",
            (
                *("version_stats/sample_staleness_theta_avg", "version_stats/sample_staleness"),
                *("sample_staleness", "staleness", "off_policy_level"),
            ),
            headline="stale",
        ),
        Measure("Staleness Max", ("version_stats/sample_staleness_theta_max",)),
        Measure("Stale Tokens", ("version_stats/stale_token_fraction",)),
        Measure("Future Tokens", ("version_stats/future_token_fraction",), "alarm"),
        Measure("Policy Version", ("version_stats/v_theta", "policy_version", "policy/version"), "state"),
    ),
)
THROUGHPUT = Group(
    "Throughput",
    (
        Measure(
            "Tokens/s",
            ("train_perf/tokens_per_second", "tokens_per_second", "tokens_per_s", "tok_per_s", "perf/throughput"),
            "count",
            "tokens/s",
        ),
        Measure("MFU", ("train_perf/mfu", "mfu", "mfu/actor"), headline="mfu"),
        Measure("FLOP/s", ("train_perf/estimated_flops_per_second",)),
        Measure("Tokens/Step", ("train_perf/tokens",), "count"),
    ),
)
MOE = Group(
    "MoE",
    (Measure("Max/Ideal", ("moe_balance/layer_*/max_over_ideal", "max_over_ideal"), headline="moe"),),
)
SESSIONS = Group(
    "Sessions",
    (
        Measure("Accepted", ("sessions/accepted",), "count"),
        Measure("Rejected", ("sessions/rejected",), "notice"),
        Measure("Dropped", ("sessions/dropped",), "notice"),
        Measure("Cancelled", ("sessions/cancelled",), "notice"),
        Measure("Failed", ("sessions/failed",), "alarm"),
        Measure("Abandoned", ("sessions/abandoned",), "alarm"),
        Measure("Unfinished", ("sessions/unfinished",), "alarm"),
        Measure("In Flight", ("sessions/in_flight",), "state"),
        Measure("Consumed", ("sessions/consumed",), "count"),
        Measure("Staleness", ("sessions/staleness",), headline="stale"),
    ),
)
GROUPS = (REWARDS, POLICY, TRAIN_INFER, STALENESS, THROUGHPUT, MOE, SESSIONS)

HEADLINES = (
    *("reward", "pass@1", "acc", "len", "loss", "kl_k3", "ref_kl", "entropy", "clip", "grad"),
    *("zero_var", "stale", "tokens/s", "mfu", "moe"),
)
"""The first look, in this order: on the console's line from the left, and on a low terminal what stays longest."""

PERSISTED_ONLY = (
    "advantage_negative_fraction", "advantage_positive_fraction",
    "groups/best@*", "groups/n_groups", "groups/n_rollouts", "groups/reward_mean",
    "moe_balance/layer_*/coefficient_of_variation", "moe_balance/layer_*/expert_*/load_percent",
    "moe_balance/layer_*/expert_*/tokens", "moe_balance/layer_*/ideal", "moe_balance/layer_*/normalized_entropy",
    "train_infer/importance_weight", "train_infer/importance_weight_squared", "train_infer/kl_k1", "train_infer/kl_k2",
    "train_infer/logp_abs_diff/std", "train_infer/logp_abs_diff_distribution", "train_infer/logp_diff",
    "train_infer/logp_diff_squared", "train_infer/n_valid_tokens", "train_infer/ratio_outside_1.5",
    "train_infer/ratio_outside_10", "train_infer/ratio_outside_3", "train_infer/ratio_outside_5",
    "train_infer/rollout_nll", "train_infer/trainer_nll",
    "train_perf/cumulative_estimated_flops_per_second", "train_perf/cumulative_tokens_per_second",
    "train_perf/device_peak_flops_per_second", "train_perf/devices", "train_perf/estimated_flops",
    "train_perf/seconds", "train_perf/total_estimated_flops", "train_perf/total_seconds", "train_perf/total_tokens",
    "version_stats/n_valid_generated_tokens", "version_stats/n_valid_tokens",
    "version_stats/sample_staleness_proximal_avg", "version_stats/sample_staleness_proximal_max",
    "version_stats/sample_staleness_proximal_min", "version_stats/sample_staleness_theta_min",
    "version_stats/v_proximal",
)  # fmt: skip
"""What `rltel.rl` records beside them, for a closer look in the other destinations."""
