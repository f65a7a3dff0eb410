"""What the panel knows of the whole run."""

import math

import pytest

from export.making import commit
from export.panel.making import SECOND
from rltel.export.panel.history import History
from rltel.export.panel.sample import sample_of


def history(*values: dict[str, float], every_s: float = 1.0) -> tuple[History, int]:
    made, now = History(), 0
    for step, each in enumerate(values):
        now = round(step * every_s * SECOND)
        made.add(sample_of(commit(each, step=step)), now)
    return made, now


def returns(*values: float) -> History:
    return history(*({"Train/mean_reward": value} for value in values))[0]


class TestPace:
    def test_elapsed_since_the_first_commit(self) -> None:
        made, now = history({}, {}, {})
        assert made.progress(now, None).elapsed_s == 2.0

    def test_eta(self) -> None:
        made, now = history(*[{}] * 11)
        assert made.progress(now, 100).eta_s == pytest.approx(90.0)

    def test_a_resumed_run_is_not_thought_to_have_done_all_before_in_no_time(self) -> None:
        """10 iterations a second since 50,000; `elapsed / iteration` would say 2 ms each, and 100 s to come."""
        made = History()
        made.add(sample_of(commit({"Train/iteration": 50_000.0})), 0)
        made.add(sample_of(commit({"Train/iteration": 50_100.0})), 10 * SECOND)
        assert made.progress(10 * SECOND, 100_000).eta_s == pytest.approx(4_990.0)

    def test_unknown_before_anything_was_done(self) -> None:
        made, now = history({})
        assert made.progress(now, 100).eta_s is None

    def test_unknown_without_a_last_iteration(self) -> None:
        made, now = history({}, {})
        assert made.progress(now, None).eta_s is None

    def test_a_run_that_goes_on_past_its_last_iteration_has_nothing_to_come(self) -> None:
        made, now = history({}, {}, {})
        assert made.progress(now, 1).eta_s == 0.0

    def test_steps_may_count_something_else_than_iterations(self) -> None:
        made = History()
        made.add(sample_of(commit({"Train/iteration": 7.0}, step=70_000)), 0)
        assert made.progress(0, None).iteration == 7


class TestReturns:
    def test_the_peak_is_of_the_whole_run(self) -> None:
        assert returns(1.0, 9.0, *[2.0] * 100).progress(0, None).peak == 9.0

    def test_of_a_run_of_penalties_too(self) -> None:
        assert returns(-9.0, -3.0, -5.0).progress(0, None).peak == -3.0

    def test_what_is_not_finite_is_no_peak(self) -> None:
        assert returns(1.0, math.inf, math.nan).progress(0, None).peak == 1.0

    @pytest.mark.parametrize(
        ("before", "now", "trend"),
        [(100.0, 106.0, "up"), (100.0, 104.0, "flat"), (100.0, 94.0, "down"), (-100.0, -94.0, "up"), (0.0, 1.0, "up")],
    )
    def test_trend(self, before: float, now: float, trend: str) -> None:
        assert returns(*[before] * 10, *[now] * 10).progress(0, None).trend == trend

    def test_unilab_calls_a_return_that_falls_from_minus_100_to_minus_103_a_rise(self) -> None:
        """It compares with 1.05 times the mean before, which is lower where that is negative."""
        before, now = -100.0, -103.0
        assert now > before * 1.05  # what UniLab draws as up
        assert returns(*[before] * 10, *[now] * 10).progress(0, None).trend == "flat"
        assert returns(*[before] * 10, *[-110.0] * 10).progress(0, None).trend == "down"

    def test_none_before_twenty_reports(self) -> None:
        """UniLab divides what there is of the ten before by ten."""
        assert returns(*[100.0] * 19).progress(0, None).trend is None

    def test_of_an_llm_run_the_mean_reward_whatever_it_is_called(self) -> None:
        reports = [{"groups/reward": value, "eval-rollout/reward": -value} for value in [1.0] * 10 + [2.0] * 10]
        assert history(*reports)[0].progress(0, None)[3:] == (2.0, "up")
