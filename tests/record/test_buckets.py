from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from rltel.record.buckets import (
    MAX_EXPONENT,
    MIN_EXPONENT,
    OVERFLOW,
    PER_OCTAVE,
    SIZE,
    at_most,
    bucket_of,
    count_buckets,
    middle,
    quantile,
    sparse,
    upper_bound,
    upper_magnitude,
)

SMALLEST, LARGEST = 2.0**MIN_EXPONENT, 2.0**MAX_EXPONENT
EXPONENTS = range(MIN_EXPONENT, MAX_EXPONENT + 1)
POWERS = sorted([0.0, *(sign * 2.0**e for e in EXPONENTS for sign in (1, -1))])

_bounds = st.integers(-OVERFLOW + 1, OVERFLOW - 1).map(upper_bound)
_beside_bounds = st.builds(math.nextafter, _bounds, st.sampled_from([math.inf, -math.inf]))
finite = st.floats(allow_nan=False, allow_infinity=False) | _bounds | _beside_bounds
in_layout = st.builds(
    lambda magnitude, sign: magnitude * sign, st.floats(SMALLEST * 1.01, LARGEST), st.sampled_from([1.0, -1.0])
)


def lower_bound(index: int) -> float:
    """What a bucket's values are above of."""
    if index == 0:
        return -SMALLEST
    if index == 1:
        return SMALLEST
    return -math.inf if index == -OVERFLOW else upper_bound(index - 1)


@pytest.mark.parametrize("exponent", EXPONENTS)
def test_bounds_at_powers_of_two_are_exact(exponent: int) -> None:
    index = (exponent - MIN_EXPONENT) * PER_OCTAVE
    assert upper_magnitude(index) == upper_magnitude(-index) == 2.0**exponent


@pytest.mark.parametrize("power", [power for power in POWERS if power])
def test_a_value_on_a_bound_is_below_it_and_the_next_one_above(power: float) -> None:
    assert upper_bound(bucket_of(power)) == (power if power != SMALLEST else 0.0)
    above = bucket_of(math.nextafter(power, math.inf))
    assert above == bucket_of(power) + 1 or (power == -SMALLEST and above == 0)
    if abs(power) not in (SMALLEST, LARGEST):
        assert bucket_of(math.nextafter(power, -math.inf)) == bucket_of(power)


@given(finite)
@example(-LARGEST)
@example(-SMALLEST)
@example(5e-324)
@example(1.7976931348623157e308)
def test_every_value_lies_within_the_bounds_of_its_bucket(value: float) -> None:
    index = bucket_of(value)
    upper = SMALLEST if index == 0 else upper_bound(index)
    assert lower_bound(index) < value <= upper


@pytest.mark.parametrize(
    ("value", "index"),
    [
        (0.0, 0), (-0.0, 0), (SMALLEST, 0), (-SMALLEST / 2, 0), (-SMALLEST, -1), (1.0, 640), (-1.0, -641),
        (LARGEST, OVERFLOW - 1), (LARGEST * 1.5, OVERFLOW), (-LARGEST, -OVERFLOW), (-1e300, -OVERFLOW),
    ],
)  # fmt: skip
def test_places_in_the_layout(value: float, index: int) -> None:
    assert bucket_of(value) == index


@given(st.lists(finite, max_size=40))
@example([])
@example([-1.0, 1.0, -1.0, 0.0, -0.0])
def test_one_value_and_an_array_land_in_the_same_buckets(values: list[float]) -> None:
    expected: dict[int, float] = {}
    for value in values:
        expected[bucket_of(value)] = expected.get(bucket_of(value), 0.0) + 1.0
    counted = count_buckets(np.array(values, np.float64))
    assert counted == expected
    assert all(type(index) is int and type(count) is float for index, count in counted.items())
    assert list(counted) == sorted(counted)


def test_all_bounds_and_their_neighbours_agree() -> None:
    bounds = [upper_bound(index) for index in range(-OVERFLOW, OVERFLOW)]
    for bound in bounds:
        for value in (bound, math.nextafter(bound, math.inf), math.nextafter(bound, -math.inf)):
            assert count_buckets(np.array([value])) == {bucket_of(value): 1.0}


@given(st.lists(finite, max_size=30), st.integers(0, 30))
def test_merging_is_a_plain_sum(values: list[float], cut: int) -> None:
    array = np.array(values, np.float64)
    merged = count_buckets(array[:cut])
    for index, count in count_buckets(array[cut:]).items():
        merged[index] = merged.get(index, 0.0) + count
    assert merged == count_buckets(array)


def test_sparse_leaves_the_empty_buckets_out() -> None:
    dense = [0.0] * SIZE
    dense[0], dense[OVERFLOW], dense[-1] = 1.0, 2.0, 3.0
    assert sparse(dense) == {-OVERFLOW: 1.0, 0: 2.0, OVERFLOW: 3.0}


@settings(max_examples=200)
@given(st.lists(in_layout, min_size=1, max_size=60), st.floats(0, 1))
def test_a_quantile_is_off_by_at_most_2_2_percent(values: list[float], q: float) -> None:
    lower, upper = (float(np.quantile(values, q, method=method)) for method in ("lower", "higher"))
    found = quantile(count_buckets(np.array(values)), q)
    # Between two values that lie on both sides of zero the error is that of the larger one.
    assert abs(found - float(np.quantile(values, q))) <= 0.022 * max(abs(lower), abs(upper))


@pytest.mark.parametrize("q", [0.0, 0.25, 0.5, 0.9, 0.99, 1.0])
@pytest.mark.parametrize("n", [1, 2, 3, 10, 100, 101])
def test_a_quantile_is_where_numpys_is(n: int, q: float) -> None:
    values = [2.0**e for e in range(-20, -20 + min(n, 40))] * -(-n // 40)
    values = values[:n]
    assert quantile(count_buckets(np.array(values)), q) == pytest.approx(np.quantile(values, q), rel=0.022)


def test_quantiles_count_infinities_as_the_ends() -> None:
    buckets = {bucket_of(1.0): 2.0}
    assert quantile(buckets, 0.0, below=1.0) == -math.inf
    assert quantile(buckets, 0.5, below=1.0, above=1.0) == middle(bucket_of(1.0))
    assert quantile(buckets, 1.0, above=1.0) == math.inf
    assert quantile({}, 0.5, above=1.0) == math.inf


def test_a_quantile_of_nothing_is_nan() -> None:
    assert math.isnan(quantile({}, 0.5))


@pytest.mark.parametrize(("index", "value"), [(0, 0.0), (OVERFLOW, LARGEST), (-OVERFLOW, -LARGEST)])
def test_the_middle_of_unbounded_buckets_is_their_finite_bound(index: int, value: float) -> None:
    assert middle(index) == value


@given(st.lists(finite.filter(lambda value: not value or bucket_of(value)), max_size=60))
@example([-1.0, -1.0, 1.0, -2.0, 2.0, 0.0])
@example([power for power in POWERS if power != SMALLEST])
def test_counts_up_to_powers_of_two_are_exact(values: list[float]) -> None:
    counts = at_most(count_buckets(np.array(values, np.float64)), [*POWERS, math.inf])
    assert counts == [float(sum(value <= bound for value in values)) for bound in [*POWERS, math.inf]]


def test_the_zero_bucket_counts_as_zero() -> None:
    tiny = count_buckets(np.array([SMALLEST, SMALLEST / 2, -SMALLEST / 2]))
    assert at_most(tiny, [-1.0, 0.0, 1.0]) == [0.0, 3.0, 3.0]
