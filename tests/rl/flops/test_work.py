"""What is counted: checked against loops that do the work, one multiply-add at a time."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rltel.core.errors import RecordError
from rltel.rl.flops.work import Attention, attention_projections, causal_pairs, estimator, gated_mlp, linear

SIZES = st.integers(0, 40)


@given(length=SIZES, window=st.none() | st.integers(1, 50))
def test_a_query_sees_itself_and_what_is_before_it_in_its_window(length: int, window: int | None) -> None:
    seen = sum(1 for query in range(length) for key in range(query + 1) if window is None or query - key < window)
    assert causal_pairs(length, window) == seen


def test_a_multiply_add_is_two() -> None:
    assert linear(3, 5) == 2 * 3 * 5
    assert gated_mlp(4, 7) == 3 * 2 * 4 * 7


def test_queries_and_outputs_have_all_heads_keys_and_values_theirs() -> None:
    assert attention_projections(16, 4, 2, 8) == 2 * 16 * (4 * 8 + 2 * 8 + 2 * 8) + 2 * (4 * 8) * 16


def test_a_gated_output_takes_a_second_set_of_queries() -> None:
    more = attention_projections(16, 4, 2, 8, gated=True) - attention_projections(16, 4, 2, 8)
    assert more == 2 * 16 * 4 * 8


@given(length=SIZES, windows=st.lists(st.none() | st.integers(1, 50), max_size=5))
def test_training_is_three_forward_passes(length: int, windows: list[int | None]) -> None:
    forward = 10 * length + sum(2 * 2 * 3 * 8 * causal_pairs(length, window) for window in windows)
    assert estimator(10, Attention(3, 8, windows))(length) == 3 * forward


@pytest.mark.parametrize("length", [-1, 1.0, True, None, "3"])
def test_a_length_is_a_whole_number(length: object) -> None:
    with pytest.raises(RecordError, match=r"length of a sequence: expected a whole number >= 0, got"):
        estimator(1, Attention(1, 1, [None]))(length)  # type: ignore[arg-type]  # what is refused


def test_large_models_lose_nothing_to_rounding() -> None:
    estimate = estimator(2**40, Attention(128, 128, [None] * 128))
    assert estimate(3) == float(3 * (2**40 * 3 + 4 * 128 * 128 * 128 * 6))
