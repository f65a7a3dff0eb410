"""Labels of phases: as text and back, and the OpenTelemetry names that they give."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rltel.names.phases import PhaseLabel, phase_series, read_label

TEXT = st.text(st.characters(codec="utf-8"), min_size=1)
ROLES = TEXT.filter(lambda role: ":" not in role)
NAMES = TEXT.filter(lambda name: name.strip("/"))
KINDS = st.sampled_from(["exclusive", "nested", "background", "loop"])
PARTS = st.sampled_from(["loop", "step", "sample", "reward", "train", "sync", None])
LABELS = st.builds(PhaseLabel, ROLES, NAMES, KINDS, PARTS)


@given(LABELS)
def test_a_label_comes_back_from_its_text(label: PhaseLabel) -> None:
    assert read_label(label.written) == label


@pytest.mark.parametrize(
    "written",
    [
        "",
        "exclusive",
        "exclusive::learner",
        "exclusive::learner:",
        "exclusive::learner://",
        "exclusive:::a",
        "sometimes::learner:a",
        "exclusive:play:learner:a",
        "exclusive::learner:\udc80",
    ],
)
def test_what_is_no_label_is_none(written: str) -> None:
    assert read_label(written) is None


def test_a_phase_is_named_by_its_role_its_name_and_its_kind() -> None:
    label = PhaseLabel("collector", "env_step", "exclusive")
    attributes = {"rl.role": "collector", "rl.phase": "env_step", "rl.phase.kind": "exclusive"}
    assert phase_series(label) == [("rl.phase.duration", attributes)]


def test_a_phase_that_is_a_part_of_the_proposal_has_that_name_too() -> None:
    names = [name for name, _ in phase_series(PhaseLabel("learner", "learning", "exclusive", "train"))]
    assert names == ["rl.phase.duration", "rl.train.duration"]


def test_the_parts_of_other_roles_say_whose_they_are() -> None:
    """A learner that absorbed a rollout worker's times has both in one process."""
    learner = phase_series(PhaseLabel("learner", "sample", "exclusive", "sample"))
    rollout = phase_series(PhaseLabel("rollout", "session", "loop", "sample"))
    assert learner[1] == ("rl.sample.duration", {})
    assert rollout == [("rl.sample.duration", {"rl.role": "rollout"})]


def test_a_loop_is_no_phase_unless_it_has_no_other_name() -> None:
    assert phase_series(PhaseLabel("learner", "iteration", "loop", "loop")) == [("rl.loop.duration", {})]
    (name, attributes), *more = phase_series(PhaseLabel("learner", "iteration", "loop"))
    assert (name, attributes["rl.phase.kind"], more) == ("rl.phase.duration", "loop", [])


def test_a_label_says_in_words_what_it_is() -> None:
    assert str(PhaseLabel("learner", "a", "nested", "train")) == 'the nested phase "a" of the learner'
    assert str(PhaseLabel("rollout", "session", "loop")) == 'the loop "session" of the rollout'
