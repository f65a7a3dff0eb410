"""The metric schema, against UniLab's (`tests/vectors/unilab_schema.json`) and against the catalogue of names."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from export.making import environment
from rltel.names.catalogue import catalogue
from rltel.names.schema import (
    ALGORITHMS,
    METRIC_SCHEMA_VERSION,
    GaugeRule,
    Tag,
    algorithm_named,
    allowed,
    gauge_rule,
    locals_,
    persisted_tags,
    removed,
    tag,
    tags,
)
from rltel.record.kinds import GAUGES
from rltel.record.local_rules import RULES
from rltel.record.phase_sets import ALL_SETS

UNILAB = json.loads((Path(__file__).parents[1] / "vectors" / "unilab_schema.json").read_text())
KINDS = {
    "coordinate", "return", "ratio", "reward", "loss", "statistic", "gauge", "throughput", "count",
    "total", "exclusive", "nested", "background", "residual", "derived",
}  # fmt: skip
RANKS = {"mean": "mean", "sum": "sum", "rank0": "writer"}
OURS = {
    "main_phase": {"exclusive"},
    "per_step_ema": {"exclusive"},
    "ipc_gauge": {"gauge"},
    "ingress_gauge": {"gauge"},
    "learner_stat": {"loss", "statistic", "gauge"},
}
INSIDE_LEARNING = "Perf/dp_gradient_sync_ms_per_rank"
"""Background in UniLab's table, whose note says "inside Learning": nested, as it would be added twice else."""
TERMINAL_ONLY = {
    "<phase> %": ["learner %"],
    "<collector row> %": ["collector %"],
    "elapsed, ETA": ["Elapsed", "ETA"],
}


def the(name: str) -> Tag:
    found = tag(name)
    assert found is not None
    return found


def test_has_unilabs_version() -> None:
    assert UNILAB["metric_schema_version"] == METRIC_SCHEMA_VERSION


@pytest.mark.parametrize("metric", UNILAB["metrics"], ids=lambda metric: metric["tag"])
class TestEveryTagOfUniLab:
    def test_means_the_same(self, metric: dict[str, Any]) -> None:
        found = the(metric["tag"])
        assert (found.unit, found.owner) == (metric["unit"], metric["owner"])
        assert found.ranks == RANKS[metric["rank_reduction"]]
        assert found.persisted is metric["persisted"]
        assert set(metric["emitted_by"]) <= set(found.algorithms) <= {*metric["emitted_by"], "ppo"}

    def test_is_made_in_the_same_way(self, metric: dict[str, Any]) -> None:
        local = the(metric["tag"]).local
        only_appo = metric["emitted_by"] == ["appo"]
        assert local == ("ema" if metric["local"] == "report_mean" and only_appo else metric["local"])

    def test_has_the_same_place_among_times(self, metric: dict[str, Any]) -> None:
        found, relation = the(metric["tag"]), metric["relation"]
        if metric["tag"] == INSIDE_LEARNING:
            assert (found.kind, found.parent) == ("nested", "Perf/learning_time")
        elif metric["unit"] in ("ms", "s") and metric["tag"].startswith("Perf/"):
            assert found.kind in OURS.get(relation["kind"], {relation["kind"]})
            assert (found.parent or "none") in relation.get("parent", "none")

    def test_is_left_out_where_unilab_leaves_it_out(self, metric: dict[str, Any]) -> None:
        assert not metric.get("omitted_when") or the(metric["tag"]).omitted

    def test_looks_the_same_in_the_terminal(self, metric: dict[str, Any]) -> None:
        theirs, ours = metric["terminal"], the(metric["tag"]).terminal
        if theirs is None:
            assert ours is None
            return
        assert ours is not None
        assert (ours.section, ours.label) == (theirs["section"], theirs["label"])
        assert ours.quiet is theirs.get("shown", "").startswith(">=1%")
        assert bool(ours.percent_of) is bool(theirs.get("percent_of"))


def test_all_of_the_tags_for_the_terminal_only_are_there() -> None:
    wanted = [name for field in UNILAB["terminal_only"] for name in TERMINAL_ONLY.get(field["field"], [field["field"]])]
    ours = {each.name: each for each in tags() if not each.persisted}
    assert sorted(ours) == sorted(wanted)
    assert all(each.terminal is not None for each in ours.values())


def test_the_families_are_unilabs() -> None:
    for family in UNILAB["families"]:
        member = the(f"{family['prefix']}x")
        assert (member.unit, member.owner, member.ranks) == (family["unit"], family["owner"], family["rank_reduction"])
        assert member.terminal is not None
        assert member.terminal.section == family["terminal"]["section"]


@pytest.mark.parametrize("native", UNILAB["rsl_rl_native"], ids=lambda native: native["tag"])
def test_what_rsl_rl_writes_itself_is_there(native: dict[str, str]) -> None:
    if native["tag"] != "<key with '/'>":  # verbatim: any key at all
        found = the(native["tag"].replace("<name>", "x").replace("<key without '/'>", "x"))
        assert "ppo" in found.algorithms


def test_nothing_is_made_up() -> None:
    """Every exact tag is UniLab's or rsl_rl's, but for phases of PPO that neither of them times."""
    known = {metric["tag"] for metric in (*UNILAB["metrics"], *UNILAB["rsl_rl_native"])}
    learner = {f"Perf/learner_{each}_ms" for each in ("logging", "checkpoint", "returns", "update")}
    collector = {"Perf/collector_rollout_write_ms", "Perf/collector_episode_log_ms"}
    assert {each.name for each in persisted_tags() if not each.is_family} - known == learner | collector


@pytest.mark.parametrize("each", tags(), ids=lambda each: each.name)
class TestEveryTag:
    def test_its_words_are_of_the_lists(self, each: Tag) -> None:
        assert each.kind in KINDS
        assert each.ranks in GAUGES
        assert each.local in locals_()
        assert each.clock in (None, "learner", "collector")
        assert each.about.endswith(".")
        assert set(each.algorithms) <= set(ALGORITHMS)
        assert each.algorithms or not each.persisted

    def test_its_parent_is_a_time_of_the_same_clock(self, each: Tag) -> None:
        assert each.kind != "nested" or each.parent
        if each.parent is not None:
            assert the(each.parent).clock == each.clock

    def test_what_it_is_a_percentage_of_is_there(self, each: Tag) -> None:
        if each.terminal is not None and each.terminal.percent_of is not None:
            the(each.terminal.percent_of)

    def test_the_gauge_rule_can_be_given_to_gauge(self, each: Tag) -> None:
        assert each.rule.ranks in GAUGES
        assert each.rule.local in RULES
        assert 0.0 < each.rule.alpha <= 1.0

    def test_a_persisted_one_has_a_canonical_name(self, each: Tag) -> None:
        assert (catalogue().find(each.name) is not None) is each.persisted

    def test_milliseconds_are_said_in_the_name(self, each: Tag) -> None:
        assert not each.persisted or (each.unit == "ms") is ("_ms" in each.name)


def test_order_is_the_terminals() -> None:
    """Within a section from the top; each place once."""
    orders = [each.terminal.order for each in tags() if each.terminal is not None]
    assert orders == sorted(set(orders))
    learner = [each.name for each in tags() if each.terminal is not None and each.terminal.section == "timing.learner"]
    assert learner[-3:] == ["Other", "learner %", "Perf/iteration_time"]


def test_every_time_of_the_robot_phase_sets_is_a_tag_of_its_algorithm() -> None:
    for phases in ALL_SETS:
        if phases.name in ALGORITHMS:
            for key in (*(phase.key for phase in phases.phases), phases.loop_key):
                assert key is None or phases.name in the(key).algorithms


@pytest.mark.parametrize("phases", [each for each in ALL_SETS if each.name in ALGORITHMS], ids=lambda e: e.name)
def test_kinds_and_parents_are_the_phase_sets(phases: Any) -> None:
    for phase in phases.phases:
        found = the(phase.key)
        if phases.name == "ppo" and found.clock == "collector":  # one process does both: it collects on its own clock
            continue
        assert (found.kind, found.clock) == (phase.kind, phases.role)
        if phase.parent is not None:
            assert found.parent == phases.by_name[phase.parent].key


class TestFamilies:
    def test_a_member_has_its_own_name_and_label(self) -> None:
        found = the("reward/upright")
        assert (found.family, found.term, found.name) == ("reward/<term>", "upright", "reward/upright")
        assert found.terminal is not None
        assert found.terminal.label == "upright"
        assert not found.is_family

    def test_old_means_are_no_terms(self) -> None:
        """UniLab refuses them by name, but not in the learner's own map."""
        assert tag("reward/mean") is tag("reward/mean_ep100") is None
        assert catalogue().find("reward/mean") is None
        assert tag("reward/meanest") is not None

    def test_no_term_is_no_member(self) -> None:
        assert tag("reward/") is None
        assert tag("Loss/") is None

    def test_the_narrower_one_wins(self) -> None:
        assert the("Loss/aux_gait").family == "Loss/aux_<name>"
        assert the("Loss/rnd").family == "Loss/<name>"
        assert the("Loss/actor").family is None

    def test_is_closed_to_algorithms_that_do_not_have_it(self) -> None:
        """Else a misspelt loss of SAC would be one of rsl_rl's."""
        assert tag("Loss/acotr", "sac") is None
        assert tag("Loss/acotr", "ppo") is not None
        assert tag("Loss/actor", "ppo") is not None  # exact tags are not closed: whoever has one may log it

    def test_may_have_slashes(self) -> None:
        assert the("reward/left/upright").term == "left/upright"
        assert catalogue().find("reward/left/upright") is not None


class TestAllowed:
    @pytest.mark.parametrize("name", ["Loss/actor", "reward/upright", "Perf/total_fps", "Episode/timeout_rate"])
    def test_tags_are(self, name: str) -> None:
        assert allowed(name) is True

    @pytest.mark.parametrize(
        "name",
        ["Train/mean_rewrad", "Perf/learner_inferense_ms", "Episode_Reward/upright", "reward/mean", "Perf/Other"],
    )
    def test_others_of_its_namespaces_are_not(self, name: str) -> None:
        assert allowed(name) is False

    @pytest.mark.parametrize("name", ["speed", "ppo_actor/update/loss", "timeperf/rollout", "Train", "Batch/Rank"])
    def test_other_namespaces_are_not_its_business(self, name: str) -> None:
        assert allowed(name) is None

    @given(st.text())
    def test_any_text_may_be_asked_for(self, name: str) -> None:
        allowed(name)
        tag(name)
        gauge_rule(name)


def test_episode_reward_is_removed_and_says_what_has_its_meaning() -> None:
    gone = removed("Episode_Reward/upright")
    assert gone is not None
    assert gone.instead == "reward/<term>"
    assert tag("Episode_Reward/upright") is None
    assert removed("Episode_Termination/fell") is None


@pytest.mark.parametrize(
    ("name", "rule"),
    [
        ("Perf/total_fps", GaugeRule("sum", "last")),
        ("Train/iteration", GaugeRule("writer", "last")),
        ("Loss/surrogate", GaugeRule("mean", "mean")),
        ("Perf/collector_inference_max_in_flight", GaugeRule("mean", "max")),
        ("Perf/collector_mlp_infer_ms", GaugeRule("mean", "ema", 0.1)),
        ("Train/replay_ingress_dropped_batches", GaugeRule("sum", "last")),  # a reading that is cumulative already
        ("reward/upright", GaugeRule("mean", "mean")),
        ("speed", GaugeRule("mean", "last")),
        ("ppo_actor/loss", GaugeRule("mean", "last")),
    ],
)
def test_gauge_rules(name: str, rule: GaugeRule) -> None:
    assert gauge_rule(name) == rule


@pytest.mark.parametrize(
    ("text", "algorithm"),
    [("sac", "sac"), ("flash_sac", "flashsac"), ("FlashSAC", "flashsac"), ("rsl_rl_ppo", "ppo"), ("dqn", None)],
)
def test_algorithms_by_their_names_and_log_folders(text: str, algorithm: str | None) -> None:
    assert algorithm_named(text) == algorithm


def test_importing_the_package_does_not_read_the_schema() -> None:
    code = "import rltel, rltel.names.schema as s; print(s._schema.cache_info().currsize)"
    ran = subprocess.run([sys.executable, "-c", code], env=environment(), capture_output=True, text=True, check=True)
    assert ran.stdout == "0\n"
