"""The sets of algorithm families, users' own, and the page that lists them."""

import json
from pathlib import Path
from typing import Any

import pytest

from rltel.core.errors import PhaseError
from rltel.names.otel import Name, Namer
from rltel.record.kinds import PHASE_MS, PHASE_S, TIMING, Kind
from rltel.record.phase_sets import (
    ALL_SETS,
    APPO_COLLECTOR,
    APPO_LEARNER,
    FLASHSAC_COLLECTOR,
    FLASHSAC_LEARNER,
    LLM_CONTROLLER,
    LLM_LEARNER,
    LLM_ROLLOUT,
    PPO_LEARNER,
    SAC_COLLECTOR,
    SAC_LEARNER,
    Phase,
    PhaseSet,
    phase_set,
)

ROOT = Path(__file__).parents[2]
ROBOT_SETS = [each for each in ALL_SETS if each.name in ("sac", "flashsac", "appo")]
"""Those whose keys the schema has. (Of ppo it has what rsl_rl times.)"""
LLM_SETS = [LLM_LEARNER, LLM_ROLLOUT, LLM_CONTROLLER]
STEP_PARTS = ("action_validate", "apply_action", "action_backend", "backend", "update_state", "reset_done")


def ids(each: PhaseSet) -> str:
    return f"{each.name}-{each.role}"


def keys(phases: PhaseSet, kind: str) -> list[str]:
    return [phase.key for phase in phases.phases if phase.kind == kind]


def parts(phases: PhaseSet) -> dict[str, str]:
    return {phase.name: phase.rl for phase in phases.phases if phase.rl}


class TestSac:
    def test_the_learners(self) -> None:
        assert keys(SAC_LEARNER, "exclusive") == [
            "Perf/learner_collector_wait_ms",
            "Perf/learner_inference_ms",
            "Perf/learner_collector_release_ms",
            "Perf/learner_replay_batch_wait_ms",
            "Perf/learner_replay_sample_ms",
            "Perf/learning_time",
        ]
        assert {phase.key: phase.parent for phase in SAC_LEARNER.phases if phase.kind == "nested"} == {
            "Perf/learner_inference_h2d_ms": "inference",
            "Perf/learner_inference_forward_ms": "inference",
            "Perf/learner_inference_d2h_ms": "inference",
            "Perf/dp_gradient_sync_ms_per_rank": "learning",
        }
        assert keys(SAC_LEARNER, "background") == ["Perf/replay_ingress_h2d_submit_ms"]
        assert (SAC_LEARNER.loop, SAC_LEARNER.loop_key) == ("iteration", "Perf/iteration_time")
        assert parts(SAC_LEARNER) == {"inference": "sample", "learning": "train"}

    def test_the_collectors_six_phases(self) -> None:
        assert keys(SAC_COLLECTOR, "exclusive") == [
            "Perf/collector_inference_request_ms",
            "Perf/collector_learner_action_wait_ms",
            "Perf/collector_env_step_ms",
            "Perf/collector_transition_extract_ms",
            "Perf/collector_replay_write_ms",
            "Perf/collector_metrics_publish_ms",
        ]
        nested = {phase.key: phase.parent for phase in SAC_COLLECTOR.phases if phase.kind == "nested"}
        assert nested == {f"Perf/collector_env_step_{part}_ms": "env_step" for part in STEP_PARTS}
        assert (SAC_COLLECTOR.loop, SAC_COLLECTOR.loop_key) == ("cycle", None)
        assert parts(SAC_COLLECTOR) == {"env_step": "reward"}

    def test_flashsac_has_the_same(self) -> None:
        assert FLASHSAC_LEARNER.phases == SAC_LEARNER.phases
        assert FLASHSAC_COLLECTOR.phases == SAC_COLLECTOR.phases


class TestAppo:
    def test_the_learners(self) -> None:
        assert keys(APPO_LEARNER, "exclusive") == [
            "Perf/learner_collector_wait_ms",
            "Perf/learner_replay_stage_ms",
            "Perf/learner_replay_sample_ms",
            "Perf/learning_time",
            "Perf/learner_weight_publish_ms",
        ]
        assert parts(APPO_LEARNER) == {"learning": "train", "weight_publish": "sync"}

    def test_the_collectors_loop_is_a_whole_rollout_and_its_phases_are_of_one_step(self) -> None:
        assert keys(APPO_COLLECTOR, "exclusive") == ["Perf/collector_mlp_infer_ms", "Perf/collector_env_step_ms"]
        assert keys(APPO_COLLECTOR, "nested") == [f"Perf/collector_env_step_{part}_ms" for part in STEP_PARTS]
        assert (APPO_COLLECTOR.loop_key, APPO_COLLECTOR.loop_rl) == ("Perf/collection_time", "sample")
        assert all(phase.per_call for phase in APPO_COLLECTOR.phases)
        assert not any(phase.per_call for phase in SAC_COLLECTOR.phases)


class TestAgainstUniLabsSchema:
    """Every timing of the schema is a phase, or a loop, of each family that emits it, and nothing else is."""

    SCHEMA = json.loads((ROOT / "tests" / "vectors" / "unilab_schema.json").read_text())["metrics"]

    @pytest.mark.parametrize("family", ["sac", "flashsac", "appo"])
    def test_every_timing_is_there(self, family: str) -> None:
        wanted = {
            metric["tag"] for metric in self.SCHEMA if metric["unit"] in ("ms", "s") and family in metric["emitted_by"]
        }
        found = {
            key
            for phases in ROBOT_SETS
            if phases.name == family
            for key in (*(phase.key for phase in phases.phases), phases.loop_key)
            if key is not None
        }
        assert found == {tag for tag in wanted if tag.startswith("Perf/")}

    @pytest.mark.parametrize("each", ROBOT_SETS, ids=ids)
    def test_units_are_the_schemas(self, each: PhaseSet) -> None:
        units = {metric["tag"]: metric["unit"] for metric in self.SCHEMA}
        for phase in each.phases:
            assert phase.metric is {"ms": PHASE_MS, "s": PHASE_S}[units[phase.key]]

    @pytest.mark.parametrize("each", ROBOT_SETS, ids=ids)
    def test_main_nested_and_background_are_the_schemas(self, each: PhaseSet) -> None:
        kinds = {"main_phase": "exclusive", "per_step_ema": "exclusive"}
        relations = {metric["tag"]: metric["relation"]["kind"] for metric in self.SCHEMA}
        for phase in each.phases:
            if phase.name != "dp_gradient_sync":  # background there, and "inside Learning": nested here
                assert phase.kind == kinds.get(relations[phase.key], relations[phase.key])


class TestPpo:
    def test_one_process_collects_then_learns_then_logs(self) -> None:
        assert keys(PPO_LEARNER, "exclusive") == [
            "Perf/collection_time",
            "Perf/learning_time",
            "Perf/learner_logging_ms",
            "Perf/learner_checkpoint_ms",
        ]
        assert parts(PPO_LEARNER) == {"collection": "sample", "learning": "train", "env_step": "reward"}

    def test_a_step_is_one_observation_as_in_appo(self) -> None:
        per_call = {phase.key for phase in PPO_LEARNER.phases if phase.per_call}
        assert per_call == set(keys(APPO_COLLECTOR, "exclusive"))


class TestLlm:
    def test_a_learners_iteration_has_the_four_parts(self) -> None:
        assert parts(LLM_LEARNER) == {part: part for part in ("sample", "reward", "train", "sync")}
        assert (LLM_LEARNER.loop_key, LLM_LEARNER.loop_rl) == ("timeperf/iteration", "loop")
        children = {phase.parent for phase in LLM_LEARNER.phases if phase.kind == "nested"}
        assert children == parts(LLM_LEARNER).keys()

    @pytest.mark.parametrize(
        ("child", "parent"),
        [
            ("prefill", "sample"),
            ("decode", "sample"),
            ("tool_call", "sample"),
            ("forward", "train"),
            ("backward", "train"),
            ("optimizer", "train"),
            ("ref_logprobs", "train"),
            ("advantages", "train"),
            ("weight_publish", "sync"),
            ("weight_transfer", "sync"),
        ],
    )
    def test_with_what_they_are_made_of(self, child: str, parent: str) -> None:
        assert LLM_LEARNER.by_name[child].parent == parent

    def test_the_learners_keys_are_timeperf(self) -> None:
        assert all(phase.key == f"timeperf/{phase.name}" for phase in LLM_LEARNER.phases)

    def test_no_two_roles_share_a_key(self) -> None:
        """A learner absorbs its workers' payloads."""
        everything = [key for each in LLM_SETS for key in (each.loop_key, *(phase.key for phase in each.phases))]
        assert len(everything) == len(set(everything))

    def test_a_collector_is_a_rollout_worker(self) -> None:
        assert phase_set("llm", "collector") is phase_set("llm", "rollout") is LLM_ROLLOUT
        assert phase_set("llm", "controller") is LLM_CONTROLLER


@pytest.mark.parametrize("each", ALL_SETS, ids=ids)
class TestEverySet:
    def test_is_found_by_its_name(self, each: PhaseSet) -> None:
        assert phase_set(each.name, each.role) is each

    def test_every_nested_phase_has_a_parent(self, each: PhaseSet) -> None:
        for phase in each.phases:
            assert (phase.parent is not None) is (phase.kind == "nested")

    def test_no_two_phases_are_one_part(self, each: PhaseSet) -> None:
        """They would be told apart by rl.key, in an order of chance."""
        assert len(parts(each)) == len(set(parts(each).values()))


@pytest.mark.parametrize("each", ROBOT_SETS, ids=ids)
def test_a_plain_number_of_its_key_has_the_same_names(each: PhaseSet) -> None:
    """As when a trainer that measures for itself logs ``Perf/learning_time``."""
    for phase in each.phases:
        assert told(Namer().name(phase.key)) == told(name_of(each, phase))
    if each.loop_key:
        assert each.loop_metric is not None
        assert told(Namer().name(each.loop_key)) == told(Namer().name(each.loop_key, phase=each.loop_metric.phase))


def told(name: Name | None) -> Any:
    return name and (name.name, name.unit, dict(name.attributes), told(name.also))


def name_of(phases: PhaseSet, phase: Phase) -> Name:
    return Namer().name(phase.key, phase=phases.label(phase))


class TestOfOnesOwn:
    @pytest.mark.parametrize(
        ("role", "loop", "part"),
        [("learner", "iteration", "loop"), ("collector", "cycle", "sample"), ("rollout", "session", "sample")],
    )
    def test_names(self, role: str, loop: str, part: str) -> None:
        own = phase_set(["rollout", "update"], role)
        assert [(phase.kind, phase.key, phase.metric) for phase in own.phases] == [
            ("exclusive", "timeperf/rollout", TIMING),
            ("exclusive", "timeperf/update", TIMING),
        ]
        assert (own.loop, own.loop_key, own.loop_rl) == (loop, f"timeperf/{loop}", part)
        assert phase_set(own, role) is own

    def test_a_mapping_says_what_each_is(self) -> None:
        given = {"rollout": "sample", "update": "train", "h2d": "nested", "log": "exclusive", "prefetch": "background"}
        assert [(phase.name, phase.kind, phase.rl) for phase in phase_set(given, "learner").phases] == [
            ("rollout", "exclusive", "sample"),
            ("update", "exclusive", "train"),
            ("h2d", "nested", None),
            ("log", "exclusive", None),
            ("prefetch", "background", None),
        ]

    def test_a_phase_may_stand_among_names(self) -> None:
        h2d = Phase("h2d", "nested", "mine/h2d_ms", PHASE_MS, "update")
        assert phase_set(["update", h2d], "learner").by_name["h2d"] is h2d

    def test_unknown(self) -> None:
        have = "have appo, flashsac, llm, ppo, sac, or give the names of your own"
        with pytest.raises(PhaseError, match=rf'no set "nope" for the role learner; {have}'):
            phase_set("nope", "learner")
        with pytest.raises(PhaseError, match=r'no set "sac" for the role critic; have none'):
            phase_set("sac", "critic")

    @pytest.mark.parametrize(
        ("given", "message"),
        [
            (["a", "a"], "expected each key once, got twice: timeperf/a"),
            (["iteration"], "expected each key once, got twice: timeperf/iteration"),
            (["a", ""], "expected names that are not empty, got ''"),
            ([1], "expected names that are not empty, got 1"),
            ({1: "nested"}, "expected names that are not empty, got 1"),
            ({"a": "often"}, "\"a\": expected one of exclusive, nested, .*, sync, got 'often'"),
            ({"a": "loop"}, "\"a\": expected one of .* got 'loop'"),
            ({"a": Phase("a", "nested", "a", TIMING)}, '"a": expected one of .* got Phase'),
            (7, "expected the name of a set, .* got int"),
            (None, "expected the name of a set, .* got NoneType"),
        ],
    )
    def test_what_cannot_be_a_set_is_named(self, given: Any, message: str) -> None:
        with pytest.raises(PhaseError, match=message):
            phase_set(given, "learner")


def page() -> str:
    """The tables of `docs/phases.md`, from the sets."""
    flashsac = {"flashsac": "sac"}
    tables = [_table(each) for each in ALL_SETS if each.name not in flashsac]
    return "\n\n".join(tables) + "\n"


def _table(phases: PhaseSet) -> str:
    names = "`sac`, `flashsac`" if phases.name == "sac" else f"`{phases.name}`"
    lines = [f"### {names}: {phases.role}", "", "| phase | kind | key | OpenTelemetry |", "|---|---|---|---|"]
    loop = phases.loop_metric
    also = f"`{Namer().name(phases.loop_key or '', phase=loop.phase).name}`" if loop else "as a span only"
    lines.append(f"| *{phases.loop}* | the loop | {_code(phases.loop_key)} | {also} |")
    for phase in phases.phases:
        name = name_of(phases, phase)
        names = f"`{name.name}`" + (f", `{name.also.name}`" if name.also else "")
        kind = f"in `{phase.parent}`" if phase.parent else phase.kind
        per_call = ", each call" if phase.per_call else ""
        lines.append(f"| `{phase.name}` | {kind}{per_call} | {_view(phase.key, phase.metric)} | {names} |")
    return "\n".join(lines)


def _code(key: str | None) -> str:
    return f"`{key}`" if key else "not recorded"


def _view(key: str, view: Kind) -> str:
    return f"`{key}`" + (" (s)" if view is PHASE_S else "")


def test_the_page_lists_every_set_as_it_is() -> None:
    text = (ROOT / "docs" / "phases.md").read_text()
    written = text.split("<!-- tables -->\n")[1]
    assert written == page(), f"docs/phases.md: write between the marks:\n{page()}"


def test_a_set_with_a_sample_phase_does_not_count_its_whole_loop_as_sampling_too() -> None:
    assert phase_set({"act": "sample", "env_step": "reward"}, "collector").loop_rl is None
    assert phase_set(["act", "env_step"], "collector").loop_rl == "sample"
