"""Numbers of samples with the same keys."""

import pytest

from export.making import commit
from rltel.export.panel.columns import Columns
from rltel.export.panel.sample import sample_of


def numbers(i: int) -> dict[str, float]:
    return {"x": float(i), "Perf/learner_inference_ms": 2.0 * i}


def test_sums_of_what_is_there() -> None:
    columns = Columns(sample_of(commit(numbers(0))))
    for i in range(10):
        columns.append(sample_of(commit(numbers(i))))
    for _ in range(4):
        columns.drop_first()
    assert len(columns) == 6
    assert columns.sums() == pytest.approx([39.0, 78.0, 0.078, 6.0])


@pytest.mark.filterwarnings("error")
def test_a_sum_that_overflows_is_infinite_without_a_warning_on_the_terminal() -> None:
    columns = Columns(sample_of(commit({"x": 1e308})))
    for _ in range(3):
        columns.append(sample_of(commit({"x": 1e308})))
    assert columns.sums()[0] == float("inf")


def test_dropped_rows_do_not_stay_in_memory() -> None:
    """A run of millions of iterations holds as many as its window."""
    columns = Columns(sample_of(commit(numbers(0))))
    most = 0
    for i in range(5000):
        columns.append(sample_of(commit(numbers(i))))
        if i >= 100:
            columns.drop_first()
        most = max(most, len(columns._numbers))
    assert len(columns) == 100
    assert most <= 4 * (2 * 100 + 2)
