"""What a run is called in a tracking service, and the config that goes there: redacted, in plain data."""

import math
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rltel.core.config import TelemetryConfig
from rltel.core.identity import Identity
from rltel.core.redact import HIDDEN, redact, secrets_in
from rltel.core.wording import writable
from rltel.version import VERSION

_UNFIT_ID = re.compile(r"[^A-Za-z0-9._+=-]+")
DEFAULT_PROJECT = "rltel"
_KEYS = ("WANDB_API_KEY", "SWANLAB_API_KEY", "HF_TOKEN", "TRACKIO_WRITE_TOKEN")
_SHORTEST_SECRET = 6  # what is shorter would be found in every second word


@dataclass(frozen=True, slots=True)
class Labels:
    """The run, for all tracking services. ``tags`` are what UniLab adds by itself: algo, task, backend."""

    run_id: str
    run_dir: Path
    process: str
    name: str
    group: str | None
    job_type: str | None
    tags: tuple[str, ...]
    config: Mapping[str, Any] = field(repr=False)
    step_axis: str
    include_host: bool
    timeout_s: float
    secrets: tuple[str, ...] = field(repr=False)


def labels_of(settings: TelemetryConfig, identity: Identity, environ: Mapping[str, str] = os.environ) -> Labels:
    """Names as UniLab gives them: group is the task, job type the algorithm, name ``algo__task__<run directory>``."""
    run = settings.run
    assert identity.run_dir is not None
    parts = [part for part in (run.algo, run.task) if part]
    default_name = "__".join([*parts, identity.run_dir.name]) if parts else identity.run_id
    return Labels(
        run_id=identity.run_id,
        run_dir=identity.run_dir.resolve(),
        process=identity.name,
        name=writable(run.name or default_name),
        group=_written(run.task),
        job_type=_written(run.algo),
        tags=tuple(writable(part) for part in (run.algo, run.task, run.backend) if part),
        config=run.config,
        step_axis=run.step_axis,
        include_host=run.include_host,
        timeout_s=settings.pipeline.shutdown_timeout_s,
        secrets=_secrets(settings, environ),
    )


def config_of(labels: Labels, extra: Mapping[str, Any]) -> dict[str, Any]:
    """The trainer's config and the destination's own, redacted; also where a key that we know stands in a text."""
    about = {"run_id": labels.run_id, "process": labels.process, "version": VERSION}
    plain = _plain(redact({**labels.config, **extra, "rltel": about}), labels.secrets)
    assert isinstance(plain, dict)
    return plain


def _secrets(settings: TelemetryConfig, environ: Mapping[str, str]) -> tuple[str, ...]:
    given = [settings.wandb.api_key, settings.swanlab.api_key, settings.prometheus.password]
    configs = [settings.run.config, settings.wandb.config, settings.swanlab.config]
    found = [*given, *settings.otlp.headers.values(), *map(environ.get, _KEYS), *secrets_in(configs)]
    known = {secret for secret in found if secret and len(secret) >= _SHORTEST_SECRET}
    return tuple(sorted(known, key=len, reverse=True))  # one may be a part of another


def fit_id(text: str) -> str:
    """A run id that every service takes."""
    return _UNFIT_ID.sub("-", text)[:120]


def _plain(value: Any, hidden: tuple[str, ...]) -> Any:
    if isinstance(value, Mapping):
        return {_hide(str(key), hidden): _plain(item, hidden) for key, item in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [_plain(item, hidden) for item in value]
    if value is None or isinstance(value, (bool, int)):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)  # not every service takes them in a config
    return _hide(redact(str(value)), hidden)  # what had to be put into words first may hold one


def _hide(text: str, hidden: tuple[str, ...]) -> str:
    for secret in hidden:
        text = text.replace(secret, HIDDEN)
    return writable(text)


def _written(text: str | None) -> str | None:
    return None if text is None else writable(text)
