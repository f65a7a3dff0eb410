"""Buckets as bins with edges."""

import math
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from export.making import recorded
from rltel.export.tracking.bins import MAX_BINS, bins_of
from rltel.record.kinds import State


def state_of(*values: float) -> State:
    snapshot = recorded(lambda trackers: trackers.default.distribution(x=np.array(values)))
    return snapshot["x"].state


@given(st.lists(st.floats(-1e12, 1e12, allow_nan=False), min_size=1, max_size=50))
def test_every_value_is_in_a_bin_between_its_edges(values: list[float]) -> None:
    found = bins_of(state_of(*values))
    assert found is not None
    counts, edges = found
    assert sum(counts) == len(values)
    assert len(edges) == len(counts) + 1
    assert len(counts) <= MAX_BINS
    assert all(map(math.isfinite, edges))
    assert all(low < high for low, high in pairwise(edges))


@given(st.lists(st.floats(-1e6, 1e6, allow_nan=False), min_size=2, max_size=50))
def test_cumulative_counts_are_right_at_every_edge(values: list[float]) -> None:
    found = bins_of(state_of(*values))
    assert found is not None
    counts, edges = found
    below = np.cumsum(counts)
    inner = [edge for edge in edges[1:-1] if abs(edge) > 2.0**-30]  # what is nearer to 0 is in the zero bucket
    expected = [sum(value <= edge for value in values) for edge in inner]
    assert [count for edge, count in zip(edges[1:-1], below, strict=False) if edge in inner] == expected


def test_the_outermost_edges_are_the_extremes() -> None:
    found = bins_of(state_of(1.1, 2.2, 3.3))
    assert found is not None
    assert (found[1][0], found[1][-1]) == (1.1, 3.3)


@pytest.mark.parametrize("value", [0.0, 1.0, -1.0, 1e30, -1e30])
def test_one_value_has_one_bin(value: float) -> None:
    found = bins_of(state_of(value))
    assert found is not None
    assert found[0] == [1.0]
    assert found[1][0] <= value <= found[1][1]


def test_a_wide_range_has_wider_bins() -> None:
    found = bins_of(state_of(1e-9, -1e-9, 1e6, -1e6))
    assert found is not None
    assert len(found[0]) <= MAX_BINS
    assert sum(found[0]) == 4.0


def test_what_is_no_distribution_or_empty_has_none() -> None:
    scalar = recorded(lambda trackers: trackers.default.scalar(x=1.0))["x"].state
    assert bins_of(scalar) is None
    assert bins_of(state_of(math.nan)) is None
