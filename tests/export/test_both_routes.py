"""Every row of the design's table of names, on both routes: scraped by Prometheus, and sent over OTLP.

One metric has one name, whichever way it came.
"""

import time
from pathlib import Path

import numpy as np
import pytest
from opentelemetry.sdk.resources import Resource

from export.making import Points, commit, identity, recorded
from export.scraping import endpoint
from names.rows import ROWS, Row, series
from realparts.prometheus import Labels, prometheus
from realparts.victoriametrics import VictoriaMetrics, victoria_metrics
from rltel.core.config import OtlpConfig, RunConfig
from rltel.export.commit import Commit
from rltel.export.otlp.metrics import open_otlp_metrics
from rltel.export.resource import resource_of
from rltel.reduce.trackers import Trackers


def everything(trackers: Trackers) -> None:
    for record in {row.record for row in ROWS}:
        record(trackers)


@pytest.fixture(scope="module")
def made() -> Commit:
    """Every row in one commit, now."""
    return commit(recorded(everything), time_ns=time.time_ns())


@pytest.fixture(scope="module")
def scraped(made: Commit, tmp_path_factory: pytest.TempPathFactory) -> set[str]:
    """The series that Prometheus has."""
    with (
        endpoint(made) as served,
        prometheus([served.target], tmp_path=tmp_path_factory.mktemp("prometheus")) as server,
    ):
        # One query for all: a later scrape that takes too long would mark every series as gone.
        return {named(labels) for labels, _ in server.wait_for('{__name__=~"rl_.+"}')}


@pytest.fixture(scope="module")
def sent(made: Commit, tmp_path_factory: pytest.TempPathFactory) -> set[str]:
    """The series that VictoriaMetrics has, of a resource without attributes (it makes them labels)."""
    with victoria_metrics(tmp_path_factory.mktemp("victoria")) as server:
        send(server, made, Resource({}))
        return {named(labels) for labels in server.series('{__name__=~"rl_.+"}')}


def send(server: VictoriaMetrics, made: Commit, resource: Resource) -> None:
    sink = open_otlp_metrics(OtlpConfig(endpoint=server.otlp_endpoint), resource, made.time_ns - 10**9, {})
    sink.write(made, Points().of(made))
    sink.close()


def named(labels: Labels) -> str:
    own = {label: value for label, value in labels.items() if label not in ("__name__", "job", "instance")}
    return series(labels["__name__"], own)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.key)
def test_a_scrape_has_the_row_s_series(row: Row, scraped: set[str]) -> None:
    assert row.prometheus <= scraped


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.key)
def test_otlp_has_the_row_s_series(row: Row, sent: set[str]) -> None:
    assert row.prometheus <= sent


def test_neither_has_a_series_that_the_other_has_not(scraped: set[str], sent: set[str]) -> None:
    assert scraped == sent


def test_what_a_point_says_is_stronger_than_its_resource(made: Commit, tmp_path: Path) -> None:
    """A learner sends what it was told of its collectors: `rl.role` is both."""
    resource = resource_of(identity(), RunConfig(), {})
    assert resource.attributes["rl.role"] == "learner"
    with victoria_metrics(tmp_path) as server:
        step = commit({"Perf/collector_env_step_ms": 3.0}, time_ns=time.time_ns())
        send(server, step, resource)
        found = server.series("rl_phase_duration_seconds_count")
    assert [labels["rl_role"] for labels in found] == ["collector"]


def test_victoria_metrics_takes_exponential_histograms(tmp_path: Path) -> None:
    """It makes ranges of its own of them; count, sum and quantiles are right."""

    def record(trackers: Trackers) -> None:
        trackers.default.distribution(x=np.array([1.0, 2.0, 3.0, 100.0]))

    with victoria_metrics(tmp_path) as server:
        config = OtlpConfig(endpoint=server.otlp_endpoint, exponential_histograms=True)
        made = commit(recorded(record), time_ns=time.time_ns())
        sink = open_otlp_metrics(config, Resource({}), made.time_ns - 10**9, {})
        sink.write(made, Points().of(made))
        sink.close()
        ((_, count),) = server.wait_for("rl_stats_x_distribution_count")
        ((_, total),) = server.query("rl_stats_x_distribution_sum")
        ((_, top),) = server.query("histogram_quantile(1, sum by (vmrange) (rl_stats_x_distribution_bucket))")
    assert (count, total) == (4.0, 106.0)
    assert top == pytest.approx(100.0, rel=0.05)
