"""A commit as a sample."""

import math

import pytest

from export.making import commit, identity, recorded
from rltel.export.panel.sample import sample_of
from rltel.record.kinds import TIMING
from rltel.record.phase import Phase, PhaseSet
from rltel.record.phases import PhaseClock
from rltel.record.recorder import Recorder
from rltel.reduce.trackers import Trackers


def test_plain_numbers_as_they_are() -> None:
    sample = sample_of(commit({"Loss/actor": 0.5, "x": math.nan}, step=7, env_steps=70, axis="rollout"))
    assert sample.values == {"Loss/actor": 0.5, "x": pytest.approx(math.nan, nan_ok=True)}
    assert (sample.step, sample.env_steps, sample.axis, sample.is_learners) == (7, 70, "rollout", False)
    assert sample.fractions == {}


def test_of_a_metric_with_several_numbers_the_average() -> None:
    made = recorded(lambda trackers: trackers.default.stat({"loss": [1.0, 3.0]}))
    assert sample_of(commit(made)).values == {"loss/avg": 2.0}


def test_of_a_distribution_too() -> None:
    made = recorded(lambda trackers: trackers.default.distribution({"seq_len": [1.0, 3.0]}))
    assert sample_of(commit(made)).values == {"seq_len/avg": 2.0}


def test_counts_that_only_weight_averages_are_left_out() -> None:
    made = recorded(lambda trackers: trackers.default.scalar({"reward": 0.5}))
    assert sample_of(commit(made)).values == {"reward": 0.5}


def test_what_a_clock_recorded_comes_with_its_seconds_and_its_label() -> None:
    recorder = Recorder()
    trackers = Trackers(recorder)
    own = PhaseSet(
        "own", "learner", "iteration", "timeperf/iteration", (Phase("work", "exclusive", "timeperf/work", TIMING),)
    )
    clock = PhaseClock(own, trackers.default, recorder)
    for _ in range(3):
        with clock.iteration(), clock.phase("work"):
            pass
    with trackers.taken() as snapshot:
        sample = sample_of(commit(snapshot))
    seconds, count = sample.fractions["timeperf/work"]
    assert count == 3
    assert sample.values["timeperf/work"] == pytest.approx(seconds / 3)
    assert sample.labels["timeperf/work"].phase == "work"
    assert sample.labels["timeperf/iteration"].kind == "loop"


@pytest.mark.parametrize(
    ("key", "value", "seconds"),
    [
        ("Perf/learner_inference_ms", 3.4, 0.0034),
        ("Perf/learning_time", 0.04, 0.04),
        ("Perf/iteration_time", 0.05, 0.05),
        ("Perf/dp_gradient_sync_ms_per_rank", 5.0, 0.005),
        ("timeperf/rollout/generate", 2.0, 2.0),
    ],
)
def test_a_known_time_that_was_logged_as_a_number(key: str, value: float, seconds: float) -> None:
    assert sample_of(commit({key: value})).fractions == {key: (pytest.approx(seconds), 1.0)}


def test_a_rate_counts_for_as_long_as_its_iteration_took() -> None:
    sample = sample_of(commit({"Perf/total_fps": 100.0, "Perf/iteration_time": 0.5}))
    assert sample.fractions["Perf/total_fps"] == (50.0, 0.5)


def test_a_rate_without_an_iteration_is_a_number_like_others() -> None:
    assert sample_of(commit({"Perf/total_fps": 100.0})).fractions == {}


def test_rates_of_tokens_count_for_as_long_as_their_engine_trained() -> None:
    values = {
        "train_perf/seconds": 2.0,
        "train_perf/tokens_per_second": 50.0,
        "train_perf/mfu": 0.25,
        "critic/train_perf/seconds": 0.0,
        "critic/train_perf/tokens_per_second": 50.0,
    }
    assert sample_of(commit(values)).fractions == {
        "train_perf/tokens_per_second": (100.0, 2.0),
        "train_perf/mfu": (0.5, 2.0),
    }


@pytest.mark.parametrize("key", ["timeperf/tokenize", "rollout/timeperf/session/total"])
def test_a_time_that_was_logged_as_a_number_is_seconds(key: str) -> None:
    assert sample_of(commit({key: 0.5})).fractions == {key: (0.5, 1.0)}


def test_ranks() -> None:
    assert sample_of(commit({}, identity=identity(world_size=8))).world_size == 8
