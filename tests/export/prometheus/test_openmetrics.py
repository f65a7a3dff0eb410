"""What OpenMetrics has no form for is read by its strict parser all the same."""

import numpy as np
import pytest
from prometheus_client import CollectorRegistry, Gauge
from prometheus_client.core import Metric
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from export.making import commit, identity, recorded
from export.scraping import registry_after
from rltel.export.prometheus.collector import RunCollector
from rltel.export.prometheus.exposition import expose
from rltel.export.prometheus.openmetrics import Claims, Written, allowed
from rltel.export.prometheus.table import PrometheusSink
from rltel.export.sink import Destination
from rltel.reduce.trackers import Trackers

OPENMETRICS = "application/openmetrics-text; version=1.0.0"


def families_of(record: object) -> dict[str, Metric]:
    made = commit(recorded(record))  # type: ignore[arg-type]  # a function of trackers
    text = expose(registry_after(made), OPENMETRICS).body.decode()
    return {family.name: family for family in text_string_to_metric_families(text)}


def test_a_histogram_with_bounds_below_0_goes_as_plain_series() -> None:
    found = families_of(lambda trackers: trackers.default.distribution(x=np.array([-1.0, 2.0])))
    bucket = found["rl_stats_x_distribution_bucket"]
    assert bucket.type == "unknown"
    assert {sample.labels["le"]: sample.value for sample in bucket.samples}["-1.0"] == 1.0
    assert found["rl_stats_x_distribution_sum"].samples[0].value == 1.0
    assert found["rl_stats_x_distribution_count"].samples[0].value == 2.0


def test_those_of_one_label_set_stand_together() -> None:
    """Else the official parser refuses the whole scrape."""
    registry = CollectorRegistry()
    destinations = [Destination("otlp"), Destination("wandb")]
    registry.register(RunCollector(PrometheusSink(), lambda: destinations, identity()))
    body = expose(registry, OPENMETRICS).body.decode()
    (family,) = [each for each in text_string_to_metric_families(body) if each.name == "rltel_export_seconds"]
    assert len({sample.labels["destination"] for sample in family.samples}) == 2


def test_one_without_stays_a_histogram() -> None:
    def timed(trackers: Trackers) -> None:
        with trackers.default.record_timing("x"):
            pass

    assert families_of(timed)["rl_timing_duration_seconds"].type == "histogram"


@pytest.mark.parametrize(
    ("gauge", "wanted"), [("Steps", "rl_stats_steps"), ("steps_total", "rl_stats_steps_total")], ids=["bare", "total"]
)
def test_a_counter_and_a_gauge_of_its_name_are_both_there(gauge: str, wanted: str) -> None:
    """OpenMetrics calls the counter `rl_stats_steps`, too."""

    def record(trackers: Trackers) -> None:
        trackers.default.count(steps=2)
        trackers.default.gauge({gauge: 7.0})

    found = families_of(record)
    assert 7.0 in [sample.value for sample in found[wanted].samples]
    assert 2.0 in [sample.value for sample in found["rl_stats_steps_total"].samples]


def test_a_gauge_of_a_histogram_s_series_too() -> None:
    def record(trackers: Trackers) -> None:
        trackers.default.gauge({"x/distribution/count": 7.0, "x_distribution": 4.0})
        trackers.default.distribution(x=np.array([1.0, 2.0]))

    found = families_of(record)
    assert sorted(sample.value for sample in found["rl_stats_x_distribution_count"].samples) == [2.0, 7.0]


def test_a_user_s_own_metric_of_our_name_is_there_too() -> None:
    registry = registry_after(commit(recorded(lambda trackers: trackers.default.count(steps=2))))
    Gauge("rl_stats_steps", "A user's.", registry=registry).set(7)
    text = expose(registry, OPENMETRICS).body.decode()
    found = {s.name: (family.type, s.value) for family in text_string_to_metric_families(text) for s in family.samples}
    assert found["rl_stats_steps"] == ("unknown", 7.0)
    assert found["rl_stats_steps_total"] == ("unknown", 2.0)


def test_what_it_has_a_form_for_is_left_alone() -> None:
    family = Written("x", "gauge", "About x.", {"x": "x 1.0\n"})
    claims = Claims()
    claims.add("x", "gauge", {"x"})
    assert list(allowed([family], claims)) == ["# HELP x About x.\n# TYPE x gauge\nx 1.0\n"]
