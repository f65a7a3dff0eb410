"""What a run is, for TensorBoard's text and hyperparameter views: the trainer's config, without secrets."""

import json
from collections.abc import Iterator, Mapping
from typing import Any

from rltel.core.config import TelemetryConfig
from rltel.core.identity import Identity
from rltel.core.wording import writable
from rltel.export.tracking.labels import config_of, labels_of

_TEXT_TAG = "config"
_ABOUT = ("algo", "task", "backend")
_LONGEST = 1000  # characters of one hyperparameter; the text has all of it


def notes_of(config: TelemetryConfig, identity: Identity, started_s: float) -> list[Any]:
    """The ``Summary.Value`` of both views."""
    from tensorboard.plugins.hparams.summary_v2 import hparams_pb  # an extra: only where it is used
    from tensorboard.plugins.text.summary_v2 import text_pb

    plain = config_of(labels_of(config, identity), {})
    text = f"```json\n{json.dumps(plain, indent=2)}\n```"
    settings = flat({name: value for name, value in plain.items() if name != "rltel"})
    settings.update({name: writable(getattr(config.run, name)) for name in _ABOUT if _given(config, name)})
    notes = [*text_pb(_TEXT_TAG, text).value]
    if settings:  # a run without any would be an empty row
        notes.extend(hparams_pb(settings, trial_id=identity.run_id, start_time_secs=started_s).value)
    return notes


def _given(config: TelemetryConfig, name: str) -> bool:
    return getattr(config.run, name) is not None and name not in config.run.config


def flat(plain: Mapping[str, Any]) -> dict[str, bool | float | str]:
    """A nested config as hyperparameters: ``{"optimizer": {"lr": 0.1}}`` is ``{"optimizer.lr": 0.1}``."""
    return dict(_flat(plain, ""))


def _flat(value: Any, path: str) -> Iterator[tuple[str, bool | float | str]]:
    if isinstance(value, Mapping):
        for key, item in value.items():
            yield from _flat(item, f"{path}.{key}" if path else str(key))
    elif isinstance(value, (bool, int, float)):
        yield path, value
    elif value is not None:
        yield path, (value if isinstance(value, str) else json.dumps(value, default=str))[:_LONGEST]
