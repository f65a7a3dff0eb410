"""A few completions to look at: the best, the worst, and some at random."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from rltel.core.errors import RecordError
from rltel.record.inputs import as_values


def sample_completions(
    prompts: Sequence[str],
    completions: Sequence[str],
    rewards: Sequence[float],
    *,
    best: int = 2,
    worst: int = 2,
    random: int = 4,
    seed: int = 0,
    step: int = 0,
    max_chars: int = 2000,
    redact: Callable[[str], str] | None = None,
    columns: Mapping[str, Sequence[Any]] | None = None,
) -> list[dict[str, Any]]:
    """Rows for ``rltel.log_table``: each with ``picked`` (best, worst, random), prompt, completion, reward.

    ``rltel.log_table("samples", sample_completions(prompts, completions, rewards, step=step), step=step)``

    Args:
        prompts, completions, rewards: one for each rollout. Texts may hold what must not be shown: see ``redact``.
            What is no text (a list of messages) is shown as Python writes it.
        best, worst, random: how many of each; nothing is picked twice. Ties go to the earlier; a NaN is neither best
            nor worst. The rows are in this order.
        seed, step: what is random follows from these whole numbers alone: no other generator is used or moved.
        max_chars: longer texts are cut; how much was cut off stands at their end.
        redact: applied to each prompt and completion that was picked, before it is cut. None shows them as they are.
        columns: more to show, one value for each rollout.

    Raises `RecordError` if lengths differ, a reward is no number, a column has the name of one that is there, or fewer
    than none are to be picked.
    """
    given: dict[str, Sequence[Any]] = {"prompt": prompts, "completion": completions, "reward": rewards}
    more = dict(columns or {})
    taken = sorted(more.keys() & {*given, "picked"})
    if taken:
        raise RecordError(f"sample_completions: columns: {', '.join(taken)}: that name is taken")
    lengths = {name: len(values) for name, values in {**given, **more}.items()}
    if len(set(lengths.values())) > 1:
        raise RecordError(f"sample_completions: expected one of each for each rollout, got {lengths}")
    for name, many in {"best": best, "worst": worst, "random": random, "max_chars": max_chars}.items():
        if many < 0:
            raise RecordError(f"sample_completions: {name}: expected a number >= 0, got {many}")
    numbers: list[float] = as_values("sample_completions: rewards", rewards, None, "").tolist()

    def shown(given: Any) -> str:
        text = given if isinstance(given, str) else str(given)
        return _cut(text if redact is None else redact(text), max_chars)

    return [
        {
            "picked": why,
            "prompt": shown(prompts[place]),
            "completion": shown(completions[place]),
            "reward": float(numbers[place]),
            **{name: values[place] for name, values in more.items()},
        }
        for why, place in _picked(numbers, best, worst, random, (seed, step))
    ]


def _picked(
    rewards: Sequence[float], best: int, worst: int, random: int, seed: tuple[int, int]
) -> list[tuple[str, int]]:
    known = [place for place, reward in enumerate(rewards) if not math.isnan(reward)]
    highest = sorted(known, key=lambda place: -rewards[place])[:best]
    lowest = sorted((place for place in known if place not in highest), key=lambda place: rewards[place])[:worst]
    rest = [place for place in range(len(rewards)) if place not in {*highest, *lowest}]
    order = np.random.default_rng([each % 2**64 for each in seed]).permutation(len(rest))[:random]
    drawn = sorted(rest[place] for place in order)
    return [("best", at) for at in highest] + [("worst", at) for at in lowest] + [("random", at) for at in drawn]


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[:most]}... ({len(text) - most} more)"
