"""What a rule is."""

import re
from collections.abc import Mapping
from typing import Literal

import msgspec

RUN = "job, rl_run_id"
"""The labels that tell runs apart: ``$run`` in an expression. Over OTLP there may be no job."""
PROCESS = {"job": "rl", "instance": "n0:9464", "rl_run_id": "r1"}
"""The labels that a server adds to all series of a process in an example: ``$x``."""
_RANKS = {"$p": "0", "$q": "1"}  # of learners: what examples are mostly about

_FIELD = re.compile(r"\{\{ (.+?) \}\}")


class Record(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A recording rule: ``expr``, or a tracker's average to be ``weighted`` over a ``window``."""

    record: str
    about: str
    expr: str = ""
    weighted: str = ""
    window: str = ""
    by: str = ""
    source: str = ""

    def __post_init__(self) -> None:
        if bool(self.expr) == bool(self.weighted) or bool(self.weighted) != bool(self.window):
            raise ValueError(f"{self.record}: expected either expr, or weighted and window")

    @property
    def promql(self) -> str:
        """Its expression."""
        return _for_runs(self.expr or weighted(self.weighted, self.window, f"$run, {self.by}" if self.by else "$run"))

    @property
    def labels(self) -> Mapping[str, str]:
        """What it adds to those of its expression."""
        return {"rl_source": self.source} if self.source else {}


class Fires(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Series that fire an alert, with what it then says."""

    series: dict[str, str]
    """Promtool's notation: a series with ``$p``, ``$q`` or ``$x`` for a process's labels, and values a minute apart."""
    at: str
    value: float
    labels: dict[str, str] = msgspec.field(default_factory=dict)
    """Beside those of the run."""


class Quiet(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Series that do not."""

    series: dict[str, str]
    at: str


class Alert(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An alert rule, why it is as it is, and examples."""

    alert: str
    expr: str
    severity: Literal["info", "warning", "critical"]
    summary: str
    means: str
    look: str
    dashboard: str
    why: str
    fires: list[Fires]
    quiet: list[Quiet]
    held: str = msgspec.field(name="for")
    """How long the expression has to hold."""

    @property
    def promql(self) -> str:
        """Its expression."""
        return _for_runs(self.expr)

    @property
    def annotations(self) -> Mapping[str, str]:
        """What whoever is called reads."""
        return {
            "summary": self.summary,
            "description": self.means,
            "look_first": self.look,
            "dashboard": self.dashboard,
        }

    def labels_of(self, example: Fires) -> Mapping[str, str]:
        """All labels that the alert has when an example fires it."""
        run = {name: PROCESS[name] for name in RUN.split(", ")}
        return {**run, **example.labels, "severity": self.severity}

    def annotations_of(self, example: Fires) -> Mapping[str, str]:
        """The annotations when an example fires it, as Go's templates put them."""
        labels = self.labels_of(example)
        return {name: _filled(text, labels, example.value) for name, text in self.annotations.items()}


class RuleGroup(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The rules of one file."""

    name: str
    title: str
    record: list[Record] = msgspec.field(default_factory=list)
    alert: list[Alert] = msgspec.field(default_factory=list)


def weighted(selector: str, window: str, by: str = "$run") -> str:
    """The average of all that was recorded in the window: docs/promql.md, without extrapolation."""
    above, below = (_change(_part(selector, suffix), window) for suffix in ("_numerator", "_denominator"))
    return f"sum by ({by}) (\n  {above}\n) / (sum by ({by}) (\n  {below}\n) > 0)"


def example_series(series: str) -> str:
    """A series of an example with all its labels."""
    for mark, rank in _RANKS.items():
        series = series.replace(mark, _matchers({**PROCESS, "rl_role": "learner", "rl_rank": rank}))
    return series.replace("$x", _matchers(PROCESS))


def _matchers(labels: Mapping[str, str]) -> str:
    return ",".join(f'{name}="{value}"' for name, value in labels.items())


def _for_runs(expr: str) -> str:
    return expr.strip().replace("$run", RUN)


def _part(selector: str, suffix: str) -> str:
    name, brace, matchers = selector.partition("{")
    return f"{name}{suffix}{brace}{matchers}"


def _change(selector: str, window: str) -> str:
    now = f"last_over_time({selector}[{window}])"
    return f"{now}\n  - (last_over_time({selector}[{window}] offset {window}) or 0 * {now})"


def _filled(text: str, labels: Mapping[str, str], value: float) -> str:
    """What the few forms that the rules use become. Another form raises KeyError."""
    forms = {
        "$value": f"{value:g}",
        'printf "%.3g" $value': f"{value:.3g}",
        'printf "%.0f" $value': f"{value:.0f}",
        "$value | humanizePercentage": f"{value * 100:.4g}%",
    }

    def put(match: re.Match[str]) -> str:
        what = match[1]
        return labels.get(what.removeprefix("$labels."), "") if what.startswith("$labels.") else forms[what]

    return _FIELD.sub(put, text)
