"""Every query of every panel, asked of real stores that real runs went to, on both routes.

SAC, GRPO with a restart and two ranks, and a trainer with what those have not: `realparts.dashboard_stores`.
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from itertools import chain, pairwise

import pytest

from realparts import other_panels
from realparts.dashboard_stores import GRPO, OTHER, SAC, SCRAPE_S, Stores
from realparts.dashboard_truth import (
    Part,
    average,
    increase_by_victoria,
    increments,
    key_of,
    merged,
    parts,
    phase_keys,
    prefixes,
    shown,
)
from realparts.prometheus import Labels, Vector
from rltel.dashboards.all_of_them import DASHBOARDS
from rltel.dashboards.dashboard import MARKS
from rltel.dashboards.panel import Panel, Query
from rltel.dashboards.promql import Expr
from rltel.dashboards.series import Series
from rltel.export.jsonl import Line

pytestmark = [
    pytest.mark.xdist_group("demo"),  # one after the other: two demos at once would share two cores
    pytest.mark.timeout(900),  # whole trainings are in the first test's time, however busy the machine
]

RUNS = (SAC, GRPO, OTHER)
WINDOW = "5m"
"""Longer than any of the runs is old: this is their first minutes."""
NEAR = 0.03
"""What Prometheus's extrapolation leaves of a quotient of two series that were scraped together."""

Asked = tuple[str, Panel, Query]


def all_queries() -> Iterator[Asked]:
    for dashboard in DASHBOARDS:
        for panel in dashboard.panels:
            for query in panel.queries:
                yield dashboard.slug, panel, query


ALL = list(all_queries())


def of_queries(asked: Iterable[Asked]) -> pytest.MarkDecorator:
    """One test of each."""
    found = list(asked)
    ids = [f"{slug}-{panel.title}-{panel.queries.index(query)}" for slug, panel, query in found]
    return pytest.mark.parametrize(("slug", "panel", "query"), found, ids=ids)


def of_kinds(*kinds: str) -> pytest.MarkDecorator:
    """Of those that a demo answers. (Accounts of destinations are in no record: tests/export/otlp/test_own.py.)"""
    return of_queries(
        each for each in ALL if each[2].expr.kind in kinds and not each[2].needs and "rltel_" not in str(each[2].expr)
    )


each_query = of_queries(ALL)


def filled(text: str, run: str) -> str:
    """With the variables as Grafana would put them."""
    for name in ("role", "rank", "job", "layer"):
        text = text.replace(f"${name}", ".*")
    text = text.replace("$run", run).replace("$window", WINDOW).replace("$__from", "0")
    return text.replace("$__rate_interval", f"{4 * SCRAPE_S:g}s")


class Moments:
    """When a run is asked: as the store saw it, since the scrapes of a run end with it."""

    def __init__(self, stores: Stores, run: str) -> None:
        loops = f'rl_loop_duration_seconds_count{{rl_run_id="{run}",rl_role="learner"}}[20m]'
        scraped = [sample for _, of in stores.prometheus.samples(loops, time=stores.ended + 60) for sample in of]
        self._lines = [line.time_ns / 1e9 for line in stores.lines(run)]
        self.last = self._after(scraped[-1][0])
        self.early = self._after(first_regular(scraped, max(3, len(scraped) // 3), 4))
        falls = [number for number, both in enumerate(pairwise(scraped), start=1) if both[1][1] < both[0][1]]
        self.restarted = self._after(first_regular(scraped, falls[0] + 1, 2)) if falls else None

    def _after(self, at: float) -> float:
        """Right after a scrape, and at no line's time: a store rounds that to milliseconds, down or up."""
        at += 0.001
        while any(abs(line - at) < 0.004 for line in self._lines):
            at += 0.005
        return at


def first_regular(scraped: Sequence[tuple[float, float]], number: int, needed: int) -> float:
    """When the first of these scrapes was, from this one on, that came with those before it in the time they should.

    Rates are over four scrapes' time; a machine that stood still for so long has none for a moment.
    """
    for scrapes in (scraped[last + 1 - needed : last + 1] for last in range(number, len(scraped))):
        if scrapes[-1][0] - scrapes[0][0] < needed * SCRAPE_S:
            return scrapes[-1][0]
    raise AssertionError(f"no {needed} scrapes in a row: {scraped}")


@cache
def moments(stores: Stores, run: str) -> Moments:
    return Moments(stores, run)


def answers(stores: Stores, query: Query, run: str, at: float) -> tuple[Vector, Vector]:
    """What Prometheus says, and what VictoriaMetrics says."""
    text = filled(str(query.expr), run)
    return stores.prometheus.query(text, time=at), stores.victoria.query(text, time=at)


def answered_by(query: Query) -> tuple[str, ...]:
    return (OTHER,) if query.needs else (SAC, GRPO)


@each_query
def test_it_answers_on_both_routes(stores: Stores, slug: str, panel: Panel, query: Query) -> None:
    found = [answers(stores, query, run, moments(stores, run).last) for run in answered_by(query)]
    assert any(scraped for scraped, _ in found), query.expr
    if not panel.scraped_only:
        assert any(sent for _, sent in found), query.expr
    for vector in (vector for both in found for vector in both):
        assert all(math.isfinite(value) for _, value in vector), vector
        assert all(labels.get("rl_run_id") in RUNS for labels, _ in vector), vector


@each_query
def test_it_answers_in_the_first_minutes(stores: Stores, slug: str, panel: Panel, query: Query) -> None:
    for run in answered_by(query):
        later, early = (
            answers(stores, query, run, at) for at in (moments(stores, run).last, moments(stores, run).early)
        )
        assert bool(early[0]) == bool(later[0]), f"{run} scraped"
        if "rltel_dropped" not in str(query.expr):  # what is lost here are spans, after some tries
            assert bool(early[1]) == bool(later[1]), f"{run} sent"


@each_query
def test_it_answers_across_a_restart(stores: Stores, slug: str, panel: Panel, query: Query) -> None:
    at = moments(stores, GRPO).restarted
    assert at is not None
    later, then = (answers(stores, query, GRPO, when) for when in (moments(stores, GRPO).last, at))
    assert bool(then[0]) == bool(later[0]), "scraped"
    assert bool(then[1]) == bool(later[1]), "sent"


@of_queries(each for each in ALL if each[2].needs)
def test_what_is_said_to_be_in_no_demo_is_in_none(stores: Stores, slug: str, panel: Panel, query: Query) -> None:
    """The table in docs/dashboards.md is right."""
    assert [answers(stores, query, run, moments(stores, run).last) for run in (SAC, GRPO)] == [([], []), ([], [])]


def test_what_otlp_does_not_bring_is_said(stores: Stores) -> None:
    """Only the health of destinations: everything else serves both routes."""
    lacking = set()
    for slug, panel, query in ALL:
        sent = [answers(stores, query, run, moments(stores, run).last)[1] for run in answered_by(query)]
        if not any(sent):
            lacking.add((slug, panel.title))
    assert lacking == {(slug, panel.title) for slug, panel, _ in ALL if panel.scraped_only}


class TestAverages:
    """Weighted over steps and restarts, from 0 where the run began."""

    @of_kinds("weighted", "either")
    @pytest.mark.parametrize("when", ["early", "restarted", "last"])
    def test_are_those_of_the_jsonl(self, stores: Stores, slug: str, panel: Panel, query: Query, when: str) -> None:
        compared = 0
        for run in (SAC, GRPO):
            at = getattr(moments(stores, run), when)
            if at is None:
                continue
            scraped, sent = answers(stores, query, run, at)
            for labels, value in scraped:
                of = self.parts(stores, run, query, labels)
                assert near_one(value, prefixes(of, average, at + SCRAPE_S), 1e-9), labels
                compared += 1
            for labels, value in sent:
                of = [part for part in self.parts(stores, run, query, labels) if part.time <= at]
                assert value == pytest.approx(average(of), rel=1e-9), labels
        assert compared or when == "restarted"  # only GRPO was

    def parts(self, stores: Stores, run: str, query: Query, labels: dict[str, str]) -> list[Part]:
        assert query.expr.series is not None
        return parts(stores.lines(run), key_of(stores.keys(run), query.expr.series, labels))


@of_kinds("latest")
@pytest.mark.parametrize("when", ["early", "restarted", "last"])
def test_gauges_are_those_of_the_latest_line(stores: Stores, slug: str, panel: Panel, query: Query, when: str) -> None:
    """Across a restart the new process's, though the old one's series is there for minutes over OTLP."""
    compared = 0
    for run in (SAC, GRPO):
        at = getattr(moments(stores, run), when)
        if at is None or query.expr.series is None:
            continue
        scraped, sent = answers(stores, query, run, at)
        for labels, value in scraped:
            assert near_one(value, reversed(shown_until(stores, run, query, labels, at + SCRAPE_S)), 1e-9), labels
            compared += 1
        for labels, value in sent:
            assert value == pytest.approx(shown_until(stores, run, query, labels, at)[-1], rel=1e-9), labels
    assert compared or when == "restarted"


def shown_until(stores: Stores, run: str, query: Query, labels: Labels, at: float) -> list[float]:
    """What a gauge has shown by then."""
    assert query.expr.series is not None
    key = key_of(stores.keys(run), query.expr.series, labels)
    return [value for time, value in shown(stores.lines(run), key) if time <= at]


class TestHistograms:
    """Counted from the first scrape on, as Prometheus does; VictoriaMetrics counts all."""

    @of_kinds("mean")
    def test_means_are_those_of_the_jsonl(self, stores: Stores, slug: str, panel: Panel, query: Query) -> None:
        series = query.expr.series
        assert series is not None
        for run in (SAC, GRPO):
            at = moments(stores, run).last
            scraped, sent = answers(stores, query, run, at)
            for _, value in scraped:
                of = increments(histogram_parts(stores, run, series), first_seen(stores, run, series))
                assert value == pytest.approx(average(of), rel=NEAR)
            for _, value in sent:
                of = histogram_parts(stores, run, series)
                counted = [increase_by_victoria(each) for each in ([p.total for p in of], [p.count for p in of])]
                assert value == pytest.approx(counted[0] / counted[1], rel=1e-6)

    @of_kinds("quantile")
    def test_quantiles_are_in_the_bucket_of_the_jsonl_s(
        self, stores: Stores, slug: str, panel: Panel, query: Query
    ) -> None:
        """Bounds are powers of two."""
        series, q = query.expr.series, query.expr.quantile
        assert series is not None
        assert q is not None
        for run in (SAC, GRPO):
            scraped, sent = answers(stores, query, run, moments(stores, run).last)
            for found, first in ((scraped, first_seen(stores, run, series)), (sent, 0.0)):
                for _, value in found:
                    of = histogram_parts(stores, run, series)
                    low, high = around(merged(increments(of, first) if first else of).buckets, q)
                    assert low / 2 <= value <= 2 * high, (run, value, low, high)


def histogram_parts(stores: Stores, run: str, series: Series) -> list[Part]:
    lines = stores.lines(run)
    if series.name == "rl_loop_duration_seconds":
        return parts(lines, phase_keys(lines, "learner", "loop").get("iteration", "Perf/iteration_time"))
    if series.name == "rl_sync_duration_seconds":
        return parts(lines, phase_keys(lines, "learner", "exclusive").get("sync", ""))
    return parts(lines, key_of(stores.keys(run), series, {}))


def first_seen(stores: Stores, run: str, series: Series, suffix: str = "_count") -> float:
    """What the first scrape had."""
    selector = filled(f"{series.part(suffix)}[{WINDOW}]", run)
    return min(
        (of[0] for _, of in stores.prometheus.samples(selector, time=moments(stores, run).last)), default=(0, 0.0)
    )[1]


def around(buckets: dict[int, float], q: float) -> tuple[float, float]:
    """The bounds of the quantile's own bucket."""
    from rltel.record.buckets import middle

    wanted, held = q * sum(buckets.values()), 0.0
    for index in sorted(buckets, key=middle):
        held += buckets[index]
        if held >= wanted - 1e-9:
            return middle(index) * 0.95, middle(index) * 1.05
    raise AssertionError("no buckets")


# A scrape has the time of its begin: what it brings may be younger, by no more than its timeout, which is the interval.
def near_one(value: float, candidates: Iterator[float], rel: float) -> bool:
    return any(value == pytest.approx(each, rel=rel, abs=1e-12) for each in candidates)


class TestTimeOfTheLoop:
    """Where an iteration's time went: against the phases in the JSONL."""

    @pytest.mark.parametrize("run", [SAC, GRPO])
    @pytest.mark.parametrize("kind", ["exclusive", "nested"])
    def test_phases_of_an_iteration(self, stores: Stores, run: str, kind: str) -> None:
        query = query_of("learner", "Iteration by phase" if kind == "exclusive" else "Inside phases")
        for route, found in enumerate(answers(stores, query, run, moments(stores, run).last)):
            wanted = {
                phase: self.total(stores, run, key, route) / self.iterations(stores, run, route)
                for phase, key in phase_keys(stores.lines(run), "learner", kind).items()
            }
            assert {labels["rl_phase"] for labels, _ in found} == set(wanted)
            for labels, value in found:
                assert value == pytest.approx(wanted[labels["rl_phase"]], rel=0.1, abs=1e-5), (route, labels)

    @pytest.mark.parametrize("run", [SAC, GRPO])
    def test_phases_and_other_make_the_iteration(self, stores: Stores, run: str) -> None:
        phases, other = (query_of("learner", "Iteration by phase", number) for number in (0, 1))
        whole = query_of("learner", "Iteration")
        at = moments(stores, run).last
        for inside, rest, iteration in zip(
            *(answers(stores, each, run, at) for each in (phases, other, whole)), strict=True
        ):
            assert sum(value for _, value in inside) + rest[0][1] == pytest.approx(iteration[0][1], rel=NEAR)

    @pytest.mark.parametrize("run", [SAC, GRPO])
    def test_iterations_are_counted_once_whatever_the_ranks(self, stores: Stores, run: str) -> None:
        """And a controller's rounds are none of them, though they are loops, too."""
        at = moments(stores, run).last
        for route, found in enumerate(answers(stores, query_of("overview", "Iterations"), run, at)):
            seconds = self.total(stores, run, self.loop(stores, run), route)
            assert [value for _, value in found] == [
                pytest.approx(self.iterations(stores, run, route) / seconds, rel=NEAR)
            ]
        assert bool(phase_keys(stores.lines(run), "controller", "loop")) == (run == GRPO)

    def test_the_ranks_of_the_demo_are_reduced_to_one_report(self, stores: Stores) -> None:
        """What the tests of its numbers rely on: there are two iterations in each line."""
        of = parts(stores.lines(GRPO), self.loop(stores, GRPO))
        assert {part.count for part in of} == {2}
        assert {line.process["index"] for line in stores.lines(GRPO)} == {0}

    def test_a_collector_s_cycle(self, stores: Stores) -> None:
        query = query_of("learner", "Cycle by phase")
        keys = phase_keys(stores.lines(SAC), "collector", "exclusive")
        for route, found in enumerate(answers(stores, query, SAC, moments(stores, SAC).last)):
            cycles = max(self.count(stores, SAC, key, route) for key in keys.values())
            assert {labels["rl_phase"] for labels, _ in found} == set(keys)
            for labels, value in found:
                total = self.total(stores, SAC, keys[labels["rl_phase"]], route)
                assert value == pytest.approx(total / cycles, rel=0.1, abs=1e-5), labels

    def test_waits(self, stores: Stores) -> None:
        learner, collector = (query_of("learner", "Waits", number) for number in (0, 1))
        lines = stores.lines(SAC)
        inside = phase_keys(lines, "learner", "exclusive")
        cycle = phase_keys(lines, "collector", "exclusive")
        for route in (0, 1):
            waits = [key for phase, key in inside.items() if phase.endswith("wait")]
            whole = self.total(stores, SAC, self.loop(stores, SAC), route)
            found = answers(stores, learner, SAC, moments(stores, SAC).last)[route]
            assert found[0][1] == pytest.approx(sum(self.total(stores, SAC, k, route) for k in waits) / whole, rel=0.1)
            whole = sum(self.total(stores, SAC, key, route) for key in cycle.values())
            found = answers(stores, collector, SAC, moments(stores, SAC).last)[route]
            wait = self.total(stores, SAC, cycle["learner_action_wait"], route)
            assert found[0][1] == pytest.approx(wait / whole, rel=0.1)

    def test_overlap(self, stores: Stores) -> None:
        query = query_of("learner", "Overlap")
        lines = stores.lines(SAC)
        busy = {**phase_keys(lines, "learner", "exclusive"), **phase_keys(lines, "collector", "exclusive")}
        for route, found in enumerate(answers(stores, query, SAC, moments(stores, SAC).last)):
            keys = [key for phase, key in busy.items() if not phase.endswith("wait")]
            whole = self.total(stores, SAC, self.loop(stores, SAC), route)
            wanted = sum(self.total(stores, SAC, key, route) for key in keys) / whole
            assert found[0][1] == pytest.approx(wanted, rel=0.1)
            assert 0.1 < found[0][1] < 2.0

    def loop(self, stores: Stores, run: str) -> str:
        lines = stores.lines(run)
        return phase_keys(lines, "learner", "loop").get("iteration", "Perf/iteration_time")

    def iterations(self, stores: Stores, run: str, route: int) -> float:
        return self.count(stores, run, self.loop(stores, run), route)

    def total(self, stores: Stores, run: str, key: str, route: int) -> float:
        of = [part.total for part in self.seen(stores, run, key, route)]
        return increase_by_victoria(of) if route == 1 else sum(of)

    def count(self, stores: Stores, run: str, key: str, route: int) -> float:
        of = [part.count for part in self.seen(stores, run, key, route)]
        return increase_by_victoria(of) if route == 1 else sum(of)

    def seen(self, stores: Stores, run: str, key: str, route: int) -> list[Part]:
        """What each route counts: from the first scrape on, or all."""
        of = parts(stores.lines(run), key)
        if route == 1:
            return of
        label = of[0].state.kind.phase
        if label is None or label.kind == "loop":
            selector = 'rl_loop_duration_seconds_count{rl_role="learner",$}'
        else:
            where = f'rl_role="{label.role}",rl_phase="{label.phase}",rl_phase_kind="{label.kind}"'
            selector = f"rl_phase_duration_seconds_count{{{where},$}}"
        text = selector.replace("$", f'rl_run_id="{run}"')
        found = stores.prometheus.samples(f"{text}[{WINDOW}]", time=moments(stores, run).last)
        return increments(of, found[0][1][0][1])


class TestRollouts:
    """GRPO's sessions, across its restart."""

    def test_a_rollout_s_time_by_what_it_did(self, stores: Stores) -> None:
        query = query_of("llm", "A rollout's time")
        prefix = "rollout/timeperf/"
        for found in answers(stores, query, GRPO, moments(stores, GRPO).last):
            assert {"session/generate", "session/reward"} <= {labels["rl_timing"] for labels, _ in found}
            whole = average(parts(stores.lines(GRPO), f"{prefix}session/total"))
            assert sum(value for _, value in found) == pytest.approx(whole, rel=0.25)

    def test_rates_are_over_the_window_or_the_time_seen(self, stores: Stores) -> None:
        """Prometheus divides by the window, VictoriaMetrics by the time between the first and the last sample."""
        query = query_of("llm", "Ended and consumed", 1)
        at = moments(stores, GRPO).last
        ((_, scraped),), ((_, sent),) = answers(stores, query, GRPO, at)
        of = parts(stores.lines(GRPO), "rollout/sessions/consumed")
        series = query.expr.series
        assert series is not None
        counted = increments(of, first_seen(stores, GRPO, series, ""))
        assert scraped * 300 == pytest.approx(sum(part.total for part in counted), rel=0.2)
        wanted = 0.0
        for incarnation in (1, 2):
            mine = [part for part in of if part.incarnation == incarnation]
            wanted += sum(part.total for part in mine[1:]) / (mine[-1].time - mine[0].time)
        assert sent == pytest.approx(wanted, rel=0.05)


class TestExperts:
    """GRPO's, of one layer."""

    def test_loads_are_those_of_the_latest_line(self, stores: Stores) -> None:
        at = moments(stores, GRPO).last
        for found in answers(stores, query_of("llm", "Load of experts"), GRPO, at):
            assert {labels["rl_moe_layer"] for labels, _ in found} == {"2"}
            assert sum(value for _, value in found) == pytest.approx(100)
            loads = {labels["rl_moe_expert"]: value for labels, value in found}
            said = [
                {expert: line.values[f"moe_balance/layer_2/expert_{expert}/load_percent"] for expert in loads}
                for line in stores.lines(GRPO)[-2:]  # the last line may have come after the last scrape
            ]
            assert len(loads) == 4
            assert any(loads == pytest.approx(each) for each in said)


class TestTheOtherTrainer:
    """What neither demo has, with numbers that are known."""

    @of_queries(each for each in ALL if each[2].needs or each[2].expr.kind == "either")
    def test_shows_what_was_recorded(self, stores: Stores, slug: str, panel: Panel, query: Query) -> None:
        """Where a demo records values this sets gauges, too: the other half of such a query."""
        series, known = query.expr.series, {**other_panels.GAUGES, **other_panels.SCALARS}
        found = answers(stores, query, OTHER, moments(stores, OTHER).last)
        assert found[0] or not query.needs
        for labels, value in chain.from_iterable(found) if series and series.key else ():
            assert series is not None
            key = key_of(stores.keys(OTHER), series, labels)
            if key in known:
                scale = 0.001 if key.endswith("_ms") else 1.0
                assert value == pytest.approx(known[key] * scale, rel=1e-6), key

    def test_experts(self, stores: Stores) -> None:
        at = moments(stores, OTHER).last
        for found in answers(stores, query_of("llm", "Load of experts"), OTHER, at):
            for scope, shares in (("", other_panels.SHARES), ("critic", other_panels.OF_THE_CRITIC)):
                mine = [each for each in found if each[0].get("rl_scope", "") == scope]
                loads = {labels["rl_moe_expert"]: value for labels, value in mine if labels["rl_moe_layer"] == "0"}
                wanted = {str(expert): 100 * share for expert, share in enumerate(shares)}
                assert loads == pytest.approx(wanted, abs=0.2), "an actor's and a critic's layer 0 are two"
        for found in answers(stores, query_of("llm", "Experts without a token"), OTHER, at):
            assert [(labels.get("rl_scope", ""), value) for labels, value in found] == [("", 1.0)] * other_panels.LAYERS


class TestMarks:
    """The annotations."""

    def asked(self, stores: Stores, title: str, run: str, at: float) -> tuple[Vector, Vector]:
        (expr,) = (mark.expr for mark in MARKS if mark.title == title)
        return answers(stores, Query(expr, ""), run, at)

    def began(self, stores: Stores, run: str, route: int, at: float) -> dict[tuple[str, int], float]:
        """By role and incarnation: when, in seconds since the epoch."""
        found = self.asked(stores, "Processes that began", run, at)[route]
        assert all("rl_rank" not in labels for labels, _ in found), "one that began with the others has no mark"
        return {(labels["rl_role"], int(labels["rl_incarnation"])): value / 1000 for labels, value in found}

    @pytest.mark.parametrize("route", [0, 1], ids=["scraped", "sent"])
    def test_begin_and_restart_are_marked_when_they_were(self, stores: Stores, route: int) -> None:
        """Over OTLP the series of the first one stays for minutes."""
        restarted = moments(stores, GRPO).restarted
        assert restarted is not None
        times = {number: [line.time_ns / 1e9 for line in incarnation(stores, GRPO, number)] for number in (1, 2)}
        before = self.began(stores, GRPO, route, moments(stores, GRPO).early)
        assert {number for _, number in before} == {1}
        assert times[1][0] - 300 < before["learner", 1] < times[1][0]
        after = self.began(stores, GRPO, route, moments(stores, GRPO).last)
        assert times[1][-1] < after["learner", 2] < times[2][0]

    def test_other_roles_of_a_run_are_marked_where_they_are_scraped(self, stores: Stores) -> None:
        """They send nothing over OTLP: their numbers go to the learner."""
        scraped = self.began(stores, GRPO, 0, moments(stores, GRPO).early)
        assert {role for role, _ in scraped} == {"controller", "learner", "rollout"}

    def test_what_began_before_the_time_that_is_shown_has_no_mark(self, stores: Stores) -> None:
        (expr,) = (mark.expr for mark in MARKS if mark.title == "Processes that began")
        at = moments(stores, SAC).last
        text = filled(str(expr).replace("$__from", f"{at * 1000:.0f}"), SAC)
        assert stores.prometheus.query(text, time=at) == stores.victoria.query(text, time=at) == []

    def test_weight_publishes_are_marked(self, stores: Stores) -> None:
        assert all(self.asked(stores, "Weight publishes", GRPO, moments(stores, GRPO).early))

    def test_checkpoints_are_marked_where_there_are_any(self, stores: Stores) -> None:
        assert all(self.asked(stores, "Checkpoints", OTHER, moments(stores, OTHER).early))  # scraped without a gap
        assert self.asked(stores, "Checkpoints", SAC, moments(stores, SAC).last) == ([], [])


def incarnation(stores: Stores, run: str, number: int) -> list[Line]:
    return [line for line in stores.lines(run) if line.process["incarnation"] == number]


def query_of(slug: str, title: str, number: int = 0) -> Query:
    return next(panel.queries[number] for where, panel, _ in ALL if (where, panel.title) == (slug, title))


def test_the_test_sees_a_wrong_query(stores: Stores) -> None:
    """What everything above relies on: an average that weighs steps alike is another number."""
    ((_, right),) = answers(stores, query_of("llm", "Importance weight"), GRPO, moments(stores, GRPO).last)[0]
    text = 'avg(avg_over_time(rl_train_infer_importance_weight{rl_run_id="$run"}[$window]))'
    ((_, wrong),) = answers(stores, Query(Expr(text, "own"), ""), GRPO, moments(stores, GRPO).last)[0]
    assert wrong != pytest.approx(right, rel=1e-9)
