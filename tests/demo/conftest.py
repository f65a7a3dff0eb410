"""The demo runs once for all tests of what it leaves."""

from collections.abc import Iterator

import pytest

from realparts.sac_demo import Demo, watched


@pytest.fixture(scope="session")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Demo]:
    """A whole SAC training."""
    with watched(tmp_path_factory.mktemp("demo"), tmp_path_factory.mktemp("watching")) as ran:
        yield ran
