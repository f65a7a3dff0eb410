"""Every row of the design's table of names, in points and in the scrape table."""

import pytest
from prometheus_client.samples import Sample

from export.making import commit, points_of_record
from names.rows import ROWS, Otel, Row, series
from rltel.export.points import Point
from rltel.export.prometheus.table import PrometheusSink
from rltel.reduce.trackers import Trackers

SHARED = ("rl.step", "rl.stats.nonfinite")


def of_key(points: list[Point], row: Row) -> list[Point]:
    """The points of the row's key: others of the same commit have other names."""
    names = {name for _, name, _, _ in row.otel}
    return [point for point in points if point.name in names and point.name not in SHARED]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.key)
def test_row(row: Row) -> None:
    points = of_key(points_of_record(row.record), row)
    assert {otel_of(point) for point in points} == row.otel
    assert len(points) == len(row.otel)
    assert {series(sample.name, sample.labels) for sample in samples(points)} == row.prometheus


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.key)
def test_key_is_recorded_as_the_row_says(row: Row) -> None:
    trackers = Trackers()
    row.record(trackers)
    with trackers.taken() as snapshot:
        assert row.key in snapshot


def otel_of(point: Point) -> Otel:
    return point.kind, point.name, point.unit, frozenset(point.attributes.items())


def samples(points: list[Point]) -> list[Sample]:
    sink = PrometheusSink()
    sink.write(commit(), points)
    return [sample for family in sink.families() for sample in family.samples]
