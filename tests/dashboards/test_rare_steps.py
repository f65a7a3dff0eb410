"""Averages of a trainer whose steps are rarer than the window: over OTLP there is a sample a step, and none between."""

import time
from collections.abc import Iterator

import numpy as np
import pytest

from export.making import Points, commit, identity, recorded
from realparts.prometheus import Prometheus, backfill, prometheus
from realparts.victoriametrics import VictoriaMetrics, victoria_metrics
from rltel.core.config import OtlpConfig, RunConfig
from rltel.dashboards.promql import weighted
from rltel.dashboards.series import series
from rltel.export.otlp.metrics import open_otlp_metrics
from rltel.export.resource import resource_of
from rltel.reduce.trackers import Trackers

APART_S = 15 * 60
MEANS = (1.0, 5.0, 2.0, 4.0)
KEY = "ppo_actor/train_infer/importance_weight"
AT = float(int(time.time()) - 6 * 3600)
WINDOWS = ("1m", "5m")


def query(window: str) -> str:
    text = str(weighted(series(KEY))).replace("$window", window)
    for name in ("run", "role", "rank", "job"):
        text = text.replace(f"${name}", ".*")
    return text


def times() -> Iterator[tuple[float, float]]:
    """Of each step, and its mean."""
    return ((AT + number * APART_S, mean) for number, mean in enumerate(MEANS))


@pytest.fixture(scope="module")
def sent(tmp_path_factory: pytest.TempPathFactory) -> Iterator[VictoriaMetrics]:
    with victoria_metrics(tmp_path_factory.mktemp("victoria")) as server:
        resource = resource_of(identity(), RunConfig(), {})
        sink = open_otlp_metrics(OtlpConfig(endpoint=server.otlp_endpoint), resource, int(AT * 1e9), {})
        points = Points()
        for number, (at, mean) in enumerate(times()):

            def record(trackers: Trackers, mean: float = mean) -> None:
                with trackers.default.scope("ppo_actor/train_infer"):
                    trackers.default.stat({"importance_weight": np.full(3, mean)}, mask=np.ones(3, dtype=bool))

            made = commit(recorded(record), time_ns=int(at * 1e9), number=number, step=number)
            sink.write(made, points.of(made))
        sink.close()
        yield server


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    """The same samples, as a Prometheus would have them that takes OTLP."""
    folder = tmp_path_factory.mktemp("prometheus")
    name, labels = series(KEY).name, '{rl_run_id="run-1",rl_role="learner",rl_rank="0",rl_incarnation="1"}'
    lines = []
    for part, of_step in (("numerator", [3 * mean for mean in MEANS]), ("denominator", [3.0] * len(MEANS))):
        lines.append(f"# TYPE {name}_{part} gauge")
        sums = np.cumsum(of_step)
        lines += [f"{name}_{part}{labels} {value} {at}" for value, (at, _) in zip(sums, times(), strict=True)]
    backfill(folder, "\n".join([*lines, "# EOF", ""]))
    with prometheus(tmp_path=folder) as server:
        yield server


@pytest.mark.parametrize("window", WINDOWS)
@pytest.mark.parametrize("after_s", [5, 50])
def test_an_average_is_that_of_the_step_in_the_window(
    sent: VictoriaMetrics, stored: Prometheus, window: str, after_s: int
) -> None:
    """And not of everything since the process began."""
    for server in (sent, stored):
        found = [server.query(query(window), at + after_s) for at, _ in times()]
        assert [value for ((_, value),) in found] == pytest.approx(list(MEANS))


def test_without_a_step_in_the_window_there_is_none(sent: VictoriaMetrics, stored: Prometheus) -> None:
    at = AT + APART_S + 10 * 60
    assert sent.query(query("5m"), at) == stored.query(query("5m"), at) == []
