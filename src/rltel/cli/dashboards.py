"""``rltel dashboards``: Grafana dashboards and Prometheus rules as files."""

from collections.abc import Mapping
from pathlib import Path

import typer

app = typer.Typer(no_args_is_help=True)


@app.command()
def build(
    folder: Path = typer.Argument(Path("dashboards"), help="Where they are kept."),
    check: bool = typer.Option(False, "--check", help="Only say what is stale; exit code 1 if anything is."),
) -> None:
    """Write dashboards and rules into the repository, where they differ."""
    stale = [name for name, text in all_files().items() if _read(folder / name) != text]
    for name in stale:
        typer.echo(f"{'stale' if check else 'written'}: {folder / name}")
    if check:
        raise typer.Exit(1 if stale else 0)
    _write(folder, {name: all_files()[name] for name in stale})


@app.command()
def export(folder: Path = typer.Argument(..., help="Where to; made if it is not there.")) -> None:
    """Write dashboards and rules from the installed package."""
    made = all_files()
    _write(folder, made)
    typer.echo(f"{len(made)} files in {folder}")


@app.command("page")
def page_command() -> None:
    """Print docs/dashboards.md."""
    from rltel.dashboards.page import page

    typer.echo(page(), nl=False)


def all_files() -> Mapping[str, str]:
    """Relative paths, and what stands in the files."""
    from rltel.dashboards import all_of_them, rules  # builds every panel: other commands need not wait for it

    return {**all_of_them.files(), **rules.files()}


def _read(path: Path) -> str | None:
    return path.read_text("utf-8") if path.is_file() else None


def _write(folder: Path, made: Mapping[str, str]) -> None:
    try:
        for name, text in made.items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, "utf-8")
    except OSError as error:
        typer.echo(f"rltel dashboards: cannot write {error.filename}: {error.strerror}", err=True)
        raise typer.Exit(2) from error
