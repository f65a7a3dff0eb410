"""rsl_rl's configuration as plain data."""

from __future__ import annotations

import dataclasses
import json
import math
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from rltel.integrations.rsl_rl.stored import num_envs_in, plain


@dataclasses.dataclass
class Scene:
    """As Isaac Lab's: how many environments is the scene's."""

    num_envs: int = 64
    password: str = "s3cret"


def some_function() -> None:
    """Configurations hold functions."""


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"a": (1, 2.5, None, True)}, {"a": [1, 2.5, None, True]}),
        (math.nan, "nan"),
        ({1: -math.inf}, {"1": "-inf"}),
        (Scene(), {"num_envs": 64, "password": "[redacted]"}),
        (SimpleNamespace(seed=1, _hidden=2), {"seed": 1}),
        (torch.zeros(1000), "<Tensor>"),
        ({"api_key": "s3cret", "url": "http://u:p@host/x"}, {"api_key": "[redacted]", "url": "http://host/x"}),
    ],
    ids=str,
)
def test_as_plain_data(given: Any, expected: Any) -> None:
    assert plain(given) == expected
    json.dumps(plain(given), allow_nan=False)


def test_classes_and_functions_are_named_by_where_they_are() -> None:
    assert plain([Scene, some_function]) == [f"{__name__}:Scene", f"{__name__}:some_function"]
    assert plain(torch.nn.ELU) == "torch.nn.modules.activation:ELU"


@pytest.mark.parametrize(
    ("env_cfg", "expected"),
    [
        ({"num_envs": 16}, 16),
        (SimpleNamespace(num_envs=8), 8),
        (SimpleNamespace(scene=Scene()), 64),
        ({"env": {"num_envs": 4096}}, 4096),
        ({"num_envs": "many"}, None),
        ({}, None),
        (None, None),
    ],
    ids=str,
)
def test_how_many_environments(env_cfg: Any, expected: int | None) -> None:
    assert num_envs_in(env_cfg) == expected


def test_a_secret_is_hidden_wherever_else_it_stands() -> None:
    made = plain({"wandb": {"api_key": "k3y-0123456789"}, "note": "with k3y-0123456789", "cmd": ["--token t0ken"]})
    assert made == {"wandb": {"api_key": "[redacted]"}, "note": "with [redacted]", "cmd": ["--token [redacted]"]}
