"""The page ``docs/dashboards.md``: what is on which dashboard, and what no demo shows."""

from collections.abc import Iterable, Iterator
from importlib.resources import files

from rltel.dashboards.all_of_them import DASHBOARDS
from rltel.dashboards.dashboard import MARKS, Dashboard


def page() -> str:
    """The text."""
    intro = (files("rltel.dashboards") / "page.md").read_text("utf-8")
    return intro + "".join(f"{line}\n" for line in _tables())


def _tables() -> Iterator[str]:
    yield "## Panels\n"
    for each in DASHBOARDS:
        yield f"### {each.title}\n"
        yield f"{each.about}\n"
        yield f"![{each.title}, drawn by tests/tools/preview_dashboards.py](previews/{each.slug}.png)\n"
        yield from _table(("panel", "it shows"), _panels(each))
        yield ""
    yield "## What neither demo has\n"
    yield "Asked with a small trainer of the tests' own (`tests/realparts/other_panels.py`) instead.\n"
    yield from _table(("dashboard", "panel", "it needs"), _needed())
    yield "\n## What only a scrape brings\n"
    yield "They are about scrapes, and the endpoint that answers them.\n"
    yield from _table(
        ("dashboard", "panel"),
        ((each.title, panel.title) for each in DASHBOARDS for panel in each.panels if panel.scraped_only),
    )
    yield "\n## Marks\n"
    yield from _table(
        ("annotation", "at first", "it needs"),
        ((mark.title, "shown" if mark.shown else "hidden", mark.needs) for mark in MARKS),
    )


def _panels(dashboard: Dashboard) -> Iterator[tuple[str, ...]]:
    for row in dashboard.rows:
        for panel in row.panels:
            yield panel.title, panel.about


def _needed() -> Iterator[tuple[str, ...]]:
    for each in DASHBOARDS:
        for panel in each.panels:
            for need in dict.fromkeys(query.needs for query in panel.queries if query.needs):
                some = any(not query.needs for query in panel.queries)
                yield each.title, panel.title + (" (in part)" if some else ""), need


def _table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> Iterator[str]:
    yield f"| {' | '.join(head)} |"
    yield f"|{'|'.join(' --- ' for _ in head)}|"
    for row in rows:
        yield f"| {' | '.join(cell.replace('|', '/') for cell in row)} |"
