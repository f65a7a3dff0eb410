"""``rltel trace``: work on timelines."""

from pathlib import Path

import typer

from rltel.core.errors import TraceError
from rltel.traces.merge import merge

app = typer.Typer(no_args_is_help=True)


@app.callback()
def main() -> None:
    """Work on timelines."""


@app.command("merge")
def merge_command(
    source: Path = typer.Argument(..., help="Run directory, or any folder with trace files below it.", metavar="DIR"),
    output: Path = typer.Option(..., "-o", "--output", help="The merged file.", metavar="FILE"),
) -> None:
    """Merge the traces of a run's processes into one file, on one clock."""
    try:
        merged = merge(source, output, progress=lambda path: typer.echo(f"  {path}"))
    except (TraceError, OSError) as error:
        typer.echo(f"rltel trace merge: {error}", err=True)
        raise typer.Exit(1) from error
    typer.echo(f"{merged.path}: {merged.packets} packets of {len(merged.files)} files; {merged.uncertainty}")
    typer.echo("open it at https://ui.perfetto.dev (the file stays on your machine)")
