"""Whether this machine's clocks can date a training."""

import time
from collections.abc import Iterator
from datetime import UTC, datetime

from rltel.cli.checks.finding import Finding, ok, problem, warning
from rltel.core.clock import Clock, SystemClock

_EARLIEST_NS = int(datetime(2025, 1, 1, tzinfo=UTC).timestamp() * 1e9)
_LATEST_NS = int(datetime(2100, 1, 1, tzinfo=UTC).timestamp() * 1e9)
_COARSE_S = 1e-6


def check_clocks(clock: Clock | None = None) -> Iterator[Finding]:
    """Findings on the wall clock and the monotonic clock."""
    clock = clock or SystemClock()
    now_ns = clock.realtime_ns()
    date = f"{datetime.fromtimestamp(now_ns / 1e9, UTC):%Y-%m-%d %H:%M:%S} UTC"
    if not _EARLIEST_NS < now_ns < _LATEST_NS:
        yield problem("clock", f"the wall clock says {date}", "set it (NTP or chrony): all times would be wrong")
    else:
        yield ok("clock", f"the wall clock says {date}")
    before, after = clock.monotonic_ns(), clock.monotonic_ns()
    resolution = time.get_clock_info("monotonic").resolution
    if after < before:
        yield problem("clock", "the monotonic clock went back", "report it to whoever runs this machine")
    elif resolution > _COARSE_S:
        yield warning(
            "clock", f"the monotonic clock ticks every {resolution:g} s", "expect short slices to show as nothing"
        )
