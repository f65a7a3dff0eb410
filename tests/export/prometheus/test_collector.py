"""Our own health on the endpoint, and several instances on one registry."""

import os

import numpy as np
import pytest
from prometheus_client import CollectorRegistry, Gauge, generate_latest
from prometheus_client.registry import CollectorRegistry as Registry

from export.making import Points, commit, identity, recorded
from export.scraping import samples, value
from realparts.prometheus import promtool_check_metrics
from rltel.core.identity import Identity
from rltel.export.commit import Commit
from rltel.export.prometheus.collector import RunCollector, join
from rltel.export.prometheus.exposition import expose
from rltel.export.prometheus.table import PrometheusSink
from rltel.export.sink import Destination, Waiting
from rltel.names.otel import Namer
from rltel.reduce.trackers import Trackers


def collector(
    *commits: Commit, who: Identity | None = None, destinations: list[Destination] | None = None
) -> RunCollector:
    sink, points = PrometheusSink(), Points()
    for made in commits:
        sink.write(made, points.of(made))
    return RunCollector(sink, lambda: destinations or [], who or identity(), points.namer)


def shown(registry: Registry) -> str:
    text = expose(registry, "").body.decode()
    assert text == generate_latest(registry).decode()
    return text


class TestHealth:
    @pytest.fixture
    def text(self) -> str:
        destination = Destination("otlp", now=lambda: 1795987020.5)
        destination.exported(3)
        destination.dropped("queue_full", 2)
        destination.waiting(ConnectionError("away"))
        destination.queue = lambda: Waiting(4, 1600)
        for seconds in (0.0005, 0.2, 100.0):
            destination.took(seconds)
        registry = CollectorRegistry()
        join(registry, collector(destinations=[destination, Destination("jsonl")]))
        return shown(registry)

    def test_what_arrived_and_what_did_not(self, text: str) -> None:
        assert value(text, "rltel_exported_total", destination="otlp") == 3.0
        assert value(text, "rltel_dropped_total", destination="otlp", reason="queue_full") == 2.0
        assert value(text, "rltel_retries_total", destination="otlp") == 1.0
        assert value(text, "rltel_exported_total", destination="jsonl") == 0.0

    def test_when_something_arrived_last(self, text: str) -> None:
        assert value(text, "rltel_last_success_timestamp_seconds", destination="otlp") == 1795987020.5
        found = {s.labels["destination"] for s in samples(text) if s.name.startswith("rltel_last_success")}
        assert found == {"otlp"}, "nothing ever reached the other: there is no time to show"

    def test_what_waits(self, text: str) -> None:
        assert value(text, "rltel_queue_items", destination="otlp") == 4.0
        assert value(text, "rltel_queue_bytes", destination="otlp") == 1600.0

    def test_how_long_it_takes(self, text: str) -> None:
        assert value(text, "rltel_export_seconds_bucket", destination="otlp", le="0.001") == 1.0
        assert value(text, "rltel_export_seconds_bucket", destination="otlp", le="0.5") == 2.0
        assert value(text, "rltel_export_seconds_bucket", destination="otlp", le="+Inf") == 3.0
        assert value(text, "rltel_export_seconds_sum", destination="otlp") == pytest.approx(100.2005)
        assert value(text, "rltel_export_seconds_count", destination="otlp") == 3.0

    def test_promtool_finds_nothing_to_say(self, text: str) -> None:
        assert promtool_check_metrics(text) == (0, "")

    def test_names_that_had_no_room_are_shown(self) -> None:
        namer = Namer(max_series=1)
        for key in ("reward/a", "reward/b", "reward/c", "one/two_three", "one_two/three"):
            namer.name(key)
        registry = CollectorRegistry()
        join(registry, RunCollector(PrometheusSink(), list, identity(), namer))
        text = shown(registry)
        assert value(text, "rltel_overflowed_keys", metric="rl_reward_term") == 2.0
        assert value(text, "rltel_names_collided_total") == 1.0
        assert promtool_check_metrics(text) == (0, "")


class TestOneRegistry:
    """vllm-project/vllm#39906: a second instance raised "Duplicated timeseries in CollectorRegistry"."""

    FIRST, SECOND = identity(), identity(run_id="run-2", index=1)

    @pytest.fixture(params=[False, True], ids=["own", "auto_describe"])
    def registry(self, request: pytest.FixtureRequest) -> Registry:
        """The global registry of the library describes itself, and refuses a name that it has."""
        return CollectorRegistry(auto_describe=request.param)

    def record(self, trackers: Trackers) -> None:
        trackers.default.count(episodes=2)
        trackers.default.distribution(seq_len=np.array([1.0, 2.0]))

    def both(self, registry: Registry) -> str:
        for who in (self.FIRST, self.SECOND):
            join(registry, collector(commit(recorded(self.record)), who=who, destinations=[Destination("otlp")]))
        return shown(registry)

    def test_two_instances_are_two_series_of_one_family(self, registry: Registry) -> None:
        text = self.both(registry)
        found = [(s.labels, s.value) for s in samples(text) if s.name == "rl_stats_episodes_total"]
        assert found == [({}, 2.0), ({"rl_instance": "run-2/learner-1.1"}, 2.0)]
        assert {s.labels.get("rl_instance") for s in samples(text) if s.name == "target_info"} == {
            None,
            "run-2/learner-1.1",
        }

    def test_promtool_finds_nothing_to_say(self, registry: Registry) -> None:
        assert promtool_check_metrics(self.both(registry)) == (0, "")

    def test_the_same_place_twice_is_told_apart_too(self, registry: Registry) -> None:
        for _ in range(3):
            join(registry, collector(commit({"x": 1.0})))
        found = {s.labels.get("rl_instance") for s in samples(shown(registry)) if s.name == "rl_stats_x"}
        assert found == {None, "run-1/learner-0.1#2", "run-1/learner-0.1#3"}

    def test_a_user_s_own_metrics_stay(self, registry: Registry) -> None:
        Gauge("users_own", "A user's.", registry=registry).set(7)
        assert value(self.both(registry), "users_own") == 7.0

    def test_one_that_left_is_gone_and_the_other_keeps_its_labels(self, registry: Registry) -> None:
        leave = join(registry, collector(commit({"x": 1.0}), who=self.FIRST))
        join(registry, collector(commit({"x": 2.0}), who=self.SECOND))
        leave()
        assert [(s.labels["rl_instance"], s.value) for s in samples(shown(registry)) if s.name == "rl_stats_x"] == [
            ("run-2/learner-1.1", 2.0)
        ]

    def test_one_that_comes_after_the_last_left_is_the_only_one(self, registry: Registry) -> None:
        join(registry, collector(commit({"x": 1.0})))()
        assert shown(registry) == ""
        join(registry, collector(commit({"x": 2.0})))
        assert value(shown(registry), "rl_stats_x") == 2.0

    @pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
    @pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
    def test_a_forked_child_starts_empty(self, registry: Registry) -> None:
        """What the parent had on the registry is the parent's."""
        join(registry, collector(commit({"x": 1.0})))
        child = os.fork()
        if child == 0:
            os._exit(0 if expose(registry, "").body == b"" else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert value(shown(registry), "rl_stats_x") == 1.0


def test_joining_is_no_scrape() -> None:
    """`prometheus.linger_s` counts them."""
    member = collector()
    registry = CollectorRegistry(auto_describe=True)
    join(registry, member)
    assert member.scrapes == 0
    shown(registry)
    assert member.scrapes == 2
