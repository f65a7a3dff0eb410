"""The rules as the part of docs/alerts.md that is made from them."""

from collections.abc import Iterator

from rltel.dashboards.rule_model import Alert, Record
from rltel.dashboards.rules import groups


def tables() -> str:
    """Markdown: a section an alert, group by group, then the recording rules."""
    parts: list[str] = []
    for group in groups():
        if group.alert:
            parts += [f"## {group.title}", *(_alert(alert) for alert in group.alert)]
    recordings = [record for group in groups() for record in group.record]
    return "\n\n".join([*parts, "## Recording rules", "\n".join(_recordings(recordings))]) + "\n"


def _alert(alert: Alert) -> str:
    held = "at once" if alert.held == "0m" else f"after {alert.held}"
    lines = [f"### {alert.alert}", "", f"**{alert.severity}**, {held}. {alert.means}", ""]
    lines += [f"*Look first:* {alert.look} Dashboard: {alert.dashboard}.", "", f"*Threshold:* {alert.why}", ""]
    return "\n".join([*lines, "```promql", alert.promql, "```"])


def _recordings(records: list[Record]) -> Iterator[str]:
    yield "| series | `rl_source` | is |"
    yield "|---|---|---|"
    for record in records:
        yield f"| `{record.record}` | {f'`{record.source}`' if record.source else ''} | {record.about} |"
