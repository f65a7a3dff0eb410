"""The dashboards, and the files that they are."""

from collections.abc import Mapping

from rltel.dashboards import health, learner, llm, overview, robot
from rltel.dashboards.dashboard import Dashboard

DASHBOARDS: tuple[Dashboard, ...] = tuple(each.DASHBOARD for each in (overview, learner, llm, robot, health))


def files() -> Mapping[str, str]:
    """Relative paths, and what stands in the files."""
    return {f"{each.slug}.json": each.text() for each in DASHBOARDS}
