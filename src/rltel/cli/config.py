"""``rltel config``: what is set, where it comes from, and whether it is right."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec
import typer

from rltel.cli.saying import say
from rltel.core.errors import ConfigError
from rltel.core.redact import redact
from rltel.core.resolve import Resolved, disabled, resolve_with_origins

app = typer.Typer(no_args_is_help=True)
_FILE = typer.Argument(None, help="A YAML file: ours, or a trainer's own config.", metavar="FILE")
_LONGEST_SHOWN = 5  # of the trainer's config, which may have hundreds of settings
_OFF = "OTEL_SDK_DISABLED or RLTEL_DISABLED is set: everything is off, whatever stands here"


@app.callback()
def main() -> None:
    """Look at the configuration."""


@app.command("show")
def show_command(
    file: Path | None = _FILE,
    as_json: bool = typer.Option(False, "--json", help="Every value and where it comes from, as JSON."),
) -> None:
    """Show the configuration in force, and where each value comes from. Secrets are redacted."""
    resolved = _resolved(file, "show")
    values, origins = _values(resolved), _origins(resolved, file)
    if as_json:
        say(json.dumps({"disabled": disabled(), "config": values, "origins": origins}, indent=2))
    else:
        say("\n".join(_lines(values, origins)))
    for note in resolved.notes:
        say(f"note: {note}", err=True)


@app.command("check")
def check_command(
    file: Path = typer.Argument(..., help="A YAML file: ours, or a trainer's own config.", metavar="FILE"),
) -> None:
    """Check a configuration, with the environment over it: all errors at once, and exit code 1 if there are any."""
    resolved = _resolved(file, "check")
    for note in resolved.notes:
        say(f"note: {note}", err=True)
    on = ", ".join(switched_on(resolved.config)) or "nothing"
    say(f"{file}: right; switched on: {'nothing (' + _OFF + ')' if disabled() else on}")


def switched_on(config: Any) -> list[str]:
    """The destinations that this configuration switches on."""
    by_switch = [
        name for name in ("trace", "prometheus", "otlp", "console", "terminal") if _section(config, name).enabled
    ]
    by_mode = [name for name in ("wandb", "swanlab", "trackio") if _section(config, name).mode != "disabled"]
    by_path = [name for name in ("tensorboard", "jsonl") if _section(config, name).path is not None]
    return [*by_switch, *by_path, *by_mode]


def _section(config: Any, name: str) -> Any:
    return getattr(config, name)


def _resolved(file: Path | None, command: str) -> Resolved:
    try:
        return resolve_with_origins(file)
    except ConfigError as error:
        problems = str(error).split("\n")
        say("\n".join([*problems, *(f"note: {note}" for note in getattr(error, "__notes__", ()))]), err=True)
        where = f" in {file}" if file else ""
        say(f"rltel config {command}: {len(problems)} problem{'s' * (len(problems) > 1)}{where}", err=True)
        raise typer.Exit(1) from error


def _values(resolved: Resolved) -> dict[str, dict[str, Any]]:
    shown: dict[str, dict[str, Any]] = redact(msgspec.to_builtins(resolved.config))
    return shown


def _origins(resolved: Resolved, file: Path | None) -> dict[str, str]:
    """Of every field: the variable, the file, the trainer's own field in it, or ``default``."""
    return {
        f"{section}.{name}": _origin(resolved.origins.get(f"{section}.{name}"), file)
        for section, fields in msgspec.to_builtins(resolved.config).items()
        for name in fields
    }


def _origin(named: str | None, file: Path | None) -> str:
    if named is None:
        return "default"
    if named == "config":
        return str(file)
    return named if named.isupper() else f"{file}: {named}"  # a variable, or a field of the trainer's


def _lines(values: Mapping[str, Mapping[str, Any]], origins: Mapping[str, str]) -> Iterator[str]:
    """YAML, each value with its origin as a comment."""
    if disabled():
        yield f"# {_OFF}"
    for section, fields in values.items():
        yield f"{section}:"
        for name, value in fields.items():
            setting = f"  {name}: {_yaml(value)}"
            yield f"{setting:<40} # {origins[f'{section}.{name}']}"


def _yaml(value: Any) -> str:
    if isinstance(value, Mapping) and len(value) > _LONGEST_SHOWN:
        return f"{{}} # {len(value)} entries, see --json"
    return json.dumps(value)
