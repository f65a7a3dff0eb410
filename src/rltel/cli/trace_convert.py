"""``rltel trace convert``: other programs' traces as native ones."""

from pathlib import Path

import typer

from rltel.cli.saying import say
from rltel.core.errors import TraceError
from rltel.traces.convert import convert


def convert_command(
    sources: list[Path] = typer.Argument(..., help="OTLP JSON or Chrome JSON, gzip or not.", metavar="INPUT..."),
    output: Path = typer.Option(..., "-o", "--output", help="The native trace to write.", metavar="FILE"),
) -> None:
    """Convert traces of other programs (OTLP JSON; Chrome JSON of AReaL, UniLab, torch.profiler ...) into one file."""
    shown = _Shown()
    try:
        result = convert(sources, output, progress=shown)
    except (TraceError, OSError) as error:
        say(f"rltel trace convert: {error}", err=True)
        raise typer.Exit(1) from error
    events = "1 event" if result.events == 1 else f"{result.events} events"
    say(f"{result.path}: {events}; {result.clock}")
    for reason, count in result.skipped.items():
        say(f"  skipped {count}: {reason}")
    say("open it at https://ui.perfetto.dev (the file stays on your machine)")


class _Shown:
    """Says how far the work is: each file, and every tenth of all."""

    def __init__(self) -> None:
        self._tenths = 0
        self._path: Path | None = None

    def __call__(self, path: Path, done: int, total: int) -> None:
        tenths = 10 * done // max(total, 1)
        if path != self._path:
            say(f"  {path}")
        elif tenths > self._tenths:
            say(f"  {10 * tenths} %")
        self._path, self._tenths = path, tenths
