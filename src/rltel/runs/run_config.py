"""``run_config.json``: what a run was started with, so that it can be understood, repeated and replayed later."""

import getpass
import platform
import sys
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec

from rltel.core.config import TelemetryConfig
from rltel.core.identity import Identity
from rltel.core.redact import HIDDEN
from rltel.core.sections import SECTIONS
from rltel.runs.atomic import read_json
from rltel.runs.layout import RUN_CONFIG
from rltel.runs.plain import plain
from rltel.runs.scrub import Scrub
from rltel.runs.versions import versions

SCHEMA_VERSION = 1
_DEVICES = ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "LOCAL_RANK")


def run_config(
    settings: TelemetryConfig,
    identity: Identity,
    scrub: Scrub,
    environ: Mapping[str, str],
    *,
    started_ns: int,
    found: Mapping[str, Any],
) -> dict[str, Any]:
    """The content of the file.

    Args:
        settings: the telemetry's config in force; the trainer's own is in its ``run.config``.
        identity: this process, the run's writer.
        scrub: takes secrets out.
        environ: the environment.
        started_ns: when this process began, ns since the epoch.
        found: what takes a while to find out: ``git``, ``hardware``, ``device``; what is not there yet is null.
    """
    run = settings.run
    trainers = plain(run.config, "run.config", lenient=True)
    telemetry = sections_of(settings)
    del telemetry["run"]["config"]  # it is the file's own section
    return {
        "schema_version": SCHEMA_VERSION,
        "run": {
            "id": identity.run_id,
            "name": run.name,
            "algo": run.algo,
            "task": run.task,
            "backend": run.backend,
            "process": identity.name,
            "role": identity.role,
            "rank": identity.rank,
            "world_size": identity.world_size,
            "incarnation": identity.incarnation,
            "devices": _devices(environ, found.get("device")),
            "log_dir": scrub.local(str(identity.run_dir)),
            "working_dir": _working_dir(scrub),
            "command": scrub.command(_command(sys.orig_argv)),
            "start_time_utc": utc(started_ns),
            "git": found.get("git"),
            "hardware": found.get("hardware"),
            "versions": versions(),
            "seeds": _seeds(trainers, environ),
            **(_host() if run.include_host else {}),
        },
        "config": scrub(trainers),
        "telemetry": scrub(plain(telemetry, "telemetry", lenient=True)),
    }


def recorded_settings(run_dir: Path) -> tuple[dict[str, Any], list[str]]:
    """The telemetry's config as the run had it, for `resolve`: only what differs from the defaults.

    Secrets are not in the file. The second value names the settings that were left out because of that, as
    ``wandb.api_key``. Settings of another version, which this one does not know, are left out too.
    Without a file both are empty.
    """
    content = read_json(run_dir / RUN_CONFIG) or {}
    kept = content.get("telemetry")
    settings: dict[str, Any] = {}
    hidden: list[str] = []
    for section, name, value in _changed(kept if isinstance(kept, dict) else {}):
        if _holds_hidden(value):
            hidden.append(f"{section}.{name}")
        else:
            settings.setdefault(section, {})[name] = value
    if content.get("config") and isinstance(content["config"], dict):
        settings.setdefault("run", {})["config"] = content["config"]
    return settings, hidden


def sections_of(settings: TelemetryConfig) -> dict[str, dict[str, Any]]:
    """A config's fields by section, all of them. What the trainer put into some of them stays as it is."""
    return {
        section: {name: getattr(getattr(settings, section), name) for name in kind.__struct_fields__}
        for section, kind in SECTIONS.items()
    }


def _changed(kept: Mapping[str, Any]) -> Iterator[tuple[str, str, Any]]:
    """Section, field and value of what is known here and not at its default."""
    for section, kind in SECTIONS.items():
        fields, blank = kept.get(section), msgspec.to_builtins(kind())
        if isinstance(fields, dict):
            yield from (
                (section, name, value) for name, value in fields.items() if name in blank and value != blank[name]
            )


def utc(time_ns: int) -> str:
    """A wall-clock time (ns since the epoch) as people write it: ISO 8601, in UTC."""
    return datetime.fromtimestamp(time_ns / 1e9, UTC).isoformat(timespec="milliseconds")


def ns_of(told: Any) -> int:
    """The time that `utc` wrote, ns since the epoch; 0 for what is none."""
    try:
        return int(datetime.fromisoformat(str(told)).timestamp() * 1e3) * 1_000_000
    except ValueError:
        return 0


def current_device() -> str | None:
    """The card that this thread works on, if the program has started CUDA: ``cuda:1``. Each thread has its own."""
    torch = sys.modules.get("torch")
    try:
        if torch is not None and torch.cuda.is_initialized():
            return f"cuda:{torch.cuda.current_device()}"
    except (AttributeError, RuntimeError):  # still being imported, or a driver in trouble
        pass
    return None


def _working_dir(scrub: Scrub) -> str | None:
    try:
        return scrub.local(str(Path.cwd()))
    except FileNotFoundError:  # somebody deleted it
        return None


def _devices(environ: Mapping[str, str], device: str | None) -> dict[str, str | None]:
    return {"current": device, **{name: environ[name] for name in _DEVICES if name in environ}}


def _command(arguments: Sequence[str]) -> list[str]:
    """The interpreter by its name alone: where it lies is of no interest elsewhere."""
    return [Path(arguments[0]).name, *arguments[1:]] if arguments else []


def _seeds(config: Any, environ: Mapping[str, str]) -> dict[str, Any]:
    """Those of the trainer's config by their path, and torch's: it has one too if nobody has set it."""
    found = dict(_configured_seeds(config, ""))
    initial_seed = getattr(sys.modules.get("torch"), "initial_seed", None)
    if initial_seed is not None:
        found["torch"] = initial_seed()
    if environ.get("PYTHONHASHSEED", "").isdecimal():
        found["PYTHONHASHSEED"] = int(environ["PYTHONHASHSEED"])
    return found


def _configured_seeds(config: Any, path: str) -> Iterator[tuple[str, int]]:
    for key, value in config.items() if isinstance(config, dict) else ():
        if isinstance(value, dict):
            yield from _configured_seeds(value, f"{path}{key}.")
        elif isinstance(value, int) and not isinstance(value, bool) and (key == "seed" or key.endswith("_seed")):
            yield f"config.{path}{key}", value


def _host() -> dict[str, str | None]:
    try:
        user: str | None = getpass.getuser()
    except (KeyError, OSError, ImportError):  # a container's user may have no name
        user = None
    return {"hostname": platform.node(), "user": user}


def _holds_hidden(value: Any) -> bool:
    if isinstance(value, dict):
        return any(map(_holds_hidden, value.values()))
    if isinstance(value, list):
        return any(map(_holds_hidden, value))
    return isinstance(value, str) and HIDDEN in value
