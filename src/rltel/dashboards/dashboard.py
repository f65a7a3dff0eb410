"""A dashboard: rows of panels, the variables that choose what they show, and marks where something happened."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from rltel.dashboards.panel import DATASOURCE, Panel
from rltel.dashboards.phases import begins, happened, phases
from rltel.dashboards.promql import Expr
from rltel.dashboards.series import RUN, named

_COLUMNS = 24
_SCHEMA = 39  # of Grafana 11, the oldest that these are for
_ALL = {"text": ["All"], "value": ["$__all"]}
_ANY = "rl_process_start_time_seconds"
"""Every process has it, on both routes."""


class Row(NamedTuple):
    """Panels under a heading."""

    title: str
    panels: Sequence[Panel]


class Mark(NamedTuple):
    """An annotation: a line across all panels where its query has a value."""

    title: str
    expr: Expr
    text: str
    colour: str
    shown: bool
    needs: str = ""
    """What it needs that neither demo has."""
    says_when: bool = False
    """Whether its values are the times, in ms."""


MARKS = (
    Mark(
        "Processes that began",
        begins(),
        "{{rl_role}} {{rl_rank}} of {{rl_run_id}}, incarnation {{rl_incarnation}}",
        "blue",
        True,
        says_when=True,
    ),
    Mark(
        "Checkpoints",
        happened(phases("learner", "exclusive").only(rl_phase="checkpoint")),
        "checkpoint in {{rl_run_id}}",
        "green",
        True,
        "the demos write no checkpoints",
    ),
    Mark(
        "Weight publishes", happened(named("rl.sync.duration", unit="s")), "weights of {{rl_run_id}}", "purple", False
    ),
)


@dataclass(frozen=True, slots=True)
class Dashboard:
    """One dashboard. ``slug`` names its file and is its address."""

    slug: str
    title: str
    about: str
    rows: Sequence[Row]
    layers: bool = False
    """Whether it has the variable for the layers of a mixture of experts."""

    @property
    def panels(self) -> Iterator[Panel]:
        """All of them."""
        return (panel for row in self.rows for panel in row.panels)

    def text(self) -> str:
        """The file."""
        return json.dumps(self.model(), indent=1, ensure_ascii=False) + "\n"

    def model(self) -> dict[str, Any]:
        """As Grafana has it."""
        return {
            "uid": f"rltel-{self.slug}",
            "title": f"rltel / {self.title}",
            "description": self.about,
            "tags": ["rltel"],
            "editable": True,
            "graphTooltip": 1,
            "schemaVersion": _SCHEMA,
            "timezone": "browser",
            "refresh": "15s",
            "time": {"from": "now-1h", "to": "now"},
            "links": [_to_the_others()],
            "templating": {"list": list(_variables(self.layers))},
            "annotations": {"list": [_annotation(mark) for mark in MARKS]},
            "panels": list(_laid_out(self.rows)),
        }


def _laid_out(rows: Sequence[Row]) -> Iterator[dict[str, Any]]:
    number, y = 0, 0
    for row in rows:
        number += 1
        yield {
            "id": number,
            "type": "row",
            "title": row.title,
            "collapsed": False,
            "gridPos": {"x": 0, "y": y, "w": _COLUMNS, "h": 1},
            "panels": [],
        }
        x, y, height = 0, y + 1, 0
        for panel in row.panels:
            if x + panel.width > _COLUMNS:
                x, y, height = 0, y + height, 0
            number += 1
            yield panel.model(number, x, y)
            x, height = x + panel.width, max(height, panel.height)
        y += height


def _variables(layers: bool) -> Iterator[dict[str, Any]]:
    yield {"name": "datasource", "type": "datasource", "label": "Store", "query": "prometheus"}
    of_run = f'{_ANY}{{{RUN}=~"$run"}}'
    yield _chosen("run", "Run", _ANY, RUN)
    yield _chosen("role", "Role", f'{{__name__=~"{_ANY}|rl_phase_duration_seconds_count",{RUN}=~"$run"}}')
    yield _chosen("rank", "Rank", of_run)
    yield _chosen("job", "Job", of_run, "job")
    if layers:
        yield _chosen("layer", "Layer", f'rl_moe_max_over_ideal{{{RUN}=~"$run"}}', "rl_moe_layer")
    yield {
        "name": "window",
        "type": "interval",
        "label": "Window",
        "description": "What averages and rates are over. No shorter than four scrapes or steps.",
        "query": "1m,5m,15m,1h,6h",
        "current": {"text": "5m", "value": "5m"},
        "options": [
            {"text": each, "value": each, "selected": each == "5m"} for each in ("1m", "5m", "15m", "1h", "6h")
        ],
        "refresh": 2,
    }
    yield {
        "name": "traces",
        "type": "textbox",
        "label": "Timelines at",
        "description": "Address under which <run id>/timeline.pftrace is served.",
        "query": "http://127.0.0.1:9001",
        "current": {"text": "http://127.0.0.1:9001", "value": "http://127.0.0.1:9001"},
    }


def _chosen(name: str, title: str, selector: str, label: str = "") -> dict[str, Any]:
    query = f"label_values({selector}, {label or f'rl_{name}'})"
    return {
        "name": name,
        "type": "query",
        "label": title,
        "datasource": DATASOURCE,
        "query": {"query": query, "refId": "values"},
        "refresh": 2,
        "sort": 3 if name in ("rank", "layer") else 1,
        "multi": True,
        "includeAll": True,
        "allValue": ".*",
        "current": _ALL,
    }


def _annotation(mark: Mark) -> dict[str, Any]:
    return {
        "name": mark.title,
        "datasource": DATASOURCE,
        "enable": mark.shown,
        "hide": False,
        "iconColor": mark.colour,
        # What Grafana asks is the first of these; the second is where its editor of annotations looks.
        "expr": str(mark.expr),
        "target": {"refId": "annotation", "datasource": DATASOURCE, "expr": str(mark.expr), "legendFormat": ""},
        "titleFormat": mark.title,
        "textFormat": mark.text,
        "tagKeys": RUN,
        "useValueForTime": mark.says_when,
    }


def _to_the_others() -> dict[str, Any]:
    return {
        "type": "dashboards",
        "title": "rltel",
        "tags": ["rltel"],
        "asDropdown": True,
        "icon": "external link",
        "includeVars": True,
        "keepTime": True,
        "targetBlank": False,
        "tooltip": "The other dashboards, for the same runs and time",
        "url": "",
    }
