"""The design's table of names, row by row: what is recorded, and what it is called elsewhere."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from rltel.record.phase_sets import SAC_LEARNER
from rltel.record.phases import PhaseClock
from rltel.reduce.trackers import Trackers

Otel = tuple[str, str, str, frozenset[tuple[str, str]]]  # kind, name, unit, attributes


@dataclass
class Row:
    key: str
    record: Callable[[Trackers], object]
    otel: set[Otel]
    prometheus: set[str]


def otel(kind: str, name: str, unit: str = "", **attributes: str) -> Otel:
    named = {key.replace("__", ".").replace("infer_", "infer."): value for key, value in attributes.items()}
    return kind, name, unit, frozenset(named.items())


def stats(name: str, *stat: str, **attributes: str) -> set[Otel]:
    return {otel("gauge", f"rl.stats.{name}", rl__stat=each, **attributes) for each in stat}


def pair(name: str, **attributes: str) -> set[Otel]:
    parts = ("numerator", "denominator")
    return {otel("sum", f"rl.stats.{name}.{part}", rl__incarnation="1", **attributes) for part in parts}


def log(key: str, value: float = 0.5) -> Callable[[Trackers], object]:
    return lambda trackers: trackers.default.gauge({key: value})


def scalar(key: str) -> Callable[[Trackers], object]:
    return lambda trackers: trackers.default.scalar({key: 0.5})


def record_loss(trackers: Trackers) -> None:
    tracker = trackers.default
    with tracker.scope("ppo_actor"), tracker.scope("update"):
        tracker.denominator(n_valid_tokens=np.array([True, False]))
        tracker.stat(loss=np.array([0.5, math.nan]), denominator="n_valid_tokens")


def record_timing(trackers: Trackers) -> None:
    with trackers.default.record_timing("rollout"):
        pass


def record_phase(trackers: Trackers) -> None:
    clock = PhaseClock(SAC_LEARNER, trackers.default)
    with clock.iteration(step=0), clock.phase("inference"):
        pass


ROWS = [
    Row(
        "ppo_actor/update/loss",
        record_loss,
        stats("ppo_actor.update.loss", "avg", "min", "max") | pair("ppo_actor.update.loss"),
        {
            'rl_stats_ppo_actor_update_loss{rl_stat="avg"}',
            'rl_stats_ppo_actor_update_loss{rl_stat="min"}',
            'rl_stats_ppo_actor_update_loss{rl_stat="max"}',
            'rl_stats_ppo_actor_update_loss_numerator{rl_incarnation="1"}',
            'rl_stats_ppo_actor_update_loss_denominator{rl_incarnation="1"}',
        },
    ),
    Row(
        "ppo_actor/update/n_valid_tokens",
        record_loss,
        stats("ppo_actor.update.n_valid_tokens", "sum"),
        {'rl_stats_ppo_actor_update_n_valid_tokens{rl_stat="sum"}'},
    ),
    Row(
        "rollout/reward",
        lambda trackers: trackers.get("rollout").scalar(reward=0.5),
        stats("rollout.reward", "avg") | pair("rollout.reward"),
        {
            'rl_stats_rollout_reward{rl_stat="avg"}',
            'rl_stats_rollout_reward_numerator{rl_incarnation="1"}',
            'rl_stats_rollout_reward_denominator{rl_incarnation="1"}',
        },
    ),
    Row(
        "eval-rollout/reward",
        lambda trackers: trackers.get("eval-rollout").scalar(reward=0.5),
        stats("eval_rollout.reward", "avg", rl__key="eval-rollout/reward")
        | pair("eval_rollout.reward", rl__key="eval-rollout/reward"),
        {
            'rl_stats_eval_rollout_reward{rl_key="eval-rollout/reward",rl_stat="avg"}',
            'rl_stats_eval_rollout_reward_numerator{rl_incarnation="1",rl_key="eval-rollout/reward"}',
            'rl_stats_eval_rollout_reward_denominator{rl_incarnation="1",rl_key="eval-rollout/reward"}',
        },
    ),
    Row("loss", log("loss"), stats("loss", "last"), {'rl_stats_loss{rl_stat="last"}'}),
    Row(
        "pass@1",
        scalar("pass@1"),
        stats("pass_at_1", "avg", rl__key="pass@1") | pair("pass_at_1", rl__key="pass@1"),
        {
            'rl_stats_pass_at_1{rl_key="pass@1",rl_stat="avg"}',
            'rl_stats_pass_at_1_numerator{rl_incarnation="1",rl_key="pass@1"}',
            'rl_stats_pass_at_1_denominator{rl_incarnation="1",rl_key="pass@1"}',
        },
    ),
    Row(
        "seq_len",
        lambda trackers: trackers.default.distribution(seq_len=np.arange(4)),
        stats("seq_len", "avg", "min", "max", "p50", "p90", "p99")
        | {otel("histogram", "rl.stats.seq_len.distribution")},
        {
            *(f'rl_stats_seq_len{{rl_stat="{stat}"}}' for stat in ("avg", "min", "max", "p50", "p90", "p99")),
            "rl_stats_seq_len_distribution_bucket{}",
            "rl_stats_seq_len_distribution_count{}",
            "rl_stats_seq_len_distribution_sum{}",
        },
    ),
    Row(
        "timeperf/rollout",
        record_timing,
        {otel("histogram", "rl.timing.duration", "s", rl__timing="rollout")},
        {f'rl_timing_duration_seconds_{part}{{rl_timing="rollout"}}' for part in ("bucket", "count", "sum")},
    ),
    Row(
        "Perf/learner_inference_ms",
        record_phase,
        {
            otel(
                "histogram",
                "rl.phase.duration",
                "s",
                rl__role="learner",
                rl__phase="inference",
                rl__phase__kind="exclusive",
            )
        },
        {
            f'rl_phase_duration_seconds_{part}{{rl_phase="inference",rl_phase_kind="exclusive",rl_role="learner"}}'
            for part in ("bucket", "count", "sum")
        },
    ),
    Row(
        "Perf/iteration_time",
        record_phase,
        {otel("histogram", "rl.loop.duration", "s")},
        {f"rl_loop_duration_seconds_{part}{{}}" for part in ("bucket", "count", "sum")},
    ),
    Row(
        "Perf/total_fps",
        lambda trackers: trackers.default.gauge({"Perf/total_fps": 100.0}, ranks="sum"),
        {otel("gauge", "rl.samples.rate", "{sample}/s")},
        {"rl_samples_rate_per_second{}"},
    ),
    Row(
        "Loss/actor",
        log("Loss/actor"),
        {otel("gauge", "rl.train.loss", rl__loss__type="actor")},
        {'rl_train_loss{rl_loss_type="actor"}'},
    ),
    Row(
        "Loss/learning_rate",
        log("Loss/learning_rate"),
        {otel("gauge", "rl.train.learning_rate")},
        {"rl_train_learning_rate{}"},
    ),
    Row(
        "Train/mean_reward",
        log("Train/mean_reward"),
        {otel("gauge", "rl.environment.reward.mean")},
        {"rl_environment_reward_mean{}"},
    ),
    Row(
        "reward/upright",
        log("reward/upright"),
        {otel("gauge", "rl.reward.term", rl__reward__term="upright")},
        {'rl_reward_term{rl_reward_term="upright"}'},
    ),
    Row(
        "ppo_actor/train_infer/ratio_outside_1.5",
        log("ppo_actor/train_infer/ratio_outside_1.5"),
        {otel("gauge", "rl.train_infer.ratio_outside", rl__train_infer_threshold="1.5")},
        {'rl_train_infer_ratio_outside{rl_train_infer_threshold="1.5"}'},
    ),
    Row(
        "actor/update/lr",
        log("actor/update/lr"),
        {otel("gauge", "rl.train.learning_rate", rl__scope="actor")},
        {'rl_train_learning_rate{rl_scope="actor"}'},
    ),
    Row(
        "critic/update/loss",
        log("critic/update/loss"),
        {otel("gauge", "rl.train.loss", rl__loss__type="critic", rl__scope="critic")},
        {'rl_train_loss{rl_loss_type="critic",rl_scope="critic"}'},
    ),
    Row(
        "moe_balance/layer_3/expert_7/tokens",
        log("moe_balance/layer_3/expert_7/tokens"),
        {otel("gauge", "rl.moe.expert.tokens", rl__moe__layer="3", rl__moe__expert="7")},
        {'rl_moe_expert_tokens{rl_moe_expert="7",rl_moe_layer="3"}'},
    ),
    Row(
        "moe_balance/layer_3/max_over_ideal",
        log("moe_balance/layer_3/max_over_ideal"),
        {otel("gauge", "rl.moe.max_over_ideal", rl__moe__layer="3")},
        {'rl_moe_max_over_ideal{rl_moe_layer="3"}'},
    ),
]


def series(name: str, labels: Mapping[str, str]) -> str:
    """As Prometheus writes it, without the bound of a bucket."""
    inside = ",".join(f'{label}="{value}"' for label, value in sorted(labels.items()) if label != "le")
    return f"{name}{{{inside}}}"
