"""``rltel extract``: thirteen numbers of a run."""

import json
import math
from pathlib import Path
from typing import Any

import typer

from rltel.analysis.extract import Extracted, extract
from rltel.analysis.schema_gate import Reading
from rltel.cli.saying import say
from rltel.core.errors import RltelError


def extract_command(
    log_dir: Path = typer.Argument(..., help="The folder of one run.", metavar="LOG_DIR"),
    last: int = typer.Option(20, "--last", min=1, help="The mean is over the last N points of each tag.", metavar="N"),
    as_json: bool = typer.Option(False, "--json", help="As JSON: null where there is no number, why_null says why."),
    legacy: bool = typer.Option(
        False, "--legacy-unversioned", help="A run of unilab-rl before 1.4.1: old tags, and no metric_schema_version."
    ),
    canonical: bool = typer.Option(
        False,
        "--canonical-unversioned",
        help="A run with today's tags and no metric_schema_version: unilab-rl 1.4.1 to 1.4.4, and its APPO and PPO.",
    ),
    algo: str | None = typer.Option(
        None, "--algo", help="Who wrote an old run (sac, flashsac, appo); else run_config.json says.", metavar="NAME"
    ),
) -> None:
    """Print timings and rates of a run: means over its last points. Exits with 1 for what is not certainly readable."""
    try:
        if legacy and canonical:
            raise RltelError("--legacy-unversioned and --canonical-unversioned exclude each other; give one")
        found = extract(log_dir, last, reading=_reading(legacy, canonical), algo=algo)
    except (RltelError, OSError) as error:
        say(f"rltel extract: {error}", err=True)
        raise typer.Exit(1) from error
    for note in found.notes:
        say(f"rltel extract: {note}", err=True)
    if as_json:
        say(json.dumps(_plain(found), indent=2, allow_nan=False))
        return
    for label, number in found.rows.items():
        say(f"{label:40} {number:10.3f}")


def _reading(legacy: bool, canonical: bool) -> Reading:
    if legacy:
        return "legacy-unversioned"
    return "canonical-unversioned" if canonical else "stamped"


def _plain(found: Extracted) -> dict[str, Any]:
    rows = {label: number if math.isfinite(number) else None for label, number in found.rows.items()}
    return {**rows, "why_null": dict(found.why), "notes": found.notes, "files": [str(path) for path in found.files]}
