"""From commits to points: gauges, cumulative pairs, histograms, counters, and the count of what was not finite."""

import math
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from export.making import Points, commit, identity, point, points_of_record, recorded
from rltel.export.points import SECONDS_BOUNDS, VALUE_BOUNDS, HistogramValue, Point, Totals, points_of
from rltel.names.otel import Namer
from rltel.names.phases import PhaseLabel
from rltel.record.kinds import PHASE_MS, TIMING, phase_kind
from rltel.record.phase_sets import ALL_SETS, SAC_LEARNER, PhaseSet, phase_set
from rltel.reduce.snapshot import Snapshot
from rltel.reduce.trackers import Trackers

FINITE = st.floats(-1e6, 1e6, allow_nan=False)


def scalars(*values: float, key: str = "reward") -> Snapshot:
    return recorded(lambda trackers: [trackers.default.scalar({key: value}) for value in values])


def histogram(found: Point) -> HistogramValue:
    assert isinstance(found.value, HistogramValue)
    return found.value


class TestAxis:
    def test_step_stands_beside_the_metrics(self) -> None:
        points = Points().of(commit(step=7, axis="rollout", env_steps=56))
        step, env_steps = point(points, "rl.step"), point(points, "rl.env_steps")
        assert (step.value, step.attributes, step.kind) == (7.0, {"rl.axis": "rollout"}, "gauge")
        assert (env_steps.value, env_steps.attributes) == (56.0, {})

    def test_env_steps_that_are_not_known_are_left_out(self) -> None:
        assert [each.name for each in Points().of(commit())] == ["rl.step"]


class TestGauges:
    def test_each_statistic_is_one_point(self) -> None:
        points = points_of_record(lambda trackers: trackers.default.stat(x=np.array([1.0, 2.0, 6.0])))
        values = {each.attributes["rl.stat"]: each.value for each in points if each.name == "rl.stats.x"}
        assert values == {"avg": 3.0, "min": 1.0, "max": 6.0}

    def test_an_average_of_nothing_is_left_out(self) -> None:
        def masked(trackers: Trackers) -> None:
            trackers.default.denominator(m=np.array([False, False]))
            trackers.default.stat(x=np.array([1.0, 2.0]), denominator="m")

        points = points_of_record(masked)
        assert [each for each in points if each.name == "rl.stats.x"] == []
        assert point(points, "rl.stats.m", rl_stat="sum").value == 0.0
        assert point(points, "rl.stats.x.denominator").value == 0.0

    def test_counts_that_only_weight_are_left_out(self) -> None:
        names = {(each.name, each.attributes.get("rl.stat")) for each in Points().of(commit(scalars(1.0)))}
        assert ("rl.stats.reward", "count") not in names
        assert "rl.stats.reward__count" not in {name for name, _ in names}

    def test_a_canonical_name_needs_no_statistic(self) -> None:
        (loss,) = [each for each in Points().of(commit({"Loss/actor": 0.5})) if each.name == "rl.train.loss"]
        assert loss.attributes == {"rl.loss.type": "actor"}

    def test_but_has_one_where_there_are_several(self) -> None:
        points = points_of_record(lambda trackers: trackers.default.stat({"Loss/actor": np.array([1.0, 3.0])}))
        assert point(points, "rl.train.loss", rl_stat="max").value == 3.0

    @pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
    def test_what_is_not_finite_is_kept(self, value: float) -> None:
        found = point(Points().of(commit({"x": value})), "rl.stats.x").value
        assert str(found) == str(value)


class TestPairs:
    def test_sums_go_on_over_commits(self) -> None:
        points = Points()
        for values in ((1.0, 2.0), (10.0,)):
            last = points.of(commit(scalars(*values)))
        assert point(last, "rl.stats.reward.numerator").value == 13.0
        assert point(last, "rl.stats.reward.denominator").value == 3.0
        assert point(last, "rl.stats.reward", rl_stat="avg").value == 10.0

    def test_megatron_lm_4896_verl_1508_weighted_by_their_counts(self) -> None:
        """The mean of means would be 0.7 and 5.56."""
        points = Points()
        points.of(commit(scalars(*[0.8] * 100)))
        last = points.of(commit(scalars(*[0.6] * 200)))
        numerator, denominator = (point(last, f"rl.stats.reward.{part}").value for part in ("numerator", "denominator"))
        assert numerator / denominator == pytest.approx(0.8 / 3 + 1.2 / 3)

    def test_the_pair_may_fall_and_has_no_unit(self) -> None:
        for part in ("numerator", "denominator"):
            found = point(Points().of(commit(scalars(-1.0))), f"rl.stats.reward.{part}")
            assert (found.kind, found.unit) == ("sum", "")

    def test_a_restart_begins_new_series(self) -> None:
        again = commit(scalars(1.0), identity=identity(incarnation=2))
        assert point(Points().of(again), "rl.stats.reward.numerator").attributes["rl.incarnation"] == "2"

    def test_only_finite_values_are_in_the_sums(self) -> None:
        points = Points().of(commit(scalars(1.0, math.nan, math.inf)))
        assert point(points, "rl.stats.reward.numerator").value == 1.0
        assert point(points, "rl.stats.reward.denominator").value == 1.0
        assert math.isnan(point(points, "rl.stats.reward", rl_stat="avg").value)

    @pytest.mark.parametrize(
        "record",
        [
            lambda trackers: trackers.default.stat(x=np.array([2.0, 4.0])),
            lambda trackers: trackers.default.stat(x=np.array([2.0, 4.0]), reduce_type="avg"),
            lambda trackers: [trackers.default.weighted_mean("x", value, 1) for value in (2.0, 4.0)],
            lambda trackers: [trackers.default.scalar(x=value) for value in (2.0, 4.0)],
        ],
        ids=["avg_min_max", "avg", "weighted_avg", "scalar"],
    )
    def test_every_average_has_one(self, record: Callable[[Trackers], object]) -> None:
        points = points_of_record(record)
        pair = [point(points, f"rl.stats.x.{part}").value for part in ("numerator", "denominator")]
        assert pair == [6.0, 2.0]

    @pytest.mark.parametrize(
        "record",
        [
            lambda trackers: trackers.default.gauge(x=1.0),
            lambda trackers: trackers.default.count(x=1.0),
            lambda trackers: trackers.default.stat(x=np.array([1.0]), reduce_type="sum"),
            lambda trackers: trackers.default.stat(x=np.array([1.0]), reduce_type="max"),
            lambda trackers: trackers.default.distribution(x=np.array([1.0])),
        ],
        ids=["gauge", "counter", "sum", "max", "histogram"],
    )
    def test_nothing_else_has_one(self, record: Callable[[Trackers], object]) -> None:
        assert not [each for each in points_of_record(record) if each.name.endswith("numerator")]

    @given(st.lists(st.lists(FINITE, max_size=5), max_size=5))
    def test_the_last_pair_is_of_everything(self, commits: list[list[float]]) -> None:
        points = Points()
        last: list[Point] = []
        for values in commits:
            last = points.of(commit(scalars(0.0, *values)))
        if last:
            everything = [value for values in commits for value in (0.0, *values)]
            assert point(last, "rl.stats.reward.numerator").value == pytest.approx(math.fsum(everything), abs=1e-6)
            assert point(last, "rl.stats.reward.denominator").value == len(everything)


class TestNonfinite:
    def test_counts_from_zero(self) -> None:
        found = point(Points().of(commit({"x": 1.0})), "rl.stats.nonfinite", rl_key="x")
        assert (found.value, found.kind) == (0.0, "counter")

    def test_open_telemetry_python_5330_nan_is_shown_and_counted(self) -> None:
        """Set 1.25, set NaN: the gauge is NaN, not 1.25, and one value was not finite."""
        points = Points()
        points.of(commit({"x": 1.25}))
        last = points.of(commit({"x": math.nan}))
        assert math.isnan(point(last, "rl.stats.x").value)
        assert point(last, "rl.stats.nonfinite", rl_key="x").value == 1.0

    def test_never_falls(self) -> None:
        points = Points()
        commits = [commit(scalars(*values)) for values in ((math.nan, math.inf), (1.0,), (-math.inf,))]
        seen = [point(points.of(made), "rl.stats.nonfinite", rl_key="reward").value for made in commits]
        assert seen == [2.0, 2.0, 3.0]

    def test_one_for_each_key_by_the_key_itself(self) -> None:
        points = Points().of(commit({"pass@1": math.nan, "a/b": 1.0}))
        assert {each.attributes["rl.key"]: each.value for each in points if each.name == "rl.stats.nonfinite"} == {
            "pass@1": 1.0,
            "a/b": 0.0,
        }


class TestCounters:
    def test_total_goes_on_over_commits(self) -> None:
        points = Points()
        for amount in (2.0, 0.0, 3.0):
            made = commit(recorded(lambda trackers, amount=amount: trackers.default.count(episodes=amount)))
            last = points.of(made)
        found = point(last, "rl.stats.episodes")
        assert (found.kind, found.value, found.attributes) == ("counter", 5.0, {})
        assert made.values == {"episodes": 3.0}


class TestHistograms:
    def test_distribution(self) -> None:
        points = points_of_record(lambda trackers: trackers.default.distribution(x=np.array([-3.0, 0.0, 0.7, 5.0])))
        found = histogram(point(points, "rl.stats.x.distribution"))
        at = dict(zip(found.bounds, found.counts, strict=True))
        assert (at[-4.0], at[-2.0], at[0.0], at[1.0], at[4.0], at[8.0]) == (0, 1, 2, 3, 3, 4)
        assert (found.count, found.total) == (4.0, pytest.approx(2.7))
        assert point(points, "rl.stats.x", rl_stat="max").value == 5.0

    def test_is_cumulative_over_commits(self) -> None:
        points = Points()
        for value in (1.0, 2.0):
            made = commit(recorded(lambda trackers, value=value: trackers.default.distribution(x=np.array([value]))))
            last = points.of(made)
        found = histogram(point(last, "rl.stats.x.distribution"))
        assert (found.count, found.total) == (2.0, 3.0)

    def test_what_is_not_finite_is_in_no_bucket(self) -> None:
        values = np.array([1.0, math.nan, math.inf])
        points = points_of_record(lambda trackers: trackers.default.distribution(x=values))
        found = histogram(point(points, "rl.stats.x.distribution"))
        assert (found.count, found.total) == (1.0, 1.0)
        assert point(points, "rl.stats.nonfinite", rl_key="x").value == 2.0

    def test_timing_is_a_histogram_of_seconds(self) -> None:
        def timed(trackers: Trackers) -> None:
            append = trackers.default.timing_appender("timeperf/x", TIMING)
            for nanoseconds in (1_500_000_000, 500_000_000):
                append(nanoseconds)

        found = point(points_of_record(timed), "rl.timing.duration", rl_timing="x")
        value = histogram(found)
        at = dict(zip(value.bounds, value.counts, strict=True))
        assert (found.unit, value.bounds) == ("s", SECONDS_BOUNDS)
        assert (at[0.25], at[0.5], at[1.0], at[2.0], value.count) == (0, 1, 1, 2, 2)
        assert value.total == pytest.approx(2.0)

    def test_no_gauges_beside_a_canonical_histogram(self) -> None:
        def timed(trackers: Trackers) -> None:
            with trackers.default.record_timing("x"):
                pass

        names = [each.name for each in points_of_record(timed)]
        assert names == ["rl.step", "rl.timing.duration"]

    @given(st.lists(FINITE, min_size=1, max_size=50))
    def test_counts_rise_and_end_at_all(self, values: list[float]) -> None:
        points = points_of_record(lambda trackers: trackers.default.distribution(x=np.array(values)))
        found = histogram(point(points, "rl.stats.x.distribution"))
        assert list(found.counts) == sorted(found.counts)
        assert found.counts[-1] <= found.count == len(values)
        assert found.bounds == VALUE_BOUNDS
        for bound, count in zip(found.bounds, found.counts, strict=True):
            assert count <= sum(value <= bound or abs(value) <= 2.0**-40 for value in values)
            assert count >= sum(value < bound for value in values)

    def test_a_time_under_a_key_of_ones_own_is_in_seconds_too(self) -> None:
        """The key's view is in milliseconds; what was measured is in seconds, and the unit says so."""
        points = points_of_record(lambda trackers: trackers.default.timing_appender("my/p_ms", PHASE_MS)(500_000_000))
        found = point(points, "rl.stats.my.p_ms.distribution")
        assert (found.unit, histogram(found).bounds) == ("s", SECONDS_BOUNDS)
        assert histogram(found).total == 0.5


class TestPhases:
    @staticmethod
    def timed(phases: PhaseSet, seconds: float = 0.5, tracker: str = "") -> Snapshot:
        """Each phase and the loop once, so long."""

        def record(trackers: Trackers) -> None:
            each = {phase.key: phases.metrics[phase.name] for phase in phases.phases}
            if phases.loop_key and phases.loop_metric:
                each[phases.loop_key] = phases.loop_metric
            for key, kind in each.items():
                trackers.get(tracker).timing_appender(key, kind)(int(seconds * 1e9))

        return recorded(record)

    @pytest.mark.parametrize("phases", [*ALL_SETS, phase_set({"a": "train", "b": "nested"}, "collector")])
    def test_of_every_set_are_histograms_of_seconds(self, phases: PhaseSet) -> None:
        points = [each for each in Points().of(commit(self.timed(phases))) if each.name == "rl.phase.duration"]
        assert {each.attributes["rl.phase"]: each.attributes for each in points} == {
            phase.name: {"rl.role": phases.role, "rl.phase": phase.name, "rl.phase.kind": phase.kind}
            for phase in phases.phases
        }
        assert {(each.kind, each.unit, histogram(each).total) for each in points} == {("histogram", "s", 0.5)}

    @pytest.mark.parametrize("phases", [*ALL_SETS, phase_set(["a"], "learner"), phase_set(["a"], "collector")])
    def test_parts_of_an_iteration_have_their_names_too(self, phases: PhaseSet) -> None:
        points = Points().of(commit(self.timed(phases)))
        wanted = {f"rl.{phase.rl}.duration" for phase in phases.phases if phase.rl}
        if phases.loop_key:
            wanted.add(f"rl.{phases.loop_rl}.duration")
        found = [each for each in points if each.name not in ("rl.step", "rl.phase.duration")]
        assert {each.name for each in found} == wanted
        assert all(histogram(each).count == 1 for each in found)

    @pytest.mark.parametrize("phases", ALL_SETS)
    def test_a_name_with_its_attributes_is_one_point(self, phases: PhaseSet) -> None:
        points = Points().of(commit(self.timed(phases)))
        series = [(each.name, frozenset(each.attributes.items())) for each in points]
        assert len(series) == len(set(series))
        marked = sum(phase.rl is not None for phase in phases.phases)
        assert len(points) == 1 + len(phases.phases) + marked + bool(phases.loop_key)

    def test_both_names_are_cumulative_over_commits(self) -> None:
        points = Points()
        for seconds in (0.5, 1.0):
            last = points.of(commit(self.timed(SAC_LEARNER, seconds)))
        for found in (point(last, "rl.train.duration"), point(last, "rl.phase.duration", rl_phase="learning")):
            assert (histogram(found).count, histogram(found).total) == (2.0, 1.5)

    def test_a_timing_is_no_phase(self) -> None:
        def timed(trackers: Trackers) -> None:
            trackers.default.timing_appender("timeperf/a", TIMING)(1)

        assert [each.name for each in points_of_record(timed)] == ["rl.step", "rl.timing.duration"]

    def test_of_a_named_tracker_are_its_own(self) -> None:
        (found,) = [
            each
            for each in Points().of(commit(self.timed(SAC_LEARNER, tracker="second")))
            if each.name == "rl.train.duration"
        ]
        assert (found.attributes, found.tracker) == ({"rl.tracker": "second"}, "second")

    def test_a_plain_number_has_both_names_in_seconds(self) -> None:
        points = Points().of(commit({"Perf/learner_inference_ms": 250.0}))
        for name in ("rl.phase.duration", "rl.sample.duration"):
            assert histogram(point(points, name)).total == 0.25


class TestNumbersFedToAHistogram:
    """A catalogue histogram that is fed a plain number observes it."""

    KEY = "Perf/learner_inference_ms"

    def observed(self, record: Callable[[Trackers], object]) -> tuple[float, float]:
        value = histogram(point(points_of_record(record), "rl.phase.duration"))
        assert sum(np.diff([0.0, *value.counts])) == value.count
        return value.count, pytest.approx(value.total)

    @pytest.mark.parametrize(
        ("record", "wanted"),
        [
            (lambda trackers: trackers.default.gauge({TestNumbersFedToAHistogram.KEY: 250.0}), (1, 0.25)),
            (lambda trackers: trackers.default.gauge({TestNumbersFedToAHistogram.KEY: 250.0}, ranks="max"), (1, 0.25)),
            (lambda trackers: trackers.default.gauge({TestNumbersFedToAHistogram.KEY: 250.0}, ranks="min"), (1, 0.25)),
            (lambda trackers: trackers.default.scalar({TestNumbersFedToAHistogram.KEY: 250.0}, weight=3), (3, 0.75)),
            (lambda trackers: _stat(trackers, [100.0, 300.0], "avg_min_max"), (2, 0.4)),
            (lambda trackers: _stat(trackers, [100.0, 300.0], "sum"), (1, 0.4)),
            (lambda trackers: _stat(trackers, [100.0, 300.0], "max"), (1, 0.3)),
            (lambda trackers: _stat(trackers, [100.0, 300.0], "min"), (1, 0.1)),
        ],
        ids=["gauge", "gauge_max", "gauge_min", "scalar", "avg_min_max", "sum", "max", "min"],
    )
    def test_whatever_its_kind(self, record: Callable[[Trackers], object], wanted: tuple[float, float]) -> None:
        assert self.observed(record) == wanted

    def test_a_distribution_in_milliseconds_becomes_seconds(self) -> None:
        def distributed(trackers: Trackers) -> None:
            trackers.default.distribution({self.KEY: np.array([100.0, 300.0, 3000.0])})

        value = histogram(point(points_of_record(distributed), "rl.phase.duration"))
        at = dict(zip(value.bounds, value.counts, strict=True))
        assert (value.count, value.total) == (3, pytest.approx(3.4))
        assert (at[2.0**-4], at[2.0**-3], at[0.5], at[2.0], at[4.0]) == (0, 1, 2, 2, 3)

    def test_each_commit_is_one_observation(self) -> None:
        points = Points()
        for value in (250.0, 750.0):
            last = points.of(commit({self.KEY: value}))
        found = histogram(point(last, "rl.phase.duration"))
        assert (found.count, found.total) == (2.0, 1.0)

    @pytest.mark.parametrize("value", [math.nan, math.inf])
    def test_what_is_not_finite_is_counted_and_not_observed(self, value: float) -> None:
        points = Points().of(commit({self.KEY: value}))
        assert histogram(point(points, "rl.phase.duration")).count == 0
        assert point(points, "rl.stats.nonfinite", rl_key=self.KEY).value == 1.0


def test_each_point_knows_its_tracker() -> None:
    points = points_of_record(lambda trackers: trackers.get("rollout").scalar(reward=1.0))
    assert {each.tracker for each in points if each.name.startswith("rl.stats")} == {"rollout"}


def test_every_point_says_what_it_is() -> None:
    points = points_of_record(lambda trackers: (trackers.default.scalar(x=1.0), trackers.default.count(n=1)))
    assert all(each.about for each in points)


def _stat(trackers: Trackers, values: list[float], reduce_type: str) -> None:
    trackers.default.stat({TestNumbersFedToAHistogram.KEY: np.array(values)}, reduce_type=reduce_type)


class TestOverflow:
    """More keys of one metric than it may have series: those that come late share one."""

    def points(self, max_series: int, *records: Callable[[Trackers], object]) -> list[Point]:
        namer = Namer(max_series=max_series)
        totals = Totals(namer)
        last: list[Point] = []
        for record in records:
            made = commit(recorded(record))
            totals.add(made)
            last = points_of(made, totals)
        return last

    def late(self, points: list[Point], name: str, **attributes: str) -> Point:
        return point(points, name, otel_metric_overflow="true", **attributes)

    def test_gauges_are_averaged(self) -> None:
        numbers = {f"reward/{term}": value for term, value in zip("abcd", (1.0, 2.0, 4.0, 9.0), strict=True)}
        points = self.points(2, lambda trackers: trackers.default.gauge(numbers))
        own = [each.value for each in points if each.name == "rl.reward.term" and "rl.reward.term" in each.attributes]
        assert (own, self.late(points, "rl.reward.term").value) == ([1.0, 2.0], 6.5)

    def test_averages_are_weighted_by_their_counts(self) -> None:
        def record(trackers: Trackers) -> None:
            for term, value, weight in (("a", 1.0, 1), ("b", 2.0, 1), ("c", 5.0, 3)):
                trackers.default.scalar({f"reward/{term}": value}, weight=weight)

        points = self.points(1, record, record)
        assert self.late(points, "rl.reward.term").value == 17.0 / 4
        pair = [self.late(points, f"rl.reward.term.{part}").value for part in ("numerator", "denominator")]
        assert pair == [34.0, 8.0]

    def test_extremes_are_of_all(self) -> None:
        def record(trackers: Trackers) -> None:
            for term, value in (("a", 1.0), ("b", 2.0), ("c", 5.0)):
                trackers.default.stat({f"reward/{term}": np.array([value, -value])})

        points = self.points(3, record)
        assert self.late(points, "rl.reward.term", rl_stat="max").value == 5.0
        assert self.late(points, "rl.reward.term", rl_stat="min").value == -5.0

    def test_sums_go_on_whoever_is_in_the_commit(self) -> None:
        """What is cumulative must not fall because one of those that share it has nothing to say."""

        def both(trackers: Trackers) -> None:
            with trackers.default.record_timing("a"), trackers.default.record_timing("b"):
                pass
            with trackers.default.record_timing("c"):
                pass

        def one(trackers: Trackers) -> None:
            with trackers.default.record_timing("c"):
                pass

        points = self.points(1, both, one)
        assert histogram(self.late(points, "rl.timing.duration")).count == 3

    def test_a_part_of_an_iteration_too(self) -> None:
        def record(trackers: Trackers) -> None:
            for phase in ("a", "b", "c"):
                label = PhaseLabel("learner", phase, "exclusive", "train")
                trackers.default.timing_appender(f"timeperf/{phase}", phase_kind(TIMING, label))(10**9)

        points = self.points(1, record, record)
        for name in ("rl.phase.duration", "rl.train.duration"):
            value = histogram(self.late(points, name))
            assert (value.count, value.total) == (4, 4.0)

    def test_what_was_not_finite_is_counted_for_its_own_key_while_there_is_room(self) -> None:
        numbers = {"reward/a": 1.0, "reward/b": math.nan, "reward/c": math.inf, "reward/d": math.nan}
        points = self.points(2, lambda trackers: trackers.default.gauge(numbers))
        found = {each.attributes.get("rl.key"): each.value for each in points if each.name == "rl.stats.nonfinite"}
        assert found == {"reward/a": 0.0, "reward/b": 1.0, None: 2.0}

    def test_no_series_comes_twice(self) -> None:
        def record(trackers: Trackers) -> None:
            trackers.default.gauge({f"reward/g{i}": 1.0 for i in range(4)})
            trackers.default.scalar({f"reward/s{i}": 1.0 for i in range(4)})
            trackers.default.count({f"reward/c{i}": 1.0 for i in range(4)})

        points = self.points(2, record, record)
        assert self.late([each for each in points if each.kind == "counter"], "rl.reward.term").value == 2 * 2.0
        series = [(each.name, each.kind, tuple(sorted(each.attributes.items()))) for each in points]
        assert len(series) == len(set(series))


def test_what_nobody_looks_at_costs_nothing() -> None:
    """Buckets are shown with bounds when somebody asks: between two scrapes there may be hundreds of commits."""
    points = points_of_record(lambda trackers: trackers.default.distribution(x=np.array([1.0, 3.0])))
    value = histogram(point(points, "rl.stats.x.distribution"))
    assert "counts" not in vars(value)
    assert value.counts[-1] == 2
    assert "counts" in vars(value)


def test_a_histogram_does_not_change_when_more_is_recorded() -> None:
    points = Points()
    record = recorded(lambda trackers: trackers.default.distribution(x=np.array([1.0])))
    first = points.of(commit(record))
    points.of(commit(record))
    value = histogram(point(first, "rl.stats.x.distribution"))
    assert (value.count, value.total) == (1.0, 1.0)
