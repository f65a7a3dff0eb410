"""Which row a key is."""

import pytest

from export.panel.making import APPO, ASYNC, LLM, PPO, SAC
from rltel.export.panel.llm.keys import is_llm_run, place_of, reward_key
from rltel.export.panel.llm.rows import GROUPS, HEADLINES, PERSISTED_ONLY


def said(key: str) -> tuple[str, str, str, str] | None:
    place = place_of(key)
    if place is None:
        return None
    return place.group.title if place.group else "", place.measure.text, place.scope, place.number


@pytest.mark.parametrize(
    ("key", "row", "scope"),
    [
        ("ppo_actor/update/actor_loss/avg", "Actor Loss", ""),
        ("actor/pg_loss", "Actor Loss", ""),
        ("train/loss", "Loss", ""),
        ("ppo_actor/update/grad_norm", "Grad Norm", ""),
        ("grpo_actor/update/grad_norm", "Grad Norm", ""),
        ("ppo_critic/update/grad_norm", "Grad Norm", "critic"),
        ("critic/grad_norm", "Grad Norm", "critic"),
        ("grad_norm", "Grad Norm", ""),
        ("Train/approx_kl", "Approx KL", ""),
        ("rollout/reward", "Reward", "rollout"),
        ("eval-rollout/reward", "Reward", "eval"),
        ("critic/score/mean", "Reward", ""),
        ("reward/mean", "Reward", ""),
        ("groups/reward/avg", "Reward", ""),
        ("critic/groups/entropy/avg", "Entropy", "critic"),
        ("response_length/mean", "Response Length", ""),
        ("response_length/clip_ratio", "Truncated", ""),
        ("actor/clip_ratio", "Clip Fraction", ""),
        ("clip_ratio/region_mean", "Clip Fraction", ""),
        ("sampling/sampling_logp_difference/mean", "Logp Abs Diff", ""),
        ("perf/mfu/actor", "MFU", ""),
        ("critic/train_perf/tokens_per_second", "Tokens/s", "critic"),
        ("ppo_actor/update/version_stats/sample_staleness/avg", "Staleness", ""),
        ("val-core/accuracy", "Accuracy", "eval"),
        ("values/entropy", "Entropy", "values"),
        ("my_scope/deeper/entropy", "Entropy", "my_scope deeper"),
    ],
)
def test_the_last_parts_decide_whatever_trainer_s_scope_leads_them(key: str, row: str, scope: str) -> None:
    found = said(key)
    assert found is not None
    assert found[1:3] == (row, scope)


def test_numbers_within_a_key() -> None:
    assert said("actor/moe_balance/layer_17/max_over_ideal") == ("MoE", "Max/Ideal", "", "17")
    assert said("groups/pass@1") == ("Rewards", "Pass@1", "", "")
    assert said("ppo_actor/groups/pass@16/avg") == ("Rewards", "Pass@*", "", "16")


@pytest.mark.parametrize("key", ["reward/format", "rewards/format/mean", "rollout/reward/format"])
def test_parts_of_the_reward_have_their_own_names(key: str) -> None:
    found = said(key)
    assert found is not None
    assert found[:2] == ("Rewards", "format")


@pytest.mark.parametrize(
    "key",
    [
        "timeperf/reward", "rollout/timeperf/session/reward", "reward/max", "critic/rewards/std", "my_reward",
        "entropy_bonus", "reward_", "update/n_valid_tokens", "",
    ],
)  # fmt: skip
def test_what_only_looks_alike_is_left_alone(key: str) -> None:
    """A phase that is called reward is none; an extreme is no mean; half a part is no part."""
    assert place_of(key) is None


@pytest.mark.parametrize(
    "key", ["ppo_actor/train_infer/kl_k1", "groups/best@8/avg", "moe_balance/layer_3/expert_12/tokens"]
)
def test_what_is_for_a_closer_look_has_a_place_but_no_group(key: str) -> None:
    place = place_of(key)
    assert place is not None
    assert place.group is None


class TestRuns:
    @pytest.mark.parametrize("values", [SAC, APPO, PPO], ids=["sac", "appo", "ppo"])
    def test_robots_are_none(self, values: dict[str, float]) -> None:
        assert not is_llm_run(values)
        assert not is_llm_run({**values, "grad_norm": 1.0, "reward/upright": 1.0, "my/loss": 2.0})

    @pytest.mark.parametrize("values", [LLM, ASYNC], ids=["llm", "async"])
    def test_llms_are(self, values: dict[str, float]) -> None:
        assert is_llm_run(values)

    def test_one_that_reports_a_tag_of_robots_is_one_all_the_same(self) -> None:
        assert is_llm_run({"Train/mean_reward": 1.0, "groups/pass@1": 0.5})

    def test_a_run_of_nobody_s_keys_is_read_in_the_same_way(self) -> None:
        assert is_llm_run({"loss": 1.0, "reward/format": 0.5})


class TestReward:
    def test_the_policy_s_before_the_rollouts(self) -> None:
        assert reward_key(("rollout/reward", "groups/reward/avg", "x")) == "groups/reward/avg"
        assert reward_key(("rollout/reward", "reward", "groups/reward/avg")) == "reward"
        assert reward_key(("rollout/reward", "x")) == "rollout/reward"

    def test_the_tag_s_before_all(self) -> None:
        assert reward_key(("reward", "Train/mean_reward")) == "Train/mean_reward"

    def test_a_test_s_is_not_the_run_s(self) -> None:
        assert reward_key(("eval-rollout/reward", "reward/format")) is None


class TestTheTable:
    def test_no_ending_stands_twice(self) -> None:
        endings = [ending for group in GROUPS for measure in group.measures for ending in measure.endings]
        endings += PERSISTED_ONLY
        assert sorted(endings) == sorted(set(endings))

    def test_every_headline_is_some_row_s(self) -> None:
        assert {measure.headline for group in GROUPS for measure in group.measures} - {""} == set(HEADLINES)

    def test_labels_leave_room_for_their_numbers_at_80_columns(self) -> None:
        """38 columns a block, of which a number takes up to 12."""
        assert max(len(measure.text) for group in GROUPS for measure in group.measures) <= 22
