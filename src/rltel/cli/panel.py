"""``rltel panel``: the last screen of a recorded run."""

import json
from pathlib import Path
from typing import Any

import typer

from rltel.cli.saying import say
from rltel.core.errors import RltelError
from rltel.runs.run_config import recorded_settings


def panel_command(
    run: Path = typer.Argument(..., help="The run directory.", metavar="RUN"),
    svg: Path | None = typer.Option(None, "--svg", help="Draw it as an SVG here instead of as text.", metavar="FILE"),
    columns: int | None = typer.Option(None, "--columns", min=20, help="Its width. Default: the terminal's; SVG: 140."),
    algo: str | None = typer.Option(None, "--algo", help="For the title. Default: the run's own."),
    task: str | None = typer.Option(None, "--task", help="For the title. Default: the run's own."),
    facts: str = typer.Option("{}", "--facts", help="What rltel.system would be told, as JSON.", metavar="JSON"),
) -> None:
    """Show what stood on the terminal panel at the end of a recorded run."""
    from rich.console import Console

    from rltel.export.panel import picture
    from rltel.export.panel.system import SystemFacts

    console = Console(highlight=False, width=columns)
    told = SystemFacts()
    try:
        if not run.is_dir():
            raise RltelError(f"{run}: expected a run directory, found none")
        told.tell(**_facts(facts))
        width = columns or (picture.COLUMNS if svg else console.width)
        about = recorded_settings(run)[0].get("run", {})
        algo, task = algo or about.get("algo"), task or about.get("task")
        lines = picture.last_screen(run, width, algo=algo, task=task, facts=told())
        if svg is not None:
            svg.write_text(picture.svg(lines, "rltel"), encoding="utf-8")
            return
    except (RltelError, OSError, ValueError, TypeError) as error:
        say(f"rltel panel: {error}", err=True)
        raise typer.Exit(1) from error
    for line in lines:
        console.print(line, no_wrap=True, crop=False, overflow="ignore")


def _facts(text: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise RltelError(f"--facts: expected a JSON object, got no JSON: {error}") from error
    if not isinstance(found, dict):
        raise RltelError(f"--facts: expected a JSON object, got {type(found).__name__}")
    return found
