"""Rates are right, also when the window is full."""

from itertools import accumulate

import pytest
from hypothesis import given
from hypothesis import strategies as st

from export.making import run_python
from realparts.unilab import need_unilab
from rltel.runs.throughput import WINDOW_ITERATIONS, Throughput

S = 1_000_000_000


def after(amounts: list[int], window: int = WINDOW_ITERATIONS) -> Throughput:
    """A commit each second, with so much more each."""
    made = Throughput(window)
    for step, total in enumerate(accumulate(amounts, initial=0)):
        made.add(step, total, step * S)
    return made


UNILAB = """
import sys
from uni_rl.logging.offpolicy import OffPolicyLogger
logger = OffPolicyLogger(log_backend="none")
for iteration, steps in enumerate([1000] * 100 + [10] * 100):
    logger.log_step(iteration, iteration_time=1.0, extra_info={"throughput_steps": steps})
print(logger._get_tail_env_steps_per_sec())
"""


def test_unilab_s_tail_keeps_what_the_window_first_held_for_ever() -> None:
    """A hundred iterations of 1000 steps, then a hundred of 10, a second each: the run does 10 steps/s now.

    unilab-rl 1.4.15 takes off a full window what comes in, and not what goes.
    """
    assert after([1000] * 100 + [10] * 100).tail == 10.0
    ran = run_python(UNILAB, PYTHONPATH=str(need_unilab()))
    assert ran.stdout.split()[-1:] == ["1000.0"], ran.stderr


@given(st.lists(st.integers(0, 10_000), min_size=1, max_size=60), st.integers(1, 20))
def test_the_tail_is_what_the_last_iterations_did(amounts: list[int], window: int) -> None:
    last = amounts[-window:]
    made = after(amounts, window)
    assert made.tail == pytest.approx(sum(last) / len(last))
    assert made.iterations == len(last)
    assert made.last == pytest.approx(amounts[-1])


def test_the_tail_over_uneven_times_is_a_ratio_of_sums() -> None:
    made = Throughput()
    for step, (total, time_s) in enumerate([(0, 0), (100, 1), (200, 10)]):
        made.add(step, total, time_s * S)
    assert made.tail == 20.0
    assert made.last == pytest.approx(100 / 9)


def test_nothing_and_one_commit_have_no_rate() -> None:
    made = Throughput()
    assert (made.last, made.tail, made.iterations) == (None, None, 0)
    made.add(7, 7, 0)
    assert (made.last, made.tail, made.iterations) == (None, None, 0)


def test_a_step_that_is_committed_twice_counts_once() -> None:
    made = Throughput()
    for step, time_s in [(0, 0), (1, 1), (1, 5), (2, 2)]:
        made.add(step, step * 10, time_s * S)
    assert (made.tail, made.last) == (10.0, 10.0)


@pytest.mark.parametrize(("step", "total"), [(5, 900), (101, 90)])
def test_going_back_to_a_checkpoint_starts_anew(step: int, total: int) -> None:
    made = after([10] * 100)
    made.add(step, total, 500 * S)
    assert made.tail is None
    made.add(step + 1, total + 30, 501 * S)
    assert made.tail == 30.0


def test_two_commits_at_one_time_have_no_rate() -> None:
    made = Throughput()
    made.add(0, 0, 5)
    made.add(1, 10, 5)
    assert (made.last, made.tail) == (None, None)


def test_commits_that_are_rare_make_no_window_of_nothing() -> None:
    """Every 250th iteration is committed."""
    made = Throughput()
    for step in range(0, 2000, 250):
        made.add(step, step, step * S)
    assert (made.iterations, made.tail) == (250, 1.0)


def test_memory_is_bounded_by_the_window() -> None:
    made = after([1] * 10_000)
    assert len(made._points) == WINDOW_ITERATIONS + 1
