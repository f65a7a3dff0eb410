"""The series of experts' loads: one for each number of a layer, and one for each expert's assignments.

An expert's share is left to the query (``100 * tokens / sum by (rl_moe_layer) (tokens)``): it would double the series.
The limit of series takes whole layers, so that such a query is right wherever it answers; the other layers' experts
share the overflow series, and their layers' own numbers are there all the same.
"""

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from rltel.names.otel import Name, Namer
from rltel.reduce.snapshot import Metric
from rltel.rl.moe.loads import EXPERT_LOADS, balance, tokens_of


class Series(NamedTuple):
    """One gauge: how it is called, its value, and the tracker that it comes from."""

    name: Name
    value: float
    tracker: str


class _Rest(NamedTuple):
    """What has no series of its own: how it is called, and its values."""

    name: Name
    values: list[float]
    adds_up: bool


def series_of_loads(metrics: Mapping[str, Metric], namer: Namer) -> Iterator[Series]:
    """Of all metrics that are experts' loads (`EXPERT_LOADS`), and of nothing else."""
    rest: dict[str, _Rest] = {}
    for key, metric in metrics.items():
        if metric.state.kind is EXPERT_LOADS:
            yield from _of_layer(key, metric, namer, rest)
    for late in rest.values():
        yield Series(late.name, sum(late.values) / (1 if late.adds_up else len(late.values)), "")


def _of_layer(key: str, metric: Metric, namer: Namer, rest: dict[str, _Rest]) -> Iterator[Series]:
    tokens, tracker = tokens_of(metric.state), metric.tracker
    if not tokens:
        return
    for what, value in balance(tokens)._asdict().items():
        name = namer.name(f"{key}/{what}", tracker)
        if name.overflow:
            rest.setdefault(name.name, _Rest(name, [], adds_up=False)).values.append(value)
        else:
            yield Series(name, value, tracker)
    name = namer.name(f"{key}/expert_0/tokens", tracker, series=len(tokens))  # claims those of all its experts
    if name.overflow:
        rest.setdefault(name.name, _Rest(name, [], adds_up=True)).values.append(sum(tokens))
        return
    for expert, count in enumerate(tokens):
        yield Series(namer.name(f"{key}/expert_{expert}/tokens", tracker, series=0), count, tracker)
