"""What one process makes of the values of a gauge, before ranks merge."""

import math
from collections.abc import Callable

import pytest
import torch

from rltel.core.errors import RecordError
from rltel.names.schema import GaugeRule
from rltel.record.kinds import GAUGE_MEAN, GAUGE_SUM, GAUGE_WRITER
from rltel.record.local_rules import by_rule
from rltel.record.recorder import Recorder
from rltel.reduce.trackers import Trackers


@pytest.fixture
def trackers() -> Trackers:
    return Trackers(Recorder())


def given(trackers: Trackers, local: str, *values: float, **options: float) -> float:
    """What an export has after these values."""
    for value in values:
        trackers.default.gauge({"x": value}, local=local, **options)  # type: ignore[arg-type]  # alpha is the only option
    return trackers.export_all()["x"]


def test_max_and_min_are_since_the_last_export(trackers: Trackers) -> None:
    assert given(trackers, "max", 3.0, 7.0, 5.0) == 7.0
    assert given(trackers, "max", 1.0, 2.0) == 2.0
    assert given(Trackers(Recorder()), "min", 3.0, 7.0, 5.0) == 3.0


def test_a_failed_export_does_not_end_the_interval(trackers: Trackers) -> None:
    trackers.default.gauge({"x": 7.0}, local="max")
    with pytest.raises(ZeroDivisionError), trackers.taken():
        raise ZeroDivisionError
    assert given(trackers, "max", 5.0) == 7.0


def test_what_is_recorded_during_an_export_begins_the_next_interval(trackers: Trackers) -> None:
    trackers.default.gauge({"x": 10.0}, local="max")
    with trackers.taken() as snapshot:
        trackers.default.gauge({"x": 7.0}, local="max")
    assert snapshot.flat() == {"x": 10.0}
    assert given(trackers, "max", 2.0) == 7.0


def test_and_goes_on_if_that_export_fails(trackers: Trackers) -> None:
    trackers.default.gauge({"x": 10.0}, local="max")
    taken = trackers.default.take()
    trackers.default.gauge({"x": 7.0}, local="max")
    trackers.default.put_back(taken)
    assert given(trackers, "max", 2.0) == 10.0


def test_an_export_of_another_key_does_not_end_the_interval(trackers: Trackers) -> None:
    trackers.default.gauge({"x": 7.0}, local="max")
    trackers.default.scalar(y=1.0)
    trackers.default.export(key="y")
    assert given(trackers, "max", 5.0) == 7.0


def test_cumulative_goes_on_over_exports(trackers: Trackers) -> None:
    assert given(trackers, "cumulative", 1.0, 2.0) == 3.0
    assert given(trackers, "cumulative", 4.0) == 7.0


def test_ema_starts_at_the_first_value_and_goes_on_over_exports(trackers: Trackers) -> None:
    assert given(trackers, "ema", 10.0) == 10.0
    assert given(trackers, "ema", 20.0) == pytest.approx(0.1 * 20 + 0.9 * 10, rel=1e-15)
    assert given(Trackers(Recorder()), "ema", 10.0, 20.0, alpha=0.5) == 15.0


def test_mean_is_since_the_last_export(trackers: Trackers) -> None:
    assert given(trackers, "mean", 1.0, 2.0, 6.0) == 3.0
    assert given(trackers, "mean", 4.0) == 4.0


def test_a_mean_counts_what_is_recorded_around_a_failed_export(trackers: Trackers) -> None:
    """Each value once, though two exports had a part of them."""
    for value in (1.0, 2.0, 3.0):
        trackers.default.gauge({"x": value}, local="mean")
    taken = trackers.default.take()
    trackers.default.gauge({"x": 10.0}, local="mean")
    trackers.default.put_back(taken)
    assert given(trackers, "mean", 4.0) == 4.0


def test_equal_values_have_exactly_that_mean(trackers: Trackers) -> None:
    assert given(trackers, "mean", *[0.1] * 7) == 0.1


@pytest.mark.parametrize("values", [(1.0, math.nan, 2.0), (math.inf, 1.0, -math.inf), (math.nan,)])
def test_a_mean_with_nan_in_it_is_nan_until_the_next_export(trackers: Trackers, values: tuple[float, ...]) -> None:
    assert math.isnan(given(trackers, "mean", *values))
    assert given(trackers, "mean", 5.0) == 5.0


def test_a_mean_with_infinity_in_it_is_infinite(trackers: Trackers) -> None:
    assert given(trackers, "mean", 1.0, math.inf, 2.0) == math.inf


class TestByRule:
    """What goes by which rule if the caller does not say."""

    def test_tags_go_by_the_schemas(self) -> None:
        numbers = {"Loss/actor": 1.0, "Perf/total_fps": 2.0, "speed": 3.0, "Train/mean_reward": 4.0}
        assert by_rule(numbers, "", None, None, None) == {
            GaugeRule("mean", "mean"): {"Loss/actor": 1.0},
            GaugeRule("sum", "last"): {"Perf/total_fps": 2.0},
            GaugeRule("mean", "last"): {"speed": 3.0, "Train/mean_reward": 4.0},
        }

    def test_what_the_caller_says_wins(self) -> None:
        numbers = {"Loss/actor": 1.0, "Perf/total_fps": 2.0}
        assert set(by_rule(numbers, "", "max", None, None)) == {GaugeRule("max", "mean"), GaugeRule("max", "last")}
        assert set(by_rule(numbers, "", None, "ema", 0.5)) == {
            GaugeRule("mean", "ema", 0.5),
            GaugeRule("sum", "ema", 0.5),
        }

    def test_a_named_trackers_keys_count_without_its_name(self) -> None:
        assert set(by_rule({"learner/Perf/total_fps": 1.0}, "learner", None, None, None)) == {GaugeRule("sum", "last")}
        assert set(by_rule({"learner/Perf/total_fps": 1.0}, "", None, None, None)) == {GaugeRule("mean", "last")}

    def test_a_value_on_a_device_is_not_waited_for(self) -> None:
        on_device = torch.zeros((), device="meta")
        assert set(by_rule({"Loss/actor": on_device}, "", None, None, None)) == {GaugeRule("mean", "last")}
        with pytest.raises(RecordError, match="Loss/actor: gauge: local='mean': expected numbers on the host"):
            by_rule({"Loss/actor": on_device}, "", None, "mean", None)


@pytest.mark.parametrize("local", ["last", "mean", "max", "cumulative", "ema"])
def test_nan_is_seen_once_and_poisons_nothing(trackers: Trackers, local: str) -> None:
    given(trackers, local, 1.0)
    assert math.isnan(given(trackers, local, math.nan))
    assert math.isfinite(given(trackers, local, 2.0))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda t: t.gauge({"x": 1.0}, local="median"), r"local: expected one of last, mean, .*, got 'median'"),
        (
            lambda t: t.gauge({"x": 1.0}, local="ema", alpha=0.0),
            r"alpha: expected a number above 0 and at most 1, got 0\.0",
        ),
        (lambda t: t.gauge({"x": "a"}, local="max"), r"x: expected one number"),
    ],
)
def test_what_is_wrong_is_said(trackers: Trackers, call: Callable[[object], None], message: str) -> None:
    with pytest.raises(RecordError, match=message):
        call(trackers.default)
    assert trackers.export_all() == {}


class TestTagsOfTheSchema:
    """`gauge` goes by a tag's own rules if the call does not say."""

    def test_a_loss_is_the_mean_over_updates(self, trackers: Trackers) -> None:
        for loss in (1.0, 2.0, 6.0):
            trackers.default.gauge({"Loss/surrogate": loss, "speed": loss})
        assert trackers.export_all() == {"Loss/surrogate": 3.0, "speed": 6.0}

    def test_what_the_call_says_wins(self, trackers: Trackers) -> None:
        for loss in (1.0, 6.0):
            trackers.default.gauge({"Loss/surrogate": loss}, local="last")
        assert trackers.export_all() == {"Loss/surrogate": 6.0}

    def test_rates_add_up_over_ranks(self, trackers: Trackers) -> None:
        trackers.default.gauge({"Perf/total_fps": 1.0, "Train/iteration": 2.0, "Loss/actor": 3.0})
        kinds = {key: trackers.kind_of(key) for key in ("Perf/total_fps", "Train/iteration", "Loss/actor")}
        assert kinds == {"Perf/total_fps": GAUGE_SUM, "Train/iteration": GAUGE_WRITER, "Loss/actor": GAUGE_MEAN}

    def test_in_scopes_and_named_trackers_the_path_below_the_tracker_counts(self, trackers: Trackers) -> None:
        tracker = trackers.get("learner")
        with tracker.scope("Perf"):
            tracker.gauge(total_fps=1.0)
        assert trackers.kind_of("learner/Perf/total_fps") is GAUGE_SUM

    def test_one_key_of_another_kind_refuses_all(self, trackers: Trackers) -> None:
        trackers.default.scalar({"Loss/actor": 1.0})
        trackers.export_all()
        with pytest.raises(RecordError, match="Loss/actor: recorded as scalar before"):
            trackers.default.gauge({"Perf/total_fps": 1.0, "Loss/actor": 3.0})
        assert trackers.export_all() == {}
