"""The demos run once for all tests of what the dashboards ask."""

from collections.abc import Iterator

import pytest

from realparts.dashboard_stores import Stores, loaded


@pytest.fixture(scope="session")
def stores(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stores]:
    """Prometheus and VictoriaMetrics, after real runs."""
    with loaded(tmp_path_factory.mktemp("stores")) as found:
        yield found
