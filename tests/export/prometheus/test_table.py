"""The scrape table, read by the library's parsers and by promtool."""

import math
import re
import threading
from collections.abc import Mapping

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry

from export.making import Points, commit, identity, recorded
from export.scraping import everything, exposed, samples, value
from realparts.prometheus import promtool_check_metrics
from rltel.export.commit import Commit
from rltel.export.prometheus import exposition
from rltel.export.prometheus.collector import RunCollector
from rltel.export.prometheus.exposition import expose
from rltel.export.prometheus.table import PrometheusSink
from rltel.names.catalogue import Entry, catalogue
from rltel.reduce.trackers import Trackers

# Hypothesis also draws texts that stand in our own source: a key of the catalogue has its own labels.
KEYS = st.text(min_size=1).filter(lambda key: key.strip("/") and catalogue().find(key) is None)


class TestExposition:
    def test_reads_back_with_the_library_s_parser(self) -> None:
        text = exposed(commit(recorded(everything), env_steps=640))
        assert value(text, "rl_stats_ppo_actor_loss", rl_stat="avg") == 1.75
        assert value(text, "rl_stats_ppo_actor_loss_numerator") == 3.5
        assert value(text, "rl_stats_ppo_actor_loss_denominator") == 2.0
        assert value(text, "rl_stats_pass_at_1", rl_stat="avg", rl_key="pass@1") == 0.25
        assert value(text, "rl_train_loss", rl_loss_type="actor") == -0.5
        assert value(text, "rl_samples_rate_per_second") == 1e5
        assert value(text, "rl_stats_episodes_total") == 2.0
        assert value(text, "rl_stats_seq_len_distribution_bucket", le="4.0") == 3.0
        assert value(text, "rl_stats_seq_len_distribution_bucket", le="+Inf") == 4.0
        assert value(text, "rl_stats_seq_len_distribution_sum") == 1001.5
        assert value(text, "rl_timing_duration_seconds_count", rl_timing="rollout") == 1.0
        assert value(text, "rl_phase_duration_seconds_sum", rl_phase="inference") == 0.25
        assert (value(text, "rl_step", rl_axis="train"), value(text, "rl_env_steps")) == (1.0, 640.0)

    def test_keys_with_any_character_come_back(self) -> None:
        text = exposed(commit(recorded(everything)))
        keys = {sample.labels["rl_key"] for sample in samples(text) if "rl_key" in sample.labels}
        assert 'eval/ü"\\\n' in keys

    def test_promtool_finds_nothing_to_say(self) -> None:
        assert promtool_check_metrics(exposed(commit(recorded(everything), env_steps=640))) == (0, "")

    def test_no_series_comes_twice_and_no_family_either(self) -> None:
        text = exposed(commit(recorded(everything)), commit(recorded(everything), step=2))
        found = [(sample.name, tuple(sorted(sample.labels.items()))) for sample in samples(text)]
        assert len(found) == len(set(found))
        types = [line.split()[2] for line in text.splitlines() if line.startswith("# TYPE")]
        assert len(types) == len(set(types))

    def test_who_is_scraped(self) -> None:
        (info,) = [sample for sample in samples(exposed(commit())) if sample.name == "target_info"]
        assert info.labels == {
            "instance_id": identity().instance_id,
            "rl_run_id": "run-1",
            "rl_role": "learner",
            "rl_rank": "0",
        }

    def test_what_was_lost_is_shown(self) -> None:
        text = exposed(commit())
        assert value(text, "rltel_exported_total", destination="otlp") == 3.0
        assert value(text, "rltel_dropped_total", destination="otlp", reason="queue_full") == 2.0

    def test_the_last_commit_counts_and_sums_go_on(self) -> None:
        text = exposed(*(commit(recorded(everything), step=step) for step in (1, 2, 3)))
        assert value(text, "rl_step") == 3.0
        assert value(text, "rl_stats_episodes_total") == 6.0
        assert value(text, "rl_stats_ppo_actor_loss_numerator") == 10.5
        assert value(text, "rl_stats_seq_len_distribution_count") == 12.0

    def test_axes_stand_side_by_side(self) -> None:
        """wandb#10628: rollout@8073 and train@0 are both kept."""
        text = exposed(commit({"a": 1.0}, step=8073, axis="rollout"), commit({"b": 1.0}, step=0))
        assert (value(text, "rl_step", rl_axis="rollout"), value(text, "rl_step", rl_axis="train")) == (8073.0, 0.0)

    def test_open_telemetry_python_5330_nan_is_scraped_as_nan(self) -> None:
        text = exposed(commit({"x": 1.25}), commit({"x": math.nan}))
        assert math.isnan(value(text, "rl_stats_x"))
        assert value(text, "rl_stats_nonfinite_total", rl_key="x") == 1.0

    @pytest.mark.parametrize("number", [math.inf, -math.inf, 1e-300, 123456789.125])
    def test_any_number_is_exact(self, number: float) -> None:
        assert value(exposed(commit({"x": number})), "rl_stats_x") == number

    def test_timestamps_are_the_step_s_own_if_asked(self) -> None:
        made = commit(recorded(everything))
        of_the_process = "rl_process_start_time_seconds"  # of no step
        shown = samples(exposed(made, timestamps=True))
        with_them = [each for each in shown if each.name.startswith("rl_") and each.name != of_the_process]
        assert {sample.timestamp for sample in with_them} == {made.time_ns // 10**6 / 1000}
        without = samples(exposed(made))
        assert {sample.timestamp for sample in without} == {None}

    def test_open_telemetry_python_3928_keys_that_collide_are_two_series_of_one_family(self) -> None:
        text = exposed(commit({"one/two_three": 1.0, "one_two/three": 2.0}))
        found = {
            sample.labels.get("rl_key"): sample.value
            for sample in samples(text)
            if sample.name == "rl_stats_one_two_three"
        }
        assert found == {None: 1.0, "one_two/three": 2.0}
        assert promtool_check_metrics(text) == (0, "")

    def test_a_name_of_two_types_is_still_an_exposition(self) -> None:
        """A counter `steps` is `steps_total` in Prometheus, and so is a gauge `steps_total`; suffixes clash, too."""

        def record(trackers: Trackers) -> None:
            trackers.default.count({"steps": 1, "steps/total": 2})
            trackers.default.gauge({"steps_total": 3.0, "x/distribution": 4.0})
            trackers.default.distribution(x=np.array([1.0]))

        text = exposed(commit(recorded(record)))
        assert value(text, "rl_stats_x_distribution", rl_stat="last") == 4.0
        assert value(text, "rl_stats_x_distribution_bucket", le="+Inf") == 1.0
        totals = sorted(sample.value for sample in samples(text) if sample.name == "rl_stats_steps_total")
        assert totals == [1.0, 2.0, 3.0]
        for name in ("rl_stats_x_distribution", "rl_stats_steps_total"):
            assert [line for line in text.splitlines() if line.startswith(f"# TYPE {name} ")] == [
                f"# TYPE {name} untyped"
            ]
        code, said = promtool_check_metrics(text)
        assert code != 1, said

    def test_ray_40586_one_bad_name_costs_nothing_else(self) -> None:
        """A file name that is no text (`os.listdir` gives such) as a key."""
        text = exposed(commit({"ok": 1.0, "data/\udcff": 2.0}))
        assert value(text, "rl_stats_ok") == 1.0
        assert value(text, "rl_stats_data_udcff", rl_key="data/\\udcff") == 2.0

    @settings(max_examples=25, deadline=None)
    @given(st.dictionaries(KEYS, st.floats(), max_size=8))
    def test_any_keys_and_numbers_read_back(self, numbers: dict[str, float]) -> None:
        text = exposed(commit(numbers))
        gauges = [sample for sample in samples(text) if sample.labels.get("rl_stat") == "last"]
        shown, given = [sample.value for sample in gauges], list(numbers.values())
        assert sorted(map(str, shown)) == sorted(map(str, given))


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


class Scraped:
    """A table that commits come to, one every ten seconds."""

    def __init__(self, expire_s: float = 300.0) -> None:
        self.clock = Clock()
        self.sink = PrometheusSink(expire_s=expire_s, now=self.clock)
        self.points = Points()
        self.step = 0

    def commit(self, *keys: str, axis: str = "train", times: int = 1, every_s: float = 10.0) -> None:
        for _ in range(times):
            self.step += 1
            self.clock.now += every_s
            self.take(commit(dict.fromkeys(keys, float(self.step)), step=self.step, axis=axis))

    def take(self, made: Commit) -> None:
        self.sink.write(made, self.points.of(made))

    def names(self) -> set[str]:
        return {sample.name for family in self.sink.families() for sample in family.samples}


class TestExpiry:
    """What a worker that has finished reported last does not stand there for ever."""

    def test_a_gauge_that_nothing_updates_goes(self) -> None:
        scraped = Scraped()
        scraped.commit("a", "worker/7", times=3)
        scraped.commit("a", times=30)
        assert {"rl_stats_a", "rl_stats_worker_7"} <= scraped.names()
        scraped.commit("a", times=30)
        assert "rl_stats_worker_7" not in scraped.names()
        assert {"rl_stats_a", "rl_step"} <= scraped.names()
        assert scraped.sink.expired == 1

    def test_and_comes_back_with_its_next_value(self) -> None:
        scraped = Scraped()
        scraped.commit("worker/7")
        scraped.commit(times=60)
        scraped.commit("worker/7")
        assert "rl_stats_worker_7" in scraped.names()

    def test_counters_sums_and_histograms_stay_while_their_process_lives(self) -> None:
        def record(trackers: Trackers) -> None:
            trackers.default.count(episodes=2)
            trackers.default.scalar(reward=1.0)
            trackers.default.distribution(seq_len=np.array([1.0]))

        scraped = Scraped()
        scraped.take(commit(recorded(record)))
        scraped.commit("a", times=1000)
        assert scraped.names() - {"rl_stats_a", "rl_step"} == {
            "rl_stats_episodes_total",
            "rl_stats_nonfinite_total",
            "rl_stats_reward_numerator",
            "rl_stats_reward_denominator",
            *(f"rl_stats_seq_len_distribution_{part}" for part in ("bucket", "count", "sum")),
        }

    def test_an_axis_that_rests_loses_nothing(self) -> None:
        """Evaluations have an axis of their own."""
        scraped = Scraped()
        scraped.commit("eval/reward", axis="eval")
        scraped.commit("a", times=1000)
        assert "rl_stats_eval_reward" in scraped.names()

    def test_a_trainer_that_rests_loses_nothing(self) -> None:
        scraped = Scraped()
        scraped.commit("a", "worker/7")
        scraped.commit("a", every_s=3600.0)
        assert "rl_stats_worker_7" in scraped.names(), "one commit later it may come again"

    def test_what_comes_seldom_and_again_stays(self) -> None:
        """Every 50 commits, that is 500 seconds, after it came twice."""
        scraped = Scraped()
        for _ in range(2):
            scraped.commit("a", "eval/reward")
            scraped.commit("a", times=49)
        scraped.commit("a", "eval/reward")
        scraped.commit("a", times=100)
        assert "rl_stats_eval_reward" in scraped.names()
        scraped.commit("a", times=100)
        assert "rl_stats_eval_reward" not in scraped.names()

    def test_memory_is_flat_over_workers_that_come_and_go(self) -> None:
        scraped = Scraped()
        for number in range(300):
            scraped.commit("a", f"worker_{number}/speed", times=2)
        gauges = [name for name in scraped.names() if name.endswith("_speed")]
        assert len(gauges) < 50


def test_a_counter_never_goes_back_within_its_process() -> None:
    """Whatever order axes, gaps and drops come in."""
    scraped = Scraped()
    seen = []
    for amount in (3, 0, 2, 5):
        scraped.take(commit(recorded(lambda trackers, amount=amount: trackers.default.count(n=amount))))
        scraped.commit("a", axis="other")
        seen.append(next(s.value for f in scraped.sink.families() for s in f.samples if s.name == "rl_stats_n_total"))
    assert seen == [3.0, 3.0, 5.0, 10.0]


@pytest.mark.parametrize("entry", catalogue().entries, ids=lambda entry: entry.key)
def test_promtool_finds_nothing_to_say_of_any_name_of_the_catalogue(entry: Entry) -> None:
    key = re.sub(r"\{\w+\}", "x", entry.key)
    text = exposed(commit({key: 1.0}), commit(recorded(lambda trackers: trackers.default.scalar({key: 2.0}))))
    assert promtool_check_metrics(text) == (0, "")


def test_20_000_series_cost_as_much_each_as_2_000() -> None:
    """Counted, not timed: how often a label set is put into words does not depend on how many there are."""
    texts = exposition._text_of
    calls = []

    def counted(labels: Mapping[str, str]) -> str:
        calls.append(1)
        return texts(labels)

    for size in (200, 2000):
        sink = PrometheusSink()
        made = commit({f"a/k{i}": float(i) for i in range(size)})
        sink.write(made, Points().of(made))
        registry = CollectorRegistry()
        registry.register(RunCollector(sink, list, identity()))
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(exposition, "_text_of", counted)
            expose(registry, "")
        assert len(calls) < 20, "only our own health, whatever the number of series"
        calls.clear()


def test_a_scrape_shows_one_moment() -> None:
    """The two sums of an average are of the same commit, however often it is scraped while others come in."""
    sink, points = PrometheusSink(), Points()
    made = commit(recorded(lambda trackers: trackers.default.scalar(reward=3.0)))
    sink.write(made, points.of(made))
    ended = threading.Event()

    def commits() -> None:
        while not ended.is_set():
            sink.write(made, points.of(made))

    writing = threading.Thread(target=commits)
    writing.start()
    try:
        for _ in range(300):
            found = {sample.name: sample.value for family in sink.families() for sample in family.samples}
            assert found["rl_stats_reward_numerator"] == 3.0 * found["rl_stats_reward_denominator"]
    finally:
        ended.set()
        writing.join()


def test_a_scrape_that_is_not_read_to_its_end_holds_nothing() -> None:
    sink = PrometheusSink()
    made = commit({"x": 1.0, "y": 2.0})
    sink.write(made, Points().of(made))
    begun = iter(sink.families())
    next(begun)
    sink.write(made, Points().of(made))
    assert not sink._lock.locked()
