"""Points encoded by hand: the official classes read the same as from OpenTelemetry's own encoder."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.exporter.otlp.proto.common.metrics_encoder import encode_metrics
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.sdk.resources import Resource

from export.making import Points, commit, recorded
from export.scraping import everything
from rltel.export.otlp.data import metrics_data
from rltel.export.otlp.metrics_wire import MetricsEncoder, SeriesKey, series_key
from rltel.export.points import Point
from rltel.reduce.trackers import Trackers

RESOURCE = Resource({"service.name": "x", "rl.rank": 0, "ü": "é"})
BOTH = pytest.mark.parametrize("exponential", [False, True], ids=["explicit", "exponential"])


def ours(points: Sequence[Point], exponential: bool, new: Sequence[SeriesKey] = ()) -> ExportMetricsServiceRequest:
    encoder = MetricsEncoder(RESOURCE, 5, exponential_histograms=exponential)
    first = encoder.encode(points, 7_000_000, new)
    assert encoder.encode(points, 7_000_000, new) == first, "what is remembered changes nothing"
    return ExportMetricsServiceRequest.FromString(first)


def theirs(points: Sequence[Point], exponential: bool, new: Sequence[SeriesKey] = ()) -> Any:
    data = metrics_data(points, RESOURCE, 5, 7_000_000, exponential_histograms=exponential, new=new)
    return encode_metrics(data)


def without_thresholds(request: ExportMetricsServiceRequest) -> ExportMetricsServiceRequest:
    """OpenTelemetry's classes have no place for it."""
    for of_scope in request.resource_metrics[0].scope_metrics:
        for metric in of_scope.metrics:
            for point in metric.exponential_histogram.data_points:
                assert point.zero_threshold == 2.0**-40
                point.zero_threshold = 0.0
    return request


def same(points: Sequence[Point], exponential: bool, new: Sequence[SeriesKey] = ()) -> bool:
    """NaN is not equal to itself: compared as text."""
    return str(without_thresholds(ours(points, exponential, new))) == str(theirs(points, exponential, new))


@BOTH
def test_a_commit_of_everything(exponential: bool) -> None:
    points = Points().of(commit(recorded(everything), env_steps=640))
    assert same(points, exponential)


@BOTH
def test_new_sums_begin_at_zero(exponential: bool) -> None:
    points = Points().of(commit(recorded(everything)))
    new = [series_key(point) for point in points if point.kind == "sum"][:3]
    assert same(points, exponential, new)
    assert len(ours(points, exponential, new).SerializeToString()) > len(ours(points, exponential).SerializeToString())


@BOTH
@given(st.dictionaries(st.text(min_size=1).filter(lambda key: key.strip("/")), st.floats(), max_size=8))
def test_any_keys_and_numbers(exponential: bool, numbers: dict[str, float]) -> None:
    assert same(Points().of(commit(numbers)), exponential)


@BOTH
@given(st.lists(st.floats(-1e9, 1e9), max_size=20))
def test_any_distribution(exponential: bool, values: list[float]) -> None:
    made = recorded(lambda trackers: trackers.default.distribution(x=np.array([*values, math.nan])))
    assert same(Points().of(commit(made)), exponential)


def test_attributes_are_encoded_once_for_a_series() -> None:
    def record(trackers: Trackers) -> None:
        trackers.default.scalar(reward=1.0)
        trackers.default.stat(loss=np.array([1.0, 2.0]))

    encoder, points = MetricsEncoder(RESOURCE, 5), Points()
    encoder.encode(points.of(commit(recorded(record))), 7)
    known = len(encoder._attributes)
    for _ in range(50):
        encoder.encode(points.of(commit(recorded(record))), 7)
    assert len(encoder._attributes) == known, "a million commits hold no more"
