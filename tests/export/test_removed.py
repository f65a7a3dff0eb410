"""Tags that the metric schema removed are not emitted, which is counted and said."""

import logging

import pytest

from export.making import recorded
from rltel.export.removed import RemovedTags
from rltel.export.sink import Destination
from rltel.reduce.snapshot import Snapshot


@pytest.fixture
def account() -> Destination:
    return Destination("commit")


def test_episode_reward_is_left_out_counted_and_said_once(
    account: Destination, caplog: pytest.LogCaptureFixture
) -> None:
    tags = RemovedTags(account.dropped)
    snapshot = Snapshot.of_numbers({"Episode_Reward/a": 1.0, "Episode_Reward/b": 2.0, "reward/a": 3.0})
    with caplog.at_level(logging.WARNING, "rltel"):
        for _ in range(2):
            assert dict(tags.without(snapshot).flat()) == {"reward/a": 3.0}
    assert account.dropped_totals == {"removed_tag": 4}
    (said,) = caplog.messages
    assert "record reward/<term>" in said


def test_a_named_trackers_too(account: Destination) -> None:
    snapshot = recorded(lambda trackers: trackers.get("env").gauge({"Episode_Reward/a": 1.0, "x": 2.0}))
    assert dict(RemovedTags(account.dropped).without(snapshot).flat()) == {"env/x": 2.0}


def test_others_are_the_same_snapshot(account: Destination) -> None:
    snapshot = Snapshot.of_numbers({"Episode_Termination/fell": 1.0, "x": 2.0})
    assert RemovedTags(account.dropped).without(snapshot) is snapshot
    assert account.dropped_totals == {}
