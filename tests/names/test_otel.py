"""Names by rule: valid whatever the key, and never one series for two keys."""

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rltel.names.catalogue import Catalogue, Entry
from rltel.names.otel import Namer
from rltel.names.phases import PhaseLabel
from rltel.names.prometheus import label_name, prometheus_name

VALID_OTEL = re.compile(r"[A-Za-z][A-Za-z0-9_.\-/]{0,254}")
VALID_PROMETHEUS = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*")
VALID_LABEL = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*")

PARTS = st.sampled_from(["a", "b", "A", "a_b", "b_c", "c", "@", "%", "a.b", "ä", "total", "1", "", "numerator"])
LIKE_PATHS = st.lists(PARTS, min_size=1, max_size=4).map("/".join)
LIKE_THE_CATALOGUE = st.sampled_from(
    ["Loss/a", "Loss/A", "Perf/learner_learning_ms", "Perf/learning_time", "timeperf/a", "timeperf/a/b", "reward/a"]
)
LIKE_SCOPES = st.builds(
    lambda scope, key: scope + key,
    st.sampled_from(["", "a/", "a//", "///", "ppo_actor/", "ppo_actor/update/", "critic/", "ppo_critic/", "groups/"]),
    st.sampled_from(["groups/reward", "update/lr", "update/loss", "update/critic_loss", "version_stats/v_theta"]),
)
KEYS = (st.text(min_size=1) | LIKE_PATHS | LIKE_THE_CATALOGUE | LIKE_SCOPES).filter(lambda key: key.strip("/"))


def series(namer: Namer, key: str, **how: Any) -> tuple[str, frozenset[tuple[str, str]]]:
    """What Prometheus tells apart."""
    name = namer.name(key, **how)
    labels = frozenset((label_name(attribute), value) for attribute, value in name.attributes.items() if value)
    return prometheus_name(name.name, name.unit, "counter" if how.get("counter") else "gauge"), labels


class TestByRule:
    @pytest.mark.parametrize(
        ("key", "name"),
        [
            ("ppo_actor/update/loss", "rl.stats.ppo_actor.update.loss"),
            ("pass@1", "rl.stats.pass_at_1"),
            ("50%", "rl.stats.50_percent"),
            ("Actor/KL", "rl.stats.actor.kl"),
            ("a b--c", "rl.stats.a_b_c"),
            ("über", "rl.stats._ber"),
        ],
    )
    def test_path_becomes_a_name(self, key: str, name: str) -> None:
        assert Namer().name(key).name == name

    @pytest.mark.parametrize("key", ["pass@1", "50%", "Actor/KL", "a b", "a__b", "über", "a.b", "x" * 300])
    def test_what_lost_anything_carries_the_key(self, key: str) -> None:
        assert Namer().name(key).attributes["rl.key"] == key

    @pytest.mark.parametrize("key", ["loss", "ppo_actor/update/loss", "a_b/c_1"])
    def test_what_lost_nothing_does_not(self, key: str) -> None:
        assert Namer().name(key).attributes == {}

    def test_a_name_is_as_the_key_was_first_called(self) -> None:
        namer = Namer()
        assert namer.name("a/b_c") is namer.name("a/b_c")

    @given(KEYS)
    def test_any_key_has_valid_names(self, key: str) -> None:
        found = Namer().name(key)
        assert VALID_OTEL.fullmatch(found.name)
        assert VALID_OTEL.fullmatch(f"{found.name}.distribution"), "the longest name that is made from it"
        for instrument in ("gauge", "counter", "histogram"):
            assert VALID_PROMETHEUS.fullmatch(prometheus_name(found.name, found.unit, instrument))
        assert all(VALID_LABEL.fullmatch(label_name(attribute)) for attribute in found.attributes)

    def test_verl_984_open_telemetry_itself_takes_the_names(self) -> None:
        """OpenTelemetry raises on `pass@1`; what we call it, it takes."""
        from opentelemetry.sdk.metrics import MeterProvider

        meter = MeterProvider(shutdown_on_exit=False).get_meter("t")
        with pytest.raises(Exception, match="pass@1"):
            meter.create_gauge("pass@1")
        for key in ("pass@1", "mean@1", "timing(s)/gen", "ünïcode", "x" * 400):
            meter.create_gauge(Namer().name(key).name)


class TestDistinct:
    @given(st.lists(KEYS, min_size=2, max_size=30, unique=True))
    def test_two_keys_are_never_one_series(self, keys: list[str]) -> None:
        namer = Namer()
        assert len({series(namer, key) for key in keys}) == len(keys)

    @given(st.lists(st.tuples(KEYS, st.booleans()), min_size=2, max_size=30, unique_by=lambda pair: pair[0]))
    def test_counters_among_them_neither(self, keys: list[tuple[str, bool]]) -> None:
        namer = Namer()
        assert len({series(namer, key, counter=counter) for key, counter in keys}) == len(keys)

    def test_open_telemetry_python_3928_keys_that_collide_are_kept_apart(
        self, caplog: pytest.LogCaptureFixture
    ) -> None:
        namer = Namer()
        first, second = namer.name("a/b_c"), namer.name("a_b/c")
        assert prometheus_name(first.name, "", "gauge") == prometheus_name(second.name, "", "gauge")
        assert (dict(first.attributes), dict(second.attributes)) == ({}, {"rl.key": "a_b/c"})
        assert namer.collisions == 1
        assert [record.message for record in caplog.records] == [
            'key "a_b/c" has the same Prometheus name as "a/b_c" (rl_stats_a_b_c); it carries rl.key'
        ]

    def test_a_warning_about_a_hostile_key_is_one_line_without_control_codes(
        self, caplog: pytest.LogCaptureFixture
    ) -> None:
        namer = Namer(max_series=2)
        for key in ("a/b", "a//b\x1b[2J\n", "a_b", "a\n_b"):
            namer.name(key)
        assert caplog.records
        assert all(record.message.isprintable() for record in caplog.records)

    def test_no_live_series_is_renamed_by_a_later_key(self) -> None:
        namer = Namer()
        before = namer.name("a/b_c")
        namer.name("a_b/c")
        assert namer.name("a/b_c") == before
        assert namer.collisions == 1, "said once"

    def test_a_key_does_not_collide_with_itself_in_another_tracker(self) -> None:
        namer = Namer()
        assert namer.name("rollout/reward", "") == namer.name("rollout/reward", "rollout")
        assert namer.collisions == 0

    def test_a_counter_and_one_that_says_total_are_kept_apart(self) -> None:
        namer = Namer()
        namer.name("steps", counter=True)
        assert namer.name("steps/total", counter=True).attributes == {"rl.key": "steps/total"}

    def test_two_keys_of_one_catalogue_name_are_kept_apart(self) -> None:
        """Both are the learner's phase "learning"."""
        namer = Namer()
        namer.name("Perf/learning_time")
        assert namer.name("Perf/learner_learning_ms").attributes["rl.key"] == "Perf/learner_learning_ms"


class TestVerl119And984:
    """verl#119, #984: `timing(s)/gen` and `mean@1` were refused elsewhere; here one mapping, and the original kept."""

    @pytest.mark.parametrize(
        ("key", "name"),
        [
            ("timing(s)/gen", "rl.stats.timing_s_.gen"),
            ("mean@1", "rl.stats.mean_at_1"),
            ("val-core/gsm8k/acc/mean@1", "rl.stats.val_core.gsm8k.acc.mean_at_1"),
        ],
    )
    def test_one_mapping_and_the_original_kept(self, key: str, name: str) -> None:
        found = Namer().name(key)
        assert (found.name, found.attributes) == (name, {"rl.key": key})


class TestTrackers:
    def test_a_named_tracker_finds_its_catalogue_entry(self) -> None:
        found = Namer().name("rollout/timeperf/generate", "rollout")
        assert (found.name, found.unit) == ("rl.timing.duration", "s")
        assert found.attributes == {"rl.timing": "generate", "rl.tracker": "rollout"}

    def test_and_is_told_apart_from_the_default_one(self) -> None:
        namer = Namer()
        assert series(namer, "timeperf/generate") != series(namer, "rollout/timeperf/generate", tracker="rollout")

    def test_any_other_key_is_named_by_its_whole_path(self) -> None:
        assert Namer().name("rollout/reward", "rollout").name == "rl.stats.rollout.reward"


class TestScopes:
    @pytest.mark.parametrize("key", ["ppo_actor/train_infer/logp_diff", "ppo_actor/update/lr", "groups/reward"])
    def test_under_the_usual_scope_nothing_is_added(self, key: str) -> None:
        found = Namer().name(key)
        assert (found.canonical, found.attributes) == (True, {})

    def test_verls_actor_has_the_names_of_areals(self) -> None:
        namer = Namer()
        for key in ("train_infer/logp_diff", "update/lr", "update/version_stats/sample_staleness"):
            usual, other = namer.name(f"ppo_actor/{key}"), namer.name(f"actor/{key}")
            assert (other.name, other.unit, other.instrument) == (usual.name, usual.unit, usual.instrument)
            assert other.attributes == {"rl.scope": "actor/update" if "version_stats" in key else "actor"}

    def test_every_scope_is_a_series_whichever_comes_first(self) -> None:
        """Ranks may meet keys in any order: none of these needs `rl.key`."""
        keys = [f"{scope}groups/reward" for scope in ("", "a/", "a/b/", "ppo_actor/")]
        for order in (keys, keys[::-1]):
            namer = Namer()
            found = {key: namer.name(key).attributes.get("rl.scope") for key in order}
            assert found == dict(zip(keys, [None, "a", "a/b", "ppo_actor"], strict=True))
            assert namer.collisions == 0

    @pytest.mark.parametrize(
        ("key", "tracker", "attributes"),
        [
            ("eval/groups/reward", "eval", {"rl.tracker": "eval"}),
            ("eval/ppo_actor/update/lr", "eval", {"rl.tracker": "eval"}),
            ("eval/a/groups/reward", "eval", {"rl.scope": "a", "rl.tracker": "eval"}),
            ("eval/update/lr", "eval", {"rl.scope": "/", "rl.tracker": "eval"}),
            ("ppo_actor/update/lr", "ppo_actor", {}),
            (
                "critic/update/grad_norm",
                "critic",
                {"rl.gradient_norm.type": "critic", "rl.scope": "/", "rl.tracker": "critic"},
            ),
        ],
    )
    def test_a_trackers_name_is_no_scope(self, key: str, tracker: str, attributes: dict[str, str]) -> None:
        assert Namer().name(key, tracker).attributes == attributes

    def test_scopes_count_towards_the_limit(self) -> None:
        namer = Namer(max_series=2)
        found = [namer.name(f"{scope}/groups/reward").overflow for scope in "abc"]
        assert found == [False, False, True]


def test_catalogue_may_be_injected() -> None:
    entry = Entry("x/{y}", "rl.x", "s", "gauge", "About x.", {"rl.y": "{y}"})
    found = Namer(Catalogue((entry,))).name("x/1")
    assert (found.name, found.unit, found.attributes, found.canonical) == ("rl.x", "s", {"rl.y": "1"}, True)


class TestPhases:
    LEARNING = PhaseLabel("learner", "learning", "exclusive", "train")

    @pytest.mark.parametrize("key", ["timeperf/learning", "my/own_ms", "Perf/learning_time"])
    def test_are_named_by_what_they_are_whatever_the_key(self, key: str) -> None:
        found = Namer().name(key, phase=self.LEARNING)
        assert (found.name, found.unit, found.instrument) == ("rl.phase.duration", "s", "histogram")
        assert found.attributes == {"rl.role": "learner", "rl.phase": "learning", "rl.phase.kind": "exclusive"}
        assert found.also is not None
        assert (found.also.name, found.also.unit, found.also.attributes) == ("rl.train.duration", "s", {})

    def test_a_timing_of_the_same_key_stays_a_timing(self) -> None:
        namer = Namer()
        namer.name("timeperf/learning", phase=self.LEARNING)
        assert namer.name("timeperf/learning").name == "rl.timing.duration"

    def test_of_a_named_tracker_say_so(self) -> None:
        found = Namer().name("a/timeperf/learning", "a", phase=self.LEARNING)
        assert found.attributes["rl.tracker"] == "a"
        assert found.also is not None
        assert found.also.attributes == {"rl.tracker": "a"}

    def test_two_loops_of_one_process_are_two_series(self) -> None:
        """Added up they would count the time twice."""
        namer = Namer()
        for key in ("timeperf/iteration", "timeperf/outer"):
            namer.name(key, phase=PhaseLabel("learner", key[9:], "loop", "loop"))
        (inner, outer) = (
            namer.name(key, phase=PhaseLabel("learner", key[9:], "loop", "loop"))
            for key in ("timeperf/iteration", "timeperf/outer")
        )
        assert (inner.name, inner.attributes) == ("rl.loop.duration", {})
        assert (outer.name, outer.attributes) == ("rl.loop.duration", {"rl.key": "timeperf/outer"})

    def test_two_phases_that_are_one_part_are_two_series(self) -> None:
        namer = Namer()
        first, second = (
            namer.name(f"timeperf/{name}", phase=PhaseLabel("learner", name, "exclusive", "train")) for name in "ab"
        )
        assert (first.also and first.also.attributes) == {}
        assert (second.also and second.also.attributes) == {"rl.key": "timeperf/b"}

    def test_plain_numbers_have_the_second_name_too(self) -> None:
        found = Namer().name("rollout/Perf/collector_env_step_ms", "rollout")
        assert found.also is not None
        assert (found.also.name, found.also.scale) == ("rl.reward.duration", 0.001)
        assert found.also.attributes == {"rl.role": "collector", "rl.tracker": "rollout"}


class TestLimit:
    """open-telemetry/opentelemetry-python#2700: the SDK folds what is past 2,000 label sets, and says little."""

    def expert(self, layer: int, expert: int) -> str:
        return f"moe_balance/layer_{layer}/expert_{expert}/tokens"

    def test_48_layers_of_128_experts_are_named_or_share_one_series_loudly(
        self, caplog: pytest.LogCaptureFixture
    ) -> None:
        namer = Namer(max_series=2000)
        found = [namer.name(self.expert(layer, expert)) for layer in range(48) for expert in range(128)]
        assert len({tuple(each.attributes.items()) for each in found}) == 2001
        assert [each.overflow for each in found] == [False] * 2000 + [True] * (48 * 128 - 2000)
        assert found[-1].attributes == {"otel.metric.overflow": "true"}
        assert namer.overflowed == {"rl_moe_expert_tokens": 48 * 128 - 2000}
        (said,) = caplog.records
        assert "rl_moe_expert_tokens has 2000 label sets" in said.message
        assert "names.max_series_per_metric" in said.message

    def test_with_a_higher_limit_all_are_named(self) -> None:
        namer = Namer(max_series=48 * 128)
        found = [namer.name(self.expert(layer, expert)) for layer in range(48) for expert in range(128)]
        assert not any(each.overflow for each in found)

    def test_who_has_a_name_keeps_it(self) -> None:
        namer = Namer(max_series=1)
        first = namer.name("reward/a")
        assert namer.name("reward/b").overflow
        assert namer.name("reward/a") is first
        assert not first.overflow

    def test_each_metric_has_its_own(self) -> None:
        namer = Namer(max_series=1)
        assert not any(namer.name(key).overflow for key in ("reward/a", "Loss/actor", "timeperf/x", "mine"))

    def test_a_key_of_several_statistics_takes_as_many(self) -> None:
        namer = Namer(max_series=5)
        assert not namer.name("reward/a", series=3).overflow
        assert namer.name("reward/b", series=3).overflow
        assert not namer.name("reward/c", series=2).overflow

    def test_the_count_of_what_was_not_finite_has_one_too(self) -> None:
        namer = Namer(max_series=2)
        found = [namer.nonfinite(key).attributes for key in "abc"]
        assert found == [{"rl.key": "a"}, {"rl.key": "b"}, {"otel.metric.overflow": "true"}]
        assert namer.nonfinite("a").attributes == {"rl.key": "a"}

    def test_a_second_name_may_have_room_where_the_first_has_not(self) -> None:
        namer = Namer(max_series=1)
        first, second = (
            namer.name(key, phase=PhaseLabel("learner", key, "exclusive", part))
            for key, part in (("a", "train"), ("b", "sync"))
        )
        assert (first.overflow, first.also and first.also.overflow) == (False, False)
        assert (second.overflow, second.also and second.also.overflow) == (True, False)
