from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry import context, trace
from tests.realparts.lane_reading import Reading, read

from rltel.core.context import current, span_context, with_span
from rltel.core.errors import PhaseError, RecordError
from rltel.record.kinds import PHASE_MS, PHASE_S
from rltel.record.phase_sets import SAC_LEARNER, Phase, PhaseSet, phase_set
from rltel.record.phases import PhaseClock
from rltel.record.recorder import Recorder
from rltel.record.records import Begin
from rltel.record.tracker import Tracker

Taken = Callable[..., dict[str, float]]


@pytest.fixture
def learner(tracker: Tracker, recorder: Recorder) -> PhaseClock:
    return PhaseClock(phase_set("sac", "learner"), tracker, recorder)


@pytest.fixture
def collector(tracker: Tracker, recorder: Recorder) -> PhaseClock:
    return PhaseClock(phase_set("sac", "collector"), tracker, recorder)


@pytest.fixture
def rollouts(tracker: Tracker, recorder: Recorder) -> PhaseClock:
    return PhaseClock(phase_set("appo", "collector"), tracker, recorder)


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

    @pytest.mark.parametrize("step", ["1", 1.5, object(), -1, True, 2**63])
    def test_a_step_that_is_no_number_is_refused_and_the_clock_goes_on(self, learner: PhaseClock, step: Any) -> None:
        with pytest.raises(PhaseError, match="iteration: step: expected a whole number"):
            learner.iteration(step=step)
        with learner.iteration(step=1):
            pass

    def test_a_phase_with_a_flow_that_is_none_is_not_open_afterwards(
        self, learner: PhaseClock, taken: Taken, clock: Any
    ) -> None:
        with learner.iteration():
            with pytest.raises(RecordError, match="flow"):
                learner.phase("learning", flow="no id")  # type: ignore[arg-type]  # as a program may
            with pytest.raises(PhaseError, match="is not open"), learner.device_wait("inference", inside="learning"):
                pass

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

    def test_one_that_was_refused_is_used_again(self, learner: PhaseClock) -> None:
        refused = learner.phase("learning")
        with pytest.raises(PhaseError):
            refused.__enter__()
        assert learner.phase("learning") is refused

    def test_outside_of_a_cycle(self, collector: PhaseClock) -> None:
        with pytest.raises(PhaseError, match=r"clock\.cycle\(\)"), collector.phase("env_step"):
            pass

    def test_an_unknown_phase(self, learner: PhaseClock) -> None:
        with pytest.raises(PhaseError, match=r'the set "sac" of the learner has no "env_step"; have collector_wait, '):
            learner.phase("env_step")

    def test_a_misspelt_phase(self, learner: PhaseClock) -> None:
        with pytest.raises(PhaseError, match=r'no "learnin" \(did you mean "learning"\?\); have collector_wait, '):
            learner.phase("learnin")

    def test_a_cycle_around_another_is_told_of_sessions(self, collector: PhaseClock) -> None:
        with (
            collector.cycle(),
            pytest.raises(PhaseError, match=r"before the last one ended .* use rltel\.rl\.sessions"),
        ):
            collector.cycle().__enter__()

    def test_an_iteration_that_cannot_be_begun_leaves_the_clock_usable(
        self, learner: PhaseClock, recorder: Recorder
    ) -> None:
        class Broken:
            """A user's tracer that does not work."""

            def start_span(self, *_: Any, **__: Any) -> None:
                raise ZeroDivisionError

        recorder.start()
        recorder.tracer = Broken()  # type: ignore[assignment]
        with pytest.raises(ZeroDivisionError):
            learner.iteration().__enter__()
        recorder.tracer = None
        with learner.iteration():
            pass
        assert read(recorder).names == ["iteration"]

    def test_an_iteration_inside_another(self, learner: PhaseClock, recorder: Recorder, taken: Taken) -> None:
        recorder.start()
        with learner.iteration():
            with pytest.raises(PhaseError, match="iteration: entered again before the last one ended"):
                learner.iteration().__enter__()
            assert current() is not None
        assert taken() == {"Perf/iteration_time": 0.0}

    def test_a_phase_is_for_one_use(self, learner: PhaseClock, taken: Taken, clock: Any) -> None:
        with learner.iteration():
            phase = learner.phase("learning")
            with phase:
                clock.tick(1.0)
            with pytest.raises(PhaseError, match='phase "learning": used for a second time; call phase again'):
                phase.__enter__()
        assert taken()["Perf/learning_time"] == 1.0

    def test_two_of_one_name_that_are_asked_for_before_either_is_entered(
        self, learner: PhaseClock, recorder: Recorder
    ) -> None:
        recorder.start()
        with learner.iteration():
            first, second = learner.phase("learning", k=1), learner.phase("learning", k=2)
            with first, second:
                pass
        assert [drawn.attributes for drawn in read(recorder).all("learning")] == [{"k": 1}, {"k": 2}]
        assert learner.overlaps == 1

    def test_a_phase_that_ends_in_the_next_iteration_overlaps_nothing(self, learner: PhaseClock) -> None:
        left = learner.phase("learning")
        with learner.iteration():
            left.__enter__()
        with learner.iteration():
            left.__exit__(None, None, None)
            for _ in range(3):
                with learner.phase("inference"):
                    pass
        assert learner.overlaps == 0

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
        with learner.iteration(step=7, epoch=1):
            clock.tick(0.125)
            with learner.phase("inference", flow=5, policy=3):
                clock.tick(0.25)
        assert clock.readings == 4
        reading = read(recorder)
        loop, phase = reading.one("iteration"), reading.one("inference")
        assert phase.begin == Begin(1_125_000_000, phase.begin.site, (5,), {"policy": 3})  # type: ignore[union-attr]
        assert (phase.category, loop.category) == ("exclusive", "rl.loop")
        assert loop.attributes == {"rl.loop.iteration": 7, "epoch": 1}
        assert taken() == {
            "Perf/learner_inference_ms": (phase.end_ns - phase.begin_ns) / 1e6,  # type: ignore[operator]
            "Perf/iteration_time": (loop.end_ns - loop.begin_ns) / 1e9,  # type: ignore[operator]
        }

    def test_bare_phases_are_a_site_and_two_times(self, learner: PhaseClock, recorder: Recorder) -> None:
        recorder.start()
        with learner.iteration():
            recorder.here().take()
            for _ in range(2):
                with learner.phase("learning"):
                    pass
            records = recorder.here().take()
        assert records[1:3] == records[4:] == [1_000_000_000] * 2
        assert records[0] is records[3]

    def test_what_was_said_of_a_phase_is_not_said_of_the_next(self, learner: PhaseClock, recorder: Recorder) -> None:
        recorder.start()
        with learner.iteration():
            with learner.phase("learning", flow=[1, 2], k="v") as phase:
                phase.set(late=1)
            with learner.phase("learning"):
                pass
        first, second = read(recorder).all("learning")
        assert (first.begin and first.begin.flows, first.attributes) == ((1, 2), {"k": "v", "late": 1})
        assert (second.begin, second.attributes) == (None, {})

    def test_an_exception_is_noted_on_both(self, learner: PhaseClock, recorder: Recorder) -> None:
        recorder.start()
        with pytest.raises(ZeroDivisionError), learner.iteration(), learner.phase("learning"):
            raise ZeroDivisionError
        assert [drawn.error for drawn in read(recorder).slices] == ["ZeroDivisionError"] * 2

    def test_switched_on_in_the_middle(self, learner: PhaseClock, recorder: Recorder) -> None:
        with learner.iteration(), learner.phase("inference"):
            recorder.start()
            with learner.phase("inference_h2d"):
                recorder.stop()
        assert read(recorder).parents == {"inference_h2d": None}

    def test_what_they_are_of_the_proposal_is_in_their_spans(self, learner: PhaseClock) -> None:
        site = learner._totals["learning"].site
        assert (site.span_name, site.span_attributes) == (
            "rl.train",
            {"rl.phase": "learning", "rl.phase.kind": "exclusive"},
        )
        assert learner._totals["collector_wait"].site.span_name == "collector_wait"
        assert learner._site.span_name == "rl.loop"

    def test_phases_of_tasks_that_overlap_are_each_their_own(self, tracker: Tracker, taken: Taken) -> None:
        recorder = Recorder()
        recorder.start()
        own = PhaseClock(phase_set({"work": "nested"}, "learner"), tracker, recorder)

        async def work(number: int) -> None:
            with own.phase("work", number=number):
                await asyncio.sleep(0)

        async def main() -> None:
            await asyncio.gather(work(1), work(2))

        with own.iteration():
            asyncio.run(main())
        reading = read(recorder)
        assert [drawn.attributes for drawn in reading.all("work")] == [{"number": 1}, {"number": 2}]
        assert {reading.parent(drawn) for drawn in reading.all("work")} == {"iteration"}
        assert taken()["timeperf/work__count"] == 1  # their sum, as of an iteration
        assert not reading.left_open


class TestTraceContext:
    @pytest.fixture(autouse=True)
    def _on(self, recorder: Recorder) -> None:
        recorder.start()

    def test_of_an_iteration_is_in_place_inside(self, learner: PhaseClock, recorder: Recorder) -> None:
        assert current() is None
        with learner.iteration() as iteration:
            here = trace.get_current_span().get_span_context()
            assert here == iteration.context
            assert here.is_valid
            assert here.trace_flags.sampled
            with learner.phase("learning"):
                assert trace.get_current_span().get_span_context() == here  # phases are too many
        assert current() is None
        assert read(recorder).one("iteration").ids == (here.trace_id, here.span_id)

    def test_of_an_iteration_ends_with_an_exception(self, learner: PhaseClock) -> None:
        with pytest.raises(KeyError), learner.iteration():
            raise KeyError
        assert current() is None

    def test_continues_the_users_trace(self, learner: PhaseClock) -> None:
        token = context.attach(with_span(span_context(0xABC, 0xDEF)))
        try:
            with learner.iteration() as iteration:
                assert iteration.context is not None
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
        first, second = contexts
        assert first is not None
        assert second is not None
        assert first.trace_id != second.trace_id
        assert first.span_id != second.span_id


class TestCalls:
    """Phases of which each call is one observation."""

    def test_are_recorded_each_for_itself(self, rollouts: PhaseClock, taken: Taken, clock: Any) -> None:
        with rollouts.cycle():
            for seconds in (1.0, 2.0, 6.0):
                with rollouts.phase("mlp_infer"):
                    clock.tick(seconds)
        assert taken() == {"Perf/collector_mlp_infer_ms": 3000.0, "Perf/collection_time": 9.0}

    def test_also_of_an_iteration_that_fails(self, rollouts: PhaseClock, taken: Taken, clock: Any) -> None:
        with pytest.raises(ZeroDivisionError), rollouts.cycle(), rollouts.phase("mlp_infer"):
            clock.fail_after(1.0)
        with rollouts.cycle():
            pass
        assert taken() == {"Perf/collector_mlp_infer_ms": 1000.0, "Perf/collection_time": 0.5}


class TestDeviceWait:
    def test_moves_time_between_phases(self, collector: PhaseClock, taken: Taken, clock: Any) -> None:
        with collector.cycle(), collector.phase("env_step"):
            with collector.phase("backend_step"):
                clock.tick(0.125)
            with collector.phase("update_state"):
                clock.tick(0.25)
                with collector.device_wait("backend_step", inside="update_state"):
                    clock.tick(1.0)
                clock.tick(0.25)
        assert taken() == {
            "Perf/collector_env_step_ms": 1625.0,
            "Perf/collector_env_step_backend_ms": 1125.0,
            "Perf/collector_env_step_update_state_ms": 500.0,
        }
        assert collector.overlaps == 0

    def test_is_drawn_where_it_is(self, collector: PhaseClock, recorder: Recorder, clock: Any) -> None:
        recorder.start()
        with (
            collector.cycle(),
            collector.phase("env_step"),
            collector.phase("update_state"),
            collector.device_wait("backend_step", inside="update_state"),
        ):
            clock.tick(1.0)
        reading = read(recorder)
        drawn = reading.one("backend_step")
        assert reading.parent(drawn) == "update_state"
        assert (drawn.category, drawn.attributes) == ("nested", {"rl.phase.inside": "update_state"})

    def test_between_parts_of_different_phases_moves_theirs_too(
        self, collector: PhaseClock, taken: Taken, clock: Any
    ) -> None:
        """The wait is the environment step's, wherever the outputs are read first."""
        with collector.cycle():
            with collector.phase("env_step"), collector.phase("backend_step"):
                clock.tick(0.125)
            with collector.phase("transition_extract"):
                clock.tick(0.25)
                with collector.device_wait("backend_step", inside="transition_extract"):
                    clock.tick(1.0)
        assert taken() == {
            "Perf/collector_env_step_ms": 1125.0,
            "Perf/collector_env_step_backend_ms": 1125.0,
            "Perf/collector_transition_extract_ms": 250.0,
        }
        assert collector.overlaps == 0

    def test_of_calls_that_are_recorded_each_for_itself_belongs_to_the_last(
        self, rollouts: PhaseClock, tracker: Tracker, clock: Any
    ) -> None:
        with rollouts.cycle():
            for wait in (1.0, 2.0):
                with rollouts.phase("env_step"):
                    with rollouts.phase("backend_step"):
                        clock.tick(0.25)
                    with rollouts.phase("update_state"):
                        clock.tick(0.5)
                        with rollouts.device_wait("backend_step", inside="update_state"):
                            clock.tick(wait)
        taken = tracker.take()
        parts = ("env_step_backend", "env_step_update_state", "env_step")
        moments = [taken[f"Perf/collector_{part}_ms"].moments for part in parts]
        sums_counts_maxima = [(each[0], each[1], each[3]) for each in moments]
        assert sums_counts_maxima == [(3.5, 2, 2.25), (1.0, 2, 0.5), (4.5, 2, 2.75)]

    def test_of_a_call_that_was_none_yet_is_one(self, rollouts: PhaseClock, taken: Taken, clock: Any) -> None:
        with (
            rollouts.cycle(),
            rollouts.phase("env_step"),
            rollouts.phase("update_state"),
            rollouts.device_wait("backend_step", inside="update_state"),
        ):
            clock.tick(1.0)
        found = taken()
        assert found["Perf/collector_env_step_backend_ms"] == 1000.0
        assert found["Perf/collector_env_step_update_state_ms"] == 0.0

    def test_that_fails_is_counted(self, collector: PhaseClock, taken: Taken, clock: Any) -> None:
        def fails() -> None:
            with (
                collector.cycle(),
                collector.phase("env_step"),
                collector.phase("update_state"),
                collector.device_wait("backend_step", inside="update_state"),
            ):
                clock.fail_after(1.0)

        for _ in range(2):
            with pytest.raises(ZeroDivisionError):
                fails()
        assert taken() == {
            "Perf/collector_env_step_ms": 1000.0,
            "Perf/collector_env_step_backend_ms": 1000.0,
            "Perf/collector_env_step_update_state_ms": 0.0,
        }

    def test_needs_phases_of_the_set(self, collector: PhaseClock) -> None:
        for name, inside in (("x", "env_step"), ("env_step", "x")):
            with pytest.raises(PhaseError, match='device_wait: the set "sac" of the collector has no "x"; have '):
                collector.device_wait(name, inside=inside)

    def test_needs_phases_that_add_up_to_something(self, learner: PhaseClock) -> None:
        with pytest.raises(PhaseError, match='device_wait: "replay_ingress_h2d_submit" is a background phase'):
            learner.device_wait("replay_ingress_h2d_submit", inside="learning")

    def test_needs_to_be_inside(self, collector: PhaseClock, taken: Taken, clock: Any) -> None:
        wait = collector.device_wait("backend_step", inside="update_state")
        with pytest.raises(PhaseError, match=r"entered outside of its cycle"):
            wait.__enter__()
        with collector.cycle():
            with collector.phase("update_state"):
                clock.tick(1.0)
            with pytest.raises(PhaseError, match='device_wait: "update_state" is not open; enter it around the wait'):
                wait.__enter__()
        assert taken() == {"Perf/collector_env_step_update_state_ms": 1000.0}


# --- whatever the phases are, the sums are right

EXCLUSIVE = ("collector_wait", "inference", "learning", "replay_sample")
NESTED = ("inference_h2d", "inference_forward", "dp_gradient_sync")
STEPS = st.lists(
    st.tuples(
        st.sampled_from(["exclusive", "nested", "background", "wait", "nothing", "fails"]),
        st.integers(0, 10),
        st.integers(0, 10**9),
    ),
    max_size=30,
)


@given(STEPS, st.booleans())
def test_exclusive_phases_and_the_rest_are_the_whole_iteration(steps: list[tuple[str, int, int]], is_on: bool) -> None:
    """And what is drawn is what is counted, to the nanosecond."""
    now = 0

    def tick(by: int) -> int:
        nonlocal now
        now += by
        return now

    recorder = Recorder(lambda: now)
    if is_on:
        recorder.start()
    tracker = Tracker(recorder=recorder)
    learner = PhaseClock(SAC_LEARNER, tracker, recorder)
    elsewhere = 0
    with learner.iteration(step=1):
        for what, which, duration in steps:
            if what == "nothing":
                elsewhere += duration
                tick(duration)
                continue
            outer = EXCLUSIVE[which % len(EXCLUSIVE)]
            with suppress(ZeroDivisionError), learner.phase(outer):
                tick(duration)
                if what == "nested":
                    with learner.phase(NESTED[which % len(NESTED)]):
                        tick(duration)
                elif what == "background":
                    with learner.phase("replay_ingress_h2d_submit"):
                        tick(duration)
                elif what == "wait":
                    with learner.device_wait(EXCLUSIVE[(which + 1) % len(EXCLUSIVE)], inside=outer):
                        tick(duration)
                elif what == "fails":
                    raise ZeroDivisionError
    totals = {name: total.spent_ns for name, total in learner._totals.items()}
    assert learner.overlaps == 0
    assert sum(totals[name] for name in EXCLUSIVE) + elsewhere == now
    assert all(totals[name] >= 0 for name in totals)
    if is_on:
        _check_drawn(read(recorder), totals, now)


def _check_drawn(reading: Reading, totals: dict[str, int], now: int) -> None:
    drawn = dict.fromkeys(totals, 0)
    for each in reading.slices:
        assert each.end_ns is not None
        if each.name == "iteration":
            assert (each.begin_ns, each.end_ns) == (0, now)
            continue
        drawn[each.name] += each.end_ns - each.begin_ns
        if "rl.phase.inside" in each.attributes:
            drawn[each.attributes["rl.phase.inside"]] -= each.end_ns - each.begin_ns
    del drawn["replay_ingress_h2d_submit"]
    assert drawn == {name: totals[name] for name in drawn}


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
