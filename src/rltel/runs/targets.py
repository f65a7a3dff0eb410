"""Where a replay can send to, by the names that a user gives."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rltel.core.config import TelemetryConfig
from rltel.core.errors import ConfigError
from rltel.core.identity import Identity
from rltel.core.resolve import resolve
from rltel.runs.target import Setting, Target
from rltel.runs.target_otlp import OtlpTarget
from rltel.runs.target_push import PushTarget
from rltel.runs.target_writer import TensorBoardTarget, TrackingTarget

NAMES = ("otlp", "tensorboard", "wandb", "swanlab", "trackio", "prometheus-push")

# By destination: what switches it on where the config does not, and what `--endpoint` sets.
_ON = {
    "otlp": ("RLTEL_OTLP_ENABLED", "true"),
    "tensorboard": ("RLTEL_TENSORBOARD_PATH", "{run_dir}/tensorboard"),
    "wandb": ("RLTEL_WANDB_MODE", "online"),
    "swanlab": ("RLTEL_SWANLAB_MODE", "cloud"),
    "trackio": ("RLTEL_TRACKIO_MODE", "local"),
}
_ENDPOINT = {
    "otlp": "RLTEL_OTLP_ENDPOINT",
    "tensorboard": "RLTEL_TENSORBOARD_PATH",
    "wandb": "RLTEL_WANDB_BASE_URL",
    "trackio": "RLTEL_TRACKIO_SPACE_ID",
    "prometheus-push": "RLTEL_PROMETHEUS_PUSH_URL",
}


def target_of(
    name: str, config: TelemetryConfig, run_dir: Path, identity: Identity, environ: Mapping[str, str]
) -> Target:
    """The destination of this name (one of `NAMES`), as the config and the environment have it.

    ``identity``: the run's writer. Raises `ConfigError` for settings that cannot be.
    """
    setting = Setting(config, run_dir, environ)
    if name == "otlp":
        return OtlpTarget(setting)
    if name == "tensorboard":
        return TensorBoardTarget(setting, identity)
    if name == "prometheus-push":
        return PushTarget(setting)
    return TrackingTarget(name, setting, identity)


def replay_config(name: str, given: Any, environ: Mapping[str, str], endpoint: str | None = None) -> TelemetryConfig:
    """A config, as `rltel.init` takes it, with this destination switched on.

    ``endpoint``, the strongest, is a URL; for TensorBoard a folder, for Trackio a space. Raises `ConfigError`.
    """
    if name not in NAMES:
        raise ConfigError(f'--to: expected one of {", ".join(NAMES)}, got "{name}"')
    variables = dict(environ)
    if endpoint is not None:
        if name not in _ENDPOINT:
            raise ConfigError(f"--endpoint: {name} has none; set it up in the config")
        variables[_ENDPOINT[name]] = endpoint
    if endpoint is not None and name == "trackio":
        variables["RLTEL_TRACKIO_MODE"] = "online"
    found = resolve(given, variables)
    if name in _ON and not _is_on(name, found):
        variable, value = _ON[name]
        found = resolve(given, {**variables, variable: value})
    return found


def _is_on(name: str, config: TelemetryConfig) -> bool:
    if name == "otlp":
        return config.otlp.enabled
    if name == "tensorboard":
        return config.tensorboard.path is not None
    return bool(getattr(config, name).mode != "disabled")
