"""What a panel shows, and how Grafana is told so."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from rltel.dashboards.promql import Expr

DATASOURCE = {"type": "prometheus", "uid": "${datasource}"}
Look = Literal["lines", "stacked", "number", "heatmap"]
_TYPES = {"lines": "timeseries", "stacked": "timeseries", "number": "stat", "heatmap": "heatmap"}
_TRACE = (
    "https://ui.perfetto.dev/#!/?url=${traces}/${__field.labels.rl_run_id}/timeline.pftrace"
    "&visStart=${__from}000000&visEnd=${__to}000000"
)


class Query(NamedTuple):
    """One query of a panel."""

    expr: Expr
    legend: str
    needs: str = ""
    """What it needs that neither demo has; empty where a demo has it."""


class Bound(NamedTuple):
    """From which value on a panel warns."""

    value: float
    colour: str = "red"


@dataclass(frozen=True, slots=True)
class Panel:
    """One panel."""

    title: str
    about: str
    """What it means, and what to look at if it looks wrong."""
    queries: Sequence[Query]
    unit: str
    """In Grafana's words."""
    bounds: Sequence[Bound] = ()
    look: Look = "lines"
    width: int = 8
    height: int = 8
    base: str = "green"
    """The colour below all bounds."""
    scraped_only: bool = False
    """Whether OTLP does not bring it: how destinations are doing is on the scrape endpoint."""

    def model(self, number: int, x: int, y: int) -> dict[str, Any]:
        """As Grafana has it, at this place of its grid."""
        # Stacks of several runs on each other would say nothing: a panel for each run.
        repeated = {"repeat": "run", "repeatDirection": "v"} if self.look in ("stacked", "heatmap") else {}
        return {
            "id": number,
            "type": _TYPES[self.look],
            "title": f"{self.title}: $run" if repeated else self.title,
            "description": self.about,
            "datasource": DATASOURCE,
            "gridPos": {"x": x, "y": y, "w": self.width, "h": self.height},
            "targets": [_target(query, index, self.look) for index, query in enumerate(self.queries)],
            "fieldConfig": {"defaults": self._field(), "overrides": []},
            "options": _options(self.look),
            **repeated,
        }

    def _field(self) -> dict[str, Any]:
        steps: list[dict[str, Any]] = [{"color": self.base, "value": None}]
        steps += [{"color": bound.colour, "value": bound.value} for bound in self.bounds]
        made: dict[str, Any] = {
            "unit": self.unit,
            "thresholds": {"mode": "absolute", "steps": steps},
            "links": [{"title": "Timeline of this time (Perfetto)", "url": _TRACE, "targetBlank": True}],
        }
        if self.look in ("lines", "stacked"):
            made["custom"] = _drawing(stacked=self.look == "stacked", bounded=bool(self.bounds))
        return made


def _target(query: Query, index: int, look: Look) -> dict[str, Any]:
    return {
        "refId": chr(ord("A") + index),
        "datasource": DATASOURCE,
        "expr": str(query.expr),
        "legendFormat": query.legend,
        "range": look != "number",
        "instant": look == "number",
        # Grafana takes buckets of a histogram apart, each less the one below; of anything else that would be nonsense.
        "format": "heatmap" if look == "heatmap" and query.legend == "{{le}}" else "time_series",
    }


def _drawing(*, stacked: bool, bounded: bool) -> dict[str, Any]:
    return {
        "drawStyle": "line",
        "lineWidth": 1,
        "fillOpacity": 60 if stacked else 0,
        "spanNulls": True,  # steps may be rarer than points
        "showPoints": "auto",
        "stacking": {"mode": "normal" if stacked else "none", "group": "A"},
        "thresholdsStyle": {"mode": "dashed" if bounded else "off"},
    }


def _options(look: Look) -> dict[str, Any]:
    if look == "number":
        return {
            "reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False},
            "colorMode": "value",
            "graphMode": "none",
            "justifyMode": "auto",
            "orientation": "auto",
            "textMode": "auto",
        }
    if look == "heatmap":
        return {
            "calculate": False,
            "rowsFrame": {"layout": "auto"},
            "color": {
                "mode": "scheme",
                "scheme": "Oranges",
                "steps": 64,
                "exponent": 0.5,
                "fill": "orange",
                "reverse": False,
            },
            "legend": {"show": True},
            "tooltip": {"mode": "single", "yHistogram": False, "showColorScale": True},
            "yAxis": {"axisPlacement": "left"},
            "cellGap": 1,
        }
    return {
        "legend": {"displayMode": "list", "placement": "bottom", "showLegend": True, "calcs": []},
        "tooltip": {"mode": "multi", "sort": "desc"},
    }
