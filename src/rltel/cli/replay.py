"""``rltel replay``: send what a destination missed."""

import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bar

from rltel.cli.saying import say
from rltel.core.errors import RltelError
from rltel.runs.replay import Progress, replay
from rltel.runs.report import Report
from rltel.runs.targets import NAMES

_EVERY_S = 10.0


def replay_command(
    run: Path = typer.Argument(..., help="The run directory.", metavar="RUN"),
    to: str = typer.Option(..., "--to", help=f"One of {', '.join(NAMES)}.", metavar="DESTINATION"),
    config: Path | None = typer.Option(
        None, "--config", help="Where destinations are (YAML), instead of the run's own config.", metavar="FILE"
    ),
    endpoint: str | None = typer.Option(
        None, "--endpoint", help="Instead of the config's: a URL; TensorBoard: a folder; Trackio: a space."
    ),
    record: list[Path] = typer.Option(
        [], "--record", help="The record, if jsonl.path put it elsewhere; may be repeated.", metavar="FILE"
    ),
    force: bool = typer.Option(False, "--force", help="Also for processes that seem to be running."),
    dry_run: bool = typer.Option(False, "--dry-run", help="Only say what would be sent."),
    as_json: bool = typer.Option(False, "--json", help="The result as JSON."),
) -> None:
    """Send a destination what it missed of a run: original steps and times, in order, once; again to go on."""
    try:
        made = replay(run, to, config, environ=os.environ, endpoint=endpoint, files=record or None, force=force)
        if dry_run:
            report = made.report
        else:
            with _shown() as progress:
                report = made.run(progress)
    except (RltelError, OSError) as error:
        say(f"rltel replay: {error}", err=True)
        raise typer.Exit(1) from error
    if as_json:
        say(json.dumps({**asdict(report), "sent": report.sent, "missing": report.missing}, indent=2))
    else:
        say("\n".join(_lines(report, dry_run)))
    if report.error is not None:
        say(f"rltel replay: {report.error}", err=True)
        raise typer.Exit(1)


def _lines(report: Report, dry_run: bool) -> Iterator[str]:
    yield report.place if report.place.startswith(report.destination) else f"{report.destination} {report.place}"
    if report.note:
        yield f"  note: {report.note}"
    for place in report.elsewhere:
        yield f"  note: the run itself sent to {place}; --config or --endpoint can name that one"
    for each in report.processes:
        did = each.note or (f"{each.missing} to send" if dry_run else f"{each.sent} sent, {each.missing} left")
        yield f"  {each.process}: {each.commits} commits, {each.had} there already, {did}"
        if each.refused:
            yield f"    in part only: {each.refused}"
    if not report.processes:
        yield "  nothing of the record is for it"


@contextmanager
def _shown() -> Iterator[Progress]:
    """A bar on a terminal, plain lines elsewhere. Goes to stderr: results stand on stdout."""
    console = Console(stderr=True)
    if not console.is_terminal:
        yield _Lines()
        return
    columns = TextColumn("{task.description}", markup=False), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()
    with Bar(*columns, console=console, transient=True) as bar:
        task = bar.add_task("replay", total=None)
        yield lambda process, done, total: bar.update(task, description=process, completed=done, total=total)


class _Lines:
    """A line for each process, and one now and then while it takes long."""

    def __init__(self) -> None:
        self._process = ""
        self._said = 0.0

    def __call__(self, process: str, done: int, total: int) -> None:
        now = time.monotonic()
        if process != self._process or now - self._said >= _EVERY_S:
            say(f"  {process}: {done} of {total} sent", err=True)
            self._process, self._said = process, now
