"""For all tests: properties are about right answers, never about how fast a loaded machine finds them.

Their examples are the same in each run, so that a change fails for what it does. ``RLTEL_EXPLORE=1 make test`` looks
further, at others each time.
"""

import os

import pytest
from hypothesis import HealthCheck, settings

settings.register_profile(
    "rltel",
    deadline=None,
    derandomize=os.environ.get("RLTEL_EXPLORE") != "1",
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("rltel")


def pytest_collection_finish(session: pytest.Session) -> None:
    """Says if groups have no effect: demos would run beside each other, once in each worker, and fail by time."""
    groups = [item for item in session.items if item.get_closest_marker("xdist_group")]
    if getattr(session.config.option, "loadgroup", False) and not all("@" in item.nodeid for item in groups):
        raise pytest.UsageError("pytest-xdist does not see groups with this pytest; install with constraints.txt")
