"""``rltel migrate``: a copy of an old run under today's names."""

from collections.abc import Iterator
from pathlib import Path

import typer

from rltel.analysis.migrate import Migrated, migrate
from rltel.cli.saying import say
from rltel.core.errors import RltelError


def migrate_command(
    log_dir: Path = typer.Argument(..., help="The folder of one run, which is only read.", metavar="LOG_DIR"),
    output: Path = typer.Option(..., "-o", "--output", help="The copy: a new or an empty folder.", metavar="NEW_DIR"),
    algo: str | None = typer.Option(
        None, "--algo", help="Who wrote the run (sac, flashsac, appo); else run_config.json says.", metavar="NAME"
    ),
) -> None:
    """Copy an old UniLab run: canonical tags and units, same steps and times, metric_schema_version in its summary."""
    try:
        made = migrate(log_dir, output, algo=algo)
    except (RltelError, OSError) as error:
        say(f"rltel migrate: {error}", err=True)
        raise typer.Exit(1) from error
    for note in made.notes:
        say(f"rltel migrate: {note}", err=True)
    say("\n".join(_lines(made)))


def _lines(made: Migrated) -> Iterator[str]:
    carried = len(made.canonical) + len(made.unknown)
    yield f"{made.path}: {len(made.renamed)} tags renamed, {len(made.left_out)} left out, {carried} as they were"
    for old, new in sorted(made.renamed.items()):
        yield f"  {old} -> {new} ({made.points[old]} points)"
    for old, reason in sorted(made.left_out.items()):
        yield f"  left out: {old} ({made.points[old]} points): {reason}"
    for tag in sorted(made.unknown):
        yield f"  as it was: {tag}, which is neither old nor canonical"
