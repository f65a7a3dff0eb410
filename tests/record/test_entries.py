"""What is cut from an entry is the export's alone: what is recorded next does not reach it."""

import math
from types import SimpleNamespace
from typing import Any, cast

import pytest

from rltel.record.entries import Entry, Part, Sent
from rltel.record.fold import DeviceMoments
from rltel.record.kinds import AVG, GAUGE_MEAN, SCALAR, Moments, State


def test_a_device_s_numbers_that_come_after_the_cut_are_not_part_of_it() -> None:
    entry = Entry(AVG)
    entry.add(Moments(1.0, 1.0))
    entry.add_other(State(AVG, Moments(2.0, 1.0)), Sent("worker"))
    entry.on_devices["cuda:0"] = now = cast("DeviceMoments", SimpleNamespace(device="cuda:0"))
    part = entry.cut()
    entry.add_on_device(cast("DeviceMoments", SimpleNamespace(device="cuda:0")))
    assert isinstance(part, Part)
    assert part.on_devices == {"cuda:0": now}


@pytest.mark.parametrize("earlier", [[], [2.0]])
@pytest.mark.parametrize("late", [[1.0, 4.0], [math.nan], [math.inf, -math.inf], [1e308, 1e308]])
def test_numbers_that_wait_are_cut_whole(earlier: list[float], late: list[float]) -> None:
    entry = Entry(SCALAR)
    for number in earlier:
        entry.add(Moments(number, 1.0))
    waiting = entry.pending
    waiting.extend(late)
    part: Any = entry.cut()
    finite = [number for number in (*earlier, *late) if math.isfinite(number)]
    assert part.moments[0] == sum(finite)
    assert part.moments[1] == len(finite)
    assert sum(part.moments[4:]) == len(earlier) + len(late) - len(finite)
    assert entry.pending is waiting
    assert waiting == []
    assert entry.cut() is None


def test_an_empty_entry_of_any_kind_gives_nothing() -> None:
    assert Entry(GAUGE_MEAN).cut() is None
