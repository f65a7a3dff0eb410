"""Whole lives of healthy runs, in which no alert may fire: begin, an evaluation that holds the run up, restart, end.

Examples beside the rules are about one alert each; here all of them look at all series, every minute of a night.
"""

import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import pytest
import yaml

from dashboards.test_rules import ALERTS, RECORDS, selectors
from realparts.requirements import REPOSITORY, need_promtool
from rltel.dashboards.rules import GROUPS

RULES = REPOSITORY / "dashboards" / "rules"

HOURS_OF_SILENCE = 3
LEARNER = 'rl_role="learner",rl_rank="0"'
OTHER_RANK = 'rl_role="learner",rl_rank="1"'
COLLECTOR = 'rl_role="collector",rl_phase_kind="exclusive",rl_rank="0"'


class Life(NamedTuple):
    """Minutes of each part; a run that is held up stands (scraped), or says nothing (over OTLP)."""

    before: int = 0
    works: int = 120
    held_up: int = 0
    is_silent_then: bool = False
    restarted_after: int | None = None
    """Minutes of absence between the first half and the second; None: it is not restarted."""


class Grows(NamedTuple):
    """A counter or a cumulative sum: so much a minute, from 0 in each process."""

    a_minute: float
    in_pauses: bool = False
    """Whether it goes on while an evaluation holds up the rest."""


class Stays(NamedTuple):
    """A gauge."""

    value: float
    rise: float = 0.0
    """A minute, while it works."""


def values(of: Grows | Stays, life: Life) -> str:
    """The samples of a series, a minute apart, in promtool's words."""
    begin, each = (0.0, of.a_minute) if isinstance(of, Grows) else (of.value, of.rise)
    words = [f"_x{life.before}"] if life.before else []
    last = begin
    for half in (0, 1):
        words.append(f"{begin:.9g}{each:+g}x{life.works - 1}")
        last = begin + each * (life.works - 1)
        if half == 0 and life.held_up and life.restarted_after is None:
            goes_on = isinstance(of, Grows) and of.in_pauses
            pause = f"{last:.9g}{each if goes_on else 0:+g}x{life.held_up - 1}"
            words.append(f"_x{life.held_up}" if life.is_silent_then and not goes_on else pause)
            last += each * (life.held_up - 1) if goes_on else 0
        if half == 0 and life.restarted_after is not None:
            words.append(f"_x{life.restarted_after}")
            begin = 0.0 if isinstance(of, Grows) else last
        else:
            begin = last + each
    return " ".join([*words, f"_x{60 * HOURS_OF_SILENCE}"])


def a_robot_run() -> Mapping[str, Grows | Stays]:
    """SAC's: gauges, phases, a collector."""
    return {
        f"rl_step{{{LEARNER},rl_axis='train'}}": Grows(60),
        f"rl_environment_reward_mean{{{LEARNER}}}": Stays(-1000, 1.5),
        f"rl_train_loss{{{LEARNER},rl_loss_type='entropy'}}": Stays(-2, -0.001),
        f"rl_train_gradient_norm{{{LEARNER},rl_gradient_norm_type='actor'}}": Stays(1.5),
        f"rl_samples_rate_per_second{{{LEARNER}}}": Stays(10_000),
        f"rl_tokens_rate_per_second{{{LEARNER}}}": Stays(1_000),
        f"rl_loop_duration_seconds_count{{{LEARNER}}}": Grows(60),
        f"rl_loop_duration_seconds_sum{{{LEARNER}}}": Grows(60),
        f"rl_phase_duration_seconds_sum{{{LEARNER},rl_phase='collector_wait',rl_phase_kind='exclusive'}}": Grows(10),
        f"rl_phase_duration_seconds_sum{{{COLLECTOR},rl_phase='learner_action_wait'}}": Grows(20),
        f"rl_phase_duration_seconds_sum{{{COLLECTOR},rl_phase='env_step'}}": Grows(40),
        f"rl_phase_duration_seconds_count{{{COLLECTOR},rl_phase='env_step'}}": Grows(600),
        f"rl_stats_nonfinite_total{{{LEARNER},rl_key='Loss/actor'}}": Grows(0),
        f"rltel_dropped_total{{{LEARNER},destination='otlp',reason='shutdown'}}": Grows(0),
        f"rl_replay_ingress_dropped{{{LEARNER}}}": Stays(0),
        f"rl_train_vtrace_rho_p99{{{LEARNER}}}": Stays(1.5),
        f"rl_inference_publication_lag_max{{{LEARNER}}}": Stays(1),
        f"rl_train_infer_nonfinite_fraction{{{LEARNER}}}": Stays(0),
        f"rltel_overflowed_keys{{{LEARNER},metric='rl_stats_x'}}": Stays(0),
        f"up{{{LEARNER}}}": Stays(1),
        f"rl_policy_std_mean{{{LEARNER}}}": Stays(0.6),
        f"rl_train_clip_ratio{{{LEARNER}}}": Stays(0.15),
        f"rl_train_approx_kl{{{LEARNER}}}": Stays(0.015),
        f"rl_moe_max_over_ideal{{{LEARNER},rl_moe_layer='3'}}": Stays(1.3),
        f"rl_moe_expert_tokens{{{LEARNER},rl_moe_layer='3',rl_moe_expert='1'}}": Stays(100),
    }


def an_llm_run() -> Mapping[str, Grows | Stays]:
    """GRPO's: pairs and histograms, an iteration a minute, two ranks of which the first one evaluates."""
    pair = f"{LEARNER},rl_incarnation='1'"
    averages = {
        "rl_stats_groups_reward_mean": (0.5, ""),
        "rl_train_infer_kl": (0.001, ",rl_train_infer_kl_estimator='k3'"),
        "rl_train_infer_ratio_outside": (0.002, ",rl_train_infer_threshold='2'"),
        "rl_group_fraction": (0.3, ",rl_group_part='zero_variance'"),
        "rl_train_gradient_norm": (0.7, ",rl_gradient_norm_type='actor'"),
        "rl_stats_ppo_actor_update_entropy": (0.4, ""),
        "rl_train_approx_kl": (0.01, ""),
        "rl_train_clip_ratio": (0.1, ""),
    }
    made: dict[str, Grows | Stays] = {}
    for name, (mean, labels) in averages.items():
        made[f"{name}_numerator{{{pair}{labels}}}"] = Grows(64 * mean)
        made[f"{name}_denominator{{{pair}{labels}}}"] = Grows(64)
    for rank in (LEARNER, OTHER_RANK):
        made[f"rl_step{{{rank},rl_axis='train'}}"] = Grows(1)
        made[f"rl_loop_duration_seconds_count{{{rank}}}"] = Grows(1)
        made[f"rl_loop_duration_seconds_sum{{{rank}}}"] = Grows(60)
    return made | {
        f"rl_step{{{LEARNER},rl_axis='eval'}}": Grows(1, in_pauses=True),
        f"rl_session_ended_total{{{LEARNER},rl_session_status='accepted'}}": Grows(64),
        f"rl_group_entropy_sum{{{LEARNER}}}": Grows(25),
        f"rl_group_entropy_count{{{LEARNER}}}": Grows(64),
        f"rl_session_staleness_bucket{{{LEARNER},le='4.0'}}": Grows(64),
        f"rl_session_staleness_bucket{{{LEARNER},le='+Inf'}}": Grows(64),
        f"rl_timing_duration_seconds_sum{{{LEARNER},rl_timing='session/total'}}": Grows(600),
        f"rl_timing_duration_seconds_sum{{{LEARNER},rl_timing='session/queue'}}": Grows(60),
        f"rl_policy_staleness_bucket{{{LEARNER},le='4.0'}}": Grows(64),
        f"rl_policy_staleness_bucket{{{LEARNER},le='+Inf'}}": Grows(64),
        f"rl_policy_token_fraction{{{LEARNER},rl_policy_age='future'}}": Stays(0),
        f"rl_stats_nonfinite_total{{{LEARNER},rl_key='ppo_actor/update/loss'}}": Grows(0),
    }


def of_the_clock(life: Life) -> Iterator[tuple[str, str]]:
    """When processes began, and when a destination took something last: promtool's time begins at 0."""
    took = f"rltel_last_success_timestamp_seconds{{{LEARNER},destination='otlp'}}"
    for rank in (LEARNER, OTHER_RANK):
        name = f"rl_process_start_time_seconds{{{rank},rl_incarnation='#'}}"
        first, gap = life.works, life.restarted_after
        if gap is None:
            yield name.replace("#", "1"), f"_x{life.before} {60 * life.before}x{2 * first + life.held_up - 1}"
        else:
            yield name.replace("#", "1"), f"_x{life.before} {60 * life.before}x{first - 1}"
            yield (
                name.replace("#", "2"),
                f"_x{life.before + first + gap} {60 * (life.before + first + gap)}x{first - 1}",
            )
    begin, pause = 60 * life.before, life.held_up or life.restarted_after or 0
    held = f"_x{pause}" if life.restarted_after or life.is_silent_then else f"{begin + 60 * life.works}x{pause - 1}"
    again = begin + 60 * (life.works + pause)
    yield (
        took,
        f"_x{life.before} {begin}+60x{life.works - 1} {held if pause else ''} {again}+60x{life.works - 1} _x180",
    )


LIVES = {
    "one that ends": Life(),
    "one that begins when others have run for hours": Life(before=150),
    "one that an evaluation holds up": Life(held_up=12),
    "one that an evaluation silences": Life(held_up=25, is_silent_then=True),
    "one that is restarted": Life(restarted_after=3),
}


def told(series: str, job: str, run: str) -> str:
    return series.replace("{", f"{{job='{job}',rl_run_id='{run}',", 1).replace("'", '"')


def all_series(life: Life) -> Iterator[dict[str, str]]:
    """Six runs in one store: of two kinds, in two jobs that have runs of one name."""
    for job, run in (("rl", "a"), ("rl", "b"), ("other", "a")):
        for kind, made in (("robot", a_robot_run()), ("llm", an_llm_run())):
            for series, of in made.items():
                yield {"series": told(series, job, f"{run}-{kind}"), "values": values(of, life)}
            for series, words in of_the_clock(life):
                yield {"series": told(series, job, f"{run}-{kind}"), "values": words.replace("_x0 ", "")}


def firing(tmp_path: Path, series: list[dict[str, str]], minutes: int) -> str:
    """What promtool says: nothing where no alert fired in any minute."""
    question = {"expr": f'count by (alertname) (count_over_time(ALERTS{{alertstate="firing"}}[{minutes}m]))'}
    file = {
        "rule_files": [str(RULES / f"{group}.yml") for group in GROUPS],
        "group_eval_order": [f"rltel-{group}" for group in GROUPS],
        "evaluation_interval": "1m",
        "tests": [
            {
                "interval": "1m",
                "input_series": series,
                "promql_expr_test": [{**question, "eval_time": f"{minutes}m", "exp_samples": []}],
            }
        ],
    }
    written = tmp_path / "life.yml"
    written.write_text(yaml.safe_dump(file))
    command = [str(need_promtool()), "test", "rules", str(written)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=280, check=False)
    return "" if done.returncode == 0 else done.stdout + done.stderr


@pytest.mark.parametrize("name", LIVES)
def test_a_healthy_run_fires_nothing_in_all_its_life(tmp_path: Path, name: str) -> None:
    life = LIVES[name]
    minutes = 2 * life.works + life.before + life.held_up + (life.restarted_after or 0) + 60 * HOURS_OF_SILENCE
    assert firing(tmp_path, list(all_series(life)), minutes) == ""


def test_the_test_sees_what_fires(tmp_path: Path) -> None:
    """One series of all goes wrong."""
    life = Life(works=60)
    series = list(all_series(life))
    (wrong,) = [each for each in series if "rl_train_clip_ratio{" in each["series"] and '"other"' in each["series"]]
    wrong["values"] = "0.9x100"
    said = firing(tmp_path, series, 100)
    assert 'alertname="RLClipFractionHigh"' in said
    assert said.count("alertname=") == 1


def test_the_lives_have_every_series_that_an_alert_looks_at() -> None:
    """Else nothing would fire for want of data."""
    lived = {each["series"].partition("{")[0] for each in all_series(Life())}
    asked = {selector.name for each in (*RECORDS, *ALERTS) for selector in selectors(each.promql)}
    assert {name for name in asked if ":" not in name} <= lived
