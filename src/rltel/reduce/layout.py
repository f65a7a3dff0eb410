"""What the ranks of a group agree on: which keys there are, of which kind, and where each number lies in the vectors.

Two vectors hold everything. One is summed: presence, sums and counts, and bucket counts. The other takes the maximum:
maxima, and minima negated. A rank without a key contributes what changes nothing.
"""

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from rltel.core.errors import RecordError
from rltel.record.kinds import GAUGE_WRITER, KINDS, Moment, Op, State
from rltel.reduce.snapshot import Metric, Snapshot

BLOCK = 16  # buckets are agreed on by the block, so that a new bucket seldom costs an exchange
Ranks = tuple[int, ...]


class Column(NamedTuple):
    """One key as ranks tell each other about it: plain data.

    ``ranks``: the global ranks of the key's own group, if it is not reduced over the one that is agreeing.
    """

    key: str
    kind: str
    tracker: str
    blocks: tuple[int, ...] = ()
    ranks: Ranks = ()


class Layout:
    """The union of all ranks' columns, in one order, and the packing of states by it."""

    def __init__(self, columns: Iterable[Column] = ()) -> None:
        self.columns = {column.key: column for column in sorted(columns)}
        written = "\n".join(map(repr, self.columns.values()))
        digest = hashlib.blake2b(written.encode(), digest_size=8).digest()
        self.signature = int.from_bytes(digest, "big") >> 1  # 63 bits: it is also sent negated

    def missing(self, columns: Iterable[Column]) -> list[Column]:
        """What of these is new here: keys, kinds, groups or blocks of buckets."""
        return [column for column in columns if self._lacks(column)]

    def _lacks(self, column: Column) -> bool:
        known = self.columns.get(column.key)
        return (
            known is None
            or known[:3] != column[:3]
            or known.ranks != column.ranks
            or not (set(column.blocks) <= set(known.blocks))
        )

    def joined(self, told: Sequence[Sequence[Column]]) -> "Layout":
        """This layout with what each rank told.

        Raises `RecordError`, on every rank alike, if a key has two kinds or two groups.
        """
        columns = dict(self.columns)
        for rank, of_rank in enumerate(told):
            for column in of_rank:
                known = columns.get(column.key)
                columns[column.key] = column if known is None else _joined(known, column, rank)
        return Layout(columns.values())

    def pack(self, snapshot: Snapshot, is_writer: bool) -> tuple[list[float], list[float]]:
        """A snapshot's states as the two vectors."""
        sums: list[float] = []
        maxima: list[float] = []
        for column in self.columns.values():
            if column.ranks:
                continue
            kind = KINDS[column.kind]
            metric = snapshot.get(column.key)
            if metric is None or (kind is GAUGE_WRITER and not is_writer):
                _pack(column, State(kind), 0.0, sums, maxima)
            else:
                _pack(column, metric.state, 1.0, sums, maxima)
        return sums, maxima

    def unpack(self, sums: Sequence[float], maxima: Sequence[float]) -> dict[str, Metric]:
        """The two reduced vectors as metrics, without the keys that no rank recorded."""
        metrics: dict[str, Metric] = {}
        next_sum, next_maximum = iter(sums).__next__, iter(maxima).__next__
        for column in self.columns.values():
            if column.ranks:
                continue
            kind = KINDS[column.kind]
            present = next_sum()
            state = State(kind)
            for moment in kind.keeps:
                if moment.op is Op.SUM:
                    state.moments[moment.position] = next_sum()
                else:
                    state.moments[moment.position] = next_maximum() * _SIGN[moment]
            for index in _indices(column):
                number = next_sum()
                if number:
                    state.buckets[index] = number
            if present:
                metrics[column.key] = Metric(state, column.tracker, reduced=True)
        return metrics

    def extremes(self) -> Iterator[tuple[str, Moment]]:
        """What the second vector holds, in its order."""
        for column in self.columns.values():
            if not column.ranks:
                for moment in KINDS[column.kind].keeps:
                    if moment.op is not Op.SUM:
                        yield column.key, moment

    def groups(self) -> list[Ranks]:
        """The groups that some keys have of their own, in one order."""
        return sorted({column.ranks for column in self.columns.values() if column.ranks})


_SIGN = {Moment.MAX: 1.0, Moment.MIN: -1.0}


def columns_of(snapshot: Snapshot, ranks: Mapping[str, Ranks]) -> list[Column]:
    """The columns that a snapshot needs; ``ranks`` has the keys whose group is their own."""
    return [
        Column(key, metric.state.kind.name, metric.tracker, _blocks(metric.state), ranks.get(key, ()))
        for key, metric in snapshot.items()
    ]


def _joined(known: Column, told: Column, rank: int) -> Column:
    if known.kind != told.kind:
        raise RecordError(f"{told.key}: recorded as {told.kind} on rank {rank} of the group, elsewhere as {known.kind}")
    if known.ranks != told.ranks:
        raise RecordError(
            f"{told.key}: reduce_group: ranks {list(told.ranks)} on rank {rank} of the group, elsewhere "
            f"{list(known.ranks)} (an empty list: the group of the export)"
        )
    blocks = tuple(sorted({*known.blocks, *told.blocks}))
    return Column(known.key, known.kind, min(known.tracker, told.tracker), blocks, known.ranks)


def _blocks(state: State) -> tuple[int, ...]:
    return tuple(sorted({index // BLOCK for index in state.buckets}))


def _indices(column: Column) -> Iterable[int]:
    return (index for block in column.blocks for index in range(block * BLOCK, (block + 1) * BLOCK))


def _pack(column: Column, state: State, present: float, sums: list[float], maxima: list[float]) -> None:
    sums.append(present)
    for moment in state.kind.keeps:
        value = state.moments[moment.position]
        if moment.op is Op.SUM:
            sums.append(value)
        else:
            maxima.append(value * _SIGN[moment])
    if column.blocks:
        buckets = state.buckets
        sums.extend(buckets.get(index, 0.0) for index in _indices(column))
