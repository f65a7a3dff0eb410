"""Rollouts of the same prompt, brought together: as matrices, one for each size that groups have."""

from collections import Counter
from collections.abc import Hashable, Iterator
from typing import Any

import numpy as np

from rltel.core.errors import RecordError
from rltel.rl.groups.hosted import hosted

Places = list[Any]
"""Index arrays ``[groups, size]`` into the rollouts, one for each size."""


def places(rollouts: int, group_size: int | None, prompt_ids: Any | None) -> Places:
    """Where each group's rollouts are.

    Args:
        rollouts: how many there are.
        group_size: how many belong to a prompt; without ``prompt_ids`` they follow each other.
        prompt_ids: the prompt of each rollout, in any order (host data; strings, numbers, or rows of tokens).

    Raises `RecordError` for groups that are not whole.
    """
    if group_size is not None and (not hasattr(group_size, "__index__") or int(group_size) < 1):
        raise RecordError(f"groups: group_size: expected a whole number >= 1, got {group_size!r:.60}")
    if prompt_ids is not None:
        return _by_prompt(rollouts, group_size, prompt_ids)
    if group_size is None:
        raise RecordError("groups: expected group_size, prompt_ids, or both, got neither")
    if rollouts % group_size:
        raise RecordError(f"groups: expected whole groups of {group_size} rollouts, got {rollouts} rollouts")
    return [np.arange(rollouts).reshape(-1, group_size)] if rollouts else []


def _by_prompt(rollouts: int, group_size: int | None, prompt_ids: Any) -> Places:
    ids = hosted("groups: prompt_ids", prompt_ids, needed="one for each rollout")
    if len(ids) != rollouts:
        raise RecordError(f"groups: expected a prompt_id for each of {rollouts} rollouts, got {len(ids)}")
    of_prompt: dict[Hashable, list[int]] = {}
    for place, prompt in enumerate(ids):
        of_prompt.setdefault(prompt, []).append(place)
    if group_size is not None:
        _refuse_parts(of_prompt, group_size)
    sizes: dict[int, list[list[int]]] = {}
    for group in of_prompt.values():
        sizes.setdefault(len(group), []).append(group)
    return [np.array(groups) for groups in sizes.values()]


def _refuse_parts(of_prompt: dict[Hashable, list[int]], group_size: int) -> None:
    """A part of a group would count as a whole one, and its zero variance or its pass@k would be made up."""
    sizes = Counter({prompt: len(group) for prompt, group in of_prompt.items() if len(group) != group_size})
    if sizes:
        shown = ", ".join(f"prompt {prompt!r:.60} has {size}" for prompt, size in list(sizes.items())[:5])
        raise RecordError(
            f"groups: expected {group_size} rollouts of each prompt in one call; {shown}"
            f"{' ...' if len(sizes) > 5 else ''}; bring a prompt's rollouts to one process before they are recorded"
        )


def taken(values: Any, at: Places) -> Iterator[Any]:
    """The values of each size's groups, ``[groups, size]`` in float64, where they lie."""
    for place in at:
        if isinstance(values, np.ndarray):
            yield values[place].astype(np.float64)
        else:
            yield _on_device(values, place)


def _on_device(values: Any, place: Any) -> Any:
    import torch  # there is a tensor, so it is loaded already

    wide = torch.float32 if values.device.type == "mps" else torch.float64
    index = torch.from_numpy(place.ravel()).to(values.device, non_blocking=True)
    return values.detach().index_select(0, index).reshape(place.shape).to(wide)
