"""The groups with their numbers."""

import math
from typing import Any

import pytest
import torch

from export.making import FakeClock, commit
from export.panel.making import ASYNC, SAC, SECOND, Panel, async_run
from rltel.export.panel.llm.groups import GroupRow
from rltel.export.panel.sample import sample_of
from rltel.record.recorder import Recorder
from rltel.record.tracker import Tracker
from rltel.reduce.snapshot import Snapshot
from rltel.reduce.trackers import Trackers
from rltel.rl import advantages, groups, moe, staleness, train_infer
from rltel.rl.sessions.registry import Sessions
from rltel.rl.throughput import Throughput


def one(values: dict[str, float], **changed: Any) -> Panel:
    panel = Panel()
    panel.add(values, **changed)
    return panel


def rows(panel: Panel) -> dict[str, dict[str, GroupRow]]:
    return {section.title: {row.text: row for row in section.rows} for section in panel.model.groups}


def texts(values: dict[str, float]) -> list[str]:
    return [row.text for section in one(values).model.groups for row in section.rows]


class TestWhatStandsWhere:
    def test_in_the_order_in_which_one_asks(self) -> None:
        assert [section.title for section in async_run().model.groups] == [
            "Rewards", "Loss and policy", "Train vs rollout", "Staleness", "Throughput", "MoE", "Sessions",
        ]  # fmt: skip

    def test_nothing_of_a_robot_s_run(self) -> None:
        assert one({**SAC, "grad_norm": 1.0}).model.groups == ()

    def test_a_group_without_rows_has_no_title(self) -> None:
        assert [section.title for section in one({"loss": 1.0}).model.groups] == ["Loss and policy"]

    def test_its_rewards_are_there_and_in_no_block_of_robots(self) -> None:
        panel = one({"reward/format": 0.5, "reward": 1.0, "groups/pass@1": 0.5})
        assert panel.model.rewards == ()
        assert [(row.text, row.is_term) for row in panel.model.groups[0].rows] == [
            ("Reward", False), ("format", True), ("Pass@1", False),
        ]  # fmt: skip


class TestSeveralKeys:
    def test_of_those_that_say_the_same_the_best_is_shown_and_the_user_s_own_stays_below(self) -> None:
        panel = one({"policy/staleness": 1.0, "ppo_actor/update/version_stats/sample_staleness_theta_avg": 2.0})
        assert [row.value for row in panel.model.groups[0].rows] == [2.0]
        assert [row.text for row in panel.model.others] == ["policy/staleness"]

    def test_ours_that_say_it_again_take_no_row(self) -> None:
        panel = one({"reward": 1.0, "groups/reward": 1.0})
        assert [row.text for row in panel.model.groups[0].rows] == ["Reward"]
        assert panel.model.others == ()

    def test_two_scopes_are_two_rows_that_say_whose_they_are(self) -> None:
        assert texts({"ppo_critic/update/grad_norm": 2.0, "ppo_actor/update/grad_norm": 1.0}) == [
            "Grad Norm",
            "Grad Norm (critic)",
        ]
        assert texts({"rollout/reward": 1.0, "eval-rollout/reward": 2.0, "reward": 3.0}) == [
            "Reward", "Reward (rollout)", "Reward (eval)",
        ]  # fmt: skip

    def test_a_test_s_number_never_passes_for_the_training_s(self) -> None:
        assert texts({"eval-rollout/reward": 1.0}) == ["Reward (eval)"]

    def test_a_trainer_s_scope_that_nobody_knows_is_said_only_where_there_is_another(self) -> None:
        assert texts({"student/reward": 1.0, "student/update/loss": 1.0}) == ["Reward", "Loss"]
        assert texts({"student/loss": 1.0, "judge/loss": 1.0}) == ["Loss (judge)", "Loss (student)"]

    def test_beside_keys_of_no_scope_it_is_another_s(self) -> None:
        """A warm-up's loss must not pass for the policy's."""
        assert texts({"warmup/loss": 1.0, "groups/pass@1": 0.5}) == ["Pass@1", "Loss (warmup)"]
        assert texts({"rollout/reward": 1.0, "groups/pass@1": 0.5}) == ["Reward", "Pass@1"]

    def test_the_rollouts_own_needs_no_word_where_there_is_no_other(self) -> None:
        assert texts({"rollout/reward": 1.0}) == ["Reward"]

    def test_k_in_the_order_of_numbers(self) -> None:
        given = {f"groups/pass@{k}": k / 100 for k in (16, 2, 8, 1)}
        assert texts(given) == ["Pass@1", "Pass@2", "Pass@8", "Pass@16"]


class TestMoE:
    def test_the_worst_layer_alone(self) -> None:
        given = {f"moe_balance/layer_{layer}/max_over_ideal": 1.0 + (layer == 7) for layer in range(48)}
        assert texts(given) == ["Max/Ideal, layer 7"]
        assert one(given).model.others == ()

    def test_a_row_for_each_model(self) -> None:
        given = {
            f"{scope}/moe_balance/layer_{i}/max_over_ideal": i + 1.0 for scope in ("actor", "critic") for i in (0, 1)
        }
        assert texts(given) == ["Max/Ideal, layer 1", "Max/Ideal, layer 1 (critic)"]

    def test_what_is_no_number_is_the_worst(self) -> None:
        given = {f"moe_balance/layer_{i}/max_over_ideal": math.nan if i == 1 else i + 1.0 for i in range(3)}
        (row,) = one(given).model.groups[0].rows
        assert row.text == "Max/Ideal, layer 1"
        assert row.is_red


class TestNumbers:
    def test_what_went_wrong_takes_a_row_where_it_did_and_is_red(self) -> None:
        ours = "ppo_actor/train_infer/"
        quiet = {
            "rollout/sessions/failed": 0.0,
            "rollout/sessions/rejected": 0.0,
            f"{ours}kl_k3_overflow_fraction": 0.0,
        }
        assert texts(quiet) == []
        found = rows(one({"rollout/sessions/failed": 2.0, "rollout/sessions/rejected": 3.0}))["Sessions"]
        assert (found["Failed"].is_red, found["Rejected"].is_red) == (True, False)
        assert rows(one({f"{ours}nonfinite_logp_fraction": 0.25}))["Train vs rollout"]["Logp Not Finite"].is_red

    def test_a_version_is_the_latest_and_no_average(self) -> None:
        panel = Panel()
        for version in (4.0, 5.0):
            panel.add({"ppo_actor/update/version_stats/v_theta": version, "rollout/sessions/in_flight": 10 * version})
        found = rows(panel)
        assert found["Staleness"]["Policy Version"].value == 5.0
        assert found["Sessions"]["In Flight"].value == 50.0

    def test_tokens_a_second_are_tokens_over_seconds_in_the_window_too(self) -> None:
        """A mean of rates would say 550: a step of 1 s at 1000 and one of 9 s at 100 are 1900 tokens in 10 s."""
        panel = Panel()
        for rate, seconds in ((1000.0, 1.0), (100.0, 9.0)):
            panel.add(
                {"train_perf/tokens_per_second": rate, "train_perf/seconds": seconds, "train_perf/mfu": rate / 1e4}
            )
        found = rows(panel)["Throughput"]
        assert found["Tokens/s"].value == pytest.approx(190.0)
        assert found["MFU"].value == pytest.approx(0.019)

    def test_what_is_not_finite_is_red(self) -> None:
        assert rows(one({"loss": math.inf}))["Loss and policy"]["Loss"].is_red

    def test_the_trend_stands_at_the_mean_reward_alone(self) -> None:
        panel = Panel(window_s=1000.0)
        for step in range(20):
            panel.add({"reward": float(step), "rollout/reward": 1.0, "loss": 1.0}, after_s=1.0)
        trends = {text: row.trend for text, row in rows(panel)["Rewards"].items()}
        assert trends == {"Reward": "up", "Reward (rollout)": None}

    def test_only_the_first_row_of_a_headline_is_urgent(self) -> None:
        """A critic's gradient norm must not push the loss off a low terminal."""
        found = rows(one(ASYNC))
        assert found["Loss and policy"]["Grad Norm"].urgency is not None
        assert found["Loss and policy"]["Grad Norm (critic)"].urgency is None
        assert found["Sessions"]["Staleness"].urgency is None
        assert found["Rewards"]["Reward"].urgency == 0


LLAMA = {
    "model_type": "llama", "hidden_size": 8, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2,
    "vocab_size": 16,
}  # fmt: skip


def record_tokens(tracker: Tracker) -> None:
    logp, mask = torch.full((4, 5), -1.0), torch.ones(4, 5, dtype=torch.bool)
    groups.record_entropy(entropies=-logp, mask=mask, tracker=tracker)
    with tracker.scope("ppo_actor"):
        train_infer.record(logp, logp - 0.1, mask, tracker=tracker)
        advantages.record(logp, mask, tracker=tracker)
        with tracker.scope("update"):
            staleness.record(torch.ones(4, 5, dtype=torch.long), mask, 2, tracker=tracker)


def record_rollouts(tracker: Tracker) -> None:
    rewards = [1.0, 0.0, 1.0, 1.0]
    right = [each > 0 for each in rewards]
    groups.record(
        rewards, group_size=2, correct=right, k=(1, 2), lengths=[5] * 4, truncated=[False] * 4, tracker=tracker
    )
    groups.record_repetition([[1, 2, 3, 4, 1, 2, 3, 4]] * 4, n=2, tracker=tracker)
    moe.record({0: [6, 2], 1: [4, 4]}, tracker=tracker)


def run_sessions(recorder: Recorder, tracker: Tracker) -> None:
    house = Sessions(recorder)
    with house.submit(1, {}, tracker=tracker) as session, session.phase("generate"):
        pass
    house.submit(1, {}, tracker=tracker).reject("too bad")
    house.consume([session], 2, 0, tracker)


def everything() -> Snapshot:
    """All that `rltel.rl` records, with what is derived from it, as a commit has it."""
    recorder = Recorder()
    trackers = Trackers(recorder)
    record_rollouts(trackers.default)
    record_tokens(trackers.default)
    train_infer.derive("ppo_actor/train_infer", trackers=trackers)
    clock = FakeClock()
    perf = Throughput(LLAMA, peak_flops=1e12, trackers=trackers, now=clock.monotonic_ns)
    with perf.batch([[1, 1]]):
        clock.now += SECOND
    perf.settle()
    run_sessions(recorder, trackers.get("rollout"))
    with trackers.taken(derive=True) as snapshot:
        return snapshot


def test_nothing_that_our_own_recorders_record_is_unknown() -> None:
    panel = one({})
    panel.put(sample_of(commit(everything())))
    assert [row.text for row in panel.model.others] == []
    found = rows(panel)
    assert list(found) == [section.title for section in async_run().model.groups]
    assert found["Throughput"]["Tokens/s"].value == 2.0
    assert "MFU" in found["Throughput"]
    assert found["Sessions"]["Staleness"].value == 1.0
    (times,) = panel.model.timings
    assert times.timeline.role == "sessions"
    assert "Generate" in [row.text for row in times.rows]
