"""Draws each dashboard from a Prometheus that scraped the SAC and GRPO demos: docs/previews/<dashboard>.png.

It is no Grafana: it puts the panels where the files have them, and draws the answers of their queries with matplotlib,
which the project does not need otherwise (pip install matplotlib). From the root of the repository:

    PYTHONPATH=tests .venv/bin/python tests/tools/preview_dashboards.py [FOLDER]
"""

from __future__ import annotations

import re
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np

mpl.use("Agg")
from matplotlib import pyplot

from realparts.dashboard_stores import GRPO, SAC, SCRAPE_S, Stores, loaded
from realparts.prometheus import Labels, Matrix
from realparts.requirements import REPOSITORY
from rltel.dashboards.all_of_them import DASHBOARDS
from rltel.dashboards.dashboard import Dashboard

LENGTH = 4
"""Of the runs, beside those of the tests."""
WINDOW = "20s"
COLUMNS, UNIT_IN, ROW_IN = 24, 0.75, 0.36  # inches of a column and of a row of Grafana's grid
MOST_SHOWN = 6
_SCALES = {"s": (1e3, "ms"), "percentunit": (100.0, "%"), "decbytes": (1e-6, "MB")}


@dataclass(frozen=True)
class Line:
    """One series of a panel's answer."""

    label: str
    labels: Labels
    times: np.ndarray[Any, Any]
    values: np.ndarray[Any, Any]


@dataclass(frozen=True)
class Span:
    """What is asked: from when to when."""

    stores: Stores
    begin: float
    end: float

    def ask(self, text: str) -> Matrix:
        """Over the whole time."""
        for name in ("role", "rank", "job", "layer"):
            text = text.replace(f"${name}", ".*")
        text = text.replace("$run", f"{SAC}|{GRPO}").replace("$window", WINDOW)
        return self.stores.prometheus.query_range(text, self.begin, self.end, SCRAPE_S)


def main(folder: Path) -> None:
    """All of them."""
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as work, loaded(Path(work), LENGTH) as stores:
        times = [line.time_ns / 1e9 for run in (SAC, GRPO) for line in stores.lines(run)]
        span = Span(stores, min(times) - 1, max(times) + 1)
        for dashboard in DASHBOARDS:
            draw(dashboard, span, folder / f"{dashboard.slug}.png")


def draw(dashboard: Dashboard, span: Span, path: Path) -> None:
    """One picture."""
    panels = dashboard.model()["panels"]
    rows = max(panel["gridPos"]["y"] + panel["gridPos"]["h"] for panel in panels) + 2
    figure = pyplot.figure(figsize=(COLUMNS * UNIT_IN, rows * ROW_IN), dpi=72, facecolor="#f4f5f5")
    head = f"{dashboard.title}: the SAC and GRPO demos, drawn by rltel's own renderer (not by Grafana)"
    figure.text(0.01, 1 - 1.2 / rows, head, fontsize=13, weight="bold")
    for panel in panels:
        place = panel["gridPos"]
        left, top = place["x"] / COLUMNS, 1 - (place["y"] + 2) / rows
        if panel["type"] == "row":
            figure.text(left + 0.01, top - 0.8 / rows, panel["title"], fontsize=11, color="#444")
            continue
        width, height = place["w"] / COLUMNS, place["h"] / rows
        box = (left + 0.04, top - height + 1.9 / rows, width - 0.055, height - 3.4 / rows)
        if panel["type"] == "stat":
            box = (left + 0.01, top - height + 0.3 / rows, width - 0.02, height - 1.5 / rows)
        axes = figure.add_axes(box)
        found = list(asked(panel, span))
        if "repeat" in panel:  # for each run; one is enough for a picture
            run = found[0].labels["rl_run_id"] if found else SAC
            found = [line for line in found if line.labels["rl_run_id"] == run]
            panel["title"] = panel["title"].replace("$run", run)
        axes.set_title(panel["title"], fontsize=9, loc="left")
        {"timeseries": lines, "stat": numbers, "heatmap": heat}[panel["type"]](axes, panel, found)
    figure.savefig(path, pil_kwargs={"optimize": True})
    pyplot.close(figure)


def asked(panel: dict[str, Any], span: Span) -> Iterator[Line]:
    """The answers of all its queries, in the unit that is drawn."""
    scale, _ = _SCALES.get(panel["fieldConfig"]["defaults"]["unit"], (1.0, ""))
    for target in panel["targets"]:
        for labels, samples in span.ask(target["expr"]):
            label = re.sub(r"{{(\w+)}}", lambda part, of=labels: of.get(part[1], ""), target["legendFormat"])
            times, values = np.array(samples).T
            yield Line(label, labels, times - span.begin, values * scale)


def unit_of(panel: dict[str, Any]) -> str:
    """As it is written at the axis."""
    unit = panel["fieldConfig"]["defaults"]["unit"]
    _, written = _SCALES.get(unit, (1.0, unit.removeprefix("suffix: ")))
    return "" if written in ("none", "short", "sci") else written


def lines(axes: Any, panel: dict[str, Any], found: list[Line]) -> None:
    """Over time: the tallest few, or all on top of each other."""
    field = panel["fieldConfig"]["defaults"]
    axes.tick_params(labelsize=6)
    axes.grid(alpha=0.3)
    axes.set_ylabel(unit_of(panel), fontsize=7)
    if not found:
        nothing(axes)
        return
    for line in found if len(found) <= 2 * MOST_SHOWN else sorted(found, key=lambda each: -each.values.mean())[:12]:
        if field["custom"]["stacking"]["mode"] == "none":
            axes.plot(line.times, line.values, linewidth=1, label=line.label)
    if field["custom"]["stacking"]["mode"] == "normal":
        stacked(axes, found)
    for step in field["thresholds"]["steps"][1:]:
        if step["value"] * _SCALES.get(field["unit"], (1.0, ""))[0] < axes.get_ylim()[1]:
            scaled = step["value"] * _SCALES.get(field["unit"], (1.0, ""))[0]
            axes.axhline(scaled, color=step["color"], linestyle="--", linewidth=0.8)
    axes.legend(fontsize=6, loc="upper center", bbox_to_anchor=(0.5, -0.1), ncols=3, frameon=False)


def stacked(axes: Any, found: list[Line]) -> None:
    """Where a series has no value it adds nothing."""
    times, layers = on_one_grid(found)
    axes.stackplot(times, layers, labels=[line.label for line in found], alpha=0.7)


def on_one_grid(found: list[Line]) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """All times, and a row of values for each line: 0 where it has none."""
    times = np.unique(np.concatenate([line.times for line in found]))
    rows = np.zeros((len(found), len(times)))
    for row, line in zip(rows, found, strict=True):
        row[np.searchsorted(times, line.times)] = line.values
    return times, rows


def numbers(axes: Any, panel: dict[str, Any], found: list[Line]) -> None:
    """The last value of each."""
    axes.axis("off")
    for position, line in enumerate(found[:3]):
        axes.text(0.02, 0.7 - 0.3 * position, line.label, fontsize=8)
        axes.text(0.98, 0.7 - 0.3 * position, f"{line.values[-1]:,.4g} {unit_of(panel)}", fontsize=12, ha="right")


def heat(axes: Any, panel: dict[str, Any], found: list[Line]) -> None:
    """Over time: each series, and of buckets what is in each of them alone."""
    if not found:
        nothing(axes)
        return
    of_buckets = panel["targets"][0]["format"] == "heatmap"
    found = sorted(found, key=lambda line: float(line.labels["le"]) if of_buckets else line.label)
    times, rows = on_one_grid(found)
    if of_buckets:
        rows = np.diff(rows, axis=0, prepend=0)
    held = [row for row in range(len(rows)) if rows[row].any()]
    first, last = min(held), max(held)
    extent = (times[0], times[-1], -0.5, last - first + 0.5)
    axes.imshow(rows[first : last + 1], aspect="auto", origin="lower", cmap="Oranges", extent=extent, vmin=0)
    names = [line.labels["le"] if of_buckets else line.label.strip() for line in found[first : last + 1]]
    axes.set_yticks(range(len(names)), names, fontsize=6)
    axes.tick_params(axis="x", labelsize=6)


def nothing(axes: Any) -> None:
    """The demos have none of it."""
    axes.text(
        0.5, 0.5, "not in the demos", ha="center", va="center", transform=axes.transAxes, color="#888", fontsize=8
    )


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else REPOSITORY / "docs" / "previews")
