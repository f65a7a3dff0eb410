"""What is derived is computed from merged numbers."""

import pytest

from rltel.core.errors import RecordError
from rltel.record.recorder import Recorder
from rltel.reduce.trackers import Trackers
from rltel.reduce.workers import Receiver, Sender


@pytest.fixture
def trackers() -> Trackers:
    made = Trackers(Recorder())
    made.derive(
        "perf/rate",
        lambda tokens, seconds: tokens / seconds if seconds else None,
        tokens="perf/tokens",
        seconds="perf/seconds",
    )
    return made


def record(trackers: Trackers, tokens: float, seconds: float) -> None:
    trackers.default.stat({"perf/tokens": [tokens]}, reduce_type="sum")
    trackers.default.stat({"perf/seconds": [seconds]}, reduce_type="max")


def test_a_rate_is_the_sum_of_tokens_over_the_longest_time(trackers: Trackers) -> None:
    record(trackers, 3.0, 2.0)
    record(trackers, 7.0, 4.0)
    assert trackers.export_all() == {"perf/tokens": 10.0, "perf/seconds": 4.0, "perf/rate": 2.5}


def test_what_lacks_an_argument_or_finishes_as_none_is_left_out(trackers: Trackers) -> None:
    trackers.default.stat({"perf/tokens": [1.0]}, reduce_type="sum")
    assert "perf/rate" not in trackers.export_all()
    record(trackers, 3.0, 0.0)
    assert "perf/rate" not in trackers.export_all()


def test_payloads_do_not_carry_it_so_that_it_is_not_averaged(trackers: Trackers) -> None:
    workers = [Trackers(Recorder()) for _ in range(2)]
    receiver = Receiver(trackers)
    for worker, (tokens, seconds) in zip(workers, ((3.0, 2.0), (7.0, 4.0)), strict=True):
        worker.derive("perf/rate", lambda tokens: tokens, tokens="perf/tokens")
        record(worker, tokens, seconds)
        with worker.taken() as snapshot:
            assert "perf/rate" not in snapshot
            receiver.absorb(Sender().payload(snapshot))
    assert trackers.export_all()["perf/rate"] == 2.5


def test_a_commit_has_it(trackers: Trackers) -> None:
    record(trackers, 3.0, 2.0)
    with trackers.taken(derive=True) as snapshot:
        assert snapshot.flat()["perf/rate"] == 1.5


def test_an_error_in_the_finish_leaves_out_only_its_key_and_is_said_once(
    trackers: Trackers, caplog: pytest.LogCaptureFixture
) -> None:
    trackers.derive("perf/broken", lambda tokens: 1 / 0, tokens="perf/tokens")
    for _ in range(2):
        record(trackers, 3.0, 2.0)
        assert trackers.export_all() == {"perf/tokens": 3.0, "perf/seconds": 2.0, "perf/rate": 1.5}
    assert [r.message for r in caplog.records] == [
        "perf/broken: left out: its finish raised ZeroDivisionError: division by zero (said once)"
    ]


def test_its_key_is_a_gauge(trackers: Trackers) -> None:
    with pytest.raises(RecordError, match=r"perf/rate: recorded as gauge_mean before"):
        trackers.default.scalar({"perf/rate": 1.0})
