"""The step that forgot its group is told so, once; what is meant is not."""

import logging
from pathlib import Path

import pytest

from export.making import identity, recorded
from realparts.ranks import ranks
from realparts.requirements import need_package
from rltel.core.config import PrometheusConfig, TelemetryConfig
from rltel.record.recorder import Recorder
from rltel.reduce import own_rank
from rltel.reduce.own_rank import OwnRank
from rltel.reduce.snapshot import Snapshot
from rltel.reduce.stats import Stats
from rltel.reduce.trackers import Trackers
from rltel.telemetry import Telemetry

COUNT = own_rank._ranks
RECORDED = recorded(lambda trackers: trackers.default.scalar(loss=1.0))


@pytest.fixture(autouse=True)
def two(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(own_rank, "_ranks", lambda: 2)


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]


def writer() -> OwnRank:
    return OwnRank(is_writer=True, world_size=2)


def test_it_is_said_once_and_says_what_to_pass(caplog: pytest.LogCaptureFixture) -> None:
    watching = writer()
    for step in range(3):
        watching.recorded(RECORDED, "train", step)
    (told,) = warnings(caplog)
    assert told.startswith("step 0: the statistics of 1 of 2 ranks are committed")
    assert "reduce_group" in told


@pytest.mark.parametrize("watching", [OwnRank(is_writer=False, world_size=2), OwnRank(is_writer=True, world_size=1)])
def test_not_to_those_whose_own_numbers_are_all(caplog: pytest.LogCaptureFixture, watching: OwnRank) -> None:
    watching.recorded(RECORDED, "train", 0)
    assert warnings(caplog) == []


def test_another_axis_and_an_empty_step_are_no_reason(caplog: pytest.LogCaptureFixture) -> None:
    watching = writer()
    watching.recorded(RECORDED, "rollout", 0)
    watching.recorded(Snapshot(), "train", 0)
    assert warnings(caplog) == []


def test_who_exports_by_hand_means_it_and_who_logs_numbers_says_nothing(caplog: pytest.LogCaptureFixture) -> None:
    by_hand, logging_numbers = writer(), writer()
    by_hand.given(Stats(RECORDED), "train")
    logging_numbers.given({"x": 1.0}, "train")
    by_hand.recorded(RECORDED, "train", 0)
    assert warnings(caplog) == []
    logging_numbers.recorded(RECORDED, "train", 0)
    assert len(warnings(caplog)) == 1


@pytest.mark.parametrize(("by_hand", "told"), [(False, 1), (True, 0)])
def test_a_commit_of_what_was_recorded_is_watched(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, by_hand: bool, told: int
) -> None:
    trackers = Trackers(Recorder())
    config = TelemetryConfig(prometheus=PrometheusConfig(enabled=False))
    telemetry = Telemetry(config, identity(tmp_path, world_size=2), trackers=trackers, recorder=Recorder())
    try:
        for step in range(2):
            trackers.default.scalar(loss=1.0)
            telemetry.commit(trackers.export_all() if by_hand else None, step=step)
    finally:
        telemetry.shutdown()
    assert len(warnings(caplog)) == told


@pytest.mark.xdist_group("two ranks")
def test_the_ranks_of_a_real_group_are_counted(tmp_path: Path) -> None:
    need_package("torch")
    with ranks(2, tmp_path) as group:
        assert group.run(lambda _: COUNT()) == [2, 2]


def test_without_torch_distributed_there_is_one_rank(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.undo()
    writer().recorded(RECORDED, "train", 0)
    assert warnings(caplog) == []
