from __future__ import annotations

import pytest
from tests.realparts.lane_reading import Reading, read

from rltel.record.phase_sets import SAC_COLLECTOR, SAC_LEARNER, PhaseSet
from rltel.record.phases import PhaseClock
from rltel.record.recorder import Recorder
from rltel.record.tracker import Tracker
from rltel.record.window import Window


def steps(reading: Reading, loop: str = "iteration") -> list[int | None]:
    return [drawn.attributes.get("rl.loop.iteration") for drawn in reading.all(loop)]


@pytest.fixture
def learner(tracker: Tracker, recorder: Recorder) -> PhaseClock:
    return PhaseClock(SAC_LEARNER, tracker, recorder)


@pytest.fixture
def collector(tracker: Tracker, recorder: Recorder) -> PhaseClock:
    return PhaseClock(SAC_COLLECTOR, tracker, recorder)


def test_only_these_iterations_are_traced_with_what_is_between_them(learner: PhaseClock, recorder: Recorder) -> None:
    recorder.start(steps=[2, 4])
    for step in range(7):
        with recorder.slice(f"before {step}"):
            pass
        with learner.iteration(step), learner.phase("learning"), recorder.slice(f"in {step}"):
            pass
    reading = read(recorder)
    assert steps(reading) == [2, 3, 4]
    others = [name for name in reading.names if name not in ("iteration", "learning")]
    assert others == ["in 2", "before 3", "in 3", "before 4", "in 4"]
    assert not reading.left_open


def test_an_iteration_that_fails_is_over_too(learner: PhaseClock, recorder: Recorder) -> None:
    recorder.start(steps=[0, 0])
    with pytest.raises(KeyError), learner.iteration(0):
        raise KeyError
    assert not recorder.on
    assert read(recorder).one("iteration").error == "KeyError"


def test_steps_that_go_back_are_traced_again(learner: PhaseClock, recorder: Recorder) -> None:
    recorder.start(steps=[2, 2])
    for step in (1, 2, 3, 2, 9):
        with learner.iteration(step):
            pass
    assert steps(read(recorder)) == [2, 2]


def test_cycles_without_numbers_are_counted_from_zero(collector: PhaseClock, recorder: Recorder) -> None:
    recorder.start(steps=[2, 4])
    for number in range(7):
        with collector.cycle(), recorder.slice(f"in {number}"):
            pass
    reading = read(recorder)
    assert [name for name in reading.names if name != "cycle"] == ["in 2", "in 3", "in 4"]
    assert steps(reading, "cycle") == [None] * 3


def test_a_number_sets_the_count(learner: PhaseClock, recorder: Recorder) -> None:
    recorder.start(steps=[11, 12])
    for step in (10, None, None, None):
        with learner.iteration(step):
            pass
    assert len(read(recorder).all("iteration")) == 2


def test_iterations_with_numbers_set_the_pace_for_those_without(
    learner: PhaseClock, collector: PhaseClock, recorder: Recorder
) -> None:
    recorder.start(steps=[1, 1])
    for step in range(4):
        with learner.iteration(step):
            for _ in range(3):
                with collector.cycle():
                    pass
    reading = read(recorder)
    assert steps(reading) == [1]
    assert len(reading.all("cycle")) == 3


def test_of_two_clocks_with_numbers_the_first_sets_the_pace(
    learner: PhaseClock, recorder: Recorder, tracker: Tracker
) -> None:
    outer = PhaseClock(PhaseSet("step", "learner", "step", "timeperf/step", (), "step"), tracker, recorder)  # type: ignore[arg-type]
    recorder.start(steps=[100, 101])
    for step in range(98, 104):
        with outer.iteration(step), learner.iteration(step - 98):
            pass
    assert steps(read(recorder), "step") == [100, 101]


def test_the_first_clock_is_followed_until_one_has_numbers() -> None:
    window, collector, learner = Window(1, 2), object(), object()
    assert window.begin(1, collector, numbered=False, on=False)
    assert window.begin(7, object(), numbered=False, on=True)
    assert not window.begin(0, learner, numbered=True, on=True)
    assert not window.begin(1, collector, numbered=False, on=False)
    assert not window.ends_with(2, collector)
    assert window.ends_with(2, learner)
    assert not window.ends_with(1, learner)
