"""Which rank counts, over real groups of four ranks."""

from collections.abc import Iterator
from typing import Any

import pytest
import torch.distributed as dist

from realparts.ranks import Ranks, ranks
from rltel.core.errors import RecordError
from rltel.rl.duplicates import counts_here

pytestmark = pytest.mark.xdist_group("four ranks")


@pytest.fixture(scope="module")
def four(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ranks]:
    with ranks(4, tmp_path_factory.mktemp("four")) as group:
        yield group


def own_group(rank: int, parts: list[list[int]]) -> Any:
    """The group that this rank is in; all ranks must make all of them."""
    groups = [dist.new_group(part) for part in parts]
    return next(group for group, part in zip(groups, parts, strict=True) if rank in part)


def test_without_groups_every_rank_counts() -> None:
    assert counts_here()


@pytest.mark.parametrize(
    ("parts", "counting"),
    [
        ([[0, 1], [2, 3]], [True, False, True, False]),
        ([[0, 2], [1, 3]], [True, True, False, False]),
        ([[0, 1, 2, 3]], [True, False, False, False]),
        ([[0], [1], [2], [3]], [True] * 4),
    ],
)
def test_the_first_of_each_set_of_copies_counts(four: Ranks, parts: list[list[int]], counting: list[bool]) -> None:
    def on_rank(rank: int) -> bool:
        return counts_here(own_group(rank, parts))

    assert four.run(on_rank) == counting


def test_of_several_groups_the_rank_that_is_first_in_all(four: Ranks) -> None:
    """Tensor parallel pairs of context parallel pairs: one sequence on four ranks."""

    def on_rank(rank: int) -> bool:
        return counts_here([own_group(rank, [[0, 1], [2, 3]]), own_group(rank, [[0, 2], [1, 3]])])

    assert four.run(on_rank) == [True, False, False, False]


@pytest.mark.parametrize("parts", [[[0, 2], [1, 3]], [[0, 1], [2, 3]]])
def test_of_data_parallel_groups_that_with_the_first_rank(four: Ranks, parts: list[list[int]]) -> None:
    def on_rank(rank: int) -> bool:
        return counts_here(data_parallel_group=own_group(rank, parts))

    assert four.run(on_rank) == [rank in parts[0] for rank in range(4)]


def test_none_among_several_is_a_parallelism_that_is_not_used(four: Ranks) -> None:
    """Torch takes None for the group of all ranks: three data-parallel ranks of four would count nothing."""

    def on_rank(rank: int) -> list[bool]:
        pairs = own_group(rank, [[0, 1], [2, 3]])
        return [counts_here([pairs, None]), counts_here([None, pairs]), counts_here([None]), counts_here([])]

    assert four.run(on_rank) == [[rank % 2 == 0] * 2 + [True] * 2 for rank in range(4)]


def test_a_device_mesh_is_its_group(four: Ranks) -> None:
    def on_rank(rank: int) -> list[bool]:
        from torch.distributed.device_mesh import init_device_mesh

        mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
        return [counts_here(mesh["tp"]), counts_here([mesh["tp"], mesh["dp"]]), counts_here(None, mesh["dp"])]

    assert four.run(on_rank) == [[rank in (0, 2), rank == 0, rank in (0, 2)] for rank in range(4)]


def test_a_device_mesh_of_two_dimensions_is_no_group(four: Ranks) -> None:
    def on_rank(rank: int) -> str:
        from torch.distributed.device_mesh import init_device_mesh

        try:
            counts_here(init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp")))
        except RecordError as error:
            return str(error)
        return ""

    assert all("duplicated_over: expected a process group, got" in said for said in four.run(on_rank))


def test_training_ranks_may_be_some_of_all(four: Ranks) -> None:
    def on_rank(rank: int) -> bool:
        training = own_group(rank, [[0, 1], [2, 3]])
        return counts_here(data_parallel_group=own_group(rank, [[0], [1], [2], [3]]), group=training)

    assert four.run(on_rank) == [True, False, True, False]


def test_a_group_that_this_rank_is_not_in_is_refused(four: Ranks) -> None:
    def on_rank(rank: int) -> str:
        groups = [dist.new_group([0, 1]), dist.new_group([2, 3])]
        try:
            counts_here(groups[1 if rank < 2 else 0])
        except RecordError as error:
            return str(error)
        return ""

    assert all("expected a" in said and "duplicated_over" in said for said in four.run(on_rank))


def test_a_data_parallel_group_lies_within_the_training_ranks(four: Ranks) -> None:
    def on_rank(rank: int) -> str:
        try:
            counts_here(data_parallel_group=own_group(rank, [[0, 2], [1, 3]]), group=own_group(rank, [[0, 1], [2, 3]]))
        except RecordError as error:
            return str(error)
        return ""

    assert all("data_parallel_group: expected ranks of" in said for said in four.run(on_rank))


def test_one_way_to_say_it_is_enough() -> None:
    with pytest.raises(RecordError, match="got both"):
        counts_here(object(), object())


def test_a_group_needs_an_initialised_torch_distributed() -> None:
    with pytest.raises(RecordError, match=r"expected an initialised torch\.distributed"):
        counts_here(object())
