"""Reduction over real ranks: gloo, in processes of their own.

Functions called `on_rank` run there; what they use comes along by value.
"""

from __future__ import annotations

import json
import math
import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from hypothesis import given, settings
from hypothesis import strategies as st

import rltel
import rltel.reduce.trackers
from realparts.ranks import RankError, Ranks, ranks
from rltel.core.errors import ReductionError
from rltel.record.kinds import KINDS, PHASE_MS, PHASE_S, TIMING
from rltel.record.recorder import Recorder
from rltel.record.tracker import Tracker
from rltel.reduce.lost_peers import is_lost_peer
from rltel.reduce.ranks import RankReducer
from rltel.reduce.snapshot import Snapshot
from rltel.reduce.trackers import Trackers

NAN, INF = math.nan, math.inf
Record = Callable[[Tracker], object]
Numbers = dict[str, float]

VECTORS = {
    vector["id"]: vector
    for vector in json.loads((Path(__file__).parents[1] / "vectors" / "areal_vectors.json").read_text())["vectors"]
}

on_two = pytest.mark.xdist_group("two ranks")
on_four = pytest.mark.xdist_group("four ranks")


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ranks]:
    with ranks(2, tmp_path_factory.mktemp("two")) as group:
        yield group


@pytest.fixture(scope="module")
def four(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ranks]:
    with ranks(4, tmp_path_factory.mktemp("four")) as group:
        yield group


# --- what runs on ranks ----------------------------------------------------------------------------------------------


def fresh() -> Trackers:
    return Trackers(Recorder())


def export(trackers: Trackers, **options: Any) -> Numbers:
    """An export over all ranks, as plain numbers."""
    return dict(trackers.export_all(**{"reduce_group": dist.group.WORLD, **options}))


def recorded(rank: int, records: Sequence[Record], options: dict[str, Any]) -> Numbers:
    """Each rank records its part; the export over all."""
    trackers = fresh()
    records[rank](trackers.default)
    return export(trackers, **options)


def failure_of(call: Callable[[], Any]) -> str:
    """What a call raises, as text; empty if it does not."""
    try:
        call()
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return ""


@contextmanager
def spied(*others: Any) -> Iterator[list[str]]:
    """The names of all collectives that are called inside."""
    calls: list[str] = []
    names = [name for name in dir(dist) if name.startswith(("all_", "reduce", "broad", "gather", "scatter", "barrier"))]
    names += ["monitored_barrier", "send", "recv", "isend", "irecv", "batch_isend_irecv"]
    real = {name: getattr(dist, name) for name in names if callable(getattr(dist, name))}

    def counting(name: str) -> Callable[..., Any]:
        def called(*args: Any, **kwargs: Any) -> Any:
            calls.append(name)
            return real[name](*args, **kwargs)

        return called

    for name in real:
        setattr(dist, name, counting(name))
    try:
        yield calls
    finally:
        for name, function in real.items():
            setattr(dist, name, function)


def nothing(tracker: Tracker) -> None:
    """A rank that records nothing."""


# --- here -----------------------------------------------------------------------------------------------------------


def over(group: Ranks, *records: Record, **options: Any) -> Numbers:
    """What an export over ranks gives, of which each records its part. The same on every rank, in the same order."""
    return agreed(group.run(recorded, records, options))


def agreed(results: Sequence[Any]) -> Any:
    """The result that all ranks have, to the last bit and in the same order."""
    assert len({repr(result) for result in results}) == 1, results
    return results[0]


def alone(*records: Record) -> Numbers:
    """What one process has that records everything."""
    trackers = fresh()
    for record in records:
        record(trackers.default)
    return dict(trackers.export_all())


def assert_same(found: Numbers, expected: Numbers, rel: float = 1e-12) -> None:
    assert found.keys() == expected.keys()
    assert found == pytest.approx(expected, rel=rel, abs=0.0, nan_ok=True)


def mask(*bits: int) -> torch.Tensor:
    return torch.tensor(bits, dtype=torch.bool)


def f32(*values: float) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float32)


def stats(values: torch.Tensor, valid: torch.Tensor) -> Record:
    """Values in every kind that tensors can have."""

    def record(tracker: Tracker) -> None:
        for reduce_type in ("avg_min_max", "avg", "sum", "min", "max"):
            tracker.stat({f"stat/{reduce_type}": values}, mask=valid, reduce_type=reduce_type)
        tracker.distribution({"stat/histogram": values}, mask=valid)

    return record


# --- tests ----------------------------------------------------------------------------------------------------------


@on_two
class TestVectorsOfAreal:
    def test_avg_min_max_two_ranks_unequal_masks(self, two: Ranks) -> None:
        vector = VECTORS["avg_min_max_two_ranks_unequal_masks"]

        def part(given: Any) -> Record:
            def record(tracker: Tracker) -> None:
                tracker.denominator(m=mask(*given["mask"]))
                tracker.stat(x=f32(*given["x"]), denominator="m")

            return record

        assert over(two, part(vector["input"]["rank0"]), part(vector["input"]["rank1"])) == vector["output"]

    def test_avg_sum_min_max_two_ranks(self, two: Ranks) -> None:
        vector = VECTORS["avg_sum_min_max_two_ranks"]

        def part(given: Any) -> Record:
            def record(tracker: Tracker) -> None:
                tracker.denominator(m=mask(*given["mask"]))
                for key, kind in vector["input"]["reduce"].items():
                    tracker.stat({key: f32(*given["v"])}, denominator="m", reduce_type=kind)

            return record

        found = over(two, part(vector["input"]["rank0"]), part(vector["input"]["rank1"]))
        assert found == pytest.approx(vector["output"], rel=1e-7)  # AReaL divides in float32
        assert found["avg"] == 2 / 3

    def test_scalar_count_two_ranks(self, two: Ranks) -> None:
        vector = VECTORS["scalar_count_two_ranks"]

        def part(values: Any) -> Record:
            def record(tracker: Tracker) -> None:
                for value in values:
                    tracker.scalar(a=value)

            return record

        assert over(two, part(vector["input"]["rank0"]), part(vector["input"]["rank1"])) == vector["output"]

    def test_one_sided_keys_two_ranks(self, two: Ranks) -> None:
        """Also the abort of AReaL v2.0.0: tensor keys that one rank has alone, beside a scalar on both."""

        def first(tracker: Tracker) -> None:
            tracker.scalar(c=0.0)
            tracker.denominator(m=mask(1, 1))
            tracker.stat(x=f32(1, 3), denominator="m")
            tracker.scalar(s=4.0)

        def second(tracker: Tracker) -> None:
            tracker.scalar(c=1.0)

        for records in ((first, second), (second, first)):
            assert over(two, *records) == VECTORS["one_sided_keys_two_ranks"]["output"]

    def test_train_infer_and_staleness_two_ranks(self, two: Ranks) -> None:
        """The part of it that is reduction: the measures themselves are computed here as the vector's source does."""
        vector = VECTORS["train_infer_and_staleness_two_ranks"]

        def part(given: Any) -> Record:
            valid = mask(*given["mask"])
            trainer, rollout = (torch.tensor([float(v) for v in given[k]]) for k in ("trainer", "rollout"))
            d = (trainer - rollout).double()

            def record(tracker: Tracker) -> None:
                with tracker.scope("ppo_actor"), tracker.scope("train_infer"):
                    tracker.denominator(n_valid_tokens=valid)
                    tracker.stat(logp_diff=d, logp_abs_diff=d.abs(), denominator="n_valid_tokens")
                    average = {
                        "trainer_nll": -trainer, "rollout_nll": -rollout, "kl_k1": -d, "kl_k2": d**2 / 2,
                        "kl_k3": torch.expm1(d) - d, "logp_diff_squared": d**2,
                        "ratio_outside_5": (d.abs() > math.log(5)).float(),
                        "ratio_outside_10": (d.abs() > math.log(10)).float(),
                    }  # fmt: skip
                    tracker.stat(average, denominator="n_valid_tokens", reduce_type="avg")

            return record

        found = over(two, part(vector["input"]["rank0"]), part(vector["input"]["rank1"]))
        expected = {key: value for key, value in vector["output"].items() if key in found}
        assert len(found) == 15
        assert_same(found, expected, rel=1e-9)

    def test_counts_of_a_layers_experts_are_summed(self, two: Ranks) -> None:
        """The sums of ``moe_two_ranks``; what is derived from them is not this module's."""
        parts = [
            lambda t, c=counts: t.count({f"expert_{j}/tokens": n for j, n in enumerate(c)})
            for counts in ([3, 1], [1, 5])
        ]
        assert over(two, *parts) == {"expert_0/tokens": 4.0, "expert_1/tokens": 6.0}


def every_kind(rank: int) -> Record:
    """Something different in every kind on each rank; in different buckets, too. Rank 2 lacks every other key."""

    def record(tracker: Tracker) -> None:
        values = torch.tensor([10.0 ** (rank - 1), -3.0 * rank, rank + 0.25, 1e4], dtype=torch.float64)
        stats(values, mask(1, 1, 1, int(rank == 3)))(tracker)
        tracker.weighted_mean("weighted", rank + 1.0, weight=rank)
        tracker.scalar({"scalar": rank / 3}, weight=rank + 1)
        for key, kind in (("timed/s", TIMING), ("timed/phase", PHASE_S), ("timed/phase_ms", PHASE_MS)):
            append = tracker.timing_appender(key, kind)
            for number in range(rank + 1):
                append(10 ** (9 - rank) + number)
        tracker.count(counter=rank + 0.5)
        tracker.elapsed(elapsed=rank / 4)
        tracker.elapsed(elapsed=rank / 2)
        for how in ("mean", "sum", "min", "max", "writer"):
            tracker.gauge({f"gauge/{how}": 99.0}, ranks=how)
            tracker.gauge({f"gauge/{how}": 2.0**rank}, ranks=how)

    return record


@on_four
class TestEveryKind:
    def test_is_what_one_process_gets(self, four: Ranks) -> None:
        records = [every_kind(rank) for rank in range(4)]
        found = over(four, *records)
        expected = alone(*records)
        gauges = {"gauge/mean": 15 / 4, "gauge/sum": 15.0, "gauge/min": 1.0, "gauge/max": 8.0, "gauge/writer": 1.0}
        assert_same(found, {**expected, **gauges, "elapsed": 2.25})

    def test_means_every_kind(self) -> None:
        trackers = fresh()
        every_kind(1)(trackers.default)
        assert {metric.state.kind.name for metric in trackers.export_all().snapshot.values()} == KINDS.keys() - {
            "expert_loads"
        }

    def test_one_rank_has_it_alone(self, four: Ranks) -> None:
        for holder in range(4):
            records = [every_kind(3) if rank == holder else nothing for rank in range(4)]
            expected = alone(every_kind(3))
            if holder:
                del expected["gauge/writer"]
            assert_same(over(four, *records), expected)

    def test_gauges_that_some_have(self, four: Ranks) -> None:
        def gauges(value: float) -> Record:
            return lambda t: [t.gauge({how: value}, ranks=how) for how in ("mean", "sum", "min", "max", "writer")]

        found = over(four, nothing, gauges(3.0), nothing, gauges(-1.0))
        assert found == {"mean": 1.0, "sum": 2.0, "min": -1.0, "max": 3.0}

    def test_the_writer_can_be_another_rank(self, four: Ranks) -> None:
        def on_rank(rank: int) -> Numbers:
            trackers = fresh()
            trackers.default.gauge({"lr": float(rank)}, ranks="writer")
            return export(trackers, is_writer=rank == 3)

        assert agreed(four.run(on_rank)) == {"lr": 3.0}

    def test_named_trackers(self, four: Ranks) -> None:
        def on_rank(rank: int) -> Any:
            trackers = fresh()
            trackers.get("rollout").scalar(reward=float(rank))
            trackers.get(f"only{rank}").scalar(x=1.0)
            exported = trackers.export_all(reduce_group=dist.group.WORLD)
            return dict(exported), {key: metric.tracker for key, metric in exported.snapshot.items()}

        numbers, names = agreed(four.run(on_rank))
        assert numbers["rollout/reward"] == 1.5
        assert names == {"rollout/reward": "rollout", **{f"only{rank}/x": f"only{rank}" for rank in range(4)}}

    def test_one_tracker_by_itself(self, four: Ranks) -> None:
        def on_rank(rank: int) -> Any:
            trackers = fresh()
            trackers.get("a").scalar(x=float(rank), y=1.0)
            trackers.default.scalar(z=1.0)
            one = dict(trackers.get("a").export(reduce_group=dist.group.WORLD, key="x"))
            rest = dict(trackers.get("a").export(reduce_group=dist.group.WORLD))
            return one, rest, dict(trackers.export_all())

        one, rest, left = agreed(four.run(on_rank))
        assert one == {"a/x": 1.5, "a/x__count": 4}
        assert rest == {"a/y": 1.0, "a/y__count": 4}
        assert left == {"z": 1.0, "z__count": 1}


@on_four
class TestEmptiness:
    def test_of_different_kinds_on_each_rank(self, four: Ranks) -> None:
        values, all_valid, none_valid = f32(4, -2, 7), mask(1, 1, 1), mask(0, 0, 0)

        def on_rank(rank: int) -> list[Numbers]:
            trackers = fresh()
            if rank == 2:
                stats(10 * values, all_valid)(trackers.default)
            first = export(trackers)
            if rank == 1:
                stats(values, none_valid)(trackers.default)
            if rank == 3:
                stats(values, all_valid)(trackers.default)
            return [first, export(trackers), export(trackers)]

        first, second, third = agreed(four.run(on_rank))
        assert_same(first, alone(stats(10 * values, all_valid)))
        assert_same(second, alone(stats(values, all_valid)))
        assert third == {}

    def test_nobody_has_anything_valid(self, four: Ranks) -> None:
        empty = stats(f32(NAN, 1), mask(0, 0))
        assert over(four, empty, nothing, empty, nothing) == {"stat/sum": 0.0}

    def test_a_denominator_of_nothing_is_zero(self, four: Ranks) -> None:
        masked = [lambda t: t.denominator(m=mask(0, 0))] * 4
        assert over(four, *masked) == {"m": 0.0}

    def test_nobody_ever_recorded(self, four: Ranks) -> None:
        assert over(four, nothing, nothing, nothing, nothing) == {}
        assert over(four, nothing, nothing, nothing, nothing, outliers=True) == {}


def with_special(rank: int, holders: dict[int, float]) -> Record:
    def record(tracker: Tracker) -> None:
        special = holders.get(rank, rank + 1.0)
        stats(torch.tensor([rank + 0.5, special, NAN]), mask(1, 1, 0))(tracker)
        tracker.scalar(scalar=special)
        tracker.weighted_mean("weighted", special, weight=2.0)
        for how in ("mean", "sum", "min", "max", "writer"):
            tracker.gauge({f"gauge/{how}": special}, ranks=how)

    return record


CASES = [
    *({holder: special} for holder in range(4) for special in (NAN, INF, -INF)),
    {0: INF, 3: -INF}, {3: INF, 1: -INF}, {0: INF, 1: NAN}, {2: -INF, 0: NAN, 1: INF}, dict.fromkeys(range(4), -INF),
]  # fmt: skip


@on_four
class TestNonFinite:
    def test_is_the_same_whoever_holds_it(self, four: Ranks) -> None:
        def on_rank(rank: int) -> list[Numbers]:
            results = []
            for holders in CASES:
                trackers = fresh()
                with_special(rank, holders)(trackers.default)
                results.append(export(trackers))
            return results

        for found, holders in zip(agreed(four.run(on_rank)), CASES, strict=True):
            expected = alone(*(with_special(rank, holders) for rank in range(4)))
            found_gauges = {key: found.pop(key) for key in list(found) if key.startswith("gauge/")}
            assert_same(found, {key: value for key, value in expected.items() if not key.startswith("gauge/")})
            values = [holders.get(rank, rank + 1.0) for rank in range(4)]
            total = math.fsum(values) if not {INF, -INF} <= set(values) else NAN
            nan = any(map(math.isnan, values))
            assert_same(
                {key: value for key, value in found_gauges.items() if not key.endswith("/nonfinite")},
                {
                    "gauge/mean": total / 4, "gauge/sum": total, "gauge/writer": values[0],
                    "gauge/min": NAN if nan else min(values), "gauge/max": NAN if nan else max(values),
                },
            )  # fmt: skip
            assert found_gauges["gauge/mean/nonfinite"] == len(holders)

    def test_stays_visible(self, four: Ranks) -> None:
        for holder in range(4):
            found = over(four, *(with_special(rank, {holder: NAN}) for rank in range(4)))
            assert all(math.isnan(found[f"stat/avg_min_max/{stat}"]) for stat in ("avg", "min", "max"))
            assert found["stat/avg_min_max/nonfinite"] == 1

    def test_both_infinities(self, four: Ranks) -> None:
        found = over(four, *(with_special(rank, {1: INF, 2: -INF}) for rank in range(4)))
        three = {stat: found[f"stat/avg_min_max/{stat}"] for stat in ("avg", "min", "max", "nonfinite")}
        assert_same(three, {"avg": NAN, "min": -INF, "max": INF, "nonfinite": 2.0})


@on_four
class TestKeysComeAndGo:
    def test_a_rank_that_never_recorded_takes_part(self, four: Ranks) -> None:
        def on_rank(rank: int) -> list[Numbers]:
            trackers = fresh()
            results = []
            for step in range(3):
                if rank < 3:
                    trackers.default.scalar(a=float(rank + step))
                results.append(export(trackers))
            return results

        assert agreed(four.run(on_rank)) == [{"a": 1.0 + step, "a__count": 3} for step in range(3)]

    def test_sets_of_keys_that_change_every_step(self, four: Ranks) -> None:
        def on_rank(rank: int) -> list[Numbers]:
            trackers = fresh()
            results = []
            for step in range(12):
                for number in range(8):
                    if (number * 7 + step * 5 + rank * 3) % 4 < 2:
                        trackers.default.scalar({f"k{number}/{step if number > 5 else ''}": float(rank)})
                results.append(export(trackers))
            return results

        for step, found in enumerate(agreed(four.run(on_rank))):
            have = {
                f"k{number}/{step if number > 5 else ''}".strip("/"): [
                    rank for rank in range(4) if (number * 7 + step * 5 + rank * 3) % 4 < 2
                ]
                for number in range(8)
            }
            expected = {key: sum(rs) / len(rs) for key, rs in have.items() if rs}
            assert found == {**expected, **{f"{key}__count": len(rs) for key, rs in have.items() if rs}}

    def test_what_is_exported_is_gone_and_what_is_not_stays(self, four: Ranks) -> None:
        def on_rank(rank: int) -> list[Numbers]:
            trackers = fresh()
            trackers.default.scalar(a=float(rank))
            kept = export(trackers, reset=False)
            trackers.default.scalar(a=float(rank))
            return [kept, export(trackers, reset=False), export(trackers), export(trackers)]

        kept, again, taken, nothing_left = agreed(four.run(on_rank))
        assert kept == {"a": 1.5, "a__count": 4}
        assert again == taken == {"a": 1.5, "a__count": 8}
        assert nothing_left == {}

    def test_two_readers_do_not_drain_each_other(self, four: Ranks) -> None:
        def on_rank(rank: int) -> list[Numbers]:
            trackers = fresh()
            trackers.add_reader("panel")
            trackers.default.scalar(a=float(rank))
            first = export(trackers)
            if rank == 2:
                trackers.default.scalar(b=1.0)
            return [first, export(trackers, reader="panel"), export(trackers), export(trackers, reader="panel")]

        a, b = {"a": 1.5, "a__count": 4}, {"b": 1.0, "b__count": 1}
        assert agreed(four.run(on_rank)) == [a, {**a, **b}, b, {}]

    @pytest.mark.parametrize("forgetful", range(4))
    def test_a_rank_that_lost_its_memory(self, four: Ranks, forgetful: int) -> None:
        def on_rank(rank: int) -> Any:
            reducer, group = RankReducer(), dist.group.WORLD

            def reduced(key: str) -> tuple[Numbers, int]:
                trackers = fresh()
                trackers.default.distribution({key: f32(10.0**rank)})
                with trackers.taken() as snapshot, spied() as calls:
                    return reducer.reduce(lambda: snapshot, group).flat(), len(calls)

            first = [reduced("a"), reduced("b"), reduced("a")]
            if rank == forgetful:
                reducer = RankReducer()
            return [*first, reduced("b"), reduced("a")]

        found = agreed(four.run(on_rank))
        assert [count for _, count in found] == [4, 4, 3, 4, 3]
        for key, (numbers, _) in zip("ababa", found, strict=True):
            everything = {key: f32(*(10.0**rank for rank in range(4)))}
            assert_same(numbers, alone(lambda t, given=everything: t.distribution(given)))


@on_four
class TestOutliers:
    def test_name_the_rank(self, four: Ranks) -> None:
        parts = [
            lambda t: (t.stat(x=f32(1, 2), y=f32(0)), t.timing_appender("timed", TIMING)(5)),
            lambda t: t.stat(x=f32(-3, 2), y=f32(NAN, 5)),
            lambda t: (t.stat(x=f32(9, 0)), t.timing_appender("timed", TIMING)(7), t.distribution(only=f32(1, 2))),
            lambda t: (t.stat(x=f32(9, -3)), t.stat({"none": f32(1)}, mask=mask(0)), t.scalar(s=1.0)),
        ]
        found = over(four, *parts, outliers=True)
        names = {key: value for key, value in found.items() if key.endswith("_rank")}
        assert names == {
            "x/min_rank": 1, "x/max_rank": 2, "y/min_rank": 0, "y/max_rank": 1, "timed/max_rank": 2,
            "only/min_rank": 2, "only/max_rank": 2,
        }  # fmt: skip
        assert_same({key: value for key, value in found.items() if key not in names}, over(four, *parts))

    def test_where_no_key_has_extremes(self, four: Ranks) -> None:
        assert over(four, *[lambda t: t.scalar(s=1.0)] * 4, outliers=True) == {"s": 1.0, "s__count": 4}


@on_four
class TestCollectives:
    @pytest.mark.parametrize("keys", [1, 300])
    def test_are_three_and_one_more_for_new_keys(self, four: Ranks, keys: int) -> None:
        def on_rank(rank: int) -> list[list[str]]:
            trackers = fresh()
            made = []
            for step in range(5):
                for number in range(keys):
                    trackers.default.stat({f"stat{number}": f32(rank)})
                    trackers.default.scalar({f"scalar{number}": 1.0})
                if step == 3 and rank == 2:
                    trackers.default.scalar(new=1.0)
                with spied() as calls:
                    export(trackers)
                made.append(calls)
            return made

        known = ["all_reduce"] * 3
        new = ["all_reduce", "all_gather_object", "all_reduce", "all_reduce"]
        assert agreed(four.run(on_rank)) == [new, known, known, new, known]

    def test_are_as_many_with_outliers(self, four: Ranks) -> None:
        def on_rank(rank: int) -> list[str]:
            trackers = fresh()
            for _ in range(2):
                trackers.default.stat({f"k{number}": f32(rank) for number in range(50)})
                with spied() as calls:
                    export(trackers, outliers=True)
            return calls

        assert agreed(four.run(on_rank)) == ["all_reduce", "all_gather"]

    def test_one_key_from_two_trackers_is_told_once(self, four: Ranks) -> None:
        def on_rank(rank: int) -> list[int]:
            trackers = fresh()
            counts = []
            for _ in range(3):
                if rank % 2:
                    trackers.get("rollout").scalar(reward=1.0)
                else:
                    trackers.default.scalar({"rollout/reward": 1.0})
                with spied() as calls:
                    export(trackers)
                counts.append(len(calls))
            return counts

        assert agreed(four.run(on_rank)) == [3, 2, 2]  # no key has extremes

    def test_without_a_group_there_are_none(self, four: Ranks) -> None:
        def on_rank(rank: int) -> tuple[Numbers, list[str]]:
            trackers = fresh()
            trackers.default.scalar({"a": 1.0}, reduce_group=dist.group.WORLD)
            with spied() as calls:
                return dict(trackers.export_all()), calls

        assert agreed(four.run(on_rank)) == ({"a": 1.0, "a__count": 1}, [])


def broken(trackers: Trackers, place: str) -> Callable[[], None]:
    """Make an export of these trackers fail; the function repairs it."""

    def fails(*args: Any, **kwargs: Any) -> Any:
        raise RuntimeError(f"device lost in {place}")

    if place == "cut":
        trackers.default.cut = fails  # type: ignore[method-assign]
        return lambda: delattr(trackers.default, "cut")
    real = rltel.reduce.trackers.read
    rltel.reduce.trackers.read = fails
    return lambda: setattr(rltel.reduce.trackers, "read", real)


@on_four
class TestFailures:
    @pytest.mark.parametrize("failing", [(0,), (1,), (3,), (1, 2), (0, 1, 2, 3)])
    def test_of_one_are_the_same_on_all_and_lose_nothing(self, four: Ranks, failing: tuple[int, ...]) -> None:
        def on_rank(rank: int) -> Any:
            trackers = fresh()
            trackers.default.stat(x=f32(rank))
            export(trackers)
            trackers.default.stat(x=f32(rank), **{f"only{rank}": f32(1)})
            trackers.default.gauge(queue=rank)
            repair = broken(trackers, "read") if rank in failing else lambda: None
            try:
                messages = [failure_of(lambda: export(trackers)) for _ in range(2)]
            finally:
                repair()
            trackers.default.stat(x=f32(10 * rank))
            return messages, export(trackers), export(trackers)

        (message, again), complete, after = agreed(four.run(on_rank))
        assert message == again
        assert message.startswith(
            f"ReductionError: rank {failing[0]} of the group cannot export: RuntimeError: device lost"
        )
        assert [f"rank {rank} of" in message for rank in range(4)] == [rank in failing for rank in range(4)]
        assert complete["x/avg"] == 66 / 8
        assert {f"only{rank}/avg" for rank in range(4)} < complete.keys()
        assert complete["queue"] == 1.5
        assert after == {}

    def test_what_a_take_raises_is_the_cause(self, four: Ranks) -> None:
        def on_rank(rank: int) -> Any:
            error = ValueError("mine")

            def take() -> Snapshot:
                if rank == 1:
                    raise error
                return Snapshot()

            try:
                RankReducer().reduce(take, dist.group.WORLD)
            except ReductionError as raised:
                return raised.__cause__ is error
            return None

        assert four.run(on_rank) == [False, True, False, False]

    def test_while_cutting(self, four: Ranks) -> None:
        def on_rank(rank: int) -> Any:
            group = dist.new_group(range(4), timeout=timedelta(seconds=20))
            trackers = fresh()
            trackers.default.scalar(x=1.0)
            if rank == 1:
                broken(trackers, "cut")
            return failure_of(lambda: export(trackers, reduce_group=group))

        assert "rank 1 of the group cannot export" in agreed(four.run(on_rank))

    @pytest.mark.parametrize("known", [False, True])
    @pytest.mark.parametrize("odd", range(4))
    def test_a_rank_whose_key_has_another_kind(self, four: Ranks, odd: int, known: bool) -> None:
        def on_rank(rank: int) -> Any:
            trackers = fresh()
            if rank == odd:
                trackers.default.stat({"loss": f32(2)}, reduce_type="sum")
            if known:  # to the others, before
                if rank != odd:
                    trackers.default.scalar(loss=1.0)
                    export(trackers)
                else:
                    held = Trackers(Recorder())
                    held._reducers = trackers._reducers
                    export(held)
            if rank != odd:
                trackers.default.scalar(loss=1.0)
            trackers.default.scalar(other=float(rank))
            messages = [failure_of(lambda: export(trackers)) for _ in range(2)]
            return messages, dict(trackers.export_all())

        found = four.run(on_rank)
        (message, again) = agreed([messages for messages, _ in found])
        assert message == again
        assert message.startswith("RecordError: loss: recorded as ")
        assert "sum" in message
        assert "scalar" in message
        assert (f"on rank {odd} of" if odd or known else "on rank 1 of") in message
        for rank, (_, kept) in enumerate(found):
            loss = {"loss": 2.0} if rank == odd else {"loss": 1.0, "loss__count": 1}
            assert kept == {**loss, "other": rank, "other__count": 1}

    def test_after_a_conflict_is_gone_exports_work(self, four: Ranks) -> None:
        def on_rank(rank: int) -> Any:
            reducer, group = RankReducer(), dist.group.WORLD
            odd, even = fresh(), fresh()
            odd.default.stat({"k": f32(1)}, reduce_type="sum")
            even.default.stat({"k": f32(rank)})
            with odd.taken() as o, even.taken() as e:
                message = failure_of(lambda: reducer.reduce(lambda: o if rank == 3 else e, group))
                return message, reducer.reduce(lambda: e, group).flat()

        message, numbers = agreed(four.run(on_rank))
        assert message.startswith("RecordError: k: recorded as sum on rank 3 of the group, elsewhere as avg_min_max")
        assert numbers == {"k/avg": 1.5, "k/min": 0.0, "k/max": 3.0}

    def test_a_rank_that_does_not_export(self, four: Ranks) -> None:
        def on_rank(rank: int) -> Any:
            # The time-out holds for making the group, too: long enough for ranks that a busy machine holds up.
            group = dist.new_group(range(4), timeout=timedelta(seconds=5))
            trackers = fresh()
            trackers.default.scalar(x=float(rank))
            if rank == 3:
                return "elsewhere"
            begin = time.monotonic()
            message = failure_of(lambda: export(trackers, reduce_group=group))
            return bool(message), time.monotonic() - begin < 25, dict(trackers.export_all())

        assert four.run(on_rank) == [*((True, True, {"x": rank, "x__count": 1}) for rank in range(3)), "elsewhere"]

    def test_torch_distributed_is_not_there(self) -> None:
        trackers = fresh()
        trackers.default.scalar(x=1.0)
        with pytest.raises(ReductionError, match="initialised"):
            trackers.export_all(reduce_group=object())
        assert trackers.export_all() == {"x": 1.0, "x__count": 1}

    def test_this_rank_is_not_in_the_group(self, four: Ranks) -> None:
        def on_rank(rank: int) -> Any:
            group = dist.new_group([0, 1])
            trackers = fresh()
            trackers.default.scalar(x=float(rank))
            return failure_of(lambda: export(trackers, reduce_group=group)), dict(trackers.export_all())

        found = four.run(on_rank)
        assert [message for message, _ in found[:2]] == ["", ""]
        for rank in (2, 3):
            assert "expected a group that this rank is in" in found[rank][0]
            assert found[rank][1] == {"x": rank, "x__count": 1}


LONG_S = 120.0
"""For ranks to start and to answer, however busy the machine is. (A group gives a peer up after 30.)"""


def here(rank: int) -> int:
    """Answered by all: they have started, and whatever time-out comes next is not spent on that."""
    return rank


@pytest.mark.xdist_group("dying ranks")
def test_a_rank_that_dies_while_exporting(tmp_path: Path) -> None:
    def on_rank(rank: int) -> Any:
        trackers = fresh()
        trackers.default.scalar(x=float(rank))
        export(trackers)
        trackers.default.scalar(x=float(rank), y=1.0)
        if rank == 1:
            real = dist.all_reduce
            dist.all_reduce = lambda *a, **k: os._exit(9) if a[0].dtype == torch.float64 else real(*a, **k)
        begin = time.monotonic()
        message = failure_of(lambda: export(trackers))
        says = ("reducing 2 keys (x, y)", "lost another rank of [0, 1, 2]", "the other ranks' errors", "gloo")
        told = all(each in message for each in says) or message
        return told, time.monotonic() - begin < LONG_S / 2, dict(trackers.export_all())

    with ranks(3, tmp_path) as group:
        group.run(here, timeout=LONG_S)
        first, dead, last = group.outcomes(on_rank, timeout=LONG_S)
    assert dead is None
    for rank, outcome in ((0, first), (2, last)):
        assert not isinstance(outcome, RankError), outcome
        assert outcome == (True, True, {"x": rank, "x__count": 1, "y": 1.0, "y__count": 1})


@pytest.mark.xdist_group("dying ranks")
def test_a_lost_rank_is_told_with_the_step_and_what_the_group_raised(tmp_path: Path) -> None:
    def on_rank(rank: int) -> Any:
        if rank == 1:
            os._exit(9)
        try:
            fresh().export_all(reduce_group=dist.group.WORLD, step=7)
        except ReductionError as error:
            return str(error).startswith("reducing over ranks at step 7: rank 0"), is_lost_peer(error.__cause__)
        return "no error"

    with ranks(2, tmp_path) as group:
        group.run(here, timeout=LONG_S)
        first, _ = group.outcomes(on_rank, timeout=LONG_S)
    assert first == (True, True)


def halves() -> Any:
    """This rank's half of four, by its own handle."""
    made = [dist.new_group([0, 1]), dist.new_group([2, 3])]
    return made[dist.get_rank() // 2]


@on_four
class TestGroupsOfKeys:
    def test_a_key_is_reduced_over_its_own(self, four: Ranks) -> None:
        def on_rank(rank: int) -> Any:
            half = halves()
            trackers = fresh()
            results = []
            for _ in range(2):
                if rank < 2:
                    trackers.default.stat({"own": f32(rank)}, reduce_group=half)
                trackers.default.scalar(all=float(rank))
                with spied() as calls:
                    results.append((export(trackers), len(calls)))
            return results

        everywhere, own = {"all": 1.5, "all__count": 4}, {"own/avg": 0.5, "own/min": 0.0, "own/max": 1.0}
        for rank, found in enumerate(four.run(on_rank)):
            expected = {**everywhere, **own} if rank < 2 else everywhere
            assert [numbers for numbers, _ in found] == [expected] * 2
            assert found[1][1] == (2 + 2 if rank < 2 else 2)  # scalars alone need no maximum, a pair gathers once

    def test_each_rank_has_its_part_of_a_mesh(self, four: Ranks) -> None:
        def on_rank(rank: int) -> Any:
            half = halves()
            trackers = fresh()
            trackers.default.denominator(m=mask(1, 1), reduce_group=half)
            trackers.default.stat(loss=f32(rank, rank), denominator="m", reduce_group=half)
            trackers.default.scalar({"s": rank}, reduce_group=half)
            trackers.default.distribution(everywhere=f32(rank))
            return export(trackers, outliers=True)

        found = four.run(on_rank)
        for rank, numbers in enumerate(found):
            low = rank // 2 * 2
            assert numbers["m"] == 4
            assert (numbers["loss/avg"], numbers["loss/min"], numbers["loss/max"]) == (low + 0.5, low, low + 1)
            assert (numbers["s"], numbers["s__count"]) == (low + 0.5, 2)
            assert numbers["everywhere/avg"] == 1.5
            assert numbers["loss/max_rank"] == 1
            assert numbers["everywhere/max_rank"] == 3

    def test_data_and_context_parallel(self, four: Ranks) -> None:
        """AReaL's use: most keys over data-parallel ranks, losses over all, keys agreed on over all; some lack keys."""

        def on_rank(rank: int) -> Any:
            half, everybody = halves(), dist.group.WORLD
            trackers = fresh()
            results = []
            for step in range(3):
                trackers.default.scalar(n_seqs=float(rank))
                if rank in (0, 3) and step:
                    trackers.default.stat({"loss": f32(rank)}, reduce_group=everybody)
                if rank == 2 and step == 2:
                    trackers.default.scalar(late=1.0)
                with spied() as calls:
                    results.append((export(trackers, reduce_group=half, key_sync_group=everybody), len(calls)))
            return results

        for rank, found in enumerate(four.run(on_rank)):
            n_seqs = {"n_seqs": rank // 2 * 2 + 0.5, "n_seqs__count": 2}
            loss = {"loss/avg": 1.5, "loss/min": 0.0, "loss/max": 3.0}
            late = {"late": 1.0, "late__count": 1} if rank > 1 else {}
            assert [numbers for numbers, _ in found] == [n_seqs, {**n_seqs, **loss}, {**n_seqs, **loss, **late}]

    def test_keys_are_agreed_on_over_a_larger_one(self, four: Ranks) -> None:
        def on_rank(rank: int) -> Any:
            half = halves()
            trackers = fresh()
            results = []
            for _ in range(2):
                if rank == 1:
                    trackers.default.stat(only=f32(5))
                trackers.default.stat(x=f32(rank))
                with spied() as calls:
                    numbers = export(trackers, reduce_group=half, key_sync_group=dist.group.WORLD)
                results.append((numbers, calls))
            return results

        for rank, found in enumerate(four.run(on_rank)):
            low = rank // 2 * 2
            x = {"x/avg": low + 0.5, "x/min": low, "x/max": low + 1}
            only = {"only/avg": 5.0, "only/min": 5.0, "only/max": 5.0}
            assert [numbers for numbers, _ in found] == [{**x, **only} if rank < 2 else x] * 2
            assert [len(calls) for _, calls in found] == [3, 2]  # pairs gather once instead of reducing twice

    def test_a_failure_is_heard_in_the_larger_one(self, four: Ranks) -> None:
        def on_rank(rank: int) -> Any:
            half = halves()
            trackers = fresh()
            trackers.default.scalar(x=1.0)
            repair = broken(trackers, "read") if rank == 2 else lambda: None
            try:
                options = {"reduce_group": half, "key_sync_group": dist.group.WORLD}
                return failure_of(lambda: export(trackers, **options))
            finally:
                repair()

        assert agreed(four.run(on_rank)).startswith("ReductionError: rank 2 of the group cannot export: RuntimeError")

    def test_one_that_a_member_never_got(self, four: Ranks) -> None:
        def on_rank(rank: int) -> Any:
            half = halves()
            trackers = fresh()
            if rank == 0:
                trackers.default.scalar({"own": 1.0}, reduce_group=half)
            trackers.default.scalar(all=1.0)
            messages = [failure_of(lambda: export(trackers)) for _ in range(2)]
            if rank == 1:
                trackers.default.scalar({"another": 2.0}, reduce_group=half)
            return messages, export(trackers)

        found = four.run(on_rank)
        message, again = agreed([messages for messages, _ in found])
        assert message == again
        assert message.startswith("ReductionError: own: reduce_group=[0, 1]: rank 1 is in it and was never given it")
        everywhere = {"all": 1.0, "all__count": 4}
        own = {"another": 2.0, "another__count": 1, "own": 1.0, "own__count": 1}
        assert [numbers for _, numbers in found] == [{**everywhere, **own}] * 2 + [everywhere] * 2

    @pytest.mark.parametrize(
        ("of_rank_0", "of_rank_1", "message"),
        [
            ("half", None, "RecordError: x: reduce_group: ranks [] on rank 1 of the group, elsewhere [0, 1]"),
            (None, "half", "RecordError: x: reduce_group: ranks [0, 1] on rank 1 of the group, elsewhere []"),
            ("half", "middle", "RecordError: x: reduce_group: ranks [1, 2] on rank 1 of the group, elsewhere [0, 1]"),
            (
                "half",
                "foreign",
                "ReductionError: rank 1 of the group cannot export: ReductionError: x: reduce_group: exp",
            ),
        ],
    )
    def test_conflicts(self, four: Ranks, of_rank_0: Any, of_rank_1: Any, message: str) -> None:
        def on_rank(rank: int) -> Any:
            half, middle, foreign = halves(), dist.new_group([1, 2]), dist.new_group([2, 3])
            groups = {"half": half, "middle": middle, "foreign": foreign, None: None}
            trackers = fresh()
            if rank < 2:
                trackers.default.scalar({"x": 1.0}, reduce_group=groups[(of_rank_0, of_rank_1)[rank]])
            return failure_of(lambda: export(trackers)), dict(trackers.export_all())

        found = four.run(on_rank)
        assert agreed([raised for raised, _ in found]).startswith(message)
        assert [kept for _, kept in found] == [{"x": 1.0, "x__count": 1}] * 2 + [{}] * 2

    def test_the_same_group_for_both_is_reduced_once(self, four: Ranks) -> None:
        def on_rank(rank: int) -> Any:
            trackers = fresh()
            trackers.default.scalar({"x": rank}, reduce_group=dist.group.WORLD)
            with spied() as calls:
                return export(trackers), len(calls)

        assert agreed(four.run(on_rank)) == ({"x": 1.5, "x__count": 4}, 3)


@on_two
class TestCommit:
    def test_of_a_step_that_reduces(self, two: Ranks, tmp_path: Path) -> None:
        def on_rank(rank: int) -> Any:
            config = {"jsonl": {"path": str(tmp_path / f"{rank}.jsonl")}}
            rltel.init(config, run_id="reduced", run_dir=tmp_path / "run")
            try:
                with rltel.step(7, env_steps=70, reduce_group=dist.group.WORLD):
                    rltel.scalar(reward=float(rank))
                rltel.log({"mine": rank}, step=8)
            finally:
                rltel.shutdown()
            lines = list(rltel.read_jsonl(tmp_path / f"{rank}.jsonl"))
            return [(line.step, line.env_steps, line.values, reduced_in(line.snapshot)) for line in lines]

        def reduced_in(snapshot: Snapshot) -> set[bool]:
            return {metric.reduced for metric in snapshot.values()}

        writer, other = two.run(on_rank)
        step, env_steps, values, reduced = writer[0]
        assert (step, env_steps, reduced) == (7, 70, {True})
        assert (values["reward"], values["reward__count"]) == (0.5, 2)
        assert writer[1] == (8, None, {"mine": 0}, {False})
        # What was reduced is the writer's to export, alone; what is a rank's own, each exports itself.
        assert other == [(8, None, {"mine": 1}, {False})]

    def test_the_package_s_functions(self, two: Ranks) -> None:
        def on_rank(rank: int) -> Any:
            rltel.scalar(a=float(rank))
            exported = rltel.export_all(reduce_group=dist.group.WORLD)
            return dict(exported), [metric.reduced for metric in exported.snapshot.values()]

        assert agreed(two.run(on_rank)) == ({"a": 0.5, "a__count": 2}, [True])


Where = tuple[float, int, int]  # a value, the rank that records it, and the batch


def batches(cases: Sequence[Where], rank: int | None) -> Record:
    """Record what is this rank's (None: everything), batch by batch; key by key in every kind that has sums."""

    def record(tracker: Tracker) -> None:
        mine = [(batch, value) for value, holder, batch in cases if rank is None or holder == rank]
        for batch in sorted({batch for batch, _ in mine}):
            values = torch.tensor([value for of, value in mine if of == batch], dtype=torch.float64)
            stats(values, torch.ones_like(values, dtype=torch.bool))(tracker)
            for value in values.tolist():
                tracker.scalar(scalar=value)
                tracker.weighted_mean("weighted", value, weight=batch + 0.5)

    return record


def states_of(snapshot: Snapshot) -> dict[str, tuple[str, list[float], dict[int, float]]]:
    return {k: (m.state.kind.name, list(m.state.moments), dict(m.state.buckets)) for k, m in snapshot.items()}


def split(rank: int, cases: Sequence[Sequence[Where]]) -> list[Any]:
    reducer = RankReducer()
    results = []
    for case in cases:
        trackers = fresh()
        batches(case, rank)(trackers.default)
        with trackers.taken() as snapshot:
            results.append(states_of(reducer.reduce(lambda taken=snapshot: taken, dist.group.WORLD)))
    return results


numbers = st.one_of(
    st.floats(-1e300, 1e300, allow_subnormal=False),
    st.floats(-10, 10, allow_subnormal=False),
    st.sampled_from([NAN, INF, -INF, 0.0, -0.0, 1e16, -1e16, 2.0**24, 2.0**-40]),
)


@on_four
class TestAnySplit:
    @settings(max_examples=15)
    @given(
        st.lists(
            st.lists(st.tuples(numbers, st.integers(0, 3), st.integers(0, 2)), min_size=1, max_size=12),
            min_size=1,
            max_size=8,
        )
    )
    def test_gives_what_one_process_has(self, four: Ranks, cases: list[list[Where]]) -> None:
        for case, found in zip(cases, agreed(four.run(split, cases)), strict=True):
            trackers = fresh()
            batches(case, None)(trackers.default)
            with trackers.taken() as snapshot:
                expected = states_of(snapshot)
            assert found.keys() == expected.keys()
            magnitudes = sum(abs(value) for value, _, _ in case if math.isfinite(value))
            for key, (kind, moments, buckets) in expected.items():
                assert found[key][0] == kind
                assert found[key][1][1:] == moments[1:]  # counts and extremes: exact
                assert found[key][2] == buckets
                assert found[key][1][0] == pytest.approx(
                    moments[0], rel=0, abs=1e-12 * 2.5 * magnitudes
                )  # weight <= 2.5


@on_four
class TestPublicFaults:
    def test_megatron_lm_4896_mean_of_per_rank_ratios(self, four: Ranks) -> None:
        parts = [lambda t: t.stat(loss=f32(10.0)), lambda t: t.stat(loss=f32(*[10 / 9] * 9)), nothing, nothing]
        assert over(four, *parts)["loss/avg"] == pytest.approx(2.0, rel=1e-7)

    def test_verl_1508_plain_mean_across_ranks(self, four: Ranks) -> None:
        parts = [
            lambda t: t.scalar({"acc": 0.8}, weight=100),
            lambda t: t.scalar({"acc": 0.6}, weight=200),
            nothing,
            nothing,
        ]
        found = over(four, *parts)
        assert found["acc"] == pytest.approx(2 / 3, rel=1e-12)
        assert found["acc__count"] == 300

    def test_trl_7310_metric_on_one_rank_only(self, four: Ranks) -> None:
        def part(tracker: Tracker) -> None:
            tracker.scalar(a=1.0)
            tracker.scalar(a=2.0)

        for holder in range(4):
            found = over(four, *(part if rank == holder else nothing for rank in range(4)))
            assert found == {"a": 1.5, "a__count": 2}

    def test_skyrl_2181_timing_on_one_rank_only(self, four: Ranks) -> None:
        def on_rank(rank: int) -> Any:
            trackers = fresh()
            with spied() as calls:
                if rank == 0:
                    with trackers.default.record_timing("barrier"):
                        pass
                mine = trackers.export_all()
            return list(mine), calls

        have, *others = four.run(on_rank)
        assert have == (["timeperf/barrier", "timeperf/barrier__count"], [])
        assert others == [([], [])] * 3

    def test_nemo_rl_230_a_masked_micro_batch_counts_as_zero(self, four: Ranks) -> None:
        masked = stats(f32(0, 0), mask(0, 0))
        four_on_average = stats(f32(3, 5), mask(1, 1))
        found = over(four, masked, four_on_average, masked, nothing)
        assert found["stat/avg"] == found["stat/avg_min_max/avg"] == 4.0
        assert "stat/avg" not in over(four, masked, masked, masked, masked)

    def test_areal_1497_keys_absent_on_a_context_parallel_rank(self, four: Ranks) -> None:
        def part(tracker: Tracker) -> None:
            tracker.denominator(n=mask(1, 0, 1))
            tracker.stat(vocab_min_logits=f32(1, 9, 3), denominator="n")
            tracker.scalar(lr=1e-3)

        found = over(four, part, lambda t: t.scalar(lr=1e-3), nothing, part)
        assert found == {
            "n": 4.0, "vocab_min_logits/avg": 2.0, "vocab_min_logits/min": 1.0, "vocab_min_logits/max": 3.0,
            "lr": pytest.approx(1e-3), "lr__count": 3,
        }  # fmt: skip

    def test_areal_v2_0_0_abort_on_keys_of_one_rank(self, four: Ranks) -> None:
        def on_rank(rank: int) -> list[Numbers]:
            trackers = fresh()
            results = []
            for holder in range(4):
                trackers.default.scalar(both=1.0)
                if rank == holder:
                    trackers.default.stat({f"tensor{holder}": f32(1, 2)}, reduce_type="sum")
                results.append(export(trackers))
            return results

        for holder, found in enumerate(agreed(four.run(on_rank))):
            assert found == {"both": 1.0, "both__count": 4, f"tensor{holder}": 3.0}


@on_two
class TestTheWriter:
    def test_outside_of_the_group_is_said_once(self, two: Ranks) -> None:
        def on_rank(rank: int, is_writer: bool | None) -> list[str]:
            import logging

            said: list[str] = []
            handler = logging.Handler()
            handler.emit = lambda record: said.append(record.getMessage())  # type: ignore[method-assign]
            logging.getLogger("rltel").addHandler(handler)
            try:
                trackers = fresh()
                for _ in range(2):
                    trackers.default.gauge(x=float(rank + 1), ranks="writer")
                    trackers.export_all(reduce_group=dist.group.WORLD, is_writer=is_writer)
            finally:
                logging.getLogger("rltel").removeHandler(handler)
            return [line for line in said if "writer is not in the group" in line]

        assert [len(said) for said in two.run(on_rank, False)] == [1, 0]
        assert two.run(on_rank, None) == [[], []]  # without init nobody knows, and nothing would be sent anyway

    def test_s_value_counts_where_it_is(self, two: Ranks) -> None:
        def on_rank(rank: int) -> float:
            trackers = fresh()
            trackers.default.gauge(x=float(rank + 1), ranks="writer")
            return trackers.export_all(reduce_group=dist.group.WORLD, is_writer=rank == 1)["x"]

        assert two.run(on_rank) == [2.0, 2.0]

    def test_ranks_at_different_steps_all_raise_and_keep_what_they_have(self, two: Ranks) -> None:
        """One caught an exception in its step 1 and went on to step 2: the other is still at 1."""

        def on_rank(rank: int) -> tuple[str, float]:
            trackers = fresh()
            trackers.default.count(n=1)
            said = failure_of(lambda: export(trackers, step=1 + rank))
            return said, trackers.export_all()["n"]

        said = agreed(two.run(on_rank))
        assert said[0].startswith("ReductionError: ranks are at different steps, 1 to 2")
        assert said[1] == 1.0
