"""Queries that both routes answer alike: scraped by Prometheus, or sent over OTLP to a store that speaks PromQL.

How much each kind can be trusted at a run's begin and across restarts is in docs/dashboards.md.
"""

from dataclasses import dataclass
from typing import Literal

from rltel.dashboards.series import RANK, ROLE, Series

Kind = Literal["weighted", "latest", "either", "mean", "quantile", "rate", "increase", "highest", "own"]
WINDOW = "$window"
LONG_AGO = "2h:1m"
"""Where a sum is looked for that has no sample in the window before: over OTLP an iteration may be longer than it."""


@dataclass(frozen=True, slots=True)
class Expr:
    """A query, and what it means, so that a test can work out its answer from the JSONL."""

    text: str
    kind: Kind
    series: Series | None = None
    quantile: float | None = None

    def __str__(self) -> str:
        return self.text


def weighted(of: Series) -> Expr:
    """The average of all that was recorded in the window, each value with its weight.

    Without extrapolation, from what was there before, and from 0 where a process began in the window (docs/promql.md).
    """
    above, below = (_change(of.part(suffix)) for suffix in ("_numerator", "_denominator"))
    by = _by(of)
    return Expr(f"sum by ({by}) ({above}) / (sum by ({by}) ({below}) > 0)", "weighted", of)


def latest(of: Series, how: str = "avg") -> Expr:
    """What each process said last; of a process that was restarted, what the later one says.

    Over OTLP the series of a process that has ended stays for minutes, beside its successor's. What a process says of
    several scopes or trackers counts each.
    """
    apart = dict.fromkeys((*of.by, ROLE, RANK, "rl_scope", "rl_tracker"))
    of = of.only('rl_stat!~"min|max|p.+"')  # of a key that was recorded as a tensor there are these beside its average
    newest = f"{of} and topk by ({', '.join(apart)}) (1, timestamp({of}))"
    return Expr(f"{how} by ({_by(of)}) ({newest})", "latest", of)


def either(of: Series) -> Expr:
    """The weighted average where a trainer records values, the last one where it sets a gauge."""
    return Expr(f"({weighted(of)}) or ({latest(of)})", "either", of)


def mean(of: Series) -> Expr:
    """Of a histogram: the mean of what was observed in the window."""
    return Expr(f"{grown(of, '_sum')} / ({grown(of, '_count')} > 0)", "mean", of)


def quantile(q: float, of: Series) -> Expr:
    """Of a histogram: a quantile of what was observed in the window. Bounds are powers of two."""
    buckets = f"sum by (le, {_by(of)}) (increase({of.part('_bucket')}[{WINDOW}]))"
    return Expr(f"histogram_quantile({q}, {buckets}) and {grown(of, '_count')} > 0", "quantile", of, q)


def rate(of: Series) -> Expr:
    """Of a counter: how much a second."""
    return Expr(a_second(of), "rate", of)


def increase(of: Series) -> Expr:
    """Of a counter: how much in the window."""
    return Expr(grown(of), "increase", of)


def highest(of: Series) -> Expr:
    """The largest, of several processes: for what only grows."""
    return Expr(f"max by ({_by(of)}) ({of})", "highest", of)


def own(text: str) -> Expr:
    """A query of its own kind."""
    return Expr(text, "own")


def a_second(of: Series, suffix: str = "") -> str:
    """How much one of its names grew a second, added up."""
    return f"sum by ({_by(of)}) (rate({of.part(suffix)}[{WINDOW}]))"


def grown(of: Series, suffix: str = "") -> str:
    """How much one of its names grew in the window, added up.

    For quotients: VictoriaMetrics's rates are over the time that a series was seen, and those of two processes do not
    add up to a mean.
    """
    return f"sum by ({_by(of)}) (increase({of.part(suffix)}[{WINDOW}]))"


def _by(of: Series) -> str:
    return ", ".join(of.by)


def _change(selector: str) -> str:
    now = f"last_over_time({selector}[{WINDOW}])"
    before = " or ".join(f"last_over_time({selector}[{back}] offset {WINDOW})" for back in (WINDOW, LONG_AGO))
    return f"{now} - ({before} or 0 * {now})"
