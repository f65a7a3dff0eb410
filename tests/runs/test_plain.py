"""What trainers hand in becomes data that JSON can hold, or is refused by its path."""

import enum
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from realparts.requirements import need_package
from rltel.core.errors import RecordError
from rltel.runs.plain import plain


class Stage(enum.Enum):
    LATE = "late"


class Level(enum.IntEnum):
    HIGH = 3


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        (None, None),
        (True, True),
        (np.bool_(True), True),
        (np.int64(3), 3),
        (np.float32(0.5), 0.5),
        (np.arange(3), [0, 1, 2]),
        ((1, [2, {"a": (3,)}]), [1, [2, {"a": [3]}]]),
        ({1: "x"}, {"1": "x"}),
        ({"s": {4}}, {"s": [4]}),
        (Path("a/b"), "a/b"),
        (Stage.LATE, "late"),
        (Level.HIGH, 3),
    ],
)
def test_what_json_can_hold(given: Any, wanted: Any) -> None:
    made = plain(given, "x")
    assert json.loads(json.dumps(made)) == wanted
    assert type(made) is type(wanted)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_what_json_has_no_number_for_is_a_text_that_float_reads(value: float) -> None:
    for given in (value, np.float64(value)):
        made = plain(given, "x")
        assert isinstance(made, str)
        assert str(float(made)) == str(value)


@pytest.mark.parametrize("value", [object(), b"raw", lambda: 0, np.zeros(20_000)])
def test_what_it_cannot_is_refused_by_its_path(value: Any) -> None:
    with pytest.raises(RecordError, match=r"^summary: mine\.list\[1\]: expected numbers, .*, got \w+$"):
        plain({"list": [1, value]}, "summary: mine")


def test_a_tensor_is_refused_since_reading_it_waits_for_its_device() -> None:
    torch = need_package("torch")
    with pytest.raises(RecordError, match="got Tensor"):
        plain(torch.ones(1), "x")


def test_leniently_it_is_spelled_out() -> None:
    assert plain({"a": [complex(1, 2)]}, "x", lenient=True) == {"a": ["(1+2j)"]}


def test_it_is_a_copy() -> None:
    given = {"a": [1]}
    made = plain(given, "x")
    given["a"].append(2)
    assert made == {"a": [1]}
