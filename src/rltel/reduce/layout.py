"""What the ranks of a group agree on: which keys there are, of which kind, and where each number lies in the vectors.

Two vectors hold everything. One is summed: presence, sums and counts, and bucket counts. The other takes the maximum:
maxima, and minima negated. A rank without a key contributes what changes nothing.
"""

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from rltel.core.errors import RecordError
from rltel.record.kinds import EMPTY, GAUGE_WRITER, Kind, Moment, Op, State, kind_named
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
        self.columns = {(column.key, column.ranks): column for column in sorted(columns)}
        written = "\n".join(map(repr, self.columns.values()))
        digest = hashlib.blake2b(written.encode(), digest_size=8).digest()
        self._packing = [_packing(column) for column in self.columns.values() if not column.ranks]
        self._plain = {key: kind for key, kind, _, _ in self._packing if not kind.bucketed}
        self.signature = int.from_bytes(digest, "big") >> 1  # 63 bits: it is also sent negated

    def new_in(self, snapshot: Snapshot, ranks: Mapping[str, Ranks]) -> list[Column]:
        """The columns of a snapshot that are missing here. Nearly always none: so most are passed over at a glance."""
        known = self._plain
        doubtful = {
            key: metric for key, metric in snapshot.items() if known.get(key) is not metric.state.kind or key in ranks
        }
        return self.missing(columns_of(doubtful, ranks)) if doubtful else []

    def missing(self, columns: Iterable[Column]) -> list[Column]:
        """What of these is new here: keys, kinds, groups or blocks of buckets."""
        return [column for column in columns if self._lacks(column)]

    def _lacks(self, column: Column) -> bool:
        known = self.columns.get((column.key, column.ranks))
        return known is None or known.kind != column.kind or not (set(column.blocks) <= set(known.blocks))

    def joined(self, told: Sequence[Sequence[Column]]) -> "Layout":
        """This layout with what each rank told.

        Raises `RecordError`, on every rank alike, if a key has two kinds, or two groups that share a rank.
        """
        by_key: dict[str, dict[Ranks, Column]] = {}
        for column in self.columns.values():
            by_key.setdefault(column.key, {})[column.ranks] = column
        for rank, of_rank in enumerate(told):
            for column in of_rank:
                known = by_key.setdefault(column.key, {})
                for other in known.values():
                    _check_together(other, column, rank)
                known[column.ranks] = _joined(known.get(column.ranks, column), column)
        return Layout(column for known in by_key.values() for column in known.values())

    def pack(self, snapshot: Snapshot, is_writer: bool) -> tuple[list[float], list[float]]:
        """A snapshot's states as the two vectors."""
        sums: list[float] = []
        maxima: list[float] = []
        for key, kind, _, at in self._packing:
            metric = snapshot.get(key)
            if metric is None or (kind is GAUGE_WRITER and not is_writer):
                moments, buckets = _IDENTITIES, _NONE
                sums.append(0.0)
            else:
                moments, buckets = metric.state.moments, metric.state.buckets
                sums.append(1.0)
            sums += [moments[position] for position in at.sums]
            maxima += [moments[position] * sign for position, sign in at.extremes]
            if at.buckets:
                sums += [buckets.get(index, 0.0) for index in at.buckets]
        return sums, maxima

    def unpack(self, sums: Sequence[float], maxima: Sequence[float]) -> dict[str, Metric]:
        """The two reduced vectors as metrics, without the keys that no rank recorded."""
        metrics: dict[str, Metric] = {}
        sum_at = maximum_at = 0
        for key, kind, tracker, at in self._packing:
            if sums[sum_at]:
                state = State(kind)
                moments = state.moments
                for offset, position in enumerate(at.sums, start=sum_at + 1):
                    moments[position] = sums[offset]
                for offset, (position, sign) in enumerate(at.extremes, start=maximum_at):
                    moments[position] = maxima[offset] * sign
                if at.buckets:
                    counts = sums[sum_at + at.width - len(at.buckets) : sum_at + at.width]
                    state.buckets = {index: count for index, count in zip(at.buckets, counts, strict=True) if count}
                metrics[key] = Metric(state, tracker, True)
            sum_at += at.width
            maximum_at += len(at.extremes)
        return metrics

    def extremes(self) -> Iterator[tuple[str, Moment]]:
        """What the second vector holds, in its order."""
        for key, kind, *_ in self._packing:
            for moment in kind.keeps:
                if moment.op is not Op.SUM:
                    yield key, moment

    def groups(self) -> list[Ranks]:
        """The groups that some keys have of their own, in one order."""
        return sorted({column.ranks for column in self.columns.values() if column.ranks})


_SIGN = {Op.MAX: 1.0, Op.MIN: -1.0}
_IDENTITIES = list(EMPTY)
_NONE: dict[int, float] = {}


class _Places(NamedTuple):
    """Which numbers of a state go into the vectors, in their order."""

    sums: tuple[int, ...]
    extremes: tuple[tuple[int, float], ...]
    buckets: tuple[int, ...]
    width: int
    """How many numbers it takes in the sums, presence first."""


def _packing(column: Column) -> tuple[str, Kind, str, _Places]:
    """A column as the packing goes through it: key, kind, tracker, and where its numbers lie."""
    kind = kind_named(column.kind)
    sums = tuple(moment.position for moment in kind.keeps if moment.op is Op.SUM)
    extremes = tuple((moment.position, _SIGN[moment.op]) for moment in kind.keeps if moment.op is not Op.SUM)
    buckets = tuple(index for block in column.blocks for index in range(block * BLOCK, (block + 1) * BLOCK))
    return column.key, kind, column.tracker, _Places(sums, extremes, buckets, 1 + len(sums) + len(buckets))


def columns_of(snapshot: Mapping[str, Metric], ranks: Mapping[str, Ranks]) -> list[Column]:
    """The columns that a snapshot needs; ``ranks`` has the keys whose group is their own."""
    return [
        Column(key, metric.state.kind.name, metric.tracker, _blocks(metric.state), ranks.get(key, ()))
        for key, metric in snapshot.items()
    ]


def _check_together(known: Column, told: Column, rank: int) -> None:
    if known.kind != told.kind:
        here, there = kind_named(told.kind), kind_named(known.kind)
        raise RecordError(f"{told.key}: recorded as {here} on rank {rank} of the group, elsewhere as {there}")
    apart = known.ranks and told.ranks and not set(known.ranks) & set(told.ranks)  # as each rank's part of a mesh
    if known.ranks != told.ranks and not apart:
        raise RecordError(
            f"{told.key}: reduce_group: ranks {list(told.ranks)} on rank {rank} of the group, elsewhere "
            f"{list(known.ranks)} (an empty list: the group of the export)"
        )


def _joined(known: Column, told: Column) -> Column:
    blocks = tuple(sorted({*known.blocks, *told.blocks}))
    return Column(known.key, known.kind, min(known.tracker, told.tracker), blocks, known.ranks)


def _blocks(state: State) -> tuple[int, ...]:
    return tuple(sorted({index // BLOCK for index in state.buckets}))
