"""Time adds up within a process, and of several processes the longest counts: through every way that numbers merge."""

import math
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rltel.core.errors import RecordError, RltelError
from rltel.record.recorder import Recorder
from rltel.reduce.trackers import Trackers
from rltel.reduce.workers import Receiver, Sender, merge_payloads

TIMES = st.lists(st.integers(0, 1000).map(float), max_size=8)


@pytest.fixture
def trackers() -> Trackers:
    return Trackers(Recorder())


def payloads(sender: Sender, intervals: Sequence[Sequence[float]]) -> list[dict[str, Any]]:
    """What a worker sends that spent these times, a payload for each interval."""
    worker, sent = Trackers(Recorder()), []
    for interval in intervals:
        for seconds in interval:
            worker.default.elapsed(busy=seconds)
        with worker.taken() as snapshot:
            sent.append(sender.payload(snapshot))
    return sent


def test_it_adds_up_until_it_is_exported(trackers: Trackers) -> None:
    trackers.default.elapsed(busy=2)
    trackers.default.elapsed({"busy": 3.0})
    assert trackers.export_all() == {"busy": 5.0}
    trackers.default.elapsed(busy=1.0)
    assert trackers.export_all() == {"busy": 1.0}
    assert trackers.export_all() == {}


@given(first=TIMES, second=TIMES)
def test_a_failed_export_is_added_to_what_came_since(first: list[float], second: list[float]) -> None:
    trackers = Trackers(Recorder())
    for seconds in first:
        trackers.default.elapsed(busy=seconds)
    with pytest.raises(RltelError):
        trackers.export_all(object())
    trackers.export_all(reset=False)
    for seconds in second:
        trackers.default.elapsed(busy=seconds)
    assert trackers.export_all() == ({"busy": sum(first) + sum(second)} if first or second else {})


@given(workers=st.lists(st.lists(TIMES, max_size=3), min_size=1, max_size=4), order=st.randoms())
def test_of_each_worker_all_payloads_and_of_workers_the_longest(workers: list[list[list[float]]], order: Any) -> None:
    sent = [payload for intervals in workers for payload in payloads(Sender(), intervals)]
    order.shuffle(sent)
    spent = [sum(seconds for interval in intervals for seconds in interval) for intervals in workers]
    found = merge_payloads([*sent, *sent])  # each delivered twice
    assert found.get("busy", 0.0) == max(spent)


def test_what_workers_sent_survives_a_failed_export(trackers: Trackers) -> None:
    receiver, sender = Receiver(trackers), Sender()
    first, second = payloads(sender, [[2.0], [3.0]])
    receiver.absorb(first)
    with pytest.raises(RltelError):
        trackers.export_all(object())
    receiver.absorb(second)
    trackers.default.elapsed(busy=4.0)
    assert trackers.export_all() == {"busy": 5.0}


def test_a_second_consumer_has_all_of_its_own_interval(trackers: Trackers) -> None:
    trackers.add_reader("panel")
    trackers.default.elapsed(busy=2.0)
    assert trackers.export_all() == {"busy": 2.0}
    trackers.default.elapsed(busy=3.0)
    assert trackers.export_all() == {"busy": 3.0}
    trackers.default.elapsed(busy=4.0)
    assert trackers.export_all(reader="panel") == {"busy": 9.0}
    assert trackers.export_all() == {"busy": 4.0}


@pytest.mark.parametrize("seconds", [-1.0, math.nan, math.inf, "x", None])
def test_what_is_no_time_is_refused(trackers: Trackers, seconds: Any) -> None:
    with pytest.raises(RecordError, match="busy: "):
        trackers.default.elapsed(busy=seconds)
    assert trackers.export_all() == {}
