"""The queries of docs/promql.md, asked of real servers: averages weighted over steps, workers and restarts.

Rewards are negative at first and positive later, so sums fall and rise; worker 0 is restarted in the middle.
"""

import random
import re
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import pytest
from opentelemetry.sdk.resources import Resource

from export.making import Points, commit, identity, recorded
from realparts.prometheus import Prometheus, backfill, prometheus
from realparts.requirements import REPOSITORY
from realparts.victoriametrics import VictoriaMetrics, victoria_metrics
from rltel.core.config import OtlpConfig
from rltel.export.otlp.metrics import OtlpSink, open_otlp_metrics

WINDOW_S = 300
STEP_S = 10
SCRAPE_S = 15
HOUR_S = 3600
DOWN = (1700, 1740)
METRIC = "rl_stats_reward"


@dataclass
class Step:
    """What one worker recorded at once."""

    at: float
    worker: int
    incarnation: int
    total: float
    count: int


def steps_of(worker: int, start: float, rng: random.Random) -> Iterator[Step]:
    """An hour of them. The first of a process is heavy: what is left out of it shows."""
    at = start + worker
    seen = 0
    while at < start + HOUR_S:
        since = at - start
        is_down = worker == 0 and DOWN[0] < since < DOWN[1]
        incarnation = 1 + (worker == 0 and since >= DOWN[1])
        count = rng.randint(1, 400) if seen == incarnation else 20_000
        mean = -3 + 6 * since / HOUR_S + 4 * worker + rng.gauss(0, 2)
        if not is_down:
            seen = incarnation
            yield Step(at, worker, incarnation, mean * count, count)
        at += STEP_S * (1 + worker / 10)


def weighted(steps: Sequence[Step], at: float) -> float:
    """The average over everything recorded in the window."""
    inside = [step for step in steps if at - WINDOW_S < step.at <= at]
    return sum(step.total for step in inside) / sum(step.count for step in inside)


def query_of_docs(number: int) -> str:
    """The queries of the page, in their order, for this metric."""
    page = (REPOSITORY / "docs" / "promql.md").read_text()
    found = re.findall(r"```promql\n(.*?)```", page, re.DOTALL)[number]
    return str(found).replace("rl_stats_ppo_actor_update_loss", METRIC)


DELTA, EXACT = 0, 1
MOMENTS = {
    "all is well": range(500, 1600, 110),
    "over the restart": range(1705, 2040, 25),
    "at the beginning": range(60, 300, 30),
}


@pytest.fixture(scope="module")
def start() -> float:
    """Of an hour that is over."""
    return float(int(time.time()) - 3 * HOUR_S)


@pytest.fixture(scope="module")
def steps(start: float) -> list[Step]:
    rng = random.Random(1)
    return sorted((step for worker in (0, 1) for step in steps_of(worker, start, rng)), key=lambda step: step.at)


@pytest.fixture(scope="module")
def victoria(steps: list[Step], tmp_path_factory: pytest.TempPathFactory) -> Iterator[VictoriaMetrics]:
    with victoria_metrics(tmp_path_factory.mktemp("victoria")) as server:
        processes: dict[tuple[int, int], tuple[OtlpSink, Points]] = {}
        for step in steps:
            place = (step.worker, step.incarnation)
            if place not in processes:
                config = OtlpConfig(endpoint=server.otlp_endpoint)
                resource = Resource({"service.instance.id": str(step.worker)})
                sink = open_otlp_metrics(config, resource, int(step.at * 1e9), {})
                processes[place] = (sink, Points())
            sink, points = processes[place]
            made = commit(
                recorded(lambda trackers, step=step: trackers.default.scalar(reward=step.total / step.count)),
                time_ns=round(step.at * 1e9),
                identity=identity(index=step.worker, incarnation=step.incarnation),
            )
            weigh(made, step)
            sink.write(made, points.of(made))
        for sink, _ in processes.values():
            sink.close()
        yield server


def weigh(made: object, step: Step) -> None:
    """A scalar of this many calls, without making them."""
    moments = made.snapshot["reward"].state.moments  # type: ignore[attr-defined]  # a commit
    moments[0], moments[1] = step.total, float(step.count)


@pytest.fixture(scope="module")
def scrapes(steps: list[Step], start: float) -> list[Step]:
    """At each scrape: the sums so far, of the process that answered."""
    found = []
    for worker in (0, 1):
        mine = [step for step in steps if step.worker == worker]
        at = start + 4 + 5 * worker
        while at < start + HOUR_S:
            incarnation = max((step.incarnation for step in mine if step.at <= at), default=0)
            sums = [step for step in mine if step.at <= at and step.incarnation == incarnation]
            is_down = worker == 0 and DOWN[0] < at - start < DOWN[1]
            if sums and not is_down:
                total, count = sum(step.total for step in sums), sum(step.count for step in sums)
                found.append(Step(at, worker, incarnation, total, count))
            at += SCRAPE_S
    return found


@pytest.fixture(scope="module")
def scraping(scrapes: list[Step], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    folder = tmp_path_factory.mktemp("prometheus")
    lines = []
    for part, read in (("numerator", lambda step: step.total), ("denominator", lambda step: step.count)):
        lines.append(f"# TYPE {METRIC}_{part} gauge")
        for step in scrapes:
            labels = f'instance="{step.worker}",rl_incarnation="{step.incarnation}"'
            lines.append(f"{METRIC}_{part}{{{labels}}} {read(step)!r} {step.at!r}")
    backfill(folder, "\n".join([*lines, "# EOF", ""]))
    with prometheus(tmp_path=folder) as server:
        yield server


class TestVictoriaMetrics:
    """Fed by OTLP, each step with its own time: exact."""

    @pytest.mark.parametrize("when", MOMENTS)
    @pytest.mark.parametrize("query", [DELTA, EXACT])
    def test_gives_the_weighted_average(
        self, victoria: VictoriaMetrics, steps: list[Step], start: float, when: str, query: int
    ) -> None:
        for since in MOMENTS[when]:
            at = start + since + 0.5
            ((_, found),) = victoria.query(query_of_docs(query), time=at)
            assert found == pytest.approx(weighted(steps, at), rel=1e-9), since

    def test_a_restart_is_a_series_of_its_own(self, victoria: VictoriaMetrics) -> None:
        found = {(s["service_instance_id"], s["rl_incarnation"]) for s in victoria.series(f"{METRIC}_numerator")}
        assert found == {("0", "1"), ("0", "2"), ("1", "1")}


class TestPrometheus:
    """Scraped every 15 s: as exact as what was scraped, or as its extrapolation."""

    def off(self, scraping: Prometheus, query: int, wanted: Callable[[float], float], start: float) -> dict[str, float]:
        """How far the answers are from what is wanted, at most."""
        found = {}
        for when, moments in MOMENTS.items():
            at = [start + since + 0.5 for since in moments]
            answers = [scraping.query(query_of_docs(query), time=moment)[0][1] for moment in at]
            found[when] = max(abs(answer - wanted(moment)) for answer, moment in zip(answers, at, strict=True))
        return found

    def as_scraped(self, scrapes: list[Step], at: float) -> float:
        """The last sums of each process in the window, without those at its beginning."""
        total = count = 0.0
        for process in {(step.worker, step.incarnation) for step in scrapes}:
            mine = [step for step in scrapes if (step.worker, step.incarnation) == process and step.at <= at]
            inside = [step for step in mine if step.at > at - WINDOW_S]
            before = [step for step in mine if step.at <= at - WINDOW_S]
            if inside:
                total += inside[-1].total - (before[-1].total if before else 0.0)
                count += inside[-1].count - (before[-1].count if before else 0.0)
        return total / count

    def test_without_extrapolation_it_is_what_was_scraped(
        self, scraping: Prometheus, scrapes: list[Step], start: float
    ) -> None:
        found = self.off(scraping, EXACT, lambda at: self.as_scraped(scrapes, at), start)
        assert max(found.values()) < 1e-9

    def test_delta_is_off_by_its_extrapolation(self, scraping: Prometheus, scrapes: list[Step], start: float) -> None:
        """And by the first step of a process, which it never sees. The page says by how much."""
        found = self.off(scraping, DELTA, lambda at: self.as_scraped(scrapes, at), start)
        assert 0.01 < found["all is well"] < 0.5
        assert found["over the restart"] > 0.5
        assert found["at the beginning"] > 0.5

    def test_without_extrapolation_it_is_near_the_truth(
        self, scraping: Prometheus, steps: list[Step], start: float
    ) -> None:
        """The rest is what no scrape saw: up to one interval at each end of the window."""
        found = self.off(scraping, EXACT, lambda at: weighted(steps, at), start)
        assert max(found.values()) < 0.5

    def test_every_query_of_the_page_is_one(self, scraping: Prometheus) -> None:
        page = (REPOSITORY / "docs" / "promql.md").read_text()
        queries = re.findall(r"```promql\n(.*?)```", page, re.DOTALL)
        assert len(queries) > 5
        for query in queries:
            scraping.query(query)
