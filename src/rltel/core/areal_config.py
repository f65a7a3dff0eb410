"""AReaL's form: ``stats_logger``, as its 1.0.4 has it. What becomes of each field stands in docs/areal.md."""

import getpass
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rltel.core.foreign_fields import Fields, is_set

_NAMES = ("experiment_name", "trial_name", "fileroot")
FIELDS: dict[str, dict[str, str]] = {
    "wandb": {
        "mode": "wandb.mode",
        "wandb_base_url": "wandb.base_url",
        "wandb_api_key": "wandb.api_key",
        "entity": "wandb.entity",
        "project": "wandb.project",
        "name": "wandb.name",
        "job_type": "wandb.job_type",
        "group": "wandb.group",
        "notes": "wandb.notes",
        "tags": "wandb.tags",
        "config": "wandb.config",
        "id_suffix": "wandb.id_suffix",
    },
    "swanlab": {
        "project": "swanlab.project",
        "name": "swanlab.name",
        "config": "swanlab.config",
        "logdir": "swanlab.logdir",
        "mode": "swanlab.mode",
        "api_key": "swanlab.api_key",
    },
    "tensorboard": {"path": "tensorboard.path"},
    "trackio": {
        "mode": "trackio.mode",
        "project": "trackio.project",
        "name": "trackio.name",
        "space_id": "trackio.space_id",
    },
}
"""Every field of AReaL's sections, and the one of ours that it sets."""


def is_meant(plain: Mapping[str, Any]) -> bool:
    """Whether a trainer's config is AReaL's."""
    return "stats_logger" in plain


def take(plain: Mapping[str, Any], into: Fields, *, is_object: bool = False) -> None:
    """Take over everything that ``stats_logger`` sets."""
    logger = into.mapping(plain, "stats_logger", "")
    into.refuse_unknown(logger, (*_NAMES, *FIELDS), "stats_logger", is_object=is_object)
    _take_names(plain, logger, into)
    for name, fields in FIELDS.items():
        section = into.mapping(logger, name, "stats_logger")
        prefix = f"stats_logger.{name}"
        into.refuse_unknown(section, fields, prefix, is_object=is_object)
        for theirs, ours in fields.items():
            into.take(ours, section, theirs, prefix)


def _take_names(plain: Mapping[str, Any], logger: Mapping[str, Any], into: Fields) -> None:
    """What the names of experiment and trial stand for where nothing else is given, as in AReaL."""
    whole = {name: plain[name] for name in ("experiment_name", "trial_name") if is_set(plain.get(name))}
    logger = whole | {name: logger[name] for name in _NAMES if is_set(logger.get(name))}
    experiment, trial, fileroot = (into.text(logger, name, "stats_logger") for name in _NAMES)
    if experiment:
        for backend in ("wandb", "swanlab", "trackio"):
            into.put(f"{backend}.project", experiment, "stats_logger.experiment_name")
    if trial:
        into.put("run.name", trial, "stats_logger.trial_name")
        into.put("wandb.name", trial, "stats_logger.trial_name")
        into.put("swanlab.name", f"{trial}_train", "stats_logger.trial_name")
        into.put("trackio.name", trial, "stats_logger.trial_name")
    if experiment and trial:
        both = "stats_logger.experiment_name, trial_name"
        into.put("run.id", f"{experiment}_{trial}", both)
        into.put("wandb.group", f"{experiment}_{trial}", both)
    if experiment and trial and fileroot:
        into.put("run.dir", log_path(fileroot, experiment, trial), "stats_logger.fileroot")


def log_path(fileroot: str, experiment: str, trial: str) -> str:
    """The folder that AReaL logs to."""
    return str(Path(fileroot, "logs", *_user(), experiment, trial))


def _user() -> tuple[str, ...]:
    try:
        return (getpass.getuser(),)
    except (KeyError, OSError, ImportError):  # a container's user may have no name
        return ()
