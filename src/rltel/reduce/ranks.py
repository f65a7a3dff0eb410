"""Reduction over the ranks of a ``torch.distributed`` group: exact, in at most three collectives.

1. A fixed-size agreement: do all ranks know the same keys, has one a new one, can each export?
2. One sum of everything that is added.
3. One maximum of all extremes (minima travel negated).

Only when some rank has a new key do ranks tell each other theirs (one more collective), and remember the union. The
cost does not depend on how often that key comes back, and hardly on the number of keys.
"""

import logging
import math
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from rltel.core.errors import ReductionError
from rltel.reduce.layout import Layout, Ranks, columns_of
from rltel.reduce.lost_peers import is_lost_peer
from rltel.reduce.snapshot import Metric, Snapshot, gauge_of

_log = logging.getLogger("rltel")
Take = Callable[[], Snapshot]
_NAMED = 3  # keys in an error
_PAIR = 2  # between two ranks gathering moves no more than reducing, in one collective instead of two


class _Own(NamedTuple):
    """Keys with a group of their own: its ranks by key; and the groups that this rank can reduce over, by ranks."""

    ranks: Mapping[str, Ranks] = {}
    groups: Mapping[Ranks, Any] = {}


# What a rank tells of the run's writer: nothing known, "not me", or this and its own global rank. The highest holds.
_UNKNOWN, _NOT_ME, _ME = 0, 1, 2


class RankReducer:
    """Reduces snapshots over groups, and remembers what each group has agreed on."""

    def __init__(self) -> None:
        self._warned = False
        self._layouts: dict[tuple[Ranks, Ranks], Layout] = {}  # by the group, and the one that keys are agreed on over

    def reduce(
        self,
        take: Take,
        group: Any,
        *,
        key_sync_group: Any = None,
        own_groups: Mapping[str, Any] | None = None,
        is_writer: bool | None = None,
        outliers: bool = False,
        step: int | None = None,
    ) -> Snapshot:
        """What all ranks of the group have, merged; the same on every rank.

        Args:
            take: gives this rank's snapshot. If it raises, all ranks raise, naming this one.
            group: the process group to reduce over. Every rank of it must call this, also one that recorded nothing.
            key_sync_group: a larger group (data and context parallel, say) whose ranks all reduce over groups of the
                same keys: keys are agreed on over it.
            own_groups: keys that are reduced over a group of their own. Each rank of it must have it: from a key, or as
                one of the two groups above.
            is_writer: whether this rank's value counts for gauges that merge by ``writer`` (None: the group's first).
            outliers: also say which rank holds each extreme, by gathering the extremes instead of reducing them.
            step: which all ranks must be at, if given: one that caught an exception may be a step ahead.

        Raises `ReductionError` or `RecordError` on every rank alike if one cannot export or kinds conflict;
        `ReductionError` from what the group raises if a peer dies.
        """
        given = own_groups or {}
        main = _Group(group, is_writer, step)
        sync = _Group(key_sync_group, is_writer, step) if key_sync_group is not None else main
        failure: Exception | None = None
        snapshot, own = Snapshot(), _Own()
        try:
            snapshot = take()
            main.about = sync.about = snapshot
            joinable = {_ranks_of(each): each for each in set(given.values())}
            joinable.update({sync.ranks: sync.handle, main.ranks: main.handle})
            own = _Own(_elsewhere({key: given[key] for key in snapshot if key in given}, main), joinable)
        except Exception as error:  # all ranks must hear of it before this one may leave
            failure = error
        metrics = self._reduce(snapshot, main, sync, own, failure, outliers)
        for ranks in self._layouts[main.ranks, sync.ranks].groups():
            if main.global_rank in ranks:
                metrics.update(self._reduce_own(snapshot, ranks, own, is_writer, outliers))
        return Snapshot(dict(sorted(metrics.items())))  # the same order on every rank

    def _reduce_own(
        self, snapshot: Snapshot, ranks: Ranks, own: _Own, is_writer: bool | None, outliers: bool
    ) -> dict[str, Metric]:
        mine = Snapshot({key: metric for key, metric in snapshot.items() if own.ranks.get(key) == ranks})
        member = _Group(own.groups[ranks], is_writer)
        member.about = mine
        return self._reduce(mine, member, member, _Own(), None, outliers)

    def _reduce(
        self,
        snapshot: Snapshot,
        group: "_Group",
        sync: "_Group",
        own: _Own,
        failure: Exception | None,
        outliers: bool,
    ) -> dict[str, Metric]:
        place = (group.ranks, sync.ranks)
        layout, writer = _agree(self._layouts.get(place, Layout()), snapshot, sync, own, failure)
        self._layouts[place] = layout
        is_here = writer >= _ME and writer - _ME in group.ranks
        if writer != _UNKNOWN and not is_here:
            self._warn_without_writer(group)
        writes = group.is_writer if is_here else group.rank == 0  # without a writer here, the first stands in for it
        sums, maxima = layout.pack(snapshot, writes)
        if not outliers and len(group.ranks) > _PAIR:
            return layout.unpack(*group.all_reduce((sums, "SUM"), (maxima, "MAX")))
        by_rank = group.all_gather(sums + maxima)
        reduced_sums, extremes = by_rank[:, : len(sums)].sum(axis=0), by_rank[:, len(sums) :]
        metrics = layout.unpack(reduced_sums.tolist(), extremes.max(axis=0).tolist())
        return {**metrics, **_holders(layout, metrics, extremes)} if outliers else metrics

    def _warn_without_writer(self, group: "_Group") -> None:
        if group.rank == 0 and not self._warned:
            self._warned = True
            _log.warning(
                "the run's writer is not in the group of ranks %s: what is reduced over it reaches no destination; "
                "set run.writer to a rank of the group (said once)",
                list(group.ranks),
            )


def _agree(
    layout: Layout, snapshot: Snapshot, sync: "_Group", own: _Own, failure: Exception | None
) -> tuple[Layout, int]:
    """The layout that all ranks share, after telling each other what is new in it; and where the writer is."""
    new = layout.new_in(snapshot, own.ranks)
    failing = sync.rank + 1 if failure is not None else 0
    agreed = sync.agree(layout.signature, bool(new), failing)
    highest, negated_lowest, any_new, any_failing, writer, last_step, negated_first_step = agreed
    if last_step != -negated_first_step:
        raise ReductionError(
            f"ranks are at different steps, {-negated_first_step} to {last_step} (-1: none was given); one of them "
            "left a step early, as by an exception that it caught (nothing was reset)"
        )
    if any_failing:
        reasons = sync.gather(None if failure is None else f"{type(failure).__name__}: {failure}")
        raise ReductionError(_failures(reasons)) from failure
    same = highest == -negated_lowest
    if same and not any_new:
        return layout, writer
    told = sync.gather(
        (new if same else [*layout.columns.values(), *columns_of(snapshot, own.ranks)], list(own.groups))
    )
    layout = (layout if same else Layout()).joined([columns for columns, _ in told])
    _check_all_join(layout, dict(zip(sync.ranks, (groups for _, groups in told), strict=True)))
    return layout, writer


def _check_all_join(layout: Layout, can_join: Mapping[int, list[Ranks]]) -> None:
    """Raise on every rank alike if one of them could not take part in the reduction over a key's own group."""
    for key, ranks in layout.columns:
        missing = [rank for rank in ranks if ranks not in can_join.get(rank, [ranks])]
        if missing:
            raise ReductionError(
                f"{key}: reduce_group={list(ranks)}: rank {missing[0]} is in it and was never given it; record "
                f"something with it there, or export with it as key_sync_group (nothing was reset)"
            )


def _holders(layout: Layout, metrics: Mapping[str, Metric], extremes: npt.NDArray[np.float64]) -> dict[str, Metric]:
    """For each extreme, the rank in the group that holds it (the first, if several do), as a gauge."""
    holders: dict[str, Metric] = {}
    for (key, moment), values in zip(layout.extremes(), extremes.T, strict=True):
        metric = metrics.get(key)
        if metric is not None and math.isfinite(values.max()):
            state = gauge_of(float(values.argmax()))
            holders[f"{key}/{moment.name.lower()}_rank"] = Metric(state, metric.tracker, reduced=True)
    return holders


class _Group:
    """A process group as this module needs it: plain lists in and out, through the device that its backend wants."""

    def __init__(self, group: Any, is_writer: bool | None, step: int | None = None) -> None:
        self._dist: Any = _distributed()
        self.handle = group
        self.ranks = _ranks_of(group)
        if not self.ranks:
            raise ReductionError(f"reduce_group: expected a group that this rank is in, got {group!r}")
        self.rank: int = self._dist.get_rank(group)
        self.global_rank: int = self._dist.get_rank()
        self.is_writer = bool(is_writer)
        self._writer = _UNKNOWN if is_writer is None else _ME + self.global_rank if is_writer else _NOT_ME
        self._step = -1 if step is None else step
        self.about: Mapping[str, Metric] = {}
        """What is being reduced, for errors."""
        self._device = _device_of(self._dist.get_backend(group))

    def agree(self, signature: int, has_new: bool, failing: int) -> list[int]:
        """The agreement, each the highest that any rank tells.

        Signature, negated signature, anything new, anybody failing, where the writer is, step, negated step.
        """
        torch = sys.modules["torch"]
        mine = [signature, -signature, int(has_new), failing, self._writer, self._step, -self._step]
        told = torch.tensor(mine, dtype=torch.int64, device=self._device)
        with self._in_touch():
            self._dist.all_reduce(told, op=self._dist.ReduceOp.MAX, group=self.handle)
        agreed: list[int] = told.tolist()
        return agreed

    def all_reduce(self, *vectors: tuple[list[float], str]) -> list[list[float]]:
        """One collective for each vector of float64, all on their way at once.

        None for an empty one (it then is empty on every rank).
        """
        sent = [(self._vector(values), op) for values, op in vectors]
        with self._in_touch():
            under_way = [
                self._dist.all_reduce(vector, op=getattr(self._dist.ReduceOp, op), group=self.handle, async_op=True)
                for vector, op in sent
                if len(vector)
            ]
            for work in under_way:
                work.wait()
        return [vector.tolist() for vector, _ in sent]

    def _vector(self, values: list[float]) -> Any:
        torch = sys.modules["torch"]
        return torch.from_numpy(np.array(values, np.float64)).to(self._device)

    def all_gather(self, values: list[float]) -> npt.NDArray[np.float64]:
        """Every rank's vector, as rows in the order of ranks. One collective; none if it is empty (on every rank)."""
        if not values:
            return np.empty((len(self.ranks), 0))
        torch = sys.modules["torch"]
        mine = self._vector(values)
        everything = [torch.empty_like(mine) for _ in self.ranks]
        with self._in_touch():
            self._dist.all_gather(everything, mine, group=self.handle)
        gathered: npt.NDArray[np.float64] = torch.stack(everything).cpu().numpy()
        return gathered

    def gather(self, told: Any) -> list[Any]:
        """What each rank tells, in the order of ranks."""
        everything: list[Any] = [None] * len(self.ranks)
        with self._in_touch():
            self._dist.all_gather_object(everything, told, group=self.handle)
        return everything

    @contextmanager
    def _in_touch(self) -> Iterator[None]:
        """A collective. What the group raises says only that another rank is gone: say where, and where to look."""
        try:
            yield
        except RuntimeError as error:  # those of torch.distributed are such
            if not is_lost_peer(error):
                raise
            step = "" if self._step < 0 else f" at step {self._step}"
            raise ReductionError(
                f"reducing {_some(self.about)}{step}: rank {self.global_rank} lost another rank of "
                f"{list(self.ranks)}; what happened is in the other ranks' errors: those of the run are in "
                f'run_summary.json, "processes" ({type(error).__name__}: {error})'
            ) from error


def tell(group: Any, told: Any) -> list[Any]:
    """What each rank of the group tells, in their order. Every rank of it must call this."""
    return _Group(group, None).gather(told)


def _distributed() -> Any:
    dist = sys.modules.get("torch.distributed")
    if dist is None or not dist.is_initialized():
        raise ReductionError("reduce_group: expected a group of an initialised torch.distributed")
    return dist


def _ranks_of(group: Any) -> Ranks:
    """The global ranks of a group; none if this rank is not in it, or it is no group."""
    dist = _distributed()
    try:
        ranks = tuple(dist.get_process_group_ranks(group))
    except Exception:  # torch raises this and that for what is no group (any more)
        return ()
    return ranks if dist.get_rank() in ranks else ()


def _elsewhere(groups: Mapping[str, Any], main: "_Group") -> dict[str, Ranks]:
    """The ranks of these keys' own groups, without those that are the export's group anyway."""
    ranks_of = {group: _ranks_of(group) for group in set(groups.values())}
    for key, group in groups.items():
        if not ranks_of[group]:
            raise ReductionError(f"{key}: reduce_group: expected a group that this rank is in, got {group!r}")
    return {key: ranks_of[group] for key, group in groups.items() if ranks_of[group] != main.ranks}


def _device_of(backend: str) -> Any:
    """Where a collective's buffers must lie."""
    torch = sys.modules["torch"]
    return torch.device("cuda", torch.cuda.current_device()) if "nccl" in backend else torch.device("cpu")


def _some(keys: Iterable[str]) -> str:
    """The first of these keys, and how many there are."""
    known = list(keys)
    if not known:
        return "over ranks"
    return f"{len(known)} keys ({', '.join(known[:_NAMED])}{', ...' if len(known) > _NAMED else ''})"


def _failures(reasons: list[str | None]) -> str:
    told = [f"rank {rank} of the group cannot export: {reason}" for rank, reason in enumerate(reasons) if reason]
    return "; ".join(told) + " (nothing was reset on any rank)"
