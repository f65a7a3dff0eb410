"""What there is to show."""

import math

import pytest

from export.making import recorded
from export.panel.making import APPO, LLM, PPO, SAC, Panel, llm_run, sac_run
from rltel.export.panel.model import Fact, MetricRow


def rows(panel: Panel) -> dict[str, MetricRow]:
    return {row.text: row for row in panel.model.metrics}


def one(values: dict[str, float], **about: str) -> Panel:
    panel = Panel(**about)
    panel.add(values)
    return panel


class TestMetrics:
    def test_losses_then_training_then_ingress(self) -> None:
        sections = [row.section for row in sac_run().model.metrics]
        assert sections == sorted(sections, key=["metrics.loss_policy", "metrics.training", "metrics.ingress"].index)
        assert len(sections) == 14

    def test_training_and_ingress_are_indented(self) -> None:
        found = rows(sac_run())
        assert not found["Actor"].indent
        assert found["Actor Grad Norm"].indent
        assert found["Ingress Backpressure"].indent

    def test_losses_above_ten_are_red(self) -> None:
        found = rows(one({"Loss/actor": 10.0, "Loss/critic": 10.1, "Train/target_q_max": 500.0}))
        assert [found[name].is_red for name in ("Actor", "Critic", "Target Q Max")] == [False, True, False]

    def test_what_is_no_number_is_red_wherever_it_stands(self) -> None:
        found = rows(one({"Loss/actor": math.nan, "Train/target_q_max": math.inf}))
        assert all(row.is_red for row in found.values())

    def test_one_label_for_two_keys_says_which_is_which(self) -> None:
        """The schema calls both Loss/temperature and Policy/temperature Temperature."""
        found = rows(one({"Loss/temperature": -0.1, "Policy/temperature": 0.2}))
        assert {text: row.value for text, row in found.items()} == {
            "Temperature (Loss)": -0.1,
            "Temperature (Policy)": 0.2,
        }
        assert list(rows(one({"Policy/temperature": 0.2}))) == ["Temperature"]

    def test_only_what_was_reported(self) -> None:
        assert one({"x": 1.0}).model.metrics == ()

    def test_the_gradient_all_reduce_is_among_the_others_of_the_schema(self) -> None:
        found = rows(one({**SAC, "Perf/dp_gradient_sync_ms_per_rank": 1.5}))
        assert found["Dp Gradient Sync Ms Per Rank"].value == 1.5


class TestOthers:
    def test_users_keys_verbatim_in_alphabetical_order(self) -> None:
        values = {"my/own_number": 7.25, "b": 1.0, "a/b": 2.0, **LLM}
        assert [row.text for row in one(values).model.others] == ["a/b", "b", "my/own_number"]

    def test_no_extremes_or_quantiles_beside_an_average(self) -> None:
        panel = Panel()
        panel.add(recorded(lambda trackers: trackers.default.stat({"mine": [1.0, 3.0]})))
        assert [(row.text, row.value) for row in panel.model.others] == [("mine/avg", 2.0)]

    def test_timings_that_are_no_phases_have_a_column_of_their_own(self) -> None:
        panel = Panel()
        panel.add({"timeperf/iteration": 2.0, "timeperf/train": 1.0, "timeperf/tokenize": 0.5})
        assert [(timing.timeline.role, timing.rows[0].text) for timing in panel.model.timings] == [
            ("learner", "Train"),
            ("timings", "Tokenize"),
        ]
        assert panel.model.others == ()

    def test_in_a_robot_s_run_they_stand_below_as_they_always_did(self) -> None:
        panel = one({**SAC, "timeperf/tokenize": 0.5, "grad_norm": 1.0})
        assert [row.text for row in panel.model.others] == ["grad_norm", "timeperf/tokenize"]
        assert panel.model.groups == ()

    @pytest.mark.parametrize("values", [SAC, APPO], ids=["sac", "appo"])
    def test_a_run_by_the_schema_has_none(self, values: dict[str, float]) -> None:
        assert one(values).model.others == ()


class TestRewards:
    def test_mean_peak_and_terms(self) -> None:
        panel = Panel()
        for value in (5.0, 9.0, 7.0):
            panel.add({"Train/mean_reward": value, "reward/b": 1.0, "reward/a": -1.0})
        assert [(row.text, row.value, row.peak) for row in panel.model.rewards] == [
            ("Reward", 7.0, 9.0),
            ("a", -1.0, None),
            ("b", 1.0, None),
        ]


class TestHeader:
    def test_of_a_robot_run(self) -> None:
        header = sac_run().model.header
        assert (header.algo, header.task, header.gpus) == ("sac", "go2_joystick_flat", 1)
        assert (header.iteration, header.max_iterations) == (12_344, 65_000)
        assert header.elapsed_s == pytest.approx(3602.0)
        assert header.steps_per_s == pytest.approx(22_756.0)
        assert header.n == 4
        assert header.age_s is None

    def test_rows_are_those_of_all_ranks(self) -> None:
        panel = sac_run()
        panel.facts["rows"] = 4096
        assert panel.model.header.rows_per_s == pytest.approx(4096 / 0.05)

    def test_vector_07_a_rate_of_all_ranks_that_the_trainer_knows_wins(self) -> None:
        """Ranks of 0.05 s and 0.08 s: 133,120 rows/s in all, which the mean of their times does not give."""
        panel = sac_run()
        panel.facts["rows_per_s"] = 4096 / 0.05 + 4096 / 0.08
        assert panel.model.header.rows_per_s == pytest.approx(133_120.0)

    def test_steps_by_the_commits_count_where_nobody_measured_them(self) -> None:
        assert llm_run().model.header.steps_per_s == pytest.approx(2048.0)

    def test_no_episode_has_ended(self) -> None:
        assert one({"Train/mean_episode_length": 0.0}).model.header.episode_length is None

    def test_status_only_where_it_says_something(self) -> None:
        panel = sac_run()
        for status, shown in (("Training", None), ("Evaluating", "Evaluating")):
            panel.facts["status"] = status
            assert panel.model.header.status == shown

    def test_how_old_what_is_shown_is(self) -> None:
        panel = llm_run()
        panel.wait(40)
        assert panel.model.header.age_s == pytest.approx(40.0)

    def test_what_was_told_wins_over_the_config(self) -> None:
        panel = one({"x": 1.0}, algo="sac", task="a")
        panel.facts = {"algo": "flashsac", "gpus": 8}
        header = panel.model.header
        assert (header.algo, header.task, header.gpus) == ("flashsac", "a", 8)


class TestSystem:
    def test_all_of_it(self) -> None:
        assert sac_run().model.system == (
            Fact("Buffer", 1_000_000),
            Fact("Timeout Rate", 0.8125),
            Fact("Envs", 4096),
            Fact("Batch/Rank", 8192),
            Fact("CUDA MPS", "ambient"),
        )

    def test_mps_is_off_unless_told(self) -> None:
        assert one(SAC).model.system == (Fact("Timeout Rate", 0.8125), Fact("CUDA MPS", "off"))

    @pytest.mark.parametrize("values", [PPO, LLM], ids=["ppo", "llm"])
    def test_nothing_of_it_where_there_is_no_collector(self, values: dict[str, float]) -> None:
        assert one(values).model.system == ()
