"""Phases and sets of them: what goes along with their times, and what is refused."""

import dataclasses
from typing import Any

import pytest

from rltel.core.errors import PhaseError
from rltel.names.phases import PhaseLabel
from rltel.record.kinds import AVG, PHASE_MS, PHASE_S, TIMING
from rltel.record.phase import Phase, PhaseSet

A = Phase("a", "exclusive", "my/a", PHASE_S, rl="train")
B = Phase("b", "nested", "my/b_ms", PHASE_MS, "a")


def own(*phases: Phase, **changed: Any) -> PhaseSet:
    known = {"name": "own", "role": "learner", "loop": "round", "loop_key": "my/round", "phases": phases}
    return PhaseSet(**{**known, **changed})


def changed(phase: Phase, **fields: Any) -> Phase:
    return dataclasses.replace(phase, **fields)


class TestKinds:
    def test_of_a_phase_is_its_view_with_its_label(self) -> None:
        phases = own(A, B)
        assert phases.metrics["a"].phase == PhaseLabel("learner", "a", "exclusive", "train")
        assert phases.metrics["b"].phase == PhaseLabel("learner", "b", "nested", None)
        for phase in (A, B):
            kind = phases.metrics[phase.name]
            assert (kind.suffixes, kind.keeps, kind.finish) == (
                phase.metric.suffixes,
                phase.metric.keeps,
                phase.metric.finish,
            )

    def test_of_the_loop(self) -> None:
        loop = own(A).loop_metric
        assert loop is not None
        assert loop.phase == PhaseLabel("learner", "round", "loop", "loop")
        assert own(A, loop_key=None).loop_metric is None

    @pytest.mark.parametrize(("key", "view"), [("timeperf/x", TIMING), ("x_ms", PHASE_MS), ("Perf/x_time", PHASE_S)])
    def test_a_loops_key_says_how_it_is_shown(self, key: str, view: Any) -> None:
        loop = own(loop_key=key).loop_metric
        assert loop is not None
        assert loop.finish is view.finish

    def test_two_equal_sets_have_the_same_kinds(self) -> None:
        """Kinds are compared by identity: two clocks of one set record into the same keys."""
        one, other = own(A, B), own(A, B)
        assert all(one.metrics[name] is other.metrics[name] for name in ("a", "b"))
        assert one.loop_metric is other.loop_metric

    def test_roles_differ(self) -> None:
        assert own(A).metrics["a"] is not own(A, role="collector").metrics["a"]


REFUSED = [
    ({"role": ""}, (A,), "role: expected text without a colon, got ''"),
    ({"role": "a:b"}, (A,), "role: expected text without a colon, got 'a:b'"),
    ({"role": "\udc80"}, (A,), "role: expected text without a colon"),
    ({"loop": "/"}, (A,), "expected names that are not empty, got '/'"),
    ({}, (changed(A, name=""),), "expected names that are not empty, got ''"),
    ({}, (changed(A, name="\udc80"),), "expected names that are not empty"),
    ({}, (A, A), "expected each key once, got twice: my/a"),
    ({"loop_key": "my/a"}, (A,), "expected each key once, got twice: my/a"),
    ({}, (A, changed(A, key="my/c")), "expected each name once, got twice: a"),
    ({"loop_rl": "play"}, (A,), "loop_rl: expected one of loop, step, sample, reward, train, sync, None, got 'play'"),
    ({}, (changed(A, rl="play"),), "\"a\": rl: expected one of loop, .*, got 'play'"),
    ({}, (changed(A, kind="seldom"),), "kind: expected one of exclusive, nested, background, got 'seldom'"),
    ({}, (changed(A, metric=AVG),), "metric: expected TIMING, PHASE_S or PHASE_MS, got avg"),
    ({}, (changed(A, metric=own(A).metrics["a"]),), "metric: expected TIMING, PHASE_S or PHASE_MS, got the exclusive"),
    ({}, (changed(A, parent="b"),), "parent: expected none for a phase that is exclusive, got 'b'"),
    ({}, (B,), "\"b\": parent: expected a phase listed before it that is not background, got 'a'; have none"),
    ({}, (B, A), "got 'a'; have none"),
    ({}, (A, changed(B, parent="b")), "got 'b'; have a"),
    ({}, (changed(A, kind="background"), B), "got 'a'; have none"),
]


@pytest.mark.parametrize(("fields", "phases", "message"), REFUSED, ids=[message for *_, message in REFUSED])
def test_refused(fields: dict[str, Any], phases: tuple[Phase, ...], message: str) -> None:
    with pytest.raises(PhaseError, match=f'set "own".*{message}'):
        own(*phases, **fields)


def test_a_nested_phase_may_have_a_nested_parent_or_none() -> None:
    own(A, B, Phase("c", "nested", "my/c", PHASE_S, "b"), Phase("d", "nested", "my/d", PHASE_S))
