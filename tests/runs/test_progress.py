"""How far a run is, as its commits say."""

import math

import pytest

from export.making import commit, recorded
from rltel.runs.progress import LENGTH, REWARD, Progress, better
from rltel.runs.throughput import WINDOW_ITERATIONS

S = 1_000_000_000


def test_steps_and_environment_steps() -> None:
    made = Progress()
    for step in range(3, 8):
        made.observe(commit(step=step, env_steps=step * 64), step * S)
    assert (made.commits, made.first_step, made.last_step) == (5, 3, 7)
    assert (made.first_env_steps, made.last_env_steps) == (192, 448)
    assert made.rates() == {
        "final_env_steps_per_sec": 64.0,
        "tail_env_steps_per_sec": 64.0,
        "final_iterations_per_sec": 1.0,
        "tail_iterations_per_sec": 1.0,
        "tail_iteration_count": 4,
        "tail_window_iterations": WINDOW_ITERATIONS,
    }


def test_environment_steps_that_come_now_and_then_still_have_a_rate() -> None:
    made = Progress()
    for step in range(20):
        made.observe(commit(step=step, env_steps=step * 8 if step % 5 == 0 else None), step * S)
    assert made.rates()["tail_env_steps_per_sec"] == 8.0
    assert made.last_env_steps == 120


def test_iterations_are_those_of_training() -> None:
    made = Progress()
    made.observe(commit(step=8000, axis="rollout"), 0)
    for step in range(3):
        made.observe(commit(step=step), step * S)
        made.observe(commit(step=8000 + step, axis="rollout"), step * S)
        made.observe(commit(step=step * 500, axis="eval"), step * S)
    assert (made.first_step, made.last_step, made.commits) == (0, 2, 10)
    assert made.rates()["tail_iterations_per_sec"] == 1.0


def test_a_run_without_training_counts_what_it_has() -> None:
    made = Progress()
    for step in range(3):
        made.observe(commit(step=step, axis="rollout"), step * S)
    assert made.last_step == 2


def test_rewards_last_and_best() -> None:
    made = Progress()
    for step, reward in enumerate([1.0, 5.0, math.nan, 3.0]):
        made.observe(commit({REWARD: reward, LENGTH: 10.0 * step}, step=step), step * S)
    made.observe(commit({"other": 1.0}, step=9), 9 * S)
    assert (made.reward, made.best_reward, made.episode_length) == (3.0, 5.0, 30.0)


def test_a_language_model_s_reward() -> None:
    """Of several keys the first of the list counts, from when it comes; evaluations' are others."""
    made = Progress()
    made.observe(commit({"groups/reward": 9.0}, step=0), 0)
    made.observe(commit({"reward": 99.0}, step=0, axis="eval"), 0)
    assert (made.reward, made.best_reward) == (9.0, 9.0)
    made.observe(commit({"groups/reward": 9.0, "rollout/reward": 0.25}, step=1), S)
    made.observe(commit({"groups/reward": 9.0}, step=2), 2 * S)
    assert (made.reward, made.best_reward) == (0.25, 0.25)


def test_a_reward_that_is_an_average_or_a_tensor_s_statistic() -> None:
    made = Progress()
    made.observe(commit(recorded(lambda trackers: trackers.default.scalar({REWARD: 2.0}))), 0)
    assert made.reward == 2.0
    made.observe(commit(recorded(lambda trackers: trackers.default.distribution({REWARD: [1.0, 4.0]}))), S)
    assert made.reward == 2.5


def test_a_nan_is_the_last_one_and_never_the_best() -> None:
    made = Progress()
    made.observe(commit({REWARD: math.nan}), 0)
    assert made.reward is not None
    assert math.isnan(made.reward)
    assert made.best_reward is None


def test_plain_numbers_stay_numbers_until_the_pipeline_looks() -> None:
    """Making states of them is not for the thread that trains."""
    numbers = commit({REWARD: 2.0})
    Progress().observe(numbers, 0)
    assert numbers.snapshot._made is None


def test_without_any_there_is_none() -> None:
    made = Progress()
    made.observe(commit({"x": 1.0}), 0)
    assert (made.reward, made.best_reward, made.episode_length, made.last_env_steps) == (None, None, None, None)


@pytest.mark.parametrize(
    ("best", "reward", "wanted"),
    [(None, None, None), (1.0, None, 1.0), ("NaN", 2, 2.0), (3.0, math.nan, 3.0), (-5.0, -1.0, -1.0), (True, 0.5, 0.5)],
)
def test_better(best: object, reward: object, wanted: float | None) -> None:
    assert better(best, reward) == wanted
