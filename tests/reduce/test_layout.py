from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rltel.core.errors import RecordError
from rltel.record.buckets import OVERFLOW
from rltel.record.kinds import GAUGE_WRITER, HISTOGRAM, KINDS, SCALAR, SUM, Kind, Moment, Op, State
from rltel.reduce.layout import BLOCK, Column, Layout, columns_of
from rltel.reduce.snapshot import Metric, Snapshot

INF = math.inf
SEVEN = [6.0, 3.0, 1.0, 3.0, 2.0, 1.0, 4.0]  # sum, count, min, max, nan, +inf, -inf


def snapshot_of(**states: State) -> Snapshot:
    return Snapshot({key: Metric(state) for key, state in states.items()})


def layout_of(*snapshots: Snapshot) -> Layout:
    return Layout().joined([columns_of(snapshot, {}) for snapshot in snapshots])


def kept(kind: Kind) -> State:
    """A state of this kind with every moment that it keeps, and buckets if it has them."""
    state = State(kind)
    state.add(SEVEN, {-OVERFLOW: 1.0, 0: 2.0, 17: 3.0} if kind.bucketed else None)
    return state


def plain(metric: Metric) -> tuple[str, list[float], dict[int, float]]:
    return metric.state.kind.name, list(metric.state.moments), dict(metric.state.buckets)


class TestPacking:
    @pytest.mark.parametrize("kind", KINDS.values(), ids=list(KINDS))
    def test_what_was_packed_comes_out(self, kind: Kind) -> None:
        snapshot = snapshot_of(k=kept(kind))
        layout = layout_of(snapshot)
        found = layout.unpack(*layout.pack(snapshot, True))
        assert plain(found["k"]) == plain(snapshot["k"])
        assert found["k"].reduced

    @pytest.mark.parametrize("kind", KINDS.values(), ids=list(KINDS))
    def test_a_rank_without_the_key_changes_nothing(self, kind: Kind) -> None:
        snapshot = snapshot_of(k=kept(kind))
        layout = layout_of(snapshot)
        sums, maxima = layout.pack(snapshot, True)
        no_sums, no_maxima = layout.pack(Snapshot(), True)
        assert list(no_sums) == [0.0] * len(sums)
        assert list(no_maxima) == [-INF] * len(maxima)

    def test_a_key_that_no_rank_has_now_does_not_come_out(self) -> None:
        layout = layout_of(snapshot_of(k=kept(SUM)))
        assert layout.unpack(*layout.pack(Snapshot(), True)) == {}

    def test_a_key_with_nothing_valid_comes_out_empty(self) -> None:
        snapshot = snapshot_of(k=State(HISTOGRAM))
        layout = layout_of(snapshot)
        assert plain(layout.unpack(*layout.pack(snapshot, True))["k"]) == plain(snapshot["k"])

    def test_only_the_writers_gauge_counts(self) -> None:
        snapshot = snapshot_of(k=kept(GAUGE_WRITER))
        layout = layout_of(snapshot)
        assert layout.unpack(*layout.pack(snapshot, False)) == {}
        assert plain(layout.unpack(*layout.pack(snapshot, True))["k"]) == plain(snapshot["k"])

    def test_keys_of_another_group_take_no_place(self) -> None:
        snapshot = snapshot_of(a=kept(SCALAR), b=kept(HISTOGRAM))
        layout = Layout(columns_of(snapshot, {"b": (0, 1)}))
        assert len(layout.pack(snapshot, True)[0]) == len(
            layout_of(snapshot_of(a=kept(SCALAR))).pack(snapshot, True)[0]
        )
        assert list(layout.unpack(*layout.pack(snapshot, True))) == ["a"]
        assert layout.groups() == [(0, 1)]

    def test_extremes_are_in_the_order_of_the_second_vector(self) -> None:
        snapshot = snapshot_of(**{name: kept(kind) for name, kind in KINDS.items()})
        layout = layout_of(snapshot)
        _, maxima = layout.pack(snapshot, True)
        held = list(layout.extremes())
        assert [(-1.0 if moment is Moment.MIN else 3.0) for _, moment in held] == list(maxima)
        assert {key for key, _ in held} == {
            n for n, kind in KINDS.items() if any(m.op is not Op.SUM for m in kind.keeps)
        }

    @given(
        st.lists(
            st.dictionaries(
                st.sampled_from("abcd"),
                st.dictionaries(st.integers(-OVERFLOW, OVERFLOW), st.floats(1, 1e6), max_size=5),
            ),
            min_size=1,
            max_size=4,
        )
    )
    def test_adding_vectors_is_merging_states(self, ranks: list[dict[str, dict[int, float]]]) -> None:
        snapshots = [
            snapshot_of(**{key: State(HISTOGRAM, [*SEVEN], buckets) for key, buckets in of_rank.items()})
            for of_rank in ranks
        ]
        layout = layout_of(*snapshots)
        packed = [layout.pack(snapshot, True) for snapshot in snapshots]
        sums = [sum(column) for column in zip(*(sums for sums, _ in packed), strict=True)]
        maxima = [max(column) for column in zip(*(maxima for _, maxima in packed), strict=True)]
        merged = Snapshot()
        for snapshot in snapshots:
            merged = merged.merged(snapshot)
        found = layout.unpack(sums, maxima)
        assert found.keys() == merged.keys()
        for key, metric in merged.items():
            assert found[key].state.moments == pytest.approx(metric.state.moments, rel=1e-12)
            assert found[key].state.buckets == pytest.approx(metric.state.buckets, rel=1e-12)


class TestAgreeing:
    def test_the_order_of_recording_does_not_matter(self) -> None:
        one, other = snapshot_of(a=kept(SUM), b=kept(SCALAR)), snapshot_of(b=kept(SCALAR), a=kept(SUM))
        assert layout_of(one).signature == layout_of(other).signature == layout_of(one, other).signature
        assert list(layout_of(one).columns) == list(layout_of(other).columns)

    @pytest.mark.parametrize(
        "other",
        [
            Column("b", "sum", ""),
            Column("a", "avg", ""),
            Column("a", "sum", "t"),
            Column("a", "sum", "", (0,)),
            Column("a", "sum", "", (), (0, 1)),
        ],
    )
    def test_whatever_differs_differs_in_the_signature(self, other: Column) -> None:
        assert Layout([Column("a", "sum", "")]).signature != Layout([other]).signature

    def test_the_signature_can_travel_negated(self) -> None:
        signatures = [Layout([Column(f"k{number}", "sum", "")]).signature for number in range(200)]
        assert len(set(signatures)) == 200
        assert all(0 <= signature < 2**63 for signature in signatures)

    def test_keys_cannot_forge_each_other(self) -> None:
        forged = Column("a', kind='sum', tracker='')\nColumn(key='b", "sum", "")
        assert Layout([forged]).signature != Layout([Column("a", "sum", ""), Column("b", "sum", "")]).signature

    def test_only_what_is_new_is_told(self) -> None:
        layout = layout_of(snapshot_of(a=kept(SUM)))
        assert layout.missing(columns_of(snapshot_of(a=kept(SUM)), {})) == []
        assert [column.key for column in layout.missing(columns_of(snapshot_of(a=kept(SUM), b=kept(SUM)), {}))] == ["b"]

    def test_a_bucket_in_a_known_block_is_not_new(self) -> None:
        layout = layout_of(snapshot_of(a=State(HISTOGRAM, buckets={0: 1.0})))
        near, far = (snapshot_of(a=State(HISTOGRAM, buckets={index: 1.0})) for index in (BLOCK - 1, BLOCK))
        assert layout.missing(columns_of(near, {})) == []
        assert len(layout.missing(columns_of(far, {}))) == 1

    def test_another_trackers_key_is_not_new(self) -> None:
        layout = Layout().joined([[Column("t/a", "sum", "")], [Column("t/a", "sum", "t")]])
        assert layout.missing([Column("t/a", "sum", "t")]) == layout.missing([Column("t/a", "sum", "")]) == []
        assert [column.tracker for column in layout.columns.values()] == [""]

    def test_blocks_are_joined(self) -> None:
        layout = Layout().joined([[Column("a", "histogram", "", (3, 5))], [Column("a", "histogram", "", (-1, 5))]])
        assert [column.blocks for column in layout.columns.values()] == [(-1, 3, 5)]

    def test_joining_leaves_what_was_known_as_it_is(self) -> None:
        layout = layout_of(snapshot_of(a=kept(SUM)))
        joined = layout.joined([[Column("b", "sum", "")], []])
        assert len(layout.columns) == 1
        assert len(joined.columns) == 2


class TestConflicts:
    @pytest.mark.parametrize(
        ("told", "message"),
        [
            ([[Column("k", "sum", "")], [Column("k", "avg", "")]], "k: recorded as avg on rank 1 .* elsewhere as sum"),
            ([[Column("k", "sum", "", (), (0, 1))], [], [Column("k", "avg", "", (), (2, 3))]], "avg on rank 2"),
            (
                [[Column("k", "sum", "")], [Column("k", "sum", "", (), (0, 1))]],
                r"k: reduce_group: ranks \[0, 1\] on rank 1",
            ),
            ([[Column("k", "sum", "", (), (0, 1))], [Column("k", "sum", "")]], r"ranks \[\] on rank 1"),
            (
                [[Column("k", "sum", "", (), (0, 1))], [Column("k", "sum", "", (), (1, 2))]],
                r"ranks \[1, 2\] on rank 1 of the group, elsewhere \[0, 1\]",
            ),
        ],
    )
    def test_say_the_key_and_the_rank(self, told: Any, message: str) -> None:
        with pytest.raises(RecordError, match=message):
            Layout().joined(told)

    def test_with_what_was_agreed_on_before(self) -> None:
        with pytest.raises(RecordError, match="k: recorded as avg on rank 1"):
            Layout([Column("k", "sum", "")]).joined([[], [Column("k", "avg", "")]])

    def test_groups_that_share_no_rank_are_none(self) -> None:
        layout = Layout().joined([[Column("k", "sum", "", (), (0, 1))], [Column("k", "sum", "", (), (2, 3))]])
        assert layout.groups() == [(0, 1), (2, 3)]
        assert layout.missing([Column("k", "sum", "", (), (2, 3))]) == []
