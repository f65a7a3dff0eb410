from __future__ import annotations

import copy
import math
import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rltel.core.errors import RecordError
from rltel.record.fold import moments_of_numbers
from rltel.record.kinds import AVG, AVG_MIN_MAX, GAUGE_MEAN, SCALAR, SUM, Kind, State
from rltel.reduce.snapshot import Metric, Snapshot, gauge_of, merged

NAN, INF = math.nan, math.inf


def state(kind: Kind, *values: float) -> State:
    return State(kind, moments_of_numbers(values)) if values else State(kind)


def snapshot(**metrics: State) -> Snapshot:
    return Snapshot.of_states(metrics)


class TestSnapshots:
    def test_are_mappings_in_the_order_of_recording(self) -> None:
        both = snapshot(b=state(SCALAR, 1.0), a=state(SUM, 2.0))
        assert list(both) == ["b", "a"]
        assert len(both) == 2
        assert "a" in both
        assert both["a"].state.moments[0] == 2.0
        with pytest.raises(KeyError):
            both["c"]

    def test_do_not_follow_the_mapping_that_they_were_made_from(self) -> None:
        metrics = {"a": Metric(state(SUM, 1.0))}
        made = Snapshot(metrics)
        metrics.clear()
        assert list(made) == ["a"]

    def test_cannot_be_changed(self) -> None:
        made = snapshot(a=state(SUM, 1.0))
        with pytest.raises(TypeError):
            made["b"] = Metric(state(SUM))  # type: ignore[index]
        with pytest.raises(AttributeError):
            made.other = 1  # type: ignore[attr-defined]

    def test_know_their_tracker(self) -> None:
        metric = Snapshot.of_states({"x/a": state(SUM)}, "x")["x/a"]
        assert (metric.tracker, metric.reduced) == ("x", False)

    def test_become_a_flat_dict(self) -> None:
        made = snapshot(
            loss=state(AVG_MIN_MAX, 1.0, 3.0), n=state(SUM), nothing=state(AVG), r=state(SCALAR, 1.0), g=state(AVG, NAN)
        )
        flat = made.flat()
        assert list(flat) == ["loss/avg", "loss/min", "loss/max", "n", "r", "r__count", "g", "g/nonfinite"]
        assert flat["loss/avg"] == 2.0
        assert flat["n"] == 0.0
        assert math.isnan(flat["g"])
        assert [value.stat for value in made.values_of("loss")] == ["avg", "min", "max"]

    def test_of_plain_numbers_are_gauges(self) -> None:
        made = Snapshot.of_numbers({"a": 1.0, "b": NAN, "c": -INF})
        assert {metric.state.kind for metric in made.values()} == {GAUGE_MEAN}
        flat = made.flat()
        assert flat["a"] == 1.0
        assert math.isnan(flat["b"])
        assert flat["c"] == -INF
        assert flat["b/nonfinite"] == flat["c/nonfinite"] == 1.0

    def test_travel(self) -> None:
        made = snapshot(a=state(AVG_MIN_MAX, 1.0))
        for again in (pickle.loads(pickle.dumps(made)), copy.deepcopy(made)):
            assert again.flat() == made.flat()
            assert again.merged(made).flat() == made.flat()  # the kinds are the same ones


class TestMerging:
    def test_merges_what_both_have(self) -> None:
        a = snapshot(x=state(AVG_MIN_MAX, 1.0), only_a=state(SUM, 1.0))
        b = snapshot(x=state(AVG_MIN_MAX, 4.0, 4.0), only_b=state(SUM, 2.0))
        assert a.merged(b).flat() == {"x/avg": 3.0, "x/min": 1.0, "x/max": 4.0, "only_a": 1.0, "only_b": 2.0}
        assert list(a.merged(b)) == ["x", "only_a", "only_b"]

    def test_leaves_both_as_they_are(self) -> None:
        a, b = snapshot(x=state(SUM, 1.0)), snapshot(x=state(SUM, 2.0))
        a.merged(b)
        assert a.flat() == {"x": 1.0}
        assert b.flat() == {"x": 2.0}

    def test_refuses_two_kinds(self) -> None:
        with pytest.raises(RecordError, match="x: cannot merge two kinds, sum and scalar"):
            snapshot(x=state(SUM)).merged(snapshot(x=state(SCALAR)))

    def test_is_reduced_if_both_are(self) -> None:
        reduced = Snapshot({"x": Metric(state(SUM, 1.0), "t", reduced=True)})
        mine = Snapshot({"x": Metric(state(SUM, 1.0), "t")})
        assert reduced.merged(reduced)["x"].reduced
        assert not reduced.merged(mine)["x"].reduced
        assert not mine.merged(reduced)["x"].reduced
        assert reduced.merged(reduced)["x"].tracker == "t"

    @given(st.lists(st.lists(st.integers(-100, 100).map(float), max_size=4), max_size=5))
    def test_of_any_number_is_as_all_at_once(self, parts: list[list[float]]) -> None:
        everything = [value for part in parts for value in part]
        found = merged(snapshot(x=state(AVG_MIN_MAX, *part)) for part in parts)
        expected = snapshot(x=state(AVG_MIN_MAX, *everything)) if parts else Snapshot()
        assert found.flat() == expected.flat()


@pytest.mark.parametrize("value", [0.0, -3.5, NAN, INF, -INF])
def test_a_gauge_of_a_number_is_that_number(value: float) -> None:
    (first, *rest) = gauge_of(value).values()
    assert first.value == value or (math.isnan(value) and math.isnan(first.value))
    assert [each.stat for each in rest] == ([] if math.isfinite(value) else ["nonfinite"])
