"""One clock in terms of another."""

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from rltel.traces.drift import USUAL_DRIFT, ClockMap, Pair

S = 10**9
NOW = 5_000 * S


def drifting(ppm: float, errors: list[int], every: int = 60 * S, apart: int = 3 * S) -> list[Pair]:
    """Measurements of a clock that runs ahead and drifts, each off by its error."""
    pairs = []
    for number, error in enumerate(errors):
        here = NOW + number * every
        pairs.append(Pair(here, truth(here, ppm, apart) + error, abs(error)))
    return pairs


def truth(here: int, ppm: float, apart: int = 3 * S) -> int:
    return here - apart - int((here - NOW) * ppm / 1e6)


def test_one_measurement_is_a_constant() -> None:
    clocks = ClockMap([Pair(NOW, NOW - 3 * S, 5)])
    assert [clocks.at(NOW + at) - at for at in (-S, 0, 1000 * S)] == [NOW - 3 * S] * 3


def test_between_measurements_it_is_linear_and_beyond_them_the_drift_goes_on() -> None:
    clocks = ClockMap(drifting(20, [0, 0, 0]))
    for at in (-60, 0, 17, 60, 119, 120, 600):
        here = NOW + at * S
        assert abs(clocks.at(here) - truth(here, 20)) <= 2


def test_it_is_exact_where_it_was_measured() -> None:
    pairs = drifting(-35.5, [120, -80, 40])
    assert [ClockMap(pairs).at(pair.here_ns) for pair in pairs] == [pair.there_ns for pair in pairs]


@given(
    st.lists(
        st.tuples(st.integers(0, 10**13), st.integers(-(10**9), 10**9), st.integers(0, 10**6)), min_size=1, max_size=8
    ),
    st.integers(-(10**13), 10**14),
    st.integers(0, 10**10),
)
def test_it_never_turns_an_order_round(measured: list[tuple[int, int, int]], first: int, later: int) -> None:
    """Whatever nonsense was measured."""
    clocks = ClockMap(Pair(here, here + offset, error) for here, offset, error in measured)
    assert clocks.at(first) <= clocks.at(first + later)


@given(
    st.floats(-90, 90),
    st.lists(st.integers(-200_000, 200_000), min_size=1, max_size=6),
    st.integers(-300, 3_000),
)
def test_the_truth_is_within_the_bound(ppm: float, errors: list[int], at_s: int) -> None:
    clocks, here = ClockMap(drifting(ppm, errors)), NOW + at_s * S
    bound = clocks.bound(min(here, NOW), max(here, NOW))
    assert abs(clocks.at(here) - truth(here, ppm)) <= bound + 2


@given(st.lists(st.integers(-1_000, 1_000), min_size=2, max_size=6))
def test_inside_the_measurements_the_bound_is_of_their_size(errors: list[int]) -> None:
    pairs = drifting(10, errors)
    assume(len(ClockMap(pairs).pairs) == len(pairs))
    assert ClockMap(pairs).bound(pairs[0].here_ns, pairs[-1].here_ns) <= 4 * max(map(abs, errors)) + 5


def test_a_single_measurement_says_that_the_drift_is_not_known() -> None:
    assert ClockMap([Pair(NOW, NOW, 10)]).bound(NOW, NOW + 100 * S) == 11 + int(100 * S * USUAL_DRIFT)


@pytest.mark.parametrize("wrong", [0, 1, 2])
def test_one_that_its_neighbours_prove_wrong_is_left_out(wrong: int) -> None:
    """A measurement that a busy network spoiled says so by its error."""
    errors = [0, 0, 0]
    errors[wrong] = 900_000_000
    clocks = ClockMap(drifting(0, errors))
    assert len(clocks.pairs) == 2
    assert clocks.at(NOW + 60 * S) == NOW + 57 * S


def test_the_other_way_round_is_the_same_clock() -> None:
    pairs = drifting(50, [10, -10, 5])
    there, back = ClockMap(pairs), ClockMap(pair.turned() for pair in pairs)
    for at in range(0, 120, 7):
        assert abs(back.at(there.at(NOW + at * S)) - (NOW + at * S)) <= 2
