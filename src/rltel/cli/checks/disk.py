"""Whether what is switched on can be written: folders, space, and a file server's clock."""

import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from rltel.cli.checks.finding import Finding, ok, problem, warning, within
from rltel.core.config import TelemetryConfig

_TOO_LITTLE_MB = 100
_BOUND_S = 2.0  # a dead file server answers never
_SKEW_S = 2.0


def check_disk(config: TelemetryConfig) -> Iterator[Finding]:
    """Findings on every folder that something would be written to."""
    for setting, folder in _folders(config):
        yield _guarded(setting, folder, config.trace.max_total_mb if config.trace.enabled else 0.0)


def _folders(config: TelemetryConfig) -> Iterator[tuple[str, Path]]:
    run = config.run
    run_dir = Path(run.dir) if run.dir else Path(run.log_root)
    yield ("run.dir" if run.dir else "run.log_root"), run_dir
    named = {
        "trace.output_dir": config.trace.output_dir if config.trace.enabled else None,
        "tensorboard.path": config.tensorboard.path,
        "jsonl.path": config.jsonl.path,
        "swanlab.logdir": config.swanlab.logdir if config.swanlab.mode != "disabled" else None,
    }
    for setting, given in named.items():
        if given is not None and "{run_dir}" not in given:
            yield setting, Path(given).parent if setting == "jsonl.path" else Path(given)


def _guarded(setting: str, folder: Path, trace_mb: float) -> Finding:
    try:
        return within(_BOUND_S, lambda: _folder(setting, folder, trace_mb))
    except TimeoutError:
        return problem(setting, f"{folder}: no answer within {_BOUND_S:g} s", "see whether its file server is alive")
    except OSError as error:
        return problem(setting, f"{folder}: {error.strerror}", "choose another folder, or make this one writable")


def _folder(setting: str, folder: Path, trace_mb: float) -> Finding:
    """What is there of it so far is asked; nothing is made but a file without a name."""
    there = next(each for each in (folder.absolute(), *folder.absolute().parents) if os.path.lexists(each))
    if not there.is_dir():
        return problem(setting, f"{there} is no folder", "choose another folder")
    if not os.access(there, os.W_OK | os.X_OK):
        return problem(setting, f"{there} is not writable", "choose another folder, or make this one writable")
    with tempfile.TemporaryFile(dir=there) as file:
        file.write(b"x")
        file.flush()
        skew = os.fstat(file.fileno()).st_mtime - time.time()
    free_mb = shutil.disk_usage(there).free / 1e6
    found = f"{folder}: writable, {free_mb:,.0f} MB free"
    if free_mb < _TOO_LITTLE_MB:
        return problem(setting, found, f"make room: at least {_TOO_LITTLE_MB} MB")
    if free_mb < trace_mb:
        return warning(
            setting, found, f"make room, or lower trace.max_total_mb: a process may write {trace_mb:,.0f} MB of trace"
        )
    if abs(skew) > _SKEW_S:
        return warning(setting, f"{folder}: its clock is {skew:+.0f} s from ours", "set the clocks (NTP) of both")
    return ok(setting, found)
