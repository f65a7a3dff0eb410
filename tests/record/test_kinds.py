from __future__ import annotations

import copy
import itertools
import math
import pickle
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rltel.names.phases import PhaseLabel
from rltel.record.buckets import count_buckets
from rltel.record.fold import moments_of_array, moments_of_numbers
from rltel.record.kinds import (
    AVG,
    AVG_MIN_MAX,
    COUNTER,
    ELAPSED,
    EMPTY,
    GAUGE_MAX,
    GAUGE_MEAN,
    GAUGE_MIN,
    GAUGE_SUM,
    HISTOGRAM,
    KINDS,
    MAX,
    MIN,
    PHASE_MS,
    PHASE_S,
    SCALAR,
    SUM,
    TIMING,
    WEIGHTED_AVG,
    Kind,
    Moment,
    Moments,
    State,
    find_kind,
    kind_named,
    phase_kind,
)

NAN, INF = math.nan, math.inf

# Whole numbers, so that sums are exact whatever the order.
whole = st.integers(-(2**20), 2**20).map(float)
special = st.sampled_from([NAN, INF, -INF])
elements = st.lists(whole | special, max_size=8)
kinds = st.sampled_from(list(KINDS.values()))


def state_of(kind: Kind, values: list[float]) -> State:
    finite = [value for value in values if math.isfinite(value)]
    state = State(kind)
    if values:
        buckets = count_buckets(as_array(finite)) if kind.bucketed else None
        state.add(moments_of_numbers(values), buckets)
    return state


def as_array(values: list[float]) -> np.ndarray:
    return np.array(values, np.float64)


def merged(*states: State) -> State:
    result = State(states[0].kind)
    for state in states:
        result.add(state.moments, state.buckets)
    return result


def flat(state: State) -> dict[str, float]:
    return {f"k{value.suffix}": value.value for value in state.values()}


def same(a: dict[str, float], b: dict[str, float]) -> bool:
    return a.keys() == b.keys() and all(a[k] == b[k] or (math.isnan(a[k]) and math.isnan(b[k])) for k in a)


class TestMerging:
    @given(kinds, elements, elements, elements)
    def test_is_associative(self, kind: Kind, a: list[float], b: list[float], c: list[float]) -> None:
        x, y, z = (state_of(kind, values) for values in (a, b, c))
        left, right = merged(merged(x, y), z), merged(x, merged(y, z))
        assert left.moments == right.moments
        assert left.buckets == right.buckets

    @given(kinds, elements, elements)
    def test_is_commutative(self, kind: Kind, a: list[float], b: list[float]) -> None:
        x, y = state_of(kind, a), state_of(kind, b)
        assert merged(x, y).moments == merged(y, x).moments
        assert merged(x, y).buckets == merged(y, x).buckets

    @given(kinds, elements)
    def test_with_nothing_changes_nothing(self, kind: Kind, a: list[float]) -> None:
        state = state_of(kind, a)
        assert merged(state, State(kind)).moments == state.moments

    @given(kinds, elements, elements)
    def test_equals_recording_all_at_once(self, kind: Kind, a: list[float], b: list[float]) -> None:
        assert same(flat(merged(state_of(kind, a), state_of(kind, b))), flat(state_of(kind, a + b)))

    @given(kinds, elements.filter(bool))
    def test_moments_that_a_kind_does_not_keep_stay_empty(self, kind: Kind, a: list[float]) -> None:
        state = state_of(kind, a)
        for moment in Moment:
            if moment not in kind.keeps:
                assert state.moments[moment.position] == EMPTY[moment.position] == moment.identity

    def test_a_merge_does_not_touch_what_it_merged(self) -> None:
        a, b = state_of(HISTOGRAM, [1.0]), state_of(HISTOGRAM, [2.0])
        merged(a, b)
        assert flat(a)["k/avg"] == 1.0
        assert flat(b)["k/max"] == 2.0
        assert len(a.buckets) == len(b.buckets) == 1

    def test_a_nan_shows_whichever_rank_held_it(self) -> None:
        """A MAX all-reduce alone loses a NaN of the second rank (AReaL)."""
        for values in itertools.permutations([[1.0, NAN], [3.0]]):
            found = flat(merged(*(state_of(AVG_MIN_MAX, each) for each in values)))
            assert same(found, {"k/avg": NAN, "k/min": NAN, "k/max": NAN, "k/nonfinite": 1.0})


# What each kind makes of these values; a key that is not there must not be.
DERIVATION = [
    (AVG_MIN_MAX, [], {}),
    (AVG_MIN_MAX, [1.0, 3.0], {"/avg": 2.0, "/min": 1.0, "/max": 3.0}),
    (AVG_MIN_MAX, [1.0, NAN], {"/avg": NAN, "/min": NAN, "/max": NAN, "/nonfinite": 1.0}),
    (AVG_MIN_MAX, [1.0, INF], {"/avg": INF, "/min": 1.0, "/max": INF, "/nonfinite": 1.0}),
    (AVG_MIN_MAX, [1.0, -INF], {"/avg": -INF, "/min": -INF, "/max": 1.0, "/nonfinite": 1.0}),
    (AVG_MIN_MAX, [1.0, INF, -INF], {"/avg": NAN, "/min": -INF, "/max": INF, "/nonfinite": 2.0}),
    (AVG_MIN_MAX, [INF], {"/avg": INF, "/min": INF, "/max": INF, "/nonfinite": 1.0}),
    (AVG_MIN_MAX, [-INF], {"/avg": -INF, "/min": -INF, "/max": -INF, "/nonfinite": 1.0}),
    (AVG_MIN_MAX, [INF, NAN], {"/avg": NAN, "/min": NAN, "/max": NAN, "/nonfinite": 2.0}),
    (AVG, [], {}),
    (AVG, [1.0, 2.0], {"": 1.5}),
    (AVG, [1.0, -INF], {"": -INF, "/nonfinite": 1.0}),
    (WEIGHTED_AVG, [], {}),
    (WEIGHTED_AVG, [NAN], {"": NAN, "/nonfinite": 1.0}),
    (SUM, [], {"": 0.0}),
    (SUM, [1.0, 2.0], {"": 3.0}),
    (SUM, [1.0, NAN], {"": NAN, "/nonfinite": 1.0}),
    (SUM, [1.0, INF], {"": INF, "/nonfinite": 1.0}),
    (SUM, [INF, -INF], {"": NAN, "/nonfinite": 2.0}),
    (MIN, [], {}),
    (MIN, [2.0, 1.0, INF], {"": 1.0, "/nonfinite": 1.0}),
    (MIN, [INF], {"": INF, "/nonfinite": 1.0}),
    (MIN, [1.0, NAN], {"": NAN, "/nonfinite": 1.0}),
    (MAX, [], {}),
    (MAX, [2.0, 1.0, -INF], {"": 2.0, "/nonfinite": 1.0}),
    (MAX, [-INF], {"": -INF, "/nonfinite": 1.0}),
    (MAX, [1.0, NAN], {"": NAN, "/nonfinite": 1.0}),
    (SCALAR, [], {}),
    (SCALAR, [1.0, 2.0], {"": 1.5, "__count": 2}),
    (SCALAR, [1.0, NAN], {"": NAN, "__count": 2, "/nonfinite": 1.0}),
    (TIMING, [], {}),
    (TIMING, [1.0, 2.0], {"": 1.5, "__count": 2}),
    (PHASE_S, [1.0, 2.0], {"": 1.5}),
    (PHASE_MS, [1.0, 2.0], {"": 1500.0}),
    (HISTOGRAM, [], {}),
    (HISTOGRAM, [NAN], {f"/{stat}": NAN for stat in ("avg", "min", "max", "p50", "p90", "p99")} | {"/nonfinite": 1.0}),
    (COUNTER, [], {"": 0.0}),
    (COUNTER, [1.0, 2.0], {"": 3.0}),
    (ELAPSED, [], {}),
    (ELAPSED, [2.0], {"": 2.0}),
    (GAUGE_MEAN, [], {}),
    (GAUGE_MEAN, [NAN], {"": NAN, "/nonfinite": 1.0}),
    (GAUGE_SUM, [], {}),
    (GAUGE_SUM, [1.0, 2.0], {"": 3.0}),
    (GAUGE_MIN, [], {}),
    (GAUGE_MIN, [1.0, 2.0], {"": 1.0}),
    (GAUGE_MAX, [1.0, 2.0], {"": 2.0}),
    (GAUGE_MAX, [INF], {"": INF, "/nonfinite": 1.0}),
]


@pytest.mark.parametrize(("kind", "values", "expected"), DERIVATION)
def test_what_values_become(kind: Kind, values: list[float], expected: dict[str, float]) -> None:
    assert same(flat(state_of(kind, values)), {f"k{suffix}": value for suffix, value in expected.items()})


def test_the_table_has_every_kind() -> None:
    same_as_mean = {"gauge_writer"}
    assert {kind.name for kind, _, _ in DERIVATION} == KINDS.keys() - same_as_mean - {
        "expert_loads"
    }  # tests/rl/moe has that


class TestQuantiles:
    def test_lie_within_what_was_seen(self) -> None:
        """A bucket's middle may lie outside of it."""
        found = flat(state_of(HISTOGRAM, [1.01]))
        assert found["k/p50"] == found["k/p99"] == 1.01

    def test_of_infinities_are_infinite(self) -> None:
        found = flat(state_of(HISTOGRAM, [-INF, 1.0, INF]))
        assert found["k/p50"] == 1.0
        assert found["k/p99"] == INF  # between 1 and infinity, as NumPy has it
        assert flat(state_of(HISTOGRAM, [INF, INF]))["k/p50"] == INF


class TestCounts:
    def test_a_whole_count_is_an_int_as_in_areal(self) -> None:
        assert type(flat(state_of(SCALAR, [1.0]))["k__count"]) is int

    def test_weights_may_add_up_to_a_fraction(self) -> None:
        assert flat(State(SCALAR, Moments(total=1.0, n=2.5)))["k__count"] == 2.5

    def test_a_count_beyond_all_numbers_does_not_break_the_export(self) -> None:
        assert flat(State(SCALAR, Moments(total=1.0, n=INF)))["k__count"] == INF


class TestKinds:
    @pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
    def test_stay_the_same_when_states_are_pickled_or_copied(self, kind: Kind) -> None:
        """States are told apart by their kind's identity, and dicts of them travel between processes."""
        state = state_of(kind, [1.0, NAN])
        for again in (pickle.loads(pickle.dumps(state)), copy.deepcopy(state), copy.copy(state)):
            assert again.kind is kind
            assert again.moments == state.moments

    def test_in_words(self) -> None:
        assert str(AVG) == "avg"
        assert str(phase_kind(TIMING, LABEL)) == 'the exclusive phase "a:b c" of the learner'

    def test_a_gauge_is_replaced(self) -> None:
        state = state_of(GAUGE_MEAN, [1.0])
        state.replace(moments_of_numbers([NAN]))
        assert same(flat(state), {"k": NAN, "k/nonfinite": 1.0})
        state.replace(moments_of_numbers([2.0]))
        assert flat(state) == {"k": 2.0}

    def test_every_moment_has_the_place_it_says(self) -> None:
        assert [moment.position for moment in Moment] == list(range(len(EMPTY)))
        assert [moment.identity for moment in Moment] == list(EMPTY)


LABEL = PhaseLabel("learner", "a:b c", "exclusive", "train")


class TestKindsOfPhases:
    """A label goes along with the kind's name, through whatever holds that name."""

    @pytest.mark.parametrize("view", [TIMING, PHASE_S, PHASE_MS], ids=str)
    def test_show_what_their_view_shows(self, view: Kind) -> None:
        kind = phase_kind(view, LABEL)
        assert kind.phase == LABEL
        assert flat(state_of(kind, [1.0, 2.0])) == flat(state_of(view, [1.0, 2.0]))

    def test_are_one_for_a_view_and_a_label(self) -> None:
        kind = phase_kind(TIMING, LABEL)
        assert phase_kind(TIMING, PhaseLabel(*LABEL)) is kind
        others = [phase_kind(PHASE_S, LABEL), *(phase_kind(TIMING, LABEL._replace(**change)) for change in CHANGES)]
        assert len({kind, *others}) == 1 + len(others)

    def test_are_found_by_their_name_in_a_process_that_never_made_them(self) -> None:
        code = (
            "import pickle, sys; state = pickle.loads(bytes.fromhex(sys.argv[1]));"
            "from rltel.record.kinds import kind_named;"
            "assert kind_named(state.kind.name) is state.kind; print(state.kind.phase)"
        )
        state = state_of(phase_kind(PHASE_MS, LABEL), [1.0])
        ran = subprocess.run(
            [sys.executable, "-c", code, pickle.dumps(state).hex()], capture_output=True, text=True, check=False
        )
        assert ran.stdout.strip() == str(LABEL), ran.stderr

    def test_stay_the_same_when_states_are_pickled_or_copied(self) -> None:
        state = state_of(phase_kind(PHASE_MS, LABEL), [1.0])
        for again in (pickle.loads(pickle.dumps(state)), copy.deepcopy(state), copy.copy(state)):
            assert again.kind is state.kind

    @pytest.mark.parametrize(
        "name",
        [
            "",
            "nope",
            "timing:",
            "timing:exclusive",
            "timing:often::learner:a",
            "avg:exclusive::learner:a",
            "nope:exclusive::learner:a",
            "timing:exclusive::learner:",
        ],
    )
    def test_what_is_no_kind_is_not_found(self, name: str) -> None:
        assert find_kind(name) is None
        with pytest.raises(KeyError):
            kind_named(name)

    def test_made_by_many_threads_are_one(self) -> None:
        label = PhaseLabel("learner", "many threads", "nested")
        with ThreadPoolExecutor(8) as pool:
            kinds = set(pool.map(lambda _: phase_kind(TIMING, label), range(200)))
        assert len(kinds) == 1


CHANGES: list[dict[str, Any]] = [
    {"role": "collector"},
    {"phase": "b"},
    {"kind": "nested"},
    {"rl": "sync"},
    {"rl": None},
]


def test_moments_of_nothing_are_empty() -> None:
    assert moments_of_array(as_array([])) == EMPTY
