"""``rltel trace``: work on timelines."""

import json
import tempfile
import webbrowser
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path

import typer

from rltel.cli.progress import shown
from rltel.cli.saying import say
from rltel.cli.trace_convert import convert_command
from rltel.cli.trace_summary import summary_lines
from rltel.core.errors import TraceError
from rltel.traces.merge import merge
from rltel.traces.serve import TraceServer
from rltel.traces.sources import spell_files
from rltel.traces.summary import summarize
from rltel.traces.validate import validate

app = typer.Typer(no_args_is_help=True)
app.command("convert")(convert_command)
_SOURCE = typer.Argument(
    ..., help="A trace file, a run directory, or any folder with trace files below it.", metavar="FILE_OR_DIR"
)


@app.callback()
def main() -> None:
    """Work on timelines."""


@contextmanager
def _told(command: str) -> Iterator[None]:
    """Errors that a user can do something about are one line on stderr, and exit code 1."""
    try:
        yield
    except (TraceError, OSError) as error:
        say(f"rltel trace {command}: {_spelled(error)}", err=True)
        raise typer.Exit(1) from error


def _spelled(error: Exception) -> str:
    if isinstance(error, OSError) and error.filename is not None and error.strerror:
        return f"{error.filename}: {error.strerror}"
    return str(error)


def _say_left_out(paths: Sequence[Path]) -> None:
    for path in paths:
        say(f"  left out {path}: a merged trace already")


@app.command("merge")
def merge_command(
    source: Path = typer.Argument(..., help="Run directory, or any folder with trace files below it.", metavar="DIR"),
    output: Path = typer.Option(..., "-o", "--output", help="The merged file.", metavar="FILE"),
    kineto: list[Path] = typer.Option(
        [],
        "--kineto",
        help="An export of torch.profiler (JSON, or .gz) of the same run; may be repeated.",
        metavar="FILE",
    ),
) -> None:
    """Merge the traces of a run's processes into one file, on one clock."""
    with _told("merge"):
        with shown("merging") as progress:
            merged = merge(source, output, progress, kineto)
        files = spell_files(len(merged.files), merged.runs)
        say(f"{merged.path}: {merged.packets} packets of {files}; {merged.uncertainty}")
        _say_left_out(merged.left_out)
        for reason, count in merged.skipped.items():
            say(f"  skipped {count}: {reason}")
        say(f"look at it: rltel trace open {merged.path} (it stays on your machine)")


@app.command("summary")
def summary_command(
    source: Path = _SOURCE,
    as_json: bool = typer.Option(False, "--json", help="All of it, as JSON; times in nanoseconds."),
) -> None:
    """Say where iterations went, what overlapped, and what waited for what."""
    with _told("summary"):
        with shown("reading") as progress:
            made = summarize(source, progress)
        if as_json:
            say(json.dumps(asdict(made), indent=2))
        else:
            say("\n".join(summary_lines(made)))


@app.command("validate")
def validate_command(source: Path = _SOURCE) -> None:
    """Check nesting, clocks, ids and truncation. Exits with 1 if there are problems; notes are none."""
    with _told("validate"):
        with shown("checking") as progress:
            findings = validate(source, progress)
        for finding in findings:
            say(str(finding))
        problems = sum(finding.kind == "problem" for finding in findings)
        say(f"{source}: {problems or 'no'} {'problem' if problems == 1 else 'problems'}")
        if problems:
            raise typer.Exit(1)


@app.command("open")
def open_command(
    source: Path = _SOURCE,
    browser: bool = typer.Option(True, "--browser/--no-browser", help="Open the link in a browser, or only say it."),
) -> None:
    """Open a trace in the Perfetto UI. The file stays on your machine; a folder is merged first."""
    with _told("open"), tempfile.TemporaryDirectory(prefix="rltel-") as folder:
        if source.is_dir():
            output = Path(folder) / "merged.pftrace"
            with shown("merging") as progress:
                merged = merge(source, output, progress)
            say(f"{spell_files(len(merged.files), merged.runs)}; {merged.uncertainty}")
            _say_left_out(merged.left_out)
            source = output
        server = TraceServer(source)
        say(server.link)
        say("serving until the browser has fetched the file; Ctrl+C ends it")
        if browser:
            webbrowser.open(server.link)
        try:
            server.run()
        except KeyboardInterrupt:
            return
