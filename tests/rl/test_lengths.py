"""Lengths of sequences, from masks and as they are."""

from typing import Any

import numpy as np
import pytest
import torch

from realparts.measures import fake_cuda
from rltel.core.errors import RecordError
from rltel.rl.lengths import lengths_of

MASK = [[1, 1, 1, 0], [1, 0, 0, 0], [0, 0, 0, 0]]


@pytest.mark.parametrize(
    "mask",
    [
        MASK,
        np.array(MASK, bool),
        np.array(MASK, np.float32),
        torch.tensor(MASK),
        torch.tensor(MASK, dtype=torch.bool),
        torch.tensor(MASK, dtype=torch.bfloat16),
        torch.tensor(MASK, dtype=torch.float32, requires_grad=True),
    ],
    ids=["list", "bool array", "float array", "int tensor", "bool tensor", "bfloat16 tensor", "with gradient"],
)
def test_a_mask_counts_prompts_and_responses_and_no_padding(mask: object) -> None:
    assert lengths_of(mask)() == [3, 1, 0]


def test_left_padding_and_holes_count_alike() -> None:
    assert lengths_of([[0, 0, 1, 1], [1, 0, 1, 0]])() == [2, 2]


@pytest.mark.parametrize("lengths", [[3, 1, 0], (3, 1, 0), np.array([3, 1, 0]), torch.tensor([3, 1, 0])])
def test_lengths_are_taken_as_they_are(lengths: object) -> None:
    found = lengths_of(lengths=lengths)()
    assert found == [3, 1, 0]
    assert all(type(each) is int for each in found)


@pytest.mark.parametrize("none", [[], np.zeros(0, np.int64), torch.zeros(0, dtype=torch.int64)])
def test_a_batch_may_have_no_sequences(none: object) -> None:
    assert lengths_of(lengths=none)() == []


def test_an_empty_mask_has_no_sequences() -> None:
    assert lengths_of(torch.ones(0, 5, dtype=torch.bool))() == []


def test_later_changes_of_the_mask_do_not_count() -> None:
    mask, lengths = torch.tensor(MASK), torch.tensor([3, 1])
    found, also = lengths_of(mask), lengths_of(lengths=lengths)
    mask.zero_()
    lengths.zero_()
    assert (found(), also()) == ([3, 1, 0], [3, 1])


@pytest.mark.parametrize("mask", [[1, 1, 0], np.ones((2, 1, 4, 4)), torch.ones(3), 1])
def test_a_mask_has_two_dimensions(mask: object) -> None:
    with pytest.raises(RecordError, match=r"attention_mask: expected \[sequences, length\]"):
        lengths_of(mask)


@pytest.mark.parametrize("lengths", [[1.5], [True], [[1, 2]], 3, torch.ones(2), torch.ones(2, dtype=torch.bool), ["a"]])
def test_lengths_are_whole_numbers(lengths: object) -> None:
    with pytest.raises(RecordError, match=r"lengths: expected whole numbers \[sequences\]"):
        lengths_of(lengths=lengths)


@pytest.mark.parametrize("lengths", [[3, -1], torch.tensor([3, -1])])
def test_no_length_is_negative(lengths: object) -> None:
    with pytest.raises(RecordError, match=r"lengths: expected whole numbers >= 0, got -1"):
        lengths_of(lengths=lengths)


@pytest.mark.parametrize("given", [{"attention_mask": [[1, 1], [1]]}, {"lengths": [[1], [2, 3]]}])
def test_ragged_lists_are_refused(given: dict[str, Any]) -> None:
    with pytest.raises(RecordError, match="expected a tensor, an array or equally long lists, got list"):
        lengths_of(**given)


def test_a_mask_of_anything_but_numbers_is_refused() -> None:
    with pytest.raises(RecordError, match=r"attention_mask: expected \[sequences, length\]"):
        lengths_of([["1", None]])


def test_a_mask_or_lengths_not_both_and_not_neither() -> None:
    with pytest.raises(RecordError, match="got neither"):
        lengths_of()
    with pytest.raises(RecordError, match="got both"):
        lengths_of(MASK, [3, 1, 0])


def test_a_device_is_not_waited_for() -> None:
    """A fake tensor raises when the host reads a number; the one copy is one that does not block."""
    with fake_cuda() as spy:
        lengths_of(torch.ones(4, 8, device="cuda", dtype=torch.bool))
        lengths_of(lengths=torch.ones(4, device="cuda", dtype=torch.int64))
        assert spy.seen == ["aten._to_copy.default"] * 2
