"""What `rltel.system` is told."""

import math

import numpy as np
import pytest

from rltel.core.errors import RecordError
from rltel.export.panel.system import FIELDS, SystemFacts


def test_what_was_told_last() -> None:
    facts = SystemFacts()
    facts.tell(buffer=100, mps="ambient")
    facts.tell(buffer=200)
    assert facts() == {"buffer": 200, "mps": "ambient"}


def test_none_takes_one_back() -> None:
    facts = SystemFacts()
    facts.tell(status="Evaluating")
    facts.tell(status=None)
    assert facts() == {}


def test_numpys_numbers() -> None:
    facts = SystemFacts()
    facts.tell(buffer=np.int64(5), timeout_rate=np.float32(0.5))
    assert facts() == {"buffer": 5, "timeout_rate": 0.5}
    assert type(facts()["buffer"]) is int


def test_an_unknown_name_is_refused_with_those_that_there_are() -> None:
    with pytest.raises(RecordError, match=r'no field "bufer" \(did you mean "buffer"\?\); there are buffer, ') as error:
        SystemFacts().tell(bufer=1)
    assert all(name in str(error.value) for name in FIELDS)


@pytest.mark.parametrize(
    ("name", "value", "needed"),
    [
        ("buffer", -1, "a whole number >= 0, got -1"),
        ("buffer", 1.5, "a whole number >= 0, got 1.5"),
        ("buffer", True, "a whole number >= 0, got True"),
        ("environments", "many", "a whole number >= 0, got 'many'"),
        ("timeout_rate", 1.5, "a number from 0 to 1, got 1.5"),
        ("timeout_rate", math.nan, "a number from 0 to 1, got nan"),
        ("rows_per_s", math.inf, "a number >= 0, got inf"),
        ("mps", "yes", 'one of "on", "ambient", "off", got \'yes\''),
        ("status", 5, "text, got 5"),
    ],
)
def test_a_value_that_cannot_be(name: str, value: object, needed: str) -> None:
    facts = SystemFacts()
    with pytest.raises(RecordError) as error:
        facts.tell(batch=1, **{name: value})
    assert str(error.value) == f"system: {name}: expected {needed}"
    assert facts() == {}  # nothing of that call was taken in


def test_what_it_gives_out_is_a_copy() -> None:
    facts = SystemFacts()
    facts.tell(buffer=1)
    given = dict(facts())
    facts.tell(buffer=2)
    assert given == {"buffer": 1}
