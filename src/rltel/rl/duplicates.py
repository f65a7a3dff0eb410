"""Which rank counts what several ranks hold alike: of each set of copies, one.

Data-parallel ranks hold different sequences. Tensor, pipeline and context parallel ranks work on the same ones.
"""

import sys
from collections.abc import Sequence
from typing import Any

from rltel.core.errors import RecordError


def counts_here(duplicated_over: Any = None, data_parallel_group: Any = None, group: Any = None) -> bool:
    """Whether this rank counts for its set of copies.

    Args:
        duplicated_over: the process group (or several) whose ranks hold the same sequences as this one: the first rank
            of each counts. A None among several is a parallelism that is not used.
        data_parallel_group: or this rank's data-parallel group: of all of them, the one with the first of the training
            ranks counts.
        group: all training ranks, for ``data_parallel_group``. None: all ranks there are.

    A group may be a `DeviceMesh` of one dimension. With neither every rank counts. Raises `RecordError` for both, and
    for what is no group of this rank.
    """
    if duplicated_over is not None and data_parallel_group is not None:
        raise RecordError("throughput: expected duplicated_over or data_parallel_group, got both")
    if data_parallel_group is not None:
        return _is_first_of(data_parallel_group, group)
    if duplicated_over is None:
        return True
    several = isinstance(duplicated_over, Sequence)
    # Torch takes None for the group of all ranks; here it says that nothing is duplicated, alone or among several.
    groups = [each for each in (duplicated_over if several else [duplicated_over]) if each is not None]
    return all(_distributed().get_rank() == min(_ranks("duplicated_over", each)) for each in groups)


def _is_first_of(data_parallel_group: Any, group: Any) -> bool:
    """Whether these ranks hold the training ranks' first."""
    everybody = range(_distributed().get_world_size()) if group is None else _ranks("group", group)
    mine = _ranks("data_parallel_group", data_parallel_group)
    if not set(mine) <= set(everybody):
        raise RecordError(f"throughput: data_parallel_group: expected ranks of {list(everybody)}, got {mine}")
    return min(everybody) in mine


def _distributed() -> Any:
    dist = sys.modules.get("torch.distributed")
    if dist is None or not dist.is_available() or not dist.is_initialized():
        raise RecordError("throughput: expected an initialised torch.distributed, as a process group was given")
    return dist


def _ranks(name: str, group: Any) -> list[int]:
    """The global ranks of a group that this rank is in."""
    dist = _distributed()
    try:
        group = group.get_group() if hasattr(group, "get_group") else group  # a DeviceMesh
        ranks: list[int] = dist.get_process_group_ranks(group)
    except Exception as error:  # torch raises this and that for what is no group
        raise RecordError(f"throughput: {name}: expected a process group, got {group!r}") from error
    if dist.get_rank() not in ranks:
        raise RecordError(f"throughput: {name}: expected a group that this rank is in, got ranks {ranks}")
    return ranks
