from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Any

import pytest
from opentelemetry import context, trace

from rltel.core.context import current, span_context, with_span
from rltel.core.errors import PhaseError
from rltel.record.kinds import PHASE_MS, PHASE_S, TIMING
from rltel.record.phase_sets import SAC_COLLECTOR, SAC_LEARNER, Phase, PhaseSet, phase_set
from rltel.record.phases import PhaseClock
from rltel.record.recorder import End, Recorder
from rltel.record.tracker import Tracker

Taken = Callable[..., dict[str, float]]


@pytest.fixture
def learner(tracker: Tracker, recorder: Recorder) -> PhaseClock:
    return PhaseClock(phase_set("sac", "learner"), tracker, recorder)


@pytest.fixture
def collector(tracker: Tracker, recorder: Recorder) -> PhaseClock:
    return PhaseClock(phase_set("sac", "collector"), tracker, recorder)


class TestSets:
    def test_the_learners_of_sac(self) -> None:
        assert {phase.name: (phase.kind, phase.key) for phase in SAC_LEARNER.phases} == {
            "collector_wait": ("exclusive", "Perf/learner_collector_wait_ms"),
            "inference": ("exclusive", "Perf/learner_inference_ms"),
            "collector_release": ("exclusive", "Perf/learner_collector_release_ms"),
            "replay_batch_wait": ("exclusive", "Perf/learner_replay_batch_wait_ms"),
            "replay_sample": ("exclusive", "Perf/learner_replay_sample_ms"),
            "learning": ("exclusive", "Perf/learning_time"),
            "inference_h2d": ("nested", "Perf/learner_inference_h2d_ms"),
            "inference_forward": ("nested", "Perf/learner_inference_forward_ms"),
            "inference_d2h": ("nested", "Perf/learner_inference_d2h_ms"),
            "replay_ingress_h2d_submit": ("background", "Perf/replay_ingress_h2d_submit_ms"),
        }
        assert (SAC_LEARNER.loop, SAC_LEARNER.loop_key) == ("iteration", "Perf/iteration_time")

    def test_the_collectors_of_sac(self) -> None:
        exclusive = [phase.key for phase in SAC_COLLECTOR.phases if phase.kind == "exclusive"]
        assert exclusive == [
            "Perf/collector_inference_request_ms",
            "Perf/collector_learner_action_wait_ms",
            "Perf/collector_env_step_ms",
            "Perf/collector_transition_extract_ms",
            "Perf/collector_replay_write_ms",
            "Perf/collector_metrics_publish_ms",
        ]
        nested = {phase.key: phase.parent for phase in SAC_COLLECTOR.phases if phase.kind == "nested"}
        parts = ("action_validate", "apply_action", "action_backend", "backend", "update_state", "reset_done")
        assert nested == {f"Perf/collector_env_step_{part}_ms": "env_step" for part in parts}
        assert (SAC_COLLECTOR.loop, SAC_COLLECTOR.loop_key) == ("cycle", None)

    @pytest.mark.parametrize("each", [SAC_LEARNER, SAC_COLLECTOR], ids=lambda each: each.role)
    def test_a_key_in_ms_is_a_view_of_seconds(self, each: PhaseSet) -> None:
        for phase in each.phases:
            assert phase.metric is (PHASE_MS if phase.key.endswith("_ms") else PHASE_S)

    @pytest.mark.parametrize("each", [SAC_LEARNER, SAC_COLLECTOR], ids=lambda each: each.role)
    def test_a_nested_phase_is_a_child_of_an_exclusive_one(self, each: PhaseSet) -> None:
        for phase in each.phases:
            assert (phase.parent is not None) is (phase.kind == "nested")
            if phase.parent is not None:
                assert each.by_name[phase.parent].kind == "exclusive"

    @pytest.mark.parametrize(("role", "loop"), [("learner", "iteration"), ("collector", "cycle")])
    def test_of_ones_own(self, role: str, loop: str) -> None:
        own = phase_set(["rollout", "update"], role)
        assert [(phase.kind, phase.key, phase.metric) for phase in own.phases] == [
            ("exclusive", "timeperf/rollout", TIMING),
            ("exclusive", "timeperf/update", TIMING),
        ]
        assert (own.loop, own.loop_key) == (loop, f"timeperf/{loop}")
        assert phase_set(own, role) is own

    def test_unknown(self) -> None:
        with pytest.raises(
            PhaseError, match=r'no set "nope" for the role learner; have sac, or give the names of your own'
        ):
            phase_set("nope", "learner")
        with pytest.raises(PhaseError, match=r'no set "sac" for the role critic; have none'):
            phase_set("sac", "critic")

    @pytest.mark.parametrize("names", [["a", "a"], ["iteration"], ["a", "b", "a"]])
    def test_two_times_under_one_key_are_refused(self, names: list[str]) -> None:
        """They would be averaged together."""
        with pytest.raises(PhaseError, match=f"expected each key once, got twice: timeperf/{names[0]}"):
            phase_set(names, "learner")

    def test_an_empty_name_is_refused(self) -> None:
        with pytest.raises(PhaseError, match="expected names that are not empty, got ''"):
            phase_set(["a", ""], "learner")


class TestClock:
    def test_times_go_to_the_tracker_when_the_iteration_ends(
        self, learner: PhaseClock, taken: Taken, clock: Any
    ) -> None:
        with learner.iteration(step=0):
            with learner.phase("collector_wait"):
                clock.tick(0.25)
            assert taken() == {}
            with learner.phase("learning"):
                clock.tick(0.5)
            clock.tick(0.25)
        assert taken() == pytest.approx(
            {"Perf/iteration_time": 1.0, "Perf/learner_collector_wait_ms": 250.0, "Perf/learning_time": 0.5}
        )

    def test_a_phase_that_is_entered_again_adds_up(self, learner: PhaseClock, taken: Taken, clock: Any) -> None:
        with learner.iteration():
            for _ in range(3):
                with learner.phase("learning"):
                    clock.tick(0.5)
        assert taken()["Perf/learning_time"] == 1.5
        assert learner.overlaps == 0

    def test_iterations_are_averaged(self, learner: PhaseClock, taken: Taken, clock: Any) -> None:
        for seconds in (1.0, 2.0, 6.0):
            with learner.iteration(), learner.phase("learning"):
                clock.tick(seconds)
        assert taken() == {"Perf/iteration_time": 3.0, "Perf/learning_time": 3.0}

    def test_a_phase_that_did_not_run_is_no_zero(self, learner: PhaseClock, taken: Taken, clock: Any) -> None:
        for name in ("learning", "replay_sample", "learning"):
            with learner.iteration(), learner.phase(name):
                clock.tick(1.0)
        assert taken() == {
            "Perf/iteration_time": 1.0,
            "Perf/learning_time": 1.0,
            "Perf/learner_replay_sample_ms": 1000.0,
        }

    def test_have_histograms_in_seconds(self, learner: PhaseClock, tracker: Tracker, clock: Any) -> None:
        with learner.iteration(), learner.phase("inference"):
            clock.tick(0.5)
        state = tracker.take()["Perf/learner_inference_ms"]
        assert state.moments[0] == 0.5
        assert sum(state.buckets.values()) == 1.0

    def test_nested_phases_are_not_added_to_the_iteration(self, learner: PhaseClock, taken: Taken, clock: Any) -> None:
        with learner.iteration(), learner.phase("inference"):
            for name in ("inference_h2d", "inference_forward", "inference_d2h"):
                with learner.phase(name):
                    clock.tick(0.5)
        assert learner.overlaps == 0
        assert taken() == {
            "Perf/iteration_time": 1.5,
            "Perf/learner_inference_ms": 1500.0,
            "Perf/learner_inference_h2d_ms": 500.0,
            "Perf/learner_inference_forward_ms": 500.0,
            "Perf/learner_inference_d2h_ms": 500.0,
        }

    def test_background_phases_run_anywhere(self, learner: PhaseClock, taken: Taken, clock: Any) -> None:
        def ingests() -> None:
            with learner.phase("replay_ingress_h2d_submit"), learner.phase("replay_ingress_h2d_submit"):
                clock.tick(0.5)

        ingests()  # outside of an iteration
        with learner.iteration(), learner.phase("learning"):
            thread = threading.Thread(target=ingests)
            thread.start()
            thread.join()
        assert taken() == {
            "Perf/replay_ingress_h2d_submit_ms": 500.0,
            "Perf/iteration_time": 0.5,
            "Perf/learning_time": 0.5,
        }
        assert learner.overlaps == 0

    def test_a_collector_has_cycles(self, collector: PhaseClock, taken: Taken, clock: Any) -> None:
        with collector.cycle():
            with collector.phase("env_step"), collector.phase("backend_step"):
                clock.tick(0.5)
            clock.tick(1.0)
        assert taken() == {"Perf/collector_env_step_ms": 500.0, "Perf/collector_env_step_backend_ms": 500.0}

    def test_a_set_of_ones_own(self, tracker: Tracker, recorder: Recorder, taken: Taken, clock: Any) -> None:
        own = PhaseClock(phase_set(["rollout"], "learner"), tracker, recorder)
        for seconds in (1.0, 2.0):
            with own.iteration(), own.phase("rollout"):
                clock.tick(seconds)
        assert taken() == {
            "timeperf/rollout": 1.5,
            "timeperf/rollout__count": 2,
            "timeperf/iteration": 1.5,
            "timeperf/iteration__count": 2,
        }

    def test_an_own_phase_set(self, tracker: Tracker, recorder: Recorder, taken: Taken, clock: Any) -> None:
        phases = (Phase("a", "exclusive", "x/a_ms", PHASE_MS), Phase("b", "nested", "x/b", PHASE_S, "a"))
        own = PhaseClock(PhaseSet("mine", "learner", "round", "x/round", phases), tracker, recorder)
        with own.iteration(), own.phase("a"), own.phase("b"):
            clock.tick(0.5)
        assert taken() == {"x/a_ms": 500.0, "x/b": 0.5, "x/round": 0.5}

    def test_times_of_an_iteration_that_fails_are_recorded(self, learner: PhaseClock, taken: Taken, clock: Any) -> None:
        with pytest.raises(ZeroDivisionError), learner.iteration(), learner.phase("learning"):
            clock.fail_after(1.0)
        assert taken() == {"Perf/iteration_time": 1.0, "Perf/learning_time": 1.0}
        with learner.iteration(), learner.phase("learning"):
            clock.tick(3.0)
        assert taken() == {"Perf/iteration_time": 3.0, "Perf/learning_time": 3.0}
        assert learner.overlaps == 0


class TestMistakes:
    @pytest.mark.parametrize("name", ["learning", "inference_h2d"])
    def test_outside_of_an_iteration(self, learner: PhaseClock, taken: Taken, clock: Any, name: str) -> None:
        for _ in range(2):
            with (
                pytest.raises(PhaseError, match=rf'phase "{name}": entered outside .*"with clock\.iteration\(\):"'),
                learner.phase(name),
            ):
                clock.tick(1.0)
            with learner.iteration():
                pass
        assert taken() == {"Perf/iteration_time": 0.0}
        assert learner.overlaps == 0

    def test_outside_of_a_cycle(self, collector: PhaseClock) -> None:
        with pytest.raises(PhaseError, match=r"clock\.cycle\(\)"), collector.phase("env_step"):
            pass

    def test_an_unknown_phase(self, learner: PhaseClock) -> None:
        with pytest.raises(PhaseError, match=r'the set "sac" of the learner has no "env_step"; have collector_wait, '):
            learner.phase("env_step")

    def test_an_iteration_inside_another(self, learner: PhaseClock, taken: Taken) -> None:
        with learner.iteration():
            with pytest.raises(PhaseError, match="iteration: entered again before the last one ended"):
                learner.iteration().__enter__()
            assert current() is not None
        assert taken() == {"Perf/iteration_time": 0.0}

    def test_overlap_is_counted_and_reported_once(
        self, learner: PhaseClock, taken: Taken, clock: Any, caplog: pytest.LogCaptureFixture
    ) -> None:
        with caplog.at_level(logging.WARNING, "rltel"):
            for _ in range(3):
                with learner.iteration(), learner.phase("inference"), learner.phase("learning"):
                    clock.tick(1.0)
        assert learner.overlaps == 3
        assert len(caplog.records) == 1
        assert "phase learning of the learner was entered while another exclusive phase was open" in caplog.text
        assert taken() == {
            "Perf/iteration_time": 1.0,
            "Perf/learning_time": 1.0,
            "Perf/learner_inference_ms": 1000.0,
        }

    def test_a_phase_inside_itself_is_an_overlap(self, learner: PhaseClock, taken: Taken, clock: Any) -> None:
        with learner.iteration(), learner.phase("learning"):
            clock.tick(1.0)
            with learner.phase("learning"):
                clock.tick(1.0)
        assert learner.overlaps == 1
        assert taken()["Perf/learning_time"] == 3.0


class TestTimeline:
    def test_one_reading_serves_slice_and_number(
        self, learner: PhaseClock, taken: Taken, recorder: Recorder, clock: Any
    ) -> None:
        recorder.start()
        with learner.iteration(step=7):
            clock.tick(0.125)
            with learner.phase("inference", flow=5, policy=3):
                clock.tick(0.25)
        assert clock.readings == 4
        loop, phase, phase_end, loop_end = recorder.here().take()
        assert phase == (1_125_000_000, "inference", "exclusive", (5,), {"policy": 3})
        assert loop[1:3] == ("iteration", "rl.loop")  # type: ignore[index]
        assert loop[4]["rl.loop.iteration"] == 7  # type: ignore[index]
        assert taken() == {
            "Perf/learner_inference_ms": (phase_end - phase[0]) / 1e6,  # type: ignore[operator,index]
            "Perf/iteration_time": (loop_end - loop[0]) / 1e9,  # type: ignore[operator,index]
        }

    def test_what_was_said_of_a_phase_is_not_said_of_the_next(self, learner: PhaseClock, recorder: Recorder) -> None:
        recorder.start()
        with learner.iteration():
            with learner.phase("learning", flow=[1, 2], k="v"):
                pass
            with learner.phase("learning"):
                pass
        begins = [record for record in recorder.here().take() if isinstance(record, tuple) and record[1] == "learning"]
        assert [begin[3:] for begin in begins] == [((1, 2), {"k": "v"}), (None, None)]

    def test_an_exception_is_noted_on_both(self, learner: PhaseClock, recorder: Recorder) -> None:
        recorder.start()
        with pytest.raises(ZeroDivisionError), learner.iteration(), learner.phase("learning"):
            raise ZeroDivisionError
        _, _, phase_end, loop_end = recorder.here().take()
        assert phase_end == loop_end == End(1_000_000_000, {"error": "ZeroDivisionError"})

    def test_switched_on_in_the_middle(self, learner: PhaseClock, recorder: Recorder) -> None:
        with learner.iteration(), learner.phase("inference"):
            recorder.start()
            with learner.phase("inference_h2d"):
                recorder.stop()
        assert [record[1] if isinstance(record, tuple) else "-" for record in recorder.here().take()] == [
            "inference_h2d",
            "-",
        ]


class TestTraceContext:
    def test_of_an_iteration_is_in_place_inside(self, learner: PhaseClock, recorder: Recorder) -> None:
        recorder.start()
        assert current() is None
        with learner.iteration() as iteration:
            here = trace.get_current_span().get_span_context()
            assert here == iteration.context
            assert here.is_valid
            assert here.trace_flags.sampled
            with learner.phase("learning"):
                assert trace.get_current_span().get_span_context() == here  # phases are too many
        assert current() is None
        attributes = recorder.here().take()[0][4]  # type: ignore[index]
        assert attributes == {"trace_id": f"{here.trace_id:032x}", "span_id": f"{here.span_id:016x}"}

    def test_of_an_iteration_ends_with_an_exception(self, learner: PhaseClock) -> None:
        with pytest.raises(KeyError), learner.iteration():
            raise KeyError
        assert current() is None

    def test_continues_the_users_trace(self, learner: PhaseClock) -> None:
        token = context.attach(with_span(span_context(0xABC, 0xDEF)))
        try:
            with learner.iteration() as iteration:
                assert iteration.context.trace_id == 0xABC
                assert iteration.context.span_id != 0xDEF
            assert current() == span_context(0xABC, 0xDEF)
        finally:
            context.detach(token)

    def test_of_two_iterations_differ(self, learner: PhaseClock) -> None:
        contexts = []
        for _ in range(2):
            with learner.iteration() as iteration:
                contexts.append(iteration.context)
        assert contexts[0].trace_id != contexts[1].trace_id
        assert contexts[0].span_id != contexts[1].span_id


# --- vectors V01 and V02, from runs of unilab 1.5.2: names of its profile, phases of ours

UNILAB_PHASES = {
    "collector_wait_time": "collector_wait",
    "inference_time": "inference",
    "sync_coordination_time": "collector_release",
    "replay_batch_wait_time": "replay_batch_wait",
    "learner_replay_sample_time": "replay_sample",
    "train_time": "learning",
}
V01_SECONDS = {
    "collector_wait_time": 0.0012,
    "inference_time": 0.0034,
    "sync_coordination_time": 0.0001,
    "replay_batch_wait_time": 0.0003,
    "learner_replay_sample_time": 0.0005,
    "train_time": 0.04,
}
V01_NESTED = {"inference_h2d": 0.0004, "inference_forward": 0.0025, "inference_d2h": 0.0004}


def test_unilab_v01_persisted_times_and_other(learner: PhaseClock, taken: Taken, clock: Any) -> None:
    """Without Perf/total_fps, which is a gauge of the trainer's."""
    with learner.iteration():
        for name, seconds in V01_SECONDS.items():
            with learner.phase(UNILAB_PHASES[name]):
                inner = V01_NESTED if name == "inference_time" else {}
                for nested, nested_seconds in inner.items():
                    with learner.phase(nested):
                        clock.tick(nested_seconds)
                clock.tick(seconds - sum(inner.values()))
        with learner.phase("replay_ingress_h2d_submit"):
            clock.tick(0.0022)
        clock.tick(0.05 - sum(V01_SECONDS.values()) - 0.0022)
    found = taken()
    assert found == pytest.approx(
        {
            "Perf/learner_collector_wait_ms": 1.2,
            "Perf/learner_inference_ms": 3.4,
            "Perf/learner_collector_release_ms": 0.1,
            "Perf/learner_replay_batch_wait_ms": 0.3,
            "Perf/learner_replay_sample_ms": 0.5,
            "Perf/learning_time": 0.04,
            "Perf/learner_inference_h2d_ms": 0.4,
            "Perf/learner_inference_forward_ms": 2.5,
            "Perf/learner_inference_d2h_ms": 0.4,
            "Perf/replay_ingress_h2d_submit_ms": 2.2,
            "Perf/iteration_time": 0.05,
        },
        abs=1e-9,
    )
    exclusive = accounted_seconds(found)
    assert exclusive == pytest.approx(0.0455, abs=1e-9)
    assert found["Perf/iteration_time"] - exclusive == pytest.approx(0.0045, abs=1e-9)
    assert learner.overlaps == 0


def test_unilab_v02_more_accounted_than_wall_is_a_violation(learner: PhaseClock, taken: Taken, clock: Any) -> None:
    with learner.iteration():
        waits, learns = learner.phase("collector_wait"), learner.phase("learning")
        waits.__enter__()
        clock.tick(0.02)
        learns.__enter__()
        clock.tick(0.01)
        waits.__exit__(None, None, None)
        clock.tick(0.02)
        learns.__exit__(None, None, None)
    found = taken()
    assert found["Perf/iteration_time"] == pytest.approx(0.05, abs=1e-9)
    assert accounted_seconds(found) == pytest.approx(0.06, abs=1e-9)
    assert learner.overlaps == 1


def accounted_seconds(found: dict[str, float]) -> float:
    exclusive = (phase for phase in SAC_LEARNER.phases if phase.kind == "exclusive")
    return sum(found.get(phase.key, 0.0) * (1e-3 if phase.metric is PHASE_MS else 1.0) for phase in exclusive)
