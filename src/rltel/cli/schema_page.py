"""The page ``docs/schema.md``: the metric schema as tables."""

from collections.abc import Iterable, Iterator

from rltel.names.otel import Name, Namer
from rltel.names.prometheus import prometheus_name
from rltel.names.schema import METRIC_SCHEMA_VERSION, locals_, persisted_tags, removed_tags, tags

_INTRO = f"""\
# Metric schema

Every canonical tag of robot RL, version {METRIC_SCHEMA_VERSION} (`metric_schema_version` in `run_summary.json`).
This page is what `rltel schema --markdown` prints; `--json` gives the same to programs, `rltel.names.schema` to Python.

- A published tag keeps its name, unit, aggregation, reduction over ranks and rules of omission. A change of any of them
  is a new version; an additional tag is not.
- Persisted values are never smoothed (an average over time is only in the terminal), except where the table says EMA.
- What is missing is left out: nothing stands in for it, no zero and no NaN. A NaN that was measured is written.
- With `names.strict: true` a key under one of these namespaces has to be one of these tags.
- `rltel.gauge` goes by a tag's own rules if the call does not say `ranks` or `local`. A value on a device counts as the
  last one then; any other rule would have to wait for it.
- *ranks*: `mean` of the ranks that have it, `sum`, or `writer` (rank 0 alone). `<part>` makes a family.
"""
_PHASES = ("exclusive", "nested", "background")


def page() -> Iterator[str]:
    """Its lines."""
    yield _INTRO
    yield "## Tags\n"
    yield from _table(
        ("tag", "unit", "of", "kind", "in one process", "ranks", "algorithms", "left out when"), _meanings()
    )
    yield "\n## In one process\n"
    yield "How a process makes one value of several between two exports, and what `rltel.gauge` does if not told.\n"
    yield from _table(
        ("rule", "value", "`gauge`"), ((f"`{n}`", each.about, each.gauge) for n, each in locals_().items())
    )
    yield "\n## What each is\n"
    yield from _table(("tag", ""), ((f"`{each.name}`", each.about) for each in persisted_tags()))
    yield "\n## In OpenTelemetry and Prometheus\n"
    yield "The names follow the experimental `rl.*` proposal, and are not part of what stays as it is.\n"
    yield from _table(("tag", "OpenTelemetry", "Prometheus"), _elsewhere())
    yield "\n## In the terminal\n"
    yield "From the top. A quiet row is hidden while it is below 1% of its 100%. Rows without a tag are made for the"
    yield "terminal, and never persisted.\n"
    yield from _table(("section", "label", "tag", "100% is", "quiet"), _rows_of_the_terminal())
    yield "\n## Not emitted any more\n"
    yield from _table(
        ("tag", "instead", "it was"), ((f"`{e.prefix}...`", f"`{e.instead}`", e.about) for e in removed_tags())
    )


def _meanings() -> Iterator[tuple[str, ...]]:
    for each in persisted_tags():
        kind = each.kind + (" phase" if each.kind in _PHASES else "") + (f" of `{each.parent}`" if each.parent else "")
        left_out = [each.omitted, "it is 0"] if each.zero_is_absent else [each.omitted]
        yield (
            f"`{each.name}`",
            each.unit,
            each.owner,
            kind,
            f"`{each.local}`",
            each.ranks,
            ", ".join(each.algorithms),
            "; ".join(left_out),
        )


def _elsewhere() -> Iterator[tuple[str, ...]]:
    namer = Namer()
    for each in persisted_tags():
        name = namer.name(each.name)
        both = [name] if name.also is None else [name, name.also]
        yield (
            f"`{each.name}`",
            "; ".join(_otel(one) for one in both),
            "; ".join(f"`{prometheus_name(one.name, one.unit, one.instrument)}`" for one in both),
        )


def _otel(name: Name) -> str:
    attributes = ", ".join(f"{key}={value}" for key, value in name.attributes.items())
    return f"`{name.name}`" + (f" {{{attributes}}}" if attributes else "") + (f", {name.unit}" if name.unit else "")


def _rows_of_the_terminal() -> Iterator[tuple[str, ...]]:
    for each in tags():
        shown = each.terminal
        if shown is not None:
            made = f"({each.about.rstrip('.')})"
            yield (
                shown.section,
                shown.label,
                f"`{each.name}`" if each.persisted else made,
                f"`{shown.percent_of}`" if shown.percent_of else "",
                "yes" if shown.quiet else "",
            )


def _table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> Iterator[str]:
    for row in (head, ("---",) * len(head), *rows):
        yield f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in row)} |"
