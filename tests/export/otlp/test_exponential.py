"""Our buckets as exponential histograms: read back with the official messages, and their quantiles agree."""

import math
from collections.abc import Iterator, Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.exporter.otlp.proto.common.metrics_encoder import encode_metrics
from opentelemetry.proto.metrics.v1.metrics_pb2 import ExponentialHistogramDataPoint, MetricsData
from opentelemetry.sdk.resources import Resource

from export.making import Points, commit, recorded
from rltel.export.otlp.data import metrics_data
from rltel.export.otlp.exponential import SCALE, exponential
from rltel.record.buckets import bucket_of, count_buckets, quantile
from rltel.reduce.trackers import Trackers

BASE = 2.0 ** (1 / 2**SCALE)


def read_back(*commits: Sequence[float]) -> ExponentialHistogramDataPoint:
    """The last point after these values were recorded, as a receiver reads it."""
    points = Points()
    for values in commits:
        made = commit(recorded(lambda trackers, values=values: trackers.default.distribution(x=np.array(values))))
        last = points.of(made)
    data = metrics_data(last, Resource({}), 5, 7, exponential_histograms=True)
    read = MetricsData.FromString(encode_metrics(data).SerializeToString())
    (found,) = [
        metric
        for of_scope in read.resource_metrics[0].scope_metrics
        for metric in of_scope.metrics
        if metric.name == "rl.stats.x.distribution"
    ]
    assert found.exponential_histogram.aggregation_temporality == 2
    (point,) = found.exponential_histogram.data_points
    return point


def filled(point: ExponentialHistogramDataPoint) -> Iterator[tuple[float, float, int]]:
    """(lower, upper, count) on the number line, in ascending order, as the specification has them."""
    base = 2.0 ** (2.0**-point.scale)
    for position in reversed(range(len(point.negative.bucket_counts))):
        index = point.negative.offset + position
        yield -(base ** (index + 1)), -(base**index), point.negative.bucket_counts[position]
    yield 0.0, 0.0, point.zero_count
    for position, count in enumerate(point.positive.bucket_counts):
        index = point.positive.offset + position
        yield base**index, base ** (index + 1), count


def read_quantile(point: ExponentialHistogramDataPoint, q: float) -> float:
    """As a backend estimates it: the geometric middle of the bucket that holds the rank."""
    rank, seen = q * (point.count - 1), 0
    for lower, upper, count in filled(point):
        seen += count
        if rank < seen:
            return math.copysign(math.sqrt(lower * upper), upper if lower >= 0 else lower)
    raise AssertionError("a rank past the end")


class TestReadBack:
    def test_each_value_is_in_its_bucket(self) -> None:
        values = [0.7, 3.0, 1000.0, -0.3, -5e5]
        point = read_back(values)
        assert (point.scale, point.count, point.zero_count) == (SCALE, 5, 0)
        assert point.sum == pytest.approx(sum(values))
        found = [(lower, upper) for lower, upper, count in filled(point) if count]
        assert len(found) == 5
        for value, (lower, upper) in zip(sorted(values), found, strict=True):
            assert lower <= value <= upper
            assert upper / lower == pytest.approx(BASE if value > 0 else 1 / BASE)

    @pytest.mark.parametrize("value", [2.0**e for e in (-39, -1, 0, 1, 10, 24)])
    def test_a_power_of_two_is_the_upper_bound_of_its_bucket(self, value: float) -> None:
        ((lower, upper),) = [(lower, upper) for lower, upper, count in filled(read_back([value])) if count]
        assert (lower, upper) == (pytest.approx(value / BASE), pytest.approx(value))

    def test_zero_and_what_is_next_to_it(self) -> None:
        point = read_back([0.0, 1e-13, -1e-13])
        assert (point.count, point.zero_count, len(point.positive.bucket_counts)) == (3, 3, 0)

    def test_what_is_too_large_is_in_the_last_bucket(self) -> None:
        """It is counted, and its sum is right; where it lies is not told."""
        point = read_back([2.0**25, -1e30])
        assert [count for _, _, count in filled(point)] == [1, 0, 1]
        assert point.positive.offset == point.negative.offset == 24 * 16
        assert point.sum == 2.0**25 - 1e30

    def test_is_cumulative(self) -> None:
        point = read_back([1.0, 2.0], [-4.0])
        assert (point.count, point.sum, point.start_time_unix_nano, point.time_unix_nano) == (3, -1.0, 5, 7)

    def test_extremes_of_all_time_are_not_known_and_not_sent(self) -> None:
        point = read_back([1.0])
        assert not point.HasField("min")
        assert not point.HasField("max")

    def test_nothing_finite_is_an_empty_histogram(self) -> None:
        point = read_back([math.nan])
        assert (point.count, point.zero_count, point.sum) == (0, 0, 0.0)

    @given(st.lists(st.lists(st.floats(-1e7, 1e7), min_size=1, max_size=30), min_size=1, max_size=4))
    def test_merged_quantiles_agree(self, commits: list[list[float]]) -> None:
        everything = np.array([value for values in commits for value in values])
        point = read_back(*commits)
        assert point.count == len(everything)
        buckets = count_buckets(everything)
        for q in (0.0, 0.5, 0.9, 1.0):
            rank = q * (len(everything) - 1)
            if rank == int(rank):  # between two values ours interpolates
                # A negative value on a bound lies in the neighbour: twice the layout's error, at most.
                wanted = quantile(buckets, q)
                assert read_quantile(point, q) == pytest.approx(wanted, rel=BASE - 1, abs=2.0**-40)

    @given(st.floats(2.0**-39, 2.0**24))
    def test_layouts_have_the_same_bounds(self, value: float) -> None:
        made = exponential({bucket_of(value): 1.0})
        index = made.positive.offset
        assert BASE**index * (1 - 1e-12) <= value <= BASE ** (index + 1) * (1 + 1e-12)


class TestWeights:
    def test_halves_leave_whole_counts_whose_sum_stays(self) -> None:
        made = exponential({-3: 0.5, 0: 0.5, 5: 1.5, 9: 0.5})
        assert made.count == 3

    def test_what_is_cumulative_does_not_fall(self) -> None:
        counts = [exponential({1: 0.5 * n, 2: 0.5 * n}).count for n in range(6)]
        assert counts == [0, 1, 2, 3, 4, 5]


def test_seconds_are_exponential_too() -> None:
    def timed(trackers: Trackers) -> None:
        with trackers.default.record_timing("x"):
            pass

    made = commit(recorded(timed))
    data = metrics_data(Points().of(made), Resource({}), 0, 1, exponential_histograms=True)
    (metric,) = [m for m in data.resource_metrics[0].scope_metrics[0].metrics if m.name == "rl.timing.duration"]
    assert type(metric.data).__name__ == "ExponentialHistogram"
