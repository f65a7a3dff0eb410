"""The loads of one MoE layer's experts: one state a layer, from which every number of the layer follows once merged.

Counts lie where a distribution has its buckets: number ``e`` is how many assignments expert ``e`` got. So they merge by
the rule of all states, and a model of 48 layers with 128 experts costs 48 keys on its way instead of thousands.
"""

import math
from collections.abc import Mapping, Sequence
from functools import cache
from typing import NamedTuple

from rltel.core.errors import RecordError
from rltel.record.buckets import OVERFLOW
from rltel.record.kinds import KINDS, SUFFIXES, Kind, Moment, Moments, State, Value

MOST = OVERFLOW
"""Experts of a layer, and replicas, that a state can tell apart."""

_value = tuple.__new__  # what a named tuple's own constructor calls, at half the cost


class Balance(NamedTuple):
    """How evenly a layer's assignments are spread. A layer without any has zeros."""

    max_over_ideal: float
    """The busiest expert's load over the mean load: 1 is perfect balance."""
    ideal: float
    """The mean load: assignments an expert would have if all had the same."""
    normalized_entropy: float
    """Shannon's, of the shares, over its largest, ``ln E``: 1 is perfect balance, 0 all on one expert."""
    coefficient_of_variation: float
    """Standard deviation of the loads over their mean: 0 is perfect balance, ``sqrt(E - 1)`` all on one expert."""


def balance(tokens: Sequence[float]) -> Balance:
    """The numbers of one layer from its experts' assignments."""
    experts, total = len(tokens), sum(tokens)
    if not total:
        return Balance(0.0, 0.0, 0.0, 0.0)
    ideal = total / experts
    squares = math.fsum((count - ideal) ** 2 for count in tokens)
    return Balance(
        max(tokens) * experts / max(total, 1.0), ideal, _entropy(tokens, total), math.sqrt(squares / experts) / ideal
    )


def _entropy(tokens: Sequence[float], total: float) -> float:
    if len(tokens) == 1:
        return 1.0  # one expert cannot be out of balance
    shares = (count / total for count in tokens if count)
    return max(0.0, -math.fsum(share * math.log(share) for share in shares)) / math.log(len(tokens))


def state_of(counts: Sequence[float], replicas: int = 1, what: str = "moe: counts") -> State:
    """The state of one layer's counts, of which ``replicas`` ranks each hold the same.

    Raises `RecordError`, which names ``what``, for counts that are no whole numbers >= 0, or for too many experts.
    """
    check(len(counts), replicas, what)
    for count in counts:
        if not (count >= 0 and math.isfinite(count) and float(count).is_integer()):
            raise RecordError(f"{what}: expected whole numbers >= 0, got {count!r}")
    buckets = {expert: float(count) for expert, count in enumerate(counts) if count}
    total = sum(buckets.values())
    moments = Moments(total, total + 1.0, high=float(len(counts)))
    return State(EXPERT_LOADS, moments, {-replicas: 1.0, **buckets})


def check(experts: int, replicas: int, what: str = "moe") -> None:
    """Raise `RecordError` for numbers that no state can hold."""
    if not 0 < experts <= MOST:
        raise RecordError(f"{what}: expected 1 to {MOST} experts in a layer, got {experts}")
    if not isinstance(replicas, int) or not 0 < replicas <= MOST:
        raise RecordError(f"moe: replicas: expected a whole number from 1 to {MOST}, got {replicas!r}")


def tokens_of(state: State) -> list[float]:
    """Each expert's assignments, replicas divided out."""
    return _tokens(Moments(*state.moments), state.buckets)


def _tokens(moments: Moments, buckets: Mapping[int, float]) -> list[float]:
    if not 0 < moments.high <= MOST:
        return []
    replicas = max((-index for index in buckets if index < 0), default=1)
    return [buckets.get(expert, 0.0) / replicas for expert in range(int(moments.high))]


def _finish(moments: Moments, buckets: Mapping[int, float]) -> Sequence[Value]:
    """A layer's numbers, then each expert's two, under AReaL's keys."""
    tokens = _tokens(moments, buckets)
    if not tokens:
        return ()
    values = [
        _value(Value, (f"/{name}", name, number)) for name, number in zip(Balance._fields, balance(tokens), strict=True)
    ]
    floor = max(sum(tokens), 1.0)
    for (of_tokens, of_percent), count in zip(_suffixes(len(tokens)), tokens, strict=True):
        values.append(_value(Value, (of_tokens, "tokens", count)))
        values.append(_value(Value, (of_percent, "load_percent", 100 * count / floor)))
    return values


@cache
def _suffixes(experts: int) -> Sequence[tuple[str, str]]:
    return [(f"/expert_{expert}/tokens", f"/expert_{expert}/load_percent") for expert in range(experts)]


# SUM: assignments. MAX: how many experts there are. Buckets: assignments by expert, and under minus the number of
# replicas one for each record, so that a layer that got nothing is still known. COUNT: all buckets, as of any state.
EXPERT_LOADS = Kind(
    "expert_loads",
    (Moment.SUM, Moment.COUNT, Moment.MAX),
    _finish,
    tuple(f"/{name}" for name in Balance._fields),
    bucketed=True,
)
# So that payloads and records with it are read, and no other key is taken for one of its numbers.
KINDS.setdefault(EXPERT_LOADS.name, EXPERT_LOADS)
SUFFIXES[:] = sorted({*SUFFIXES, *EXPERT_LOADS.suffixes})
