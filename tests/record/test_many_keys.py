"""Keys with a number in their name grow a process: that is said, once, and by which pattern."""

import logging

import pytest

from rltel.record import many_keys
from rltel.record.many_keys import ManyKeys
from rltel.record.recorder import Recorder
from rltel.reduce.trackers import Trackers


def test_up_to_the_limit_nothing_is_said(caplog: pytest.LogCaptureFixture) -> None:
    ManyKeys(3).look({"a", "b", "c"})
    assert caplog.messages == []


def test_beyond_it_the_commonest_pattern_is_named_once(caplog: pytest.LogCaptureFixture) -> None:
    keys = {"loss", "loss/2"} | {f"eval/step_{number}/reward{number % 3}" for number in range(50)}
    watch = ManyKeys(10)
    watch.look(keys)
    watch.look(keys | {"more"})
    (line,) = caplog.messages
    assert line.startswith('52 different keys so far, 50 of them like "eval/step_#/reward#": ')


def test_what_trackers_record_is_looked_at(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    trackers = Trackers(Recorder())
    monkeypatch.setattr(trackers._kinds, "_many", ManyKeys(20))
    with caplog.at_level(logging.WARNING, "rltel"):
        for step in range(30):
            trackers.get("rollout").scalar({f"reward_{step}": 1.0})
            trackers.export_all()
    (line,) = caplog.messages
    assert '"rollout/reward_#"' in line


def test_a_trainer_with_thousands_of_experts_is_within_it() -> None:
    assert many_keys.MOST_KEYS >= 64 * 256
