"""``info["log"]`` of an environment: which entries go on, and as what."""

import logging
import math

import numpy as np
import pytest
import torch

from rltel.core.errors import RecordError
from rltel.integrations.info_log import _said_once, forward_info_log
from rltel.names.schema import allowed


def test_slash_prefixed_entries_go_on_as_means() -> None:
    log = {
        "reward/upright": torch.tensor([1.0, 2.0, 6.0]),
        "Episode_Termination/fell": torch.tensor(3),
        "Curriculum/level": np.array([[1, 2], [3, 4]]),
        "Metrics/half": torch.tensor([1.5, 2.5], dtype=torch.bfloat16),
        "Metrics/done": [True, False],
        "Metrics/plain": 7,
    }
    assert forward_info_log(log) == {
        "reward/upright": 3.0,
        "Episode_Termination/fell": 3.0,
        "Curriculum/level": 2.5,
        "Metrics/half": 2.0,
        "Metrics/done": 0.5,
        "Metrics/plain": 7.0,
    }
    assert all(type(value) is float for value in forward_info_log(log).values())


def test_large_integers_keep_their_digits() -> None:
    assert forward_info_log({"a/b": torch.tensor([2**40 + 1, 2**40 + 3])}) == {"a/b": 2.0**40 + 2}


def test_a_tensor_that_is_part_of_a_graph_is_a_number_too() -> None:
    assert forward_info_log({"a/b": torch.ones(3, requires_grad=True)}) == {"a/b": 1.0}


def test_others_are_the_trainers_to_place() -> None:
    assert forward_info_log({"upright": 1.0, "upright/": 1.0, "/upright": 1.0}) == {}


def test_a_mean_of_nothing_is_left_out_and_nan_is_not() -> None:
    numbers = forward_info_log({"a/empty": torch.zeros(0), "a/nan": torch.tensor([1.0, math.nan]), "a/inf": math.inf})
    assert numbers.keys() == {"a/nan", "a/inf"}
    assert math.isnan(numbers["a/nan"])


def test_episode_reward_is_not_emitted_and_that_is_said_once(caplog: pytest.LogCaptureFixture) -> None:
    _said_once.cache_clear()
    dropped: list[str] = []
    with caplog.at_level(logging.WARNING, "rltel"):
        for _ in range(2):
            log = {"Episode_Reward/upright": 1.0, "Episode_Reward/gait": "anything", "reward/upright": 2.0}
            assert forward_info_log(log, dropped.append) == {"reward/upright": 2.0}
    assert dropped == ["Episode_Reward/upright", "Episode_Reward/gait"] * 2
    (said,) = caplog.messages
    assert "Episode_Reward/... is not emitted any more" in said
    assert "reward/<term> has it" in said


def test_what_manager_based_environments_log_is_of_the_schema() -> None:
    log = {"reward/upright": 1.0, "Episode_Termination/time_out": 2.0, "Episode_Reward/upright": 1.0}
    assert all(allowed(key) for key in forward_info_log(log))


@pytest.mark.parametrize("value", ["1.0", None, {"a": 1.0}, object(), b"1", [None, 1.0], ["1"]])
def test_what_is_no_number_is_named(value: object) -> None:
    with pytest.raises(RecordError, match=r'info\["log"\]: a/b: expected a number, array or tensor, got '):
        forward_info_log({"a/b": value})
