"""How the telemetry itself is doing."""

from rltel.dashboards.dashboard import Dashboard, Row
from rltel.dashboards.overview import DROPPED, NONFINITE
from rltel.dashboards.panel import Bound, Panel, Query
from rltel.dashboards.promql import Expr, highest, increase, mean, own, quantile, rate
from rltel.dashboards.series import CHOSEN, named

_SPENT = named("rltel.export_seconds", "destination")
_WHO = "rl_run_id, rl_role, rl_rank"
_PROCESS = "{{rl_run_id}} {{rl_role}} {{rl_rank}}"
_DESTINATION = "{{rl_run_id}} {{destination}}"


def _of_scrapes(name: str) -> Expr:
    return own(f"max by ({_WHO}) ({name}{{{CHOSEN}}})")


def _since(text: str) -> Expr:
    return own(f"time() - {text}")


_ARRIVES = Row(
    "Does it arrive",
    [
        Panel(
            "Lost",
            "Commits and records lost in the window, by destination and reason. queue_full: the other side is slow "
            "or away; error: it refuses; shutdown: there was no time at the end. Sums include what was lost.",
            [Query(increase(DROPPED), "{{rl_run_id}} {{destination}} {{reason}}")],
            "none",
            [Bound(1)],
        ),
        Panel(
            "Taken",
            "Commits and records that each destination took, a second.",
            [Query(rate(named("rltel.exported_total", "destination")), _DESTINATION)],
            "suffix: /s",
        ),
        Panel(
            "Since it last worked",
            "Seconds since a destination took something, of the process where that is longest ago. More than a few "
            "intervals: it hangs, or nobody commits.",
            [
                Query(
                    _since(
                        f"min by (rl_run_id, destination) (rltel_last_success_timestamp_seconds{{{CHOSEN}}})",
                    ),
                    _DESTINATION,
                )
            ],
            "s",
            [Bound(60, "orange"), Bound(300)],
        ),
        Panel(
            "Tried again",
            "Attempts that were made again in the window, since the other side was away.",
            [Query(increase(named("rltel.retries_total", "destination")), _DESTINATION)],
            "none",
            [Bound(1, "orange")],
        ),
        Panel(
            "Waiting",
            "What waits for a destination. Growing: it does not keep up, and soon the oldest are dropped.",
            [Query(highest(named("rltel.queue_items", "destination")), _DESTINATION)],
            "short",
        ),
        Panel(
            "Memory of what waits",
            "About how much memory that takes. The bound is pipeline.queue_mb, 64 unless set.",
            [Query(highest(named("rltel.queue_bytes", "destination")), _DESTINATION)],
            "decbytes",
            [Bound(32e6, "orange"), Bound(60e6)],
        ),
    ],
)

_COSTS = Row(
    "What it costs",
    [
        Panel(
            "Time of an export",
            "Mean time that a destination takes, each time. Training waits for none of them.",
            [Query(mean(_SPENT), _DESTINATION)],
            "s",
        ),
        Panel(
            "Slowest exports",
            "The slowest hundredth. Longer than the time between commits for long: what waits grows, above.",
            [Query(quantile(0.99, _SPENT), _DESTINATION)],
            "s",
        ),
        Panel(
            "Series",
            "Series that an endpoint holds. Growing without end: a label with ever new values.",
            [Query(_of_scrapes("rltel_series"), _PROCESS)],
            "short",
            [Bound(10_000, "orange"), Bound(100_000)],
            scraped_only=True,
        ),
        Panel(
            "Gauges that went",
            "Gauges that an endpoint no longer shows, since nothing updated them. Workers that ended have some.",
            [Query(_of_scrapes("rltel_series_expired_total"), _PROCESS)],
            "short",
            scraped_only=True,
        ),
        Panel(
            "Names",
            "Keys that had another's name and carry rl_key, and keys that share an overflow series.",
            [
                Query(_of_scrapes("rltel_names_collided_total"), f"{_PROCESS} collided"),
                Query(
                    own(f"max by ({_WHO}, metric) (rltel_overflowed_keys{{{CHOSEN}}})"),
                    f"{_PROCESS} {{{{metric}}}}",
                    "more label sets than names.max_series_per_metric",
                ),
            ],
            "none",
        ),
    ],
)

_SCRAPES = Row(
    "Scrapes and values",
    [
        Panel(
            "Up",
            "1 where the last scrape worked, 0 where it did not. What is gone has ended.",
            [Query(_of_scrapes("up"), _PROCESS)],
            "none",
            scraped_only=True,
        ),
        Panel(
            "Scrape age",
            "Seconds since each process was last scraped, whether or not it answered (Up says that).",
            [Query(_since(f"max by ({_WHO}) (timestamp(up{{{CHOSEN}}}))"), _PROCESS)],
            "s",
            [Bound(60, "orange"), Bound(300)],
            scraped_only=True,
        ),
        Panel(
            "Scrape time",
            "How long a scrape takes. Near the scrape's timeout: fewer series, or rarer scrapes.",
            [Query(_of_scrapes("scrape_duration_seconds"), _PROCESS)],
            "s",
            [Bound(1, "orange"), Bound(5)],
            scraped_only=True,
        ),
        Panel(
            "Age of the last step",
            "Seconds since a store had the last step: over OTLP each has its own time, scraped it is the scrape's.",
            [
                Query(
                    _since(f'max by (rl_run_id, rl_axis) (timestamp(rl_step{{{CHOSEN},rl_axis="train"}}))'),
                    "{{rl_run_id}}",
                )
            ],
            "s",
        ),
        Panel(
            "Values that are not finite",
            "NaN and infinities in the window, by key.",
            [Query(increase(NONFINITE), "{{rl_run_id}} {{rl_key}}")],
            "none",
            [Bound(1)],
        ),
    ],
)

DASHBOARD = Dashboard(
    "health",
    "Telemetry health",
    "Whether the telemetry arrives, and what it costs.",
    [_ARRIVES, _COSTS, _SCRAPES],
)
