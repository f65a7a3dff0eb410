"""``rltel doctor``: what would keep this configuration from working here, and what to do about it."""

import json
import os
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

import typer

from rltel.cli.checks.clocks import check_clocks
from rltel.cli.checks.disk import check_disk
from rltel.cli.checks.finding import Finding, ok, problem, warning
from rltel.cli.checks.launcher import check_launcher
from rltel.cli.checks.network import check_network
from rltel.cli.checks.packages import check_packages
from rltel.cli.config import switched_on
from rltel.cli.saying import say
from rltel.core.config import TelemetryConfig
from rltel.core.errors import ConfigError
from rltel.core.resolve import disabled, resolve_with_origins

_MARKS = {"ok": "ok     ", "warning": "WARNING", "problem": "PROBLEM"}


def doctor_command(
    file: Path | None = typer.Argument(
        None, help="A YAML file: ours, or a trainer's own config. Without it: the environment alone.", metavar="FILE"
    ),
    as_json: bool = typer.Option(False, "--json", help="The findings as JSON."),
) -> None:
    """Check that a configuration works on this machine. Exit code 1 if anything will not.

    Asks no address but those of the configuration, each at most a second, and writes nothing that stays.
    """
    findings = list(examine(file))
    is_healthy = all(finding.status != "problem" for finding in findings)
    if as_json:
        say(json.dumps({"ok": is_healthy, "findings": [asdict(finding) for finding in findings]}, indent=2))
    else:
        say("\n".join(_lines(findings)))
    raise typer.Exit(0 if is_healthy else 1)


def examine(file: Path | None) -> Iterator[Finding]:
    """Everything that the doctor looks at. With a wrong config, what does not depend on it."""
    config = TelemetryConfig()
    try:
        resolved = resolve_with_origins(file)
    except ConfigError as error:
        for line in str(error).split("\n"):
            yield problem("config", line, "correct it (rltel config check)")
    else:
        config = resolved.config
        yield from (warning("config", note, "see whether it was meant for rltel") for note in resolved.notes)
        yield _switched_on(config)
        if disabled(os.environ):
            yield warning(
                "config", "OTEL_SDK_DISABLED or RLTEL_DISABLED is set: nothing is on", "unset it if not meant"
            )
        if config.anything_on():
            yield from check_disk(config)
            yield from check_packages(config)
            yield from check_network(config)
    yield from check_launcher(config.run)
    yield from check_clocks()


def _switched_on(config: TelemetryConfig) -> Finding:
    on = switched_on(config)
    if on:
        return ok("config", f"right; switched on: {', '.join(on)}")
    return warning("config", "nothing is switched on", "enable a destination, as prometheus.enabled: true")


def _lines(findings: list[Finding]) -> Iterator[str]:
    for finding in findings:
        yield f"{_MARKS[finding.status]} {finding.area}: {finding.what}"
        if finding.do:
            yield f"        -> {finding.do}"
    counts = {status: sum(finding.status == status for finding in findings) for status in ("problem", "warning")}
    yield f"{counts['problem']} problems, {counts['warning']} warnings"
