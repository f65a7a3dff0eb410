"""Clocks that cannot date a training."""

from datetime import UTC, datetime

import pytest

from export.making import FakeClock
from rltel.cli.checks.clocks import check_clocks


def at(year: int) -> FakeClock:
    return FakeClock(realtime_ns=int(datetime(year, 6, 1, tzinfo=UTC).timestamp() * 1e9))


def test_this_machine_s_are_right() -> None:
    assert [finding.status for finding in check_clocks()] == ["ok"]


@pytest.mark.parametrize("year", [1970, 2015, 2150])
def test_a_date_that_cannot_be(year: int) -> None:
    (finding,) = check_clocks(at(year))
    assert (finding.status, finding.what[:24]) == ("problem", f"the wall clock says {year}")
    assert "NTP" in finding.do


def test_a_monotonic_clock_that_goes_back() -> None:
    clock = at(2026)
    ticks = iter([5, 3])
    clock.monotonic_ns = lambda: next(ticks)  # type: ignore[method-assign]  # the fault
    assert [finding.status for finding in check_clocks(clock)] == ["ok", "problem"]
