"""``rltel schema``: every canonical tag of robot RL, what its values mean, and what it is called elsewhere."""

import json
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

import typer

from rltel.cli.saying import say
from rltel.cli.schema_page import page
from rltel.names.otel import Name, Namer
from rltel.names.prometheus import prometheus_name
from rltel.names.schema import METRIC_SCHEMA_VERSION, locals_, persisted_tags, removed_tags, tags


def schema_command(
    as_json: bool = typer.Option(False, "--json", help="Everything, as JSON."),
    as_markdown: bool = typer.Option(False, "--markdown", help="The page docs/schema.md."),
) -> None:
    """Show the metric schema of robot RL: tags, units, reductions, names in OpenTelemetry and Prometheus."""
    if as_json and as_markdown:
        say("rltel schema: expected --json or --markdown, got both", err=True)
        raise typer.Exit(2)
    if as_json:
        say(json.dumps(schema_data(), indent=1))
    else:
        say("\n".join(page() if as_markdown else _columns()))


def schema_data() -> dict[str, Any]:
    """The schema as plain data."""
    namer = Namer()
    return {
        "metric_schema_version": METRIC_SCHEMA_VERSION,
        "local": {name: local._asdict() for name, local in locals_().items()},
        "removed": [each._asdict() for each in removed_tags()],
        "tags": [{**asdict(each), **(_names(namer.name(each.name)) if each.persisted else {})} for each in tags()],
    }


def _names(name: Name) -> dict[str, Any]:
    return {
        "instrument": name.instrument,
        "otel": {"name": name.name, "unit": name.unit, "attributes": dict(name.attributes), "scale": name.scale},
        "prometheus": prometheus_name(name.name, name.unit, name.instrument),
    }


def _columns() -> Iterator[str]:
    """What fits a terminal: tag, unit, ranks, aggregation."""
    rows = [("tag", "unit", "ranks", "in one process")]
    rows += [(each.name, each.unit, each.ranks, locals_()[each.local].about) for each in persisted_tags()]
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]) - 1)]
    for row in rows:
        yield "  ".join((*(cell.ljust(width) for cell, width in zip(row, widths, strict=False)), row[-1]))
