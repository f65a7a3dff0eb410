"""Which timelines a run has."""

import pytest

from export.panel.making import APPO, LLM, PPO, SAC
from rltel.export.panel.families import SCALES, timeline_of, timelines
from rltel.names.phases import PhaseLabel
from rltel.record.kinds import PHASE_MS
from rltel.record.phase_sets import ALL_SETS, SAC_COLLECTOR


@pytest.mark.parametrize(
    ("keys", "roles"),
    [
        (SAC, ["learner", "collector"]),
        (APPO, ["learner", "collector"]),
        (PPO, ["learner"]),
        (LLM, ["learner", "rollout"]),
    ],
    ids=["sac", "appo", "ppo", "llm"],
)
def test_the_family_is_known_by_its_keys(keys: dict[str, float], roles: list[str]) -> None:
    assert [timeline.role for timeline in timelines(keys, {})] == roles


def test_an_algorithm_called_ppo_that_trains_an_llm_is_of_llms() -> None:
    assert [timeline.loop_key for timeline in timelines(LLM, {}, "ppo")] == [
        "timeperf/iteration",
        "timeperf/rollout/session",
    ]


@pytest.mark.parametrize("algo", ["sac", "SAC", "flash_sac", "flashsac"])
def test_the_name_decides_between_families_that_fit_alike(algo: str) -> None:
    (found,) = timelines({"Perf/learning_time", "Perf/iteration_time"}, {}, algo)
    assert "Perf/learner_inference_ms" in [line.key for line in found.lines]


def test_the_learner_comes_first() -> None:
    labels = {
        "timeperf/a": PhaseLabel("worker", "a", "exclusive"),
        "timeperf/b": PhaseLabel("learner", "b", "exclusive"),
    }
    assert [timeline.role for timeline in timelines(labels.keys(), labels)] == ["learner", "worker"]


def test_kinds_come_from_the_phase_sets() -> None:
    kinds = {line.key: line.kind for line in timeline_of(SAC_COLLECTOR).lines}
    assert kinds == {phase.key: phase.kind for phase in SAC_COLLECTOR.phases}


def test_what_the_schema_shows_elsewhere_is_in_no_timeline() -> None:
    """The gradient all-reduce is nested in Learning, and has a row among the other metrics."""
    keys = {line.key for phases in ALL_SETS for line in timeline_of(phases).lines}
    assert not {
        key for key in keys if key.startswith(("Perf/dp_", "Perf/learner_inference_h2d", "Perf/replay_ingress"))
    }


def test_scales_agree_with_the_sets() -> None:
    assert {phase.key: SCALES[phase.key] for phases in ALL_SETS for phase in phases.phases} == {
        phase.key: 1e-3 if phase.metric is PHASE_MS else 1.0 for phases in ALL_SETS for phase in phases.phases
    }


def test_quiet_rows_are_those_of_the_schema() -> None:
    quiet = {line.text for line in timeline_of(SAC_COLLECTOR).lines if line.quiet}
    assert quiet == {
        "Inference Request", "Action Validate", "Apply Action", "Action+Backend", "Backend Step", "Update State",
        "Reset Done", "Transition Extract", "Metrics Publish",
    }  # fmt: skip


def test_of_two_families_that_fit_alike_the_smaller_one() -> None:
    """rsl_rl's PPO has a collection time, as APPO's rollouts have."""
    (found,) = timelines({"Perf/collection_time", "Perf/learning_time"}, {})
    assert [line.text for line in found.exclusive()][:2] == ["Collection", "Learning"]


def test_a_phase_in_another_roles_timeline_has_its_label_all_the_same() -> None:
    (found,) = timelines(PPO, {}, "ppo")
    assert "MLP Infer" in [line.text for line in found.lines]
    assert found.basis == "wall"  # its steps are one observation each, but nested in an iteration that was measured
