from __future__ import annotations

import copy
import json
import math
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from rltel.core.errors import PayloadError
from rltel.record.kinds import KINDS, Moments, State
from rltel.record.phase_sets import phase_set
from rltel.record.phases import PhaseClock
from rltel.record.recorder import Recorder
from rltel.reduce.snapshot import Metric, Snapshot
from rltel.reduce.trackers import Trackers
from rltel.reduce.workers import (
    LARGEST_COUNT,
    VERSION,
    Payload,
    Receiver,
    Sender,
    _Numbers,
    plain_metric,
    read_metric,
    read_payload,
)

NAN, INF = math.nan, math.inf

VECTORS = {
    vector["id"]: vector
    for vector in json.loads((Path(__file__).parents[1] / "vectors" / "areal_vectors.json").read_text())["vectors"]
}

TRIPS: dict[str, Callable[[Any], Any]] = {
    "json": lambda payload: json.loads(json.dumps(payload, allow_nan=False)),
    "msgspec-json": lambda payload: msgspec.json.decode(msgspec.json.encode(payload)),
    "msgpack": lambda payload: msgspec.msgpack.decode(msgspec.msgpack.encode(payload)),
    "pickle": lambda payload: pickle.loads(pickle.dumps(payload)),
}


class Worker:
    """A process that records and sends."""

    def __init__(self, name: str | None = None) -> None:
        self.trackers = Trackers(Recorder())
        self.tracker = self.trackers.default
        self.sender = Sender(name)

    def payload(self) -> Payload:
        with self.trackers.taken() as snapshot:
            return self.sender.payload(snapshot)


class Learner:
    """A process that absorbs."""

    def __init__(self) -> None:
        self.trackers = Trackers(Recorder())
        self.receiver = Receiver(self.trackers)

    def absorb(self, *payloads: Any) -> list[bool]:
        return [self.receiver.absorb(payload) for payload in payloads]

    def export(self) -> dict[str, float]:
        return dict(self.trackers.export_all())


def record_everything(trackers: Trackers, values: list[float]) -> None:
    for tracker in (trackers.default, trackers.get("rollout")):
        for value in values:
            tracker.scalar(s=value)
            tracker.weighted_mean("w", value, 0.5)
            for ranks in ("mean", "sum", "min", "max", "writer"):
                tracker.gauge({f"g_{ranks}": value}, ranks=ranks)
        tracker.count(c=len(values))
        tracker.elapsed(e=len(values))
        for kind in ("avg_min_max", "avg", "sum", "min", "max"):
            tracker.stat({kind: values}, reduce_type=kind)
        tracker.stat(nothing=[])
        tracker.distribution(d=values)
        with tracker.record_timing("t"):
            pass
        tracker.timing_appender("phase_s", KINDS["phase_s"])(5)
        tracker.timing_appender("phase_ms", KINDS["phase_ms"])(5)


def same(found: dict[str, float], expected: dict[str, float]) -> bool:
    return found.keys() == expected.keys() and all(
        found[key] == expected[key] or (math.isnan(found[key]) and math.isnan(expected[key])) for key in found
    )


class TestRoundTrips:
    @pytest.mark.parametrize("trip", TRIPS.values(), ids=TRIPS)
    @pytest.mark.parametrize("values", [[1.0, -2.5, 0.1], [NAN, 1.0], [INF, -INF], [0.0]], ids=str)
    def test_are_exact(self, trip: Callable[[Any], Any], values: list[float]) -> None:
        worker = Worker()
        record_everything(worker.trackers, values)
        snapshot = worker.trackers.export_all(reset=False).snapshot
        assert {metric.state.kind.name for metric in snapshot.values()} == KINDS.keys() - {"expert_loads"}
        again = read_payload(trip(worker.payload()))
        assert list(again) == list(snapshot)
        for key, metric in snapshot.items():
            assert again[key].state.kind is metric.state.kind
            assert again[key].state.moments == metric.state.moments
            assert again[key].state.buckets == metric.state.buckets
            assert again[key][1:] == metric[1:]

    @pytest.mark.parametrize("trip", TRIPS.values(), ids=TRIPS)
    def test_absorbed_it_is_as_if_recorded_here(self, trip: Callable[[Any], Any]) -> None:
        worker, learner = Worker(), Learner()
        record_everything(worker.trackers, [1.0, NAN, 3.0])
        expected = dict(worker.trackers.export_all(reset=False))
        assert learner.absorb(trip(worker.payload())) == [True]
        assert {tracker.name for tracker in learner.trackers.all()} == {"", "rollout"}
        assert same(learner.export(), expected)
        assert learner.export() == {}

    def test_are_plain_data(self) -> None:
        worker = Worker("w")
        record_everything(worker.trackers, [np.float64(1.5)])

        def check(value: Any) -> None:
            assert type(value) in (dict, list, str, int, float, bool, type(None))
            for part in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
                check(part)

        payload = worker.payload()
        check(payload)
        assert payload["rltel"] == VERSION
        assert payload["worker"] == "w"

    def test_are_numbered(self) -> None:
        worker = Worker()
        payloads = [worker.payload() for _ in range(3)]
        assert [payload["number"] for payload in payloads] == [0, 1, 2]
        assert len({payload["incarnation"] for payload in payloads}) == 1
        assert Worker("w").payload()["incarnation"] != Worker("w").payload()["incarnation"]
        assert Worker().payload()["worker"] != Worker().payload()["worker"]

    @pytest.mark.filterwarnings("ignore:overflow encountered")
    def test_a_sum_that_float64_cannot_hold_stays_visible(self) -> None:
        worker, learner = Worker(), Learner()
        worker.tracker.stat(x=[1e308, 1e308], reduce_type="avg")
        payload = TRIPS["json"](worker.payload())
        learner.absorb(payload)
        assert math.isnan(learner.export()["x"])

    def test_a_reduced_metric_says_so(self) -> None:
        plain = plain_metric(Metric(State(KINDS["sum"], Moments(1.0)), "t", reduced=True))
        assert plain == {"kind": "sum", "state": [1.0, 0.0, 0.0, 0.0], "tracker": "t", "reduced": True}
        assert read_metric("t/x", plain).reduced


class TestOnce:
    def test_a_repeat_counts_once(self) -> None:
        worker, learner = Worker(), Learner()
        worker.tracker.scalar(x=1.0)
        payload = worker.payload()
        assert learner.absorb(payload, payload, copy.deepcopy(payload)) == [True, False, False]
        assert learner.export() == {"x": 1.0, "x__count": 1}
        assert learner.absorb(payload) == [False]  # nor after an export
        assert learner.export() == {}

    def test_out_of_order_all_count(self) -> None:
        worker, learner = Worker(), Learner()
        payloads = []
        for value in range(6):
            worker.tracker.scalar(x=float(value))
            payloads.append(worker.payload())
        order = [3, 0, 3, 5, 4, 1, 0, 2, 5]
        assert learner.absorb(*(payloads[i] for i in order)) == [
            True, True, False, True, True, True, False, True, False,
        ]  # fmt: skip
        assert learner.export() == {"x": 2.5, "x__count": 6}

    def test_of_two_workers_both_count(self) -> None:
        learner = Learner()
        for name in ("a", "b", "a"):  # the third is a restart of the first
            worker = Worker(name)
            worker.tracker.scalar(x=1.0)
            assert learner.absorb(worker.payload()) == [True]
        assert learner.export()["x__count"] == 3

    def test_names_with_slashes_are_told_apart(self) -> None:
        learner = Learner()
        worker = Worker("a")
        first, second = worker.payload(), worker.payload()
        first.update(worker="a/b", incarnation="c", number=0)
        second.update(worker="a", incarnation="b/c", number=0)
        assert learner.absorb(first, second) == [True, True]

    def test_one_that_was_refused_may_come_again(self) -> None:
        worker, learner = Worker(), Learner()
        worker.tracker.scalar(x=1.0)
        payload = worker.payload()
        broken = copy.deepcopy(payload)
        broken["metrics"]["x"]["state"][0] = "1.0"
        with pytest.raises(PayloadError):
            learner.absorb(broken)
        assert learner.absorb(payload) == [True]

    @given(st.lists(st.integers(0, 30), max_size=60))
    def test_numbers_are_remembered_exactly(self, numbers: list[int]) -> None:
        remembered, seen = _Numbers(), set()
        for number in numbers:
            assert (number in remembered) is (number in seen)
            if number not in seen:
                seen.add(number)
                remembered.add(number)
        assert all((number in remembered) is (number in seen) for number in range(32))

    def test_lost_payloads_do_not_make_memory_grow(self) -> None:
        remembered = _Numbers()
        for number in range(10_000):
            if number not in (3, 5000):
                remembered.add(number)
        assert len(remembered._starts) == 3
        remembered.add(5000)
        remembered.add(3)
        assert (remembered._starts, remembered._ends) == ([0], [10_000])


class TestGauges:
    @pytest.mark.parametrize(("ranks", "expected"), [("mean", 4.0), ("sum", 8.0), ("min", 1.0), ("max", 7.0)])
    def test_of_each_worker_the_last(self, ranks: str, expected: float) -> None:
        learner = Learner()
        workers = [Worker("a"), Worker("b")]
        for a, b in ((100.0, -100.0), (1.0, 7.0)):
            for worker, value in zip(workers, (a, b), strict=True):
                worker.tracker.gauge({"g": value}, ranks=ranks)
                learner.absorb(worker.payload())
        assert learner.export() == {"g": expected}

    def test_with_ones_own(self) -> None:
        learner, worker = Learner(), Worker()
        learner.trackers.default.gauge({"g": 1.0}, ranks="sum")
        worker.tracker.gauge({"g": 2.0}, ranks="sum")
        learner.absorb(worker.payload())
        learner.trackers.default.gauge({"g": 3.0}, ranks="sum")  # replaces one's own only
        assert learner.export() == {"g": 5.0}

    def test_overtaken_on_the_way_is_not_the_last(self) -> None:
        learner, worker = Learner(), Worker()
        payloads = []
        for value in (1.0, 2.0):
            worker.tracker.gauge(g=value)
            worker.tracker.count(c=1)
            payloads.append(worker.payload())
        learner.absorb(*reversed(payloads))
        assert learner.export() == {"g": 2.0, "c": 2.0}

    def test_of_a_restarted_worker_replace_its_earlier_ones(self) -> None:
        learner = Learner()
        for value in (5.0, 1.0):
            worker = Worker("a")
            worker.tracker.gauge({"g": value}, ranks="sum")
            learner.absorb(worker.payload())
        assert learner.export() == {"g": 1.0}

    def test_are_not_counted_twice_when_an_export_fails(self) -> None:
        learner, worker = Learner(), Worker()
        for value in (1.0, 2.0):
            worker.tracker.gauge({"g": value}, ranks="sum")
            learner.absorb(worker.payload())
            with pytest.raises(KeyError), learner.trackers.taken():
                raise KeyError
        assert learner.export() == {"g": 2.0}

    def test_nan_of_one_worker_shows(self) -> None:
        learner = Learner()
        for name, value in (("a", 1.0), ("b", NAN)):
            worker = Worker(name)
            worker.tracker.gauge(g=value)
            learner.absorb(worker.payload())
        assert same(learner.export(), {"g": NAN, "g/nonfinite": 1.0})


class TestConflicts:
    def test_with_a_kind_here_change_nothing(self) -> None:
        worker, learner = Worker(), Learner()
        worker.trackers.get("first").scalar(a=1.0)
        worker.tracker.scalar(b=1.0)
        worker.tracker.scalar(x=1.0)
        learner.trackers.default.gauge(x=1.0)
        learner.export()
        with pytest.raises(PayloadError, match=f"payload of worker {worker.sender.worker}: x: recorded as gauge_mean "):
            learner.absorb(worker.payload())
        assert learner.export() == {}
        assert [tracker.name for tracker in learner.trackers.all()] == [""]
        learner.trackers.default.gauge({"first/a": 1.0, "b": 2.0})  # they have no kind
        assert learner.export() == {"first/a": 1.0, "b": 2.0}

    def test_with_a_tracker_here_that_has_the_key_change_nothing(self) -> None:
        worker, learner = Worker(), Learner()
        worker.tracker.scalar({"rollout/x": 1.0})
        learner.trackers.get("rollout").gauge(x=1.0)
        with pytest.raises(PayloadError, match="rollout/x"):
            learner.absorb(worker.payload())
        assert learner.export() == {"rollout/x": 1.0}


# --- any split gives the same ----------------------------------------------------------------------------------------


@settings(max_examples=60)
@given(
    st.lists(st.floats(-1e6, 1e6) | st.sampled_from([NAN, INF, -INF]), min_size=1, max_size=30),
    st.data(),
)
def test_any_split_over_workers_and_payloads_gives_the_same(values: list[float], data: st.DataObject) -> None:
    """Counts, extremes and buckets: exactly. Sums: to within float64 rounding, 1e-12 of the sum of magnitudes."""
    owners = data.draw(st.lists(st.integers(0, 2), min_size=len(values), max_size=len(values)))
    mask = data.draw(st.lists(st.booleans(), min_size=len(values), max_size=len(values)))
    whole, learner, workers = Worker(), Learner(), [Worker() for _ in range(3)]
    payloads: list[Payload] = []

    def record(to: Worker, part: list[float], part_mask: list[bool]) -> None:
        to.tracker.denominator(n=np.array(part_mask, bool))
        to.tracker.stat({"x": part}, denominator="n")
        to.tracker.stat({"sum": part}, denominator="n", reduce_type="sum")
        to.tracker.distribution({"d": part}, denominator="n")
        for value in part:
            to.tracker.scalar(s=value)
            to.tracker.weighted_mean("w", value, 2.0)
        to.tracker.count(c=len(part))

    record(whole, values, mask)
    for value, owner, valid in zip(values, owners, mask, strict=True):
        record(workers[owner], [value], [valid])
        if data.draw(st.booleans()):
            payloads.append(TRIPS["json"](workers[owner].payload()))
    payloads += [worker.payload() for worker in workers]
    learner.absorb(*data.draw(st.permutations(payloads)))

    expected, found = (each.trackers.export_all().snapshot for each in (whole, learner))
    assert found.keys() == expected.keys()
    tolerance = 1e-12 * sum(abs(value) for value in values if math.isfinite(value))
    for key, metric in expected.items():
        state = found[key].state
        assert state.moments[1:] == metric.state.moments[1:]
        assert state.moments[0] == pytest.approx(metric.state.moments[0], rel=0, abs=2 * tolerance)
        assert state.buckets == metric.state.buckets


class TestArealVectorsOfTwoRanks:
    """What AReaL reduces over two gloo ranks; here each rank is a worker, and its payload is absorbed."""

    def reduced(self, record: Callable[[Any, Any], None], ranks: list[Any]) -> dict[str, float]:
        learner = Learner()
        for rank in ranks:
            worker = Worker()
            record(worker.tracker, rank)
            learner.absorb(TRIPS["json"](worker.payload()))
        return learner.export()

    def test_avg_min_max_two_ranks_unequal_masks(self) -> None:
        vector = VECTORS["avg_min_max_two_ranks_unequal_masks"]

        def record(tracker: Any, rank: Any) -> None:
            tracker.denominator(m=np.array(rank["mask"], bool))
            tracker.stat(x=rank["x"], denominator="m")

        assert self.reduced(record, list(vector["input"].values())) == vector["output"]

    def test_avg_sum_min_max_two_ranks(self) -> None:
        """We differ: in float64, two thirds are two thirds."""
        vector = VECTORS["avg_sum_min_max_two_ranks"]

        def record(tracker: Any, rank: Any) -> None:
            tracker.denominator(m=np.array(rank["mask"], bool))
            for name, kind in vector["input"]["reduce"].items():
                tracker.stat({name: rank["v"]}, denominator="m", reduce_type=kind)

        found = self.reduced(record, [vector["input"]["rank0"], vector["input"]["rank1"]])
        assert found == {**vector["output"], "avg": 2 / 3}
        assert vector["output"]["avg"] == pytest.approx(2 / 3, rel=1e-7)

    def test_scalar_count_two_ranks(self) -> None:
        vector = VECTORS["scalar_count_two_ranks"]

        def record(tracker: Any, rank: Any) -> None:
            for value in rank:
                tracker.scalar(a=value)

        assert self.reduced(record, list(vector["input"].values())) == vector["output"]


class TestPublicFaults:
    def test_verl_1508_plain_mean_across_ranks(self) -> None:
        learner = Learner()
        for value, count in ((0.8, 100), (0.6, 200)):
            worker = Worker()
            for _ in range(count):
                worker.tracker.scalar(acc=value)
            learner.absorb(worker.payload())
        assert learner.export()["acc"] == pytest.approx(2 / 3)

    def test_trl_7310_a_metric_on_one_rank_only(self) -> None:
        learner, empty, full = Learner(), Worker(), Worker()
        for value in (1.0, 2.0, 6.0):
            full.tracker.scalar(a=value)
        learner.absorb(full.payload(), empty.payload())
        assert learner.export() == {"a": 3.0, "a__count": 3}

    def test_nemo_rl_230_a_worker_whose_batch_is_fully_masked(self) -> None:
        learner, masked, valid = Learner(), Worker(), Worker()
        masked.tracker.stat(x=[9.0], mask=[False])
        valid.tracker.stat(x=[3.0, 5.0], mask=[True, True])
        learner.absorb(masked.payload())
        assert learner.export() == {}
        masked.tracker.stat(x=[9.0], mask=[False])
        learner.absorb(masked.payload(), valid.payload())
        assert learner.export()["x/avg"] == 4.0


# --- another process's words -----------------------------------------------------------------------------------------


def good() -> Payload:
    worker = Worker("w")
    record_everything(worker.trackers, [1.0, 2.0])
    return worker.payload()


def nested(depth: int) -> Any:
    value: Any = []
    for _ in range(depth):
        value = [value]
    return value


SCALAR_STATE = [3.0, 2.0, 0.0, 0.0, 0.0]
AMM_STATE = [3.0, 2.0, 0.0, 0.0, 0.0, 1.0, 2.0]

BROKEN_METRICS: dict[str, Any] = {
    "no mapping": [1, 2],
    "nothing": {},
    "unknown kind": {"kind": "mean", "state": SCALAR_STATE},
    "kind that is no text": {"kind": ["scalar"], "state": SCALAR_STATE},
    "no state": {"kind": "scalar"},
    "state too short": {"kind": "scalar", "state": SCALAR_STATE[:-1]},
    "state too long": {"kind": "scalar", "state": [*SCALAR_STATE, 0.0]},
    "state that is text": {"kind": "scalar", "state": "12345"},
    "text in the state": {"kind": "scalar", "state": ["3.0", *SCALAR_STATE[1:]]},
    "NaN in the state": {"kind": "scalar", "state": [NAN, *SCALAR_STATE[1:]]},
    "infinity in the state": {"kind": "scalar", "state": [INF, *SCALAR_STATE[1:]]},
    "a huge whole number": {"kind": "scalar", "state": [10**400, *SCALAR_STATE[1:]]},
    "a truth value": {"kind": "scalar", "state": [True, *SCALAR_STATE[1:]]},
    "a negative count": {"kind": "scalar", "state": [3.0, -2.0, 0.0, 0.0, 0.0]},
    "a count of null": {"kind": "scalar", "state": [3.0, None, 0.0, 0.0, 0.0]},
    "a negative number of NaN": {"kind": "scalar", "state": [3.0, 2.0, -1.0, 0.0, 0.0]},
    "a sum of nothing": {"kind": "scalar", "state": [3.0, 0.0, 0.0, 0.0, 0.0]},
    "extremes of nothing": {"kind": "avg_min_max", "state": [0.0, 0.0, 0.0, 0.0, 0.0, 1.0, 2.0]},
    "no minimum of something": {"kind": "avg_min_max", "state": [3.0, 2.0, 0.0, 0.0, 0.0, None, 2.0]},
    "no maximum of something": {"kind": "avg_min_max", "state": [3.0, 2.0, 0.0, 0.0, 0.0, 1.0, None]},
    "a minimum above the maximum": {"kind": "avg_min_max", "state": [3.0, 2.0, 0.0, 0.0, 0.0, 2.0, 1.0]},
    "a falling counter": {"kind": "counter", "state": [-1.0]},
    "buckets of a scalar": {"kind": "scalar", "state": SCALAR_STATE, "buckets": [[0, 2.0]]},
    "no buckets of a histogram": {"kind": "histogram", "state": AMM_STATE},
    "buckets of too few": {"kind": "histogram", "state": AMM_STATE, "buckets": [[640, 1.0]]},
    "buckets twice": {"kind": "histogram", "state": AMM_STATE, "buckets": [[640, 1.0], [640, 2.0]]},
    "a bucket outside": {"kind": "histogram", "state": AMM_STATE, "buckets": [[1026, 2.0]]},
    "a bucket of a fraction": {"kind": "histogram", "state": AMM_STATE, "buckets": [[640.0, 2.0]]},
    "a bucket of a truth value": {"kind": "histogram", "state": AMM_STATE, "buckets": [[True, 2.0]]},
    "a negative bucket": {"kind": "histogram", "state": AMM_STATE, "buckets": [[640, 3.0], [641, -1.0]]},
    "a huge bucket": {"kind": "histogram", "state": AMM_STATE, "buckets": [[640, 10**400]]},
    "a bucket of NaN": {"kind": "histogram", "state": AMM_STATE, "buckets": [[640, NAN]]},
    "buckets that are a number": {"kind": "histogram", "state": AMM_STATE, "buckets": 3},
    "buckets that are text": {"kind": "histogram", "state": AMM_STATE, "buckets": "abcd"},
    "buckets that are null": {"kind": "histogram", "state": AMM_STATE, "buckets": None},
    "buckets that are deep": {"kind": "histogram", "state": AMM_STATE, "buckets": nested(5000)},
    "a tracker that is no text": {"kind": "scalar", "state": SCALAR_STATE, "tracker": 3},
    "a tracker that does not lead the key": {"kind": "scalar", "state": SCALAR_STATE, "tracker": "other"},
    "reduced that is no truth value": {"kind": "scalar", "state": SCALAR_STATE, "reduced": "yes"},
    "depth": nested(5000),
}

BROKEN_PAYLOADS: dict[str, Any] = {
    "nothing": None,
    "a list": [],
    "text": "payload",
    "an empty mapping": {},
    "no version": {"rltel": None},
    "another version": {"rltel": VERSION + 1},
    "a version that is a truth value": {"rltel": True},
    "a version that is a fraction": {"rltel": float(VERSION)},
    "no worker": {"worker": None},
    "a worker that is a number": {"worker": 3},
    "no incarnation": {"incarnation": None},
    "a negative number": {"number": -1},
    "a number that is a truth value": {"number": True},
    "a number that is a fraction": {"number": 1.0},
    "a number without end": {"number": 10**400},
    "another layout": {"buckets": "b32"},
    "no layout": {"buckets": None},
    "metrics that are a list": {"metrics": []},
    "metrics that are null": {"metrics": None},
    "an empty key": {"metrics": {"": {"kind": "scalar", "state": SCALAR_STATE}}},
    "a key of slashes": {"metrics": {"//": {"kind": "scalar", "state": SCALAR_STATE}}},
    "a key that is a number": {"metrics": {3: {"kind": "scalar", "state": SCALAR_STATE}}},
    "a key that no file can hold": {"metrics": {"\ud800": {"kind": "scalar", "state": SCALAR_STATE}}},
    **{f"a metric with {what}": {"metrics": {"good": {"kind": "scalar", "state": SCALAR_STATE}, "bad": metric}}
       for what, metric in BROKEN_METRICS.items()},
}  # fmt: skip


def check_refused(payload: Any) -> None:
    """It raises, briefly, and changes nothing: no number, no tracker, no key's kind, no memory of its number."""
    learner = Learner()
    learner.trackers.default.scalar(here=1.0)
    with pytest.raises(PayloadError) as caught:
        learner.absorb(payload)
    assert len(str(caught.value)) < 500
    assert learner.export() == {"here": 1.0, "here__count": 1}
    assert [tracker.name for tracker in learner.trackers.all()] == [""]
    assert not learner.trackers._kinds._by_key.keys() - {"here"}
    assert not learner.receiver._seen


@pytest.mark.parametrize("what", BROKEN_PAYLOADS.values(), ids=BROKEN_PAYLOADS)
def test_a_broken_payload_is_refused_whole(what: Any) -> None:
    valid = {**good(), "metrics": {"good": {"kind": "scalar", "state": SCALAR_STATE}}}
    read_payload(valid)
    check_refused({**valid, **what} if isinstance(what, dict) and what else what)


def test_an_error_says_what_was_given_and_needed() -> None:
    payload = good()
    payload["metrics"] = {"x": {"kind": "scalar", "state": [1.0, "many", 0.0, 0.0, 0.0]}}
    with pytest.raises(PayloadError, match=r"payload: x: count: expected a finite number, got 'many'"):
        read_payload(payload)


def test_counts_may_be_as_large_as_counting_goes() -> None:
    plain = {"kind": "scalar", "state": [1.0, LARGEST_COUNT, 0.0, 0.0, 0.0]}
    assert read_metric("x", plain).state.moments[1] == LARGEST_COUNT


anything = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.sampled_from([10**400, -(10**400), NAN, INF, -INF, -0.0, 1e308, 2**63, "\ud800", b"x"])
    | st.floats()
    | st.text(max_size=5),
    lambda children: st.lists(children, max_size=4) | st.dictionaries(st.text(max_size=5), children, max_size=4),
    max_leaves=8,
)


@given(anything)
def test_anything_that_is_no_payload_is_refused(payload: Any) -> None:
    check_refused(payload)


@given(anything)
def test_anything_that_is_no_metric_is_refused(metric: Any) -> None:
    check_refused({**good(), "metrics": {"x": metric}})


@given(
    st.dictionaries(
        st.sampled_from(["rltel", "worker", "incarnation", "number", "buckets", "metrics"]), anything, min_size=1
    )
)
def test_a_payload_with_anything_in_its_frame_is_refused_or_harmless(parts: dict[str, Any]) -> None:
    check_refused_or_harmless({**good(), **parts})


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    parts = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(place for key, part in parts for place in places(part, (*path, key)))]


GOOD = good()
PLACES = [place for place in places(GOOD) if place]


@settings(max_examples=400, suppress_health_check=[HealthCheck.too_slow])
@given(st.sampled_from(PLACES), st.sampled_from(["replace", "delete", "double"]), anything)
def test_a_payload_that_was_tampered_with_is_refused_or_harmless(place: tuple[Any, ...], how: str, by: Any) -> None:
    payload = copy.deepcopy(GOOD)
    *way, last = place
    parent = payload
    for key in way:
        parent = parent[key]
    if how == "replace":
        parent[last] = by
    elif how == "delete":
        del parent[last]
    else:
        assume(isinstance(parent, list))
        parent.append(parent[last])
    check_refused_or_harmless(payload)


def check_refused_or_harmless(payload: Any) -> None:
    """Either refused whole, or what it says can be true: then it is exported, written and read back like any other."""
    learner = Learner()
    try:
        learner.absorb(payload)
    except PayloadError:
        check_refused(payload)
        return
    snapshot = learner.trackers.export_all(reset=False).snapshot
    assert all(isinstance(value, int | float) for value in snapshot.flat().values())
    sent = msgspec.json.decode(msgspec.json.encode(Sender().payload(snapshot)))
    assert same(read_payload(sent).flat(), snapshot.flat())
    other = Worker()
    record_everything(other.trackers, [3.0])
    try:
        learner.absorb(other.payload())
    except PayloadError:  # a key had another kind
        assert same(learner.export(), snapshot.flat())
    else:
        learner.export()


def test_the_snapshot_of_no_metrics_is_empty() -> None:
    assert read_payload(Worker().payload()) == Snapshot()


def test_what_can_be_recorded_can_be_read_back() -> None:
    """A weight may be larger than any count, and a counter's sum larger than float64: both are legal to record."""
    trackers = Trackers(Recorder())
    trackers.default.weighted_mean("w", 2.0, 1e17)
    for _ in range(2):
        trackers.default.count(c=1.5e308)
    with trackers.taken() as snapshot:
        payload = Sender().payload(snapshot)
    found = read_payload(payload).flat()
    assert found["w"] == 2.0
    assert math.isnan(found["c"])  # too large: that stays visible


def test_a_gauge_that_comes_late_does_not_replace_a_later_one_that_was_exported() -> None:
    worker, learner = Trackers(Recorder()), Trackers(Recorder())
    sender, receiver = Sender(), Receiver(learner)
    payloads = []
    for value in (1.0, 2.0):
        worker.default.gauge(v=value)
        worker.default.count(n=1)
        with worker.taken() as snapshot:
            payloads.append(sender.payload(snapshot))
    receiver.absorb(payloads[1])
    assert learner.export_all() == {"v": 2.0, "n": 1.0}
    receiver.absorb(payloads[0])
    assert learner.export_all() == {"n": 1.0}


def test_phases_of_one_name_in_two_roles_are_told_apart_by_the_role() -> None:
    """What a new user does: both the learner and its collector have a phase "publish"."""
    here, there = Trackers(Recorder()), Trackers(Recorder())
    for trackers, role, times in ((here, "learner", 1), (there, "collector", 2)):
        clock = PhaseClock(phase_set(["publish"], role), trackers.default, Recorder())
        for _ in range(times):
            with clock.iteration(), clock.phase("publish"):
                pass
    with there.taken() as snapshot:
        payload = Sender().payload(snapshot)
    assert Receiver(here).absorb(payload)
    stats = here.export_all()
    assert stats["timeperf/publish__count"] == 1
    assert stats["timeperf/collector/publish__count"] == 2
    assert stats["timeperf/cycle__count"] == 2, "a key that only one of them has stays as it is"
