"""``rltel soak``: run a command for long, watch it, and say whether it may be trusted."""

import os
from collections.abc import Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

import typer

from rltel.cli.saying import say
from rltel.core.errors import RltelError
from rltel.runs.soak.monitor import run_soak
from rltel.runs.soak.settings import Limits, Settings

_TAIL_LINES = 20
_TAIL_BYTES = 16_384


def soak_command(
    command: list[str] = typer.Argument(..., help="The program and its arguments, after --.", metavar="COMMAND..."),
    run_dir: Path | None = typer.Option(
        None, "--run-dir", help="The command's run directory. Default: RLTEL_RUN_DIR, else a new one below soaks/."
    ),
    watch: Path | None = typer.Option(
        None, "--watch", help="Instead: the folder in which a command that has no RLTEL_RUN_DIR makes its files."
    ),
    output: Path | None = typer.Option(
        None, "--output", "-o", help="The artifact. Default: soak.json in the run directory."
    ),
    sample_interval: float = typer.Option(5.0, help="Seconds between samples."),
    startup_timeout: float = typer.Option(600.0, help="Seconds for the first file to grow."),
    stale_progress: float = typer.Option(120.0, help="Seconds without any file growing, after that."),
    stop_grace: float = typer.Option(10.0, help="Seconds from SIGTERM to SIGKILL when the command has to be stopped."),
    post_shutdown_grace: float = typer.Option(5.0, help="Seconds for child processes to end after the command."),
    min_duration: float = typer.Option(0.0, help="Seconds that the command has to run at least."),
    max_rss_growth: float | None = typer.Option(None, help="MiB that the memory of all processes may grow."),
    max_fd_growth: int | None = typer.Option(None, help="Descriptors that may be added."),
    max_process_growth: int | None = typer.Option(None, help="Processes that may be added."),
    warmup: float = typer.Option(60.0, help="Seconds until growth counts."),
    max_samples: int = typer.Option(2000, help="Samples that the artifact keeps."),
    max_console: float = typer.Option(64.0, help="MiB of the command's output; of more, the middle is cut out."),
    require_manifest: bool = typer.Option(
        False, "--require-manifest", help="Fail a run whose summary has no runtime manifest."
    ),
) -> None:
    """Run a command, watch its processes and its progress, and judge how it ended. Exit code 0 only if all was right.

    The artifact is written in any case. Everything that the command started is ended with it.
    """
    folder = _folder(run_dir, watch)
    try:
        settings = Settings(
            command,
            folder,
            output or folder / "soak.json",
            sets_run_dir=watch is None,
            sample_interval_s=sample_interval,
            startup_timeout_s=startup_timeout,
            stale_progress_s=stale_progress,
            stop_grace_s=stop_grace,
            post_shutdown_grace_s=post_shutdown_grace,
            min_duration_s=min_duration,
            max_samples=max_samples,
            max_console_mib=max_console,
            require_manifest=require_manifest,
            limits=Limits(max_rss_growth, max_fd_growth, max_process_growth, warmup),
        )
        say(f"rltel soak: output in {settings.console}", err=True)
        artifact = run_soak(settings)
    except (RltelError, OSError) as error:
        say(f"rltel soak: {error}", err=True)
        raise typer.Exit(2) from error
    say("\n".join(_lines(artifact, settings)))
    if artifact["status"] != "passed":
        raise typer.Exit(1)


def _folder(run_dir: Path | None, watch: Path | None) -> Path:
    if run_dir is not None and watch is not None:
        raise typer.BadParameter("--run-dir and --watch: expected one of them, got both")
    inherited = os.environ.get("RLTEL_RUN_DIR", "").strip()
    given = run_dir or watch or (Path(inherited) if inherited else None)
    return given or Path("soaks", f"{datetime.now():%Y-%m-%d_%H-%M-%S}_{os.getpid()}")


def _lines(artifact: Mapping[str, Any], settings: Settings) -> Iterator[str]:
    used = artifact["resource_summary"]
    if artifact["status"] == "passed":
        yield f"passed after {artifact['duration_s']:.1f} s"
    else:
        yield f"FAILED after {artifact['duration_s']:.1f} s: {artifact['failure_classification']}"
        yield from (f"  {reason}" for reason in artifact["failure_reason"].split("; "))
    memory = used["max_process_rss_kib"]
    said = "" if memory is None else f", at most {used['max_process_count']} processes with {memory / 1024:.0f} MiB"
    yield f"  {used['sample_count']} samples{said}"
    yield f"  artifact: {settings.output}"
    cut = artifact["monitor"]["console_cut_bytes"]
    if cut:
        yield f"  {cut} bytes were cut out of the middle of {settings.console} (--max-console)"
    if artifact["status"] != "passed":
        yield f"  the end of {settings.console}:"
        yield from (f"    {line}" for line in _tail(settings.console))


def _tail(file: Path) -> list[str]:
    try:
        with file.open("rb") as opened:  # a week's output may be larger than the memory
            size = opened.seek(0, os.SEEK_END)
            opened.seek(max(0, size - _TAIL_BYTES))
            text = opened.read(_TAIL_BYTES).decode(errors="replace")
        return text.splitlines()[-_TAIL_LINES:]
    except OSError as error:
        return [str(error)]
