"""Steps and axes: what is one, and what is said of what is none."""

from typing import Any

import numpy as np
import pytest
import torch

from rltel.core.errors import RecordError
from rltel.core.steps import check_axis, check_steps, step_problem


@pytest.mark.parametrize("step", [0, 7, 2**63 - 1, np.int64(3), np.uint8(3), torch.tensor(3), np.array(3)])
def test_whole_numbers_of_any_kind_are_steps(step: Any) -> None:
    assert step_problem(step) == ""
    check_steps(step=step, env_steps=step, epoch=None)


@pytest.mark.parametrize(
    ("step", "said"),
    [
        (-1, ">= 0, got -1"),
        (1.0, ">= 0, got 1.0"),
        (True, ">= 0, got True"),
        ("3", ">= 0, got '3'"),
        (None, ">= 0, got None"),
        (np.array([1, 2]), ">= 0, got array"),
        (torch.tensor(3.5), ">= 0, got tensor"),
        (2**63, r"< 2\*\*63, got one of 64 bits"),
        (2**9999, r"< 2\*\*63, got one of 10000 bits"),
        (-(2**9999), "got a negative one of 10000 bits"),
        ("x" * 1000, r"got 'xxx.*\.\.\.$"),
    ],
)
def test_what_is_no_step_is_refused_with_what_was_given(step: Any, said: str) -> None:
    with pytest.raises(RecordError, match=f"commit: step: expected a whole number .*{said}"):
        check_steps(step=step)


def test_only_the_step_itself_has_to_be_there() -> None:
    check_steps(step=1, env_steps=None, epoch=None, epoch_step=None)


@pytest.mark.parametrize("axis", ["", " ", "\n", 3, None, b"train"])
def test_an_axis_without_a_name_is_refused(axis: Any) -> None:
    with pytest.raises(RecordError, match="commit: axis: expected "):
        check_axis(axis)
    check_axis("train")
