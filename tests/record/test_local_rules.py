"""What one process makes of the values of a gauge, before ranks merge."""

import math
from collections.abc import Callable

import pytest

from rltel.core.errors import RecordError
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


@pytest.mark.parametrize("local", ["last", "max", "cumulative", "ema"])
def test_nan_is_seen_once_and_poisons_nothing(trackers: Trackers, local: str) -> None:
    given(trackers, local, 1.0)
    assert math.isnan(given(trackers, local, math.nan))
    assert math.isfinite(given(trackers, local, 2.0))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda t: t.gauge({"x": 1.0}, local="mean"), r"local: expected one of last, max, .*, got 'mean'"),
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
