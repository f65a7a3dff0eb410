from __future__ import annotations

import asyncio
import json
import math
import sys
import threading
from collections.abc import Callable
from contextvars import copy_context
from enum import Enum, auto
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tests.realparts.lane_reading import read

from rltel.core.errors import RecordError
from rltel.record.entries import FOLD_AT, Kinds, Sent
from rltel.record.kinds import AVG_MIN_MAX, GAUGE_MEAN, GAUGE_SUM, GAUGE_WRITER, PHASE_MS, SCALAR, State
from rltel.record.recorder import Recorder
from rltel.record.tracker import Tracker

NAN, INF = math.nan, math.inf
Taken = Callable[..., dict[str, float]]

VECTORS = {
    vector["id"]: vector
    for vector in json.loads((Path(__file__).parents[1] / "vectors" / "areal_vectors.json").read_text())["vectors"]
}


def same(found: dict[str, float], expected: dict[str, float]) -> bool:
    return found.keys() == expected.keys() and all(
        found[key] == expected[key] or (math.isnan(found[key]) and math.isnan(expected[key])) for key in found
    )


class ReduceType(Enum):
    """As AReaL's."""

    AVG_MIN_MAX = auto()
    AVG = auto()
    SUM = auto()
    MIN = auto()
    MAX = auto()


class TestScopes:
    def test_lead_the_key(self, tracker: Tracker, taken: Taken) -> None:
        with tracker.scope("/ppo_actor/"), tracker.scope("update"):
            tracker.scalar(loss=1.0)
        tracker.scalar(loss=2.0)
        assert taken() == {
            "ppo_actor/update/loss": 1.0,
            "ppo_actor/update/loss__count": 1,
            "loss": 2.0,
            "loss__count": 1,
        }

    def test_end_with_an_exception(self, tracker: Tracker, taken: Taken) -> None:
        with pytest.raises(KeyError), tracker.scope("a"):
            raise KeyError
        tracker.scalar(x=1.0)
        assert "x" in taken()

    def test_of_several_levels_are_the_same_place(self, tracker: Tracker, taken: Taken) -> None:
        with tracker.scope("a/b"):
            tracker.scalar(x=1.0)
        with tracker.scope("a"), tracker.scope("b"):
            tracker.scalar(x=3.0)
        with tracker.scope("a"):
            tracker.scalar({"b/x": 5.0})
        assert taken() == {"a/b/x": 3.0, "a/b/x__count": 3}

    @pytest.mark.parametrize("name", ["", "/", "//"])
    def test_need_a_name(self, tracker: Tracker, name: str) -> None:
        with pytest.raises(RecordError, match="scope: expected a name"):
            tracker.scope(name)

    def test_are_drawn(self, tracker: Tracker, recorder: Recorder, clock: Any) -> None:
        recorder.start()
        with tracker.scope("a"):
            clock.tick(1.0)
        drawn = read(recorder).one("a")
        assert (drawn.category, drawn.begin_ns, drawn.end_ns) == ("scope", 1_000_000_000, 2_000_000_000)

    def test_of_a_named_tracker(self, recorder: Recorder, taken: Taken) -> None:
        rollout = Tracker("/rollout/", recorder)
        with rollout.scope("a"):
            rollout.scalar(x=1.0)
            with rollout.record_timing("t"):
                pass
        assert taken(rollout).keys() == {
            "rollout/a/x",
            "rollout/a/x__count",
            "rollout/timeperf/t",
            "rollout/timeperf/t__count",
        }

    def test_of_two_trackers_are_apart(self, tracker: Tracker, recorder: Recorder, taken: Taken) -> None:
        other = Tracker("other", recorder)
        with tracker.scope("a"):
            other.scalar(x=1.0)
        assert "other/x" in taken(other)


class TestScalars:
    def test_are_averaged_over_calls(self, tracker: Tracker, taken: Taken) -> None:
        for value in (1.0, 2.0, 6.0):
            tracker.scalar(x=value)
        assert taken() == {"x": 3.0, "x__count": 3}

    def test_many_are_folded_before_anyone_exports(self, tracker: Tracker, taken: Taken) -> None:
        for value in range(FOLD_AT + 3):
            tracker.scalar(x=float(value), y=1.0)
        assert len(tracker._entries["x"].pending) == 3
        assert len(tracker._entries["y"].pending) == 3
        found = taken()
        assert found["x__count"] == found["y__count"] == FOLD_AT + 3
        assert found["x"] == (FOLD_AT + 2) / 2

    @pytest.mark.parametrize(
        "value", [2, True, "2.5", np.float32(1.5), np.int64(3), torch.tensor(1.5), torch.tensor([2])]
    )
    def test_of_any_make(self, tracker: Tracker, taken: Taken, value: Any) -> None:
        tracker.scalar(x=value)
        tracker.scalar(x=value, y=value)
        number = float(value)
        assert taken() == {"x": number, "x__count": 2, "y": number, "y__count": 1}

    @pytest.mark.parametrize("value", [None, "abc", [1.0], torch.ones(2), 1j, 10**400, object()], ids=type)
    def test_that_are_no_numbers_record_nothing(self, tracker: Tracker, taken: Taken, value: Any) -> None:
        with tracker.scope("a"):
            for call in (
                lambda: tracker.scalar(bad=value),
                lambda: tracker.scalar(good=1.0, bad=value),
                lambda: tracker.scalar({"good": 1.0, "bad": value}),
                lambda: tracker.gauge(good=1.0, bad=value),
                lambda: tracker.count(good=1.0, bad=value),
                lambda: tracker.weighted_mean("bad", value, 1.0),
            ):
                with pytest.raises(RecordError, match=r"^a/bad: expected one number, got "):
                    call()
        assert taken() == {}
        tracker.gauge({"a/good": 1.0})  # nor do these keys have a kind now
        assert taken() == {"a/good": 1.0}

    def test_every_keyword_is_a_metric(self, tracker: Tracker, taken: Taken) -> None:
        tracker.scalar(weight=0.1, values=2.0, self=3.0)
        assert taken()["weight"] == 0.1

    def test_options_go_with_a_mapping(self, tracker: Tracker, taken: Taken) -> None:
        tracker.scalar({"pass@1": 0.5}, weight=8)
        tracker.scalar({"pass@1": 1.0}, weight=2)
        tracker.scalar({"never": NAN}, weight=0)
        assert taken() == {"pass@1": 0.6, "pass@1__count": 10}

    def test_a_mapping_and_keywords_are_the_same_metric(self, tracker: Tracker, taken: Taken) -> None:
        tracker.scalar(x=1.0)
        tracker.scalar({"x": 3.0})
        assert taken() == {"x": 2.0, "x__count": 2}

    @pytest.mark.parametrize("values", [0.5, [1.0], "x"])
    def test_something_else_than_a_mapping_is_refused(self, tracker: Tracker, values: Any) -> None:
        for name in ("scalar", "gauge", "count", "stat", "distribution"):
            with pytest.raises(RecordError, match=f"{name}: expected a mapping of keys to values, or keywords"):
                getattr(tracker, name)(values)

    @pytest.mark.parametrize("key", ["", "/", 3, None])
    def test_need_a_key(self, tracker: Tracker, taken: Taken, key: Any) -> None:
        with pytest.raises(RecordError, match="key: expected a non-empty string"):
            tracker.scalar({"good": 1.0, key: 1.0})
        assert taken() == {}

    def test_a_key_that_is_no_text_is_refused(self, tracker: Tracker, taken: Taken) -> None:
        """It could not be written to any file."""
        with pytest.raises(RecordError, match="UTF-8"):
            tracker.scalar(good=1.0, **{"\ud800": 1.0})
        assert taken() == {}

    def test_nothing_at_all_is_no_call(self, tracker: Tracker, taken: Taken) -> None:
        tracker.scalar()
        tracker.scalar({})
        assert taken() == {}

    @pytest.mark.parametrize("weight", [-1, NAN, INF, "x", None, torch.ones(2)], ids=str)
    def test_weights_are_finite_and_not_negative(self, tracker: Tracker, taken: Taken, weight: Any) -> None:
        with pytest.raises(RecordError, match="scalar: weight: expected"):
            tracker.scalar({"x": 1.0}, weight=weight)
        with pytest.raises(RecordError, match="x: weight: expected"):
            tracker.weighted_mean("x", 1.0, weight)
        assert taken() == {}

    def test_weights_of_any_make_leave_plain_numbers(self, tracker: Tracker) -> None:
        tracker.scalar({"x": 1.0}, weight=np.int64(2))
        tracker.weighted_mean("y", np.float32(1.0), torch.tensor(3))
        for state in tracker.take().values():
            assert {type(moment) for moment in state.moments} == {float}


class TestWeightedMeans:
    def test_are_ratios_of_sums(self, tracker: Tracker, taken: Taken) -> None:
        tracker.weighted_mean("x", 1.0, 1)
        tracker.weighted_mean("x", 4.0, 2)
        assert taken() == {"x": 3.0}

    def test_zero_weight_records_nothing(self, tracker: Tracker, taken: Taken) -> None:
        for value in (NAN, INF, 5.0):
            tracker.weighted_mean("x", value, 0)
        assert taken() == {}
        tracker.weighted_mean("x", 2.0, 1)
        tracker.weighted_mean("x", NAN, 0)
        assert taken() == {"x": 2.0}

    def test_nan_stays_visible(self, tracker: Tracker, taken: Taken) -> None:
        tracker.weighted_mean("x", 2.0, 1)
        tracker.weighted_mean("x", NAN, 0.5)
        assert same(taken(), {"x": NAN, "x/nonfinite": 0.5})


class TestGauges:
    def test_keep_the_last_value(self, tracker: Tracker, taken: Taken) -> None:
        tracker.gauge(x=1.0)
        tracker.gauge({"x": 2})
        assert taken() == {"x": 2.0}
        assert taken() == {}

    @pytest.mark.parametrize("ranks", ["mean", "sum", "min", "max", "writer"])
    def test_say_how_ranks_merge(self, tracker: Tracker, taken: Taken, ranks: str) -> None:
        tracker.gauge({"x": 3.0}, ranks=ranks)
        tracker.gauge({"x": -INF}, ranks=ranks)
        assert taken() == {"x": -INF, "x/nonfinite": 1.0}
        tracker.gauge({"x": 3.0}, ranks=ranks)
        assert taken() == {"x": 3.0}

    def test_of_another_merge_are_refused(self, tracker: Tracker) -> None:
        tracker.gauge(x=1.0)
        with pytest.raises(
            RecordError, match=r"x: recorded as gauge_mean before, and now as gauge_sum; use another key"
        ):
            tracker.gauge({"x": 1.0}, ranks="sum")
        with pytest.raises(RecordError, match=r"ranks: expected one of mean, sum, min, max, writer, got 'median'"):
            tracker.gauge({"x": 1.0}, ranks="median")


class TestCounters:
    def test_add_up_between_exports(self, tracker: Tracker, taken: Taken) -> None:
        tracker.count(episodes=1)
        tracker.count({"episodes": 2.5, "x": 0})
        assert taken() == {"episodes": 3.5, "x": 0.0}
        tracker.count(episodes=1)
        assert taken() == {"episodes": 1.0}

    @pytest.mark.parametrize("amount", [-1, NAN, INF, -0.5])
    def test_only_grow(self, tracker: Tracker, taken: Taken, amount: float) -> None:
        with pytest.raises(RecordError, match="x: a counter only grows: expected a finite number >= 0, got"):
            tracker.count(good=1, x=amount)
        assert taken() == {}


class TestStat:
    @pytest.mark.parametrize(
        ("reduce_type", "expected"),
        [
            ("avg_min_max", {"x/avg": 2.0, "x/min": 1.0, "x/max": 3.0}),
            ("avg", {"x": 2.0}),
            ("sum", {"x": 4.0}),
            ("min", {"x": 1.0}),
            ("max", {"x": 3.0}),
        ],
    )
    def test_every_reduce_type(
        self, tracker: Tracker, taken: Taken, reduce_type: str, expected: dict[str, float]
    ) -> None:
        for given_type in (reduce_type, reduce_type.upper(), ReduceType[reduce_type.upper()]):
            tracker.stat(x=[1.0, 99.0, 3.0], mask=[True, False, True], reduce_type=given_type)
            assert taken() == expected

    @pytest.mark.parametrize("reduce_type", ["mean", "scalar", "weighted_avg", None, [], torch.ones(2)], ids=str)
    def test_no_other_reduce_type(self, tracker: Tracker, reduce_type: Any) -> None:
        with pytest.raises(RecordError, match="reduce_type: expected one of avg_min_max, avg, sum, min, max, got"):
            tracker.stat(x=[1.0], reduce_type=reduce_type)

    def test_without_a_mask_every_element_counts(self, tracker: Tracker, taken: Taken) -> None:
        tracker.stat(x=torch.tensor([[1.0, 2.0], [3.0, 6.0]]))
        assert taken() == {"x/avg": 3.0, "x/min": 1.0, "x/max": 6.0}

    def test_masked_out_values_never_matter(self, tracker: Tracker, taken: Taken) -> None:
        tracker.stat(x=[1.0, NAN, INF, -INF], mask=np.array([True, False, False, False]))
        assert taken() == {"x/avg": 1.0, "x/min": 1.0, "x/max": 1.0}

    def test_the_tensor_is_not_kept(self, tracker: Tracker, taken: Taken) -> None:
        values, mask = torch.tensor([1.0, 2.0]), torch.tensor([True, True])
        tracker.denominator(n=mask)
        tracker.stat(x=values, denominator="n", reduce_type="sum")
        values.fill_(100.0)
        mask.fill_(False)
        tracker.stat(y=values, denominator="n", reduce_type="sum")  # the denominator is as it was given, too
        assert taken() == {"n": 2.0, "x": 3.0, "y": 200.0}

    def test_a_numpy_mask_is_copied_too(self, tracker: Tracker, taken: Taken) -> None:
        mask = np.array([True, True])
        tracker.denominator(n=mask)
        mask[:] = False
        tracker.stat(x=[1.0, 2.0], denominator="n", reduce_type="sum")
        assert taken()["x"] == 3.0

    @pytest.mark.parametrize("values", [torch.ones(2), torch.ones(3, 1), np.ones(()), []], ids=str)
    def test_shapes_must_fit_exactly(self, tracker: Tracker, taken: Taken, values: Any) -> None:
        shape = tuple(np.shape(values))
        tracker.denominator(n=[True, False, True])
        with pytest.raises(RecordError) as caught:
            tracker.stat(good=[1.0, 2.0, 3.0], bad=values, denominator="n")
        assert str(caught.value) == f"bad: expected the shape of n, (3,), got {shape} (no broadcasting)"
        with pytest.raises(RecordError, match="bad: expected the shape of the mask"):
            tracker.stat(good=[1.0, 2.0, 3.0], bad=values, mask=torch.tensor([True, False, True]))
        assert taken() == {"n": 2.0}

    @pytest.mark.parametrize("values", [None, "abc", [None], [[1.0], [1.0, 2.0]], [1j], torch.tensor(1j)], ids=str)
    def test_values_must_be_real_numbers(self, tracker: Tracker, taken: Taken, values: Any) -> None:
        with pytest.raises(RecordError, match="bad: expected a tensor, array or sequence of real numbers, got"):
            tracker.stat(good=1.0, bad=values)
        assert taken() == {}

    @pytest.mark.parametrize(
        "mask", [[1, 0], torch.tensor([1.0, 0.0]), np.array([1, 0], np.uint8), None, "ab"], ids=str
    )
    def test_masks_are_boolean(self, tracker: Tracker, taken: Taken, mask: Any) -> None:
        if mask is not None:
            with pytest.raises(RecordError, match=r"stat\(x, y\): mask: expected a bool mask, got dtype .*; use "):
                tracker.stat(x=[1.0, 2.0], y=[1.0, 2.0], mask=mask)
        with pytest.raises(RecordError, match="n: expected a bool mask, got"):
            tracker.denominator(good=[True], n=mask)
        assert taken() == {}

    def test_a_ragged_mask_is_refused_by_name(self, tracker: Tracker) -> None:
        with pytest.raises(RecordError, match="n: expected a bool mask, got list"):
            tracker.denominator(n=[[True], [True, False]])

    def test_a_denominator_and_a_mask_are_too_much(self, tracker: Tracker) -> None:
        tracker.denominator(n=[True])
        for record in (tracker.stat, tracker.distribution):
            with pytest.raises(RecordError, match=r"x\): expected a denominator or a mask, got both"):
                record(x=[1.0], denominator="n", mask=[True])

    def test_an_empty_batch_is_nothing(self, tracker: Tracker, taken: Taken) -> None:
        tracker.stat(x=[], y=np.empty((0, 3)))
        tracker.stat(s=torch.empty(0), reduce_type="sum")
        tracker.stat(z=[], mask=np.empty(0, bool), reduce_type="sum")
        assert taken() == {"s": 0.0, "z": 0.0}

    def test_a_kind_conflict_records_nothing(self, tracker: Tracker, taken: Taken) -> None:
        tracker.scalar(b=1.0)
        taken()
        for call in (
            lambda: tracker.stat(a=[1.0], b=[1.0]),
            lambda: tracker.distribution(a=[1.0], b=[1.0]),
            lambda: tracker.denominator(a=[True], b=[True]),
            lambda: tracker.gauge(a=1.0, b=1.0),
            lambda: tracker.count(a=1.0, b=1.0),
            lambda: tracker.absorb({"a": State(GAUGE_MEAN), "b": State(GAUGE_MEAN)}, Sent("w")),
        ):
            with pytest.raises(RecordError, match=r"^b: recorded as scalar before, and now as \w+; use another key$"):
                call()
        with pytest.raises(RecordError, match='denominator "a" is not defined'):
            tracker.stat(x=[1.0], denominator="a")
        tracker.scalar(a=1.0)  # "a" has no other kind
        assert taken() == {"a": 1.0, "a__count": 1}

    def test_a_scalar_that_conflicts_records_nothing(self, tracker: Tracker, taken: Taken) -> None:
        tracker.gauge(b=1.0)
        tracker.scalar(a=1.0)
        taken()
        with pytest.raises(RecordError, match="b: recorded as gauge_mean before, and now as scalar"):
            tracker.scalar(a=1.0, b=1.0)
        with pytest.raises(RecordError, match="b: recorded as gauge_mean before, and now as scalar"):
            tracker.scalar(c=1.0, b=1.0)
        assert taken() == {}

    def test_stat_then_scalar_is_refused_whatever_was_exported(self, tracker: Tracker, taken: Taken) -> None:
        tracker.stat(x=[1.0])
        taken()
        with pytest.raises(RecordError, match="x: recorded as avg_min_max before, and now as scalar"):
            tracker.scalar(x=1.0)
        tracker.stat(x=[2.0])
        assert taken()["x/avg"] == 2.0

    def test_an_error_does_not_print_the_tensor(self, tracker: Tracker) -> None:
        with pytest.raises(RecordError) as caught:
            tracker.scalar(x=torch.ones(1000))
        assert str(caught.value) == "x: expected one number, got Tensor of shape (1000,), dtype torch.float32"
        with pytest.raises(RecordError) as caught:
            tracker.scalar(x=["y"] * 1000)
        assert len(str(caught.value)) < 100


class TestDistributions:
    def test_have_extremes_and_quantiles(self, tracker: Tracker, taken: Taken) -> None:
        values = np.arange(1.0, 101.0)
        tracker.distribution(x=values[:50])
        tracker.distribution({"x": values[50:]})
        found = taken()
        assert (found["x/avg"], found["x/min"], found["x/max"]) == (50.5, 1.0, 100.0)
        for stat, q in (("p50", 0.5), ("p90", 0.9), ("p99", 0.99)):
            assert found[f"x/{stat}"] == pytest.approx(np.quantile(values, q), rel=0.022)

    def test_over_a_mask_or_denominator(self, tracker: Tracker, taken: Taken) -> None:
        tracker.denominator(n=[True, False, True])
        tracker.distribution(x=[1.0, NAN, 1.0], denominator="n")
        tracker.distribution(x=[NAN, 1.0], mask=[False, True])
        assert set(taken().values()) == {1.0, 2.0}  # n is 2
        with pytest.raises(RecordError, match='distribution: denominator "n" is not defined'):
            tracker.distribution(x=[1.0, NAN, 1.0], denominator="n")

    def test_of_nothing_are_left_out(self, tracker: Tracker, taken: Taken) -> None:
        tracker.distribution(x=[])
        tracker.distribution(y=[NAN], mask=[False])
        assert taken() == {}


class TestTimings:
    def test_are_means_of_seconds(self, tracker: Tracker, taken: Taken, clock: Any) -> None:
        with tracker.scope("ignored"):
            for seconds in (0.5, 1.5):
                with tracker.record_timing("rollout"):
                    clock.tick(seconds)
        assert taken() == {"timeperf/rollout": 1.0, "timeperf/rollout__count": 2}

    def test_have_a_histogram(self, tracker: Tracker, clock: Any) -> None:
        for seconds in (0.5, 0.5, 2.0):
            with tracker.record_timing("x"):
                clock.tick(seconds)
        state = tracker.take()["timeperf/x"]
        assert sorted(state.buckets.values()) == [1.0, 2.0]

    def test_are_recorded_when_it_fails(self, tracker: Tracker, taken: Taken, clock: Any) -> None:
        with pytest.raises(ZeroDivisionError), tracker.record_timing("x"):
            clock.fail_after(2.0)
        assert taken()["timeperf/x"] == 2.0

    def test_one_pair_of_readings_serves_slice_and_number(
        self, tracker: Tracker, taken: Taken, recorder: Recorder, clock: Any
    ) -> None:
        recorder.start()
        with tracker.record_timing("x"):
            clock.tick(0.25)
        assert clock.readings == 2
        drawn = read(recorder).one("x")
        assert (drawn.category, drawn.begin_ns, drawn.end_ns) == ("timing", 1_000_000_000, 1_250_000_000)
        assert taken()["timeperf/x"] == 0.25

    def test_nest(self, tracker: Tracker, taken: Taken, clock: Any) -> None:
        with tracker.record_timing("x"):
            clock.tick(1.0)
            with tracker.record_timing("x"):
                clock.tick(1.0)
        assert taken() == {"timeperf/x": 1.5, "timeperf/x__count": 2}

    def test_many_are_folded_before_anyone_exports(self, tracker: Tracker, taken: Taken) -> None:
        for _ in range(FOLD_AT + 2):
            with tracker.record_timing("x"):
                pass
        assert len(tracker._entries["timeperf/x"].pending) < FOLD_AT
        assert taken()["timeperf/x__count"] == FOLD_AT + 2

    def test_of_an_appender(self, recorder: Recorder, taken: Taken) -> None:
        named = Tracker("n", recorder)
        append = named.timing_appender("Perf/x_ms", PHASE_MS)
        for _ in range(FOLD_AT):
            append(2_000_000)
        assert not named._entries["n/Perf/x_ms"].pending
        append(2_000_000)
        assert taken(named) == {"n/Perf/x_ms": pytest.approx(2.0)}

    @pytest.mark.parametrize("key", ["", "/", None, 3])
    def test_need_a_key(self, tracker: Tracker, key: Any) -> None:
        with pytest.raises(RecordError, match="record_timing: expected a non-empty string"):
            tracker.record_timing(key)

    def test_of_a_key_that_was_something_else(self, tracker: Tracker) -> None:
        tracker.scalar({"timeperf/x": 1.0})
        with pytest.raises(RecordError, match="timeperf/x: recorded as scalar before, and now as timing"):
            tracker.record_timing("x")


class TestDenominators:
    def test_are_found_outwards(self, tracker: Tracker, taken: Taken) -> None:
        tracker.denominator(n=[True, False], m=[True, True])
        with tracker.scope("a"):
            tracker.denominator(n=[False, True])
            with tracker.scope("b"):
                tracker.stat(x=[1.0, 2.0], denominator="n", reduce_type="sum")
                tracker.stat(y=[1.0, 2.0], denominator="m", reduce_type="sum")
            tracker.stat(x=[1.0, 2.0], denominator="n", reduce_type="sum")
        tracker.stat(x=[1.0, 2.0], denominator="n", reduce_type="sum")
        assert taken() == {"n": 1.0, "m": 2.0, "a/n": 1.0, "a/b/x": 2.0, "a/b/y": 3.0, "a/x": 2.0, "x": 1.0}

    def test_are_not_found_inwards(self, tracker: Tracker) -> None:
        with tracker.scope("a"):
            tracker.denominator(n=[True])
        with pytest.raises(
            RecordError,
            match=r'stat: denominator "n" is not defined in the scope "" or outside it; call denominator\(n=mask\) '
            r"first; defined: a/n",
        ):
            tracker.stat(x=[1.0], denominator="n")

    def test_by_a_path(self, tracker: Tracker, taken: Taken) -> None:
        with tracker.scope("a"):
            tracker.denominator(n=[True, False])
        tracker.stat(x=[1.0, 2.0], denominator="a/n", reduce_type="sum")
        assert taken()["x"] == 1.0

    def test_hold_until_redefined(self, tracker: Tracker, taken: Taken) -> None:
        for mask in ([True, False], [False, True], [True, True]):
            tracker.denominator(n=mask)
            tracker.stat(x=[1.0, 2.0], denominator="n", reduce_type="sum")
        assert taken() == {"n": 4.0, "x": 6.0}

    def test_may_change_their_shape(self, tracker: Tracker, taken: Taken) -> None:
        tracker.denominator(n=[True, True])
        tracker.denominator(n=[[True], [False], [True]])
        tracker.stat(x=[[1.0], [2.0], [4.0]], denominator="n", reduce_type="sum")
        assert taken() == {"n": 4.0, "x": 5.0}

    def test_end_with_an_export(self, tracker: Tracker, taken: Taken) -> None:
        tracker.denominator(n=[True])
        taken()
        with pytest.raises(RecordError, match="defined: none"):
            tracker.stat(x=[1.0], denominator="n")

    def test_are_live_while_the_export_is_not_through(self, tracker: Tracker) -> None:
        tracker.denominator(n=[True])
        states = tracker.take()
        tracker.stat(x=[1.0], denominator="n")
        tracker.denominator(m=[True])
        tracker.exported(states)
        tracker.stat(x=[1.0], denominator="m")  # defined since
        with pytest.raises(RecordError, match='"n" is not defined'):
            tracker.stat(x=[1.0], denominator="n")

    @pytest.mark.parametrize("mask", [[], np.empty((2, 0), bool), torch.empty(0, dtype=torch.bool)], ids=str)
    def test_are_not_empty(self, tracker: Tracker, taken: Taken, mask: Any) -> None:
        with pytest.raises(RecordError, match=r"n: expected a (bool )?mask"):
            tracker.denominator(m=[True], n=mask)
        assert taken() == {}

    def test_a_task_or_thread_finds_its_own_first(self, tracker: Tracker, taken: Taken) -> None:
        tracker.denominator(n=[True, False])

        def elsewhere() -> None:
            tracker.denominator(n=[False, True])
            tracker.stat(there=[1.0, 2.0], denominator="n", reduce_type="sum")

        in_a_thread(elsewhere)
        tracker.stat(here=[1.0, 2.0], denominator="n", reduce_type="sum")
        assert taken() == {"n": 2.0, "there": 2.0, "here": 1.0}

    def test_a_thread_without_its_own_finds_the_trackers(self, tracker: Tracker, taken: Taken) -> None:
        """Autograd runs hooks on threads that see no ContextVar."""
        tracker.denominator(n=[True, False])
        in_a_thread(lambda: tracker.stat(x=[1.0, 2.0], denominator="n", reduce_type="sum"))
        assert taken() == {"n": 1.0, "x": 1.0}

    def test_a_hook_that_was_carried_away_finds_the_latest(self, tracker: Tracker, taken: Taken) -> None:
        tracker.denominator(n=[True, False])
        context = copy_context()
        tracker.denominator(n=[False, True])
        context.run(lambda: tracker.stat(x=[1.0, 2.0], denominator="n", reduce_type="sum"))
        assert taken() == {"n": 2.0, "x": 2.0}

    def test_a_task_does_not_take_away_what_another_inherited(self, tracker: Tracker, taken: Taken) -> None:
        """Both inherit "n"; one redefines it for itself; the other still has the mask that it started with."""

        async def redefines(done: asyncio.Event) -> None:
            tracker.denominator(n=[False, True])
            tracker.stat(mine=[1.0, 2.0], denominator="n", reduce_type="sum")
            done.set()

        async def inherits(done: asyncio.Event) -> None:
            await done.wait()
            tracker.stat(inherited=[1.0, 2.0], denominator="n", reduce_type="sum")

        async def main() -> None:
            tracker.denominator(n=[True, False])
            done = asyncio.Event()
            await asyncio.gather(redefines(done), inherits(done))
            tracker.stat(outer=[1.0, 2.0], denominator="n", reduce_type="sum")

        asyncio.run(main())
        assert taken() == {"n": 2.0, "mine": 2.0, "inherited": 1.0, "outer": 1.0}

    def test_an_export_ends_also_those_that_another_task_shadows(self, tracker: Tracker, taken: Taken) -> None:
        tracker.denominator(n=[True])
        in_a_thread(lambda: tracker.denominator(n=[True]))
        taken()
        with pytest.raises(RecordError, match='"n" is not defined'):
            tracker.stat(x=[1.0], denominator="n")

    def test_only_the_live_ones_are_kept(self, tracker: Tracker, taken: Taken) -> None:
        for _ in range(10):
            tracker.denominator(n=[True], m=[True])
            in_a_thread(lambda: tracker.denominator(n=[True]))
        assert len(tracker._masks.live()) <= 3  # ours, and the last thread's
        taken()
        assert not tracker._masks.live()
        assert not tracker._masks._by_path

    def test_the_mask_of_a_stat_is_the_one_given_with_it(self, tracker: Tracker, taken: Taken) -> None:
        """AReaL pairs the first value with the first mask, whenever each was recorded."""
        tracker.denominator(n=[True, False])
        tracker.denominator(n=[False, True])
        tracker.stat(x=[1.0, 2.0], denominator="n")
        assert taken()["x/avg"] == 2.0


class TestTaking:
    def test_is_in_the_order_of_first_recording(self, tracker: Tracker) -> None:
        tracker.scalar(b=1.0)
        tracker.stat(a=[1.0])
        tracker.gauge(c=1.0)
        tracker.scalar(b=1.0)
        assert list(tracker.take()) == ["b", "a", "c"]

    def test_takes_each_number_once(self, tracker: Tracker, taken: Taken) -> None:
        tracker.scalar(x=1.0)
        tracker.stat(y=[1.0])
        assert len(taken()) == 5
        assert taken() == {}

    def test_put_back_merges_with_what_came_since(self, tracker: Tracker, taken: Taken) -> None:
        def record(value: float) -> None:
            tracker.scalar(s=value)
            tracker.stat(t=[value], n=[value])
            tracker.count(c=value)
            tracker.distribution(d=[value])
            tracker.gauge(g=value)

        record(1.0)
        states = tracker.take()
        record(3.0)
        tracker.put_back(states)
        found = taken()
        assert (found["s"], found["s__count"], found["t/avg"], found["t/min"], found["t/max"]) == (
            2.0,
            2,
            2.0,
            1.0,
            3.0,
        )
        assert (found["c"], found["d/avg"]) == (4.0, 2.0)
        assert found["d/p50"] == pytest.approx(2.0, rel=0.022)
        assert found["g"] == 3.0  # a newer last value stays

    def test_put_back_brings_a_gauge_back(self, tracker: Tracker, taken: Taken) -> None:
        tracker.gauge(g=1.0)
        tracker.put_back(tracker.take())
        tracker.put_back(tracker.take())
        assert taken() == {"g": 1.0}

    def test_what_was_taken_does_not_change_afterwards(self, tracker: Tracker) -> None:
        tracker.stat(x=[1.0])
        tracker.gauge(g=1.0)
        states = tracker.take()
        tracker.put_back(states)
        tracker.stat(x=[5.0])
        tracker.gauge(g=5.0)
        assert states["x"].moments[:2] == [1.0, 1.0]
        assert states["g"].moments[0] == 1.0

    def test_reset_forgets_numbers_and_masks_and_keeps_kinds(self, tracker: Tracker, taken: Taken) -> None:
        tracker.scalar(s=1.0)
        tracker.stat(x=[1.0])
        tracker.denominator(n=[True])
        tracker.absorb({"g": State(GAUGE_MEAN, (1.0, 1.0, 1.0, 1.0, 0.0, 0.0, 0.0))}, Sent("w"))
        tracker.reset()
        with pytest.raises(RecordError, match="not defined"):
            tracker.stat(x=[1.0], denominator="n")
        assert taken() == {}
        with pytest.raises(RecordError, match="recorded as"):
            tracker.scalar(x=1.0)
        tracker.scalar(s=2.0)  # through the cache that the first call filled
        assert taken() == {"s": 2.0, "s__count": 1}

    def test_the_lock_of_a_dead_thread_does_not_stop_a_forked_child(self, tracker: Tracker, taken: Taken) -> None:
        def holds() -> None:
            tracker._lock.acquire()
            tracker._kinds._lock.acquire()

        in_a_thread(holds)
        tracker.reset()
        tracker.scalar(x=1.0)
        assert taken()["x"] == 1.0


class TestAbsorbing:
    def gauge(self, value: float, kind: Any = GAUGE_SUM) -> dict[str, State]:
        return {"g": State(kind, (value, 1.0, value, value, 0.0, 0.0, 0.0))}

    def test_adds_to_what_is_here(self, tracker: Tracker, taken: Taken) -> None:
        tracker.scalar(s=1.0)
        tracker.absorb({"s": State(SCALAR, (9.0, 3.0, 0.0, 0.0, 0.0, 0.0, 0.0))}, Sent("w"))
        assert taken() == {"s": 2.5, "s__count": 4}

    def test_a_gauge_replaces_what_its_worker_sent_before(self, tracker: Tracker, taken: Taken) -> None:
        tracker.gauge({"g": 100.0}, ranks="sum")
        tracker.absorb(self.gauge(1.0), Sent("a", "1", 0))
        tracker.absorb(self.gauge(2.0), Sent("b", "1", 0))
        tracker.absorb(self.gauge(5.0), Sent("a", "1", 1))
        assert taken() == {"g": 107.0}

    def test_one_that_was_overtaken_is_no_longer_the_last(self, tracker: Tracker, taken: Taken) -> None:
        tracker.absorb(self.gauge(5.0), Sent("a", "1", 7))
        tracker.absorb(self.gauge(1.0), Sent("a", "1", 3))
        assert taken() == {"g": 5.0}

    def test_a_restarted_worker_is_still_one_worker(self, tracker: Tracker, taken: Taken) -> None:
        tracker.absorb(self.gauge(5.0), Sent("a", "1", 7))
        tracker.absorb(self.gauge(1.0), Sent("a", "2", 0))
        assert taken() == {"g": 1.0}

    def test_a_failed_export_does_not_count_a_worker_twice(self, tracker: Tracker, taken: Taken) -> None:
        tracker.gauge({"g": 10.0}, ranks="sum")
        tracker.absorb(self.gauge(1.0), Sent("a", "1", 0))
        tracker.put_back(tracker.take())
        tracker.absorb(self.gauge(2.0), Sent("a", "1", 1))
        assert taken() == {"g": 12.0}

    def test_newer_gauges_stay_when_older_ones_are_put_back(self, tracker: Tracker, taken: Taken) -> None:
        tracker.absorb(self.gauge(1.0), Sent("a", "1", 0))
        tracker.absorb(self.gauge(4.0), Sent("b", "1", 0))
        states = tracker.take()
        tracker.absorb(self.gauge(2.0), Sent("a", "1", 1))
        tracker.put_back(states)
        assert taken() == {"g": 6.0}

    def test_the_writers_own_gauge_is_the_writers(self, tracker: Tracker, taken: Taken) -> None:
        tracker.gauge({"g": 1.0}, ranks="writer")
        tracker.absorb(self.gauge(9.0, GAUGE_WRITER), Sent("a"))
        assert taken() == {"g": 1.0}
        tracker.absorb(self.gauge(9.0, GAUGE_WRITER), Sent("a"))
        assert taken() == {"g": 9.0}


class TestKinds:
    def test_trackers_that_are_exported_together_share_them(self, recorder: Recorder) -> None:
        kinds = Kinds()
        a, b = Tracker("", recorder, kinds), Tracker("rollout", recorder, kinds)
        b.scalar(reward=1.0)
        with a.scope("rollout"), pytest.raises(RecordError, match="rollout/reward: recorded as scalar before"):
            a.stat(reward=[1.0])
        with a.scope("rollout"):
            a.scalar(reward=1.0)

    def test_are_claimed_all_or_none(self) -> None:
        kinds = Kinds()
        kinds.claim({"b": SCALAR})
        with pytest.raises(RecordError):
            kinds.claim({"a": SCALAR, "b": AVG_MIN_MAX})
        kinds.claim({"a": AVG_MIN_MAX})


class TestConcurrency:
    def test_interleaved_asyncio_scopes_stay_apart(self, tracker: Tracker, taken: Taken) -> None:
        """In AReaL three interleaved tasks record A/x, A/B/x and A/B/C/x."""

        async def records(name: str, before: asyncio.Event, after: asyncio.Event) -> None:
            await before.wait()
            with tracker.scope(name):
                after.set()
                await asyncio.sleep(0)
                tracker.scalar(x=1.0)
                with tracker.scope("inner"):
                    await asyncio.sleep(0)
                    tracker.scalar(x=1.0)

        async def main() -> None:
            events = [asyncio.Event() for _ in range(4)]
            events[0].set()
            with tracker.scope("root"):
                await asyncio.gather(*(records(name, events[i], events[i + 1]) for i, name in enumerate("ABC")))

        asyncio.run(main())
        keys = {key for key in taken() if not key.endswith("__count")}
        assert keys == {f"root/{name}{inner}/x" for name in "ABC" for inner in ("", "/inner")}

    def test_a_new_thread_starts_at_the_root(self, tracker: Tracker, taken: Taken) -> None:
        with tracker.scope("a"):
            in_a_thread(lambda: tracker.scalar(x=1.0))
        assert "x" in taken()

    def test_scopes_of_threads_stay_apart(self, tracker: Tracker, taken: Taken) -> None:
        barrier = threading.Barrier(4)

        def records(name: str) -> None:
            with tracker.scope(name):
                barrier.wait(60)
                tracker.scalar(x=1.0)
                barrier.wait(60)

        run_all([lambda name=name: records(name) for name in "ABCD"])
        assert {key for key in taken() if not key.endswith("__count")} == {f"{name}/x" for name in "ABCD"}

    def test_no_number_is_lost_while_another_thread_takes(self, tracker: Tracker, taken: Taken) -> None:
        threads, each = 16, 3000
        done = threading.Event()
        totals: dict[str, float] = {}

        def records(number: int) -> None:
            for i in range(each):
                tracker.scalar(s=1.0)
                tracker.scalar(s=1.0, **{f"s{number}": 1.0})
                with tracker.record_timing("t"):
                    pass
                if i % 50 == 0:
                    tracker.count(c=1)
                    tracker.stat(x=[1.0, 2.0], mask=[True, False], reduce_type="sum")

        def takes() -> None:
            while not done.is_set():
                add(taken())

        def add(found: dict[str, float]) -> None:
            for key, value in found.items():
                if key.endswith("__count") or key in ("c", "x"):
                    totals[key] = totals.get(key, 0.0) + value

        interval = sys.getswitchinterval()
        sys.setswitchinterval(1e-5)
        try:
            taker = threading.Thread(target=takes)
            taker.start()
            run_all([lambda number=number: records(number) for number in range(threads)])
            done.set()
            taker.join()
        finally:
            sys.setswitchinterval(interval)
        add(taken())
        assert totals == {
            "s__count": 2 * threads * each,
            "timeperf/t__count": threads * each,
            **{f"s{number}__count": each for number in range(threads)},
            "c": threads * 60,
            "x": threads * 60,
        }

    def test_a_number_that_comes_in_the_middle_of_a_fold_is_not_lost(self, tracker: Tracker, taken: Taken) -> None:
        class Interrupted(list[float]):
            """Another thread appends right after this one has looked at what is there."""

            def __getitem__(self, index: Any) -> Any:
                found = super().__getitem__(index)
                self.append(7.0)
                return found

        tracker.scalar(x=1.0)
        tracker._entries["x"].pending = Interrupted([1.0, 1.0])
        assert taken() == {"x": 1.0, "x__count": 2}
        assert taken() == {"x": 7.0, "x__count": 1}

    def test_no_number_is_lost_while_exports_fail(self, tracker: Tracker, taken: Taken) -> None:
        done = threading.Event()

        def fails() -> None:
            while not done.is_set():
                tracker.put_back(tracker.take())

        failer = threading.Thread(target=fails)
        failer.start()
        run_all([lambda: [tracker.scalar(s=1.0) for _ in range(3000)] for _ in range(4)])
        done.set()
        failer.join()
        assert taken()["s__count"] == 12000


def in_a_thread(function: Callable[[], Any]) -> None:
    run_all([function])


def run_all(functions: list[Callable[[], Any]]) -> None:
    failed: list[BaseException] = []

    def guarded(function: Callable[[], Any]) -> None:
        try:
            function()
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=guarded, args=(function,)) for function in functions]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failed:
        raise failed[0]


@st.composite
def batches(draw: st.DrawFn) -> tuple[list[float], list[bool], list[int]]:
    values = draw(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=30))
    mask = draw(st.lists(st.booleans(), min_size=len(values), max_size=len(values)))
    cuts = draw(st.lists(st.integers(0, len(values)), max_size=4).map(sorted))
    return values, mask, cuts


@given(batches())
def test_any_split_into_batches_gives_the_same(batch: tuple[list[float], list[bool], list[int]]) -> None:
    """Counts, extremes and buckets: exactly. Sums: to within float64 rounding, 1e-12 of the sum of magnitudes."""
    values, mask, cuts = batch
    whole, split = Tracker(recorder=Recorder()), Tracker(recorder=Recorder())
    whole.stat(x=values, mask=mask)
    whole.distribution(d=values, mask=mask)
    for start, stop in zip([0, *cuts], [*cuts, len(values)], strict=True):
        part, part_mask = torch.tensor(values[start:stop], dtype=torch.float64), mask[start:stop]
        split.stat(x=part, mask=np.array(part_mask, bool))
        split.distribution(d=part.numpy(), mask=torch.tensor(part_mask, dtype=torch.bool))
    expected, found = whole.take(), split.take()
    tolerance = 1e-12 * sum(map(abs, values))
    for key in ("x", "d"):
        assert found[key].moments[1:] == expected[key].moments[1:]
        assert found[key].moments[0] == pytest.approx(expected[key].moments[0], rel=0, abs=tolerance)
        assert found[key].buckets == expected[key].buckets


class TestArealVectors:
    """What AReaL's released code gives for the same input."""

    def test_weighted_avg_two_batches(self, tracker: Tracker, taken: Taken) -> None:
        vector = VECTORS["weighted_avg_two_batches"]
        for batch in vector["input"]["batches"]:
            tracker.denominator(m=torch.tensor(batch["mask"], dtype=torch.bool))
            tracker.stat(x=torch.tensor(batch["x"], dtype=torch.float32), denominator="m")
        assert taken() == vector["output"]

    def test_all_false_denominator(self, tracker: Tracker, taken: Taken) -> None:
        vector = VECTORS["all_false_denominator"]
        tracker.denominator(m=torch.tensor(vector["input"]["mask"], dtype=torch.bool))
        tracker.stat(x=[1.0, 2.0], denominator="m")
        tracker.stat(y=[1.0, 2.0], denominator="m", reduce_type="sum")
        tracker.stat(z=[1.0, 2.0], denominator="m", reduce_type="max")
        assert taken() == vector["output"]

    def test_nested_scope_and_timing_keys(self, recorder: Recorder, taken: Taken) -> None:
        """We differ: a named tracker's name leads its timings, so that two trackers' do not collide."""
        given_ = VECTORS["nested_scope_and_timing_keys"]["input"]
        tracker = Tracker(given_["tracker"], recorder)
        outer, inner = given_["scopes"]
        with tracker.scope(outer), tracker.scope(inner):
            tracker.scalar(**{given_["scalar"]: 1.0})
            with tracker.record_timing(given_["record_timing"]):
                pass
        areal = VECTORS["nested_scope_and_timing_keys"]["output"]
        assert sorted(taken(tracker)) == sorted(
            f"rollout/{key}" if key.startswith("timeperf/") else key for key in areal
        )

    @pytest.mark.parametrize("case", ["nan_masked", "nan_valid", "pos_inf_valid", "neg_inf_valid"])
    def test_nonfinite(self, tracker: Tracker, taken: Taken, case: str) -> None:
        """We differ: an infinite extreme is shown, where AReaL drops its key; and non-finite values are counted."""
        values, mask = VECTORS["nonfinite"]["input"]["cases"][case]
        tracker.denominator(m=torch.tensor(mask, dtype=torch.bool))
        tracker.stat(x=[float(value) for value in values], denominator="m")
        ours = {
            "nan_masked": {},
            "nan_valid": {"x/nonfinite": 1.0},
            "pos_inf_valid": {"x/max": INF, "x/nonfinite": 1.0},
            "neg_inf_valid": {"x/min": -INF, "x/nonfinite": 1.0},
        }[case]
        areal = {key: float(value) for key, value in VECTORS["nonfinite"]["output"][case].items()}
        assert not ours.keys() & areal.keys()
        assert same(taken(), {**areal, **ours})

    def test_positional_pairing_pitfall(self, tracker: Tracker, taken: Taken) -> None:
        """We differ: a value has the mask that it was given with, and none is dropped."""
        tracker.denominator(m=[True, False])
        tracker.denominator(m=[False, True])
        tracker.stat(x=[1.0, 2.0], denominator="m")
        areal = VECTORS["positional_pairing_pitfall"]["output"]
        assert areal["stat_only_in_2nd_batch"]["x/avg"] == 1.0
        assert taken() == {"m": 2.0, "x/avg": 2.0, "x/min": 2.0, "x/max": 2.0}

        tracker.denominator(m=[True, True])
        tracker.stat(x=[1.0, 2.0], denominator="m")
        tracker.stat(x=[10.0, 20.0], denominator="m")
        assert areal["two_stats_one_denominator"]["x/max"] == 2.0
        assert taken() == {"m": 2.0, "x/avg": 8.25, "x/min": 1.0, "x/max": 20.0}


class TestPublicFaults:
    def test_megatron_lm_4896_mean_of_per_rank_ratios(self, tracker: Tracker, taken: Taken) -> None:
        tracker.weighted_mean("x", 10 / 1, 1)
        tracker.weighted_mean("x", 10 / 9, 9)
        tracker.stat(y=[10.0], reduce_type="avg")
        tracker.stat(y=[10 / 9] * 9, reduce_type="avg")
        found = taken()
        assert found["x"] == pytest.approx(2.0)
        assert found["y"] == pytest.approx(2.0)

    def test_nemo_rl_230_fully_masked_micro_batch_counts_as_nothing(self, tracker: Tracker, taken: Taken) -> None:
        tracker.stat(x=[7.0, 7.0], mask=[False, False])
        tracker.stat(x=[3.0, 5.0], mask=[True, True])
        assert taken()["x/avg"] == 4.0
        tracker.stat(x=[7.0, 7.0], mask=[False, False])
        assert taken() == {}

    def test_verl_1508_plain_mean_over_unequal_parts(self, tracker: Tracker, taken: Taken) -> None:
        tracker.scalar({"acc": 0.8}, weight=100)
        tracker.scalar({"acc": 0.6}, weight=200)
        assert taken()["acc"] == pytest.approx(2 / 3)

    def test_isaac_lab_2977_a_stale_episode_log_is_not_recounted(self, tracker: Tracker, taken: Taken) -> None:
        counted = 0.0
        for step in range(7):
            if step == 3:
                tracker.count(terminations=1)
            counted += taken().get("terminations", 0.0)
        assert counted == 1.0

    def test_transformers_35204_accumulation_inflates_and_nan_is_filtered(self, tracker: Tracker, taken: Taken) -> None:
        tracker.scalar(loss=1.0)
        tracker.scalar(loss=1.0)
        assert taken()["loss"] == 1.0
        tracker.scalar(loss=1.0)
        tracker.scalar(loss=NAN)
        assert same(taken(), {"loss": NAN, "loss__count": 2, "loss/nonfinite": 1.0})

    def test_opentelemetry_python_5330_a_nan_gauge_does_not_keep_its_old_value(
        self, tracker: Tracker, taken: Taken
    ) -> None:
        tracker.gauge(x=1.25)
        tracker.gauge(x=NAN)
        assert same(taken(), {"x": NAN, "x/nonfinite": 1.0})
        tracker.stat(s=[1.0, NAN], reduce_type="sum")
        taken()
        tracker.stat(s=[1.0], reduce_type="sum")  # and does not poison what comes after it
        assert taken() == {"s": 1.0}

    def test_trl_7310_a_metric_of_one_place_only(self, tracker: Tracker, taken: Taken) -> None:
        tracker.absorb({"a": State(SCALAR, (6.0, 3.0, 0.0, 0.0, 0.0, 0.0, 0.0))}, Sent("one"))
        tracker.absorb({}, Sent("other"))
        assert taken() == {"a": 2.0, "a__count": 3}

    def test_verl_119_984_names_that_backends_reject_are_kept(self, tracker: Tracker, taken: Taken) -> None:
        tracker.scalar({"timing(s)/gen": 1.0, "mean@1": 2.0, "pass@1": 3.0, "Größe %": 4.0})
        assert {"timing(s)/gen", "mean@1", "pass@1", "Größe %"} <= taken().keys()

    def test_opentelemetry_python_3928_keys_that_differ_stay_apart(self, tracker: Tracker, taken: Taken) -> None:
        tracker.gauge({"a.b": 1.0, "a_b": 2.0, "a/b": 3.0, "A_b": 4.0})
        assert taken() == {"a.b": 1.0, "a_b": 2.0, "a/b": 3.0, "A_b": 4.0}

    def test_vllm_39906_a_second_instance_of_a_tracker(self, recorder: Recorder, taken: Taken) -> None:
        kinds = Kinds()
        first, second = Tracker("x", recorder, kinds), Tracker("x", recorder, kinds)
        first.scalar(a=1.0)
        second.scalar(a=3.0)
        assert taken(first)["x/a"] == 1.0
        assert taken(second)["x/a"] == 3.0
