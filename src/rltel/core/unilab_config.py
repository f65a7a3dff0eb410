"""UniLab's form: ``training``, as its 1.5.2 has it. What becomes of each field stands in docs/unilab.md."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rltel.core.foreign_fields import Fields, is_set
from rltel.core.sections import TYPES
from rltel.core.wording import fits, misfit, shown, suggestion

LOGGERS = ("tensorboard", "wandb", "none", "no_print")
FIELDS = {
    "task_name": "run.task",
    "sim_backend": "run.backend",
    "log_interval": "run.log_interval",
    "log_root": "run.log_root",
    "log_dir": "run.dir",
    "trace_enabled": "trace.enabled",
    "trace_output_dir": "trace.output_dir",
    "trace_thread_time": "trace.thread_time",
    "trace_cuda_events": "trace.cuda_events",
    "wandb_project": "wandb.project",
    "wandb_entity": "wandb.entity",
    "wandb_group": "wandb.group",
    "wandb_job_type": "wandb.job_type",
    "wandb_name": "wandb.name",
    "wandb_notes": "wandb.notes",
}
"""The fields that set one of ours. ``logger``, ``wandb_mode`` and ``wandb_tags`` are more than that."""
KNOWN = ("logger", *FIELDS, "wandb_mode", "wandb_tags")
"""All fields that are about logging and tracing. The rest of ``training`` is the trainer's."""
_OUR_SUBJECTS = ("log", "trace", "wandb")
_LAUNCHER_DIR = "UNILAB_DP_LOG_DIR"  # where UniLab's launcher tells its ranks to log; stronger than the config there


def is_meant(plain: Mapping[str, Any]) -> bool:
    """Whether a trainer's config is UniLab's. Beside AReaL's section, another ``training`` is the trainer's own."""
    if "training" not in plain:
        return False
    training = plain["training"]
    looks_like_it = not isinstance(training, Mapping) or not training or any(name in training for name in KNOWN)
    return looks_like_it or "stats_logger" not in plain


def take(plain: Mapping[str, Any], environ: Mapping[str, str], into: Fields) -> None:
    """Take over what ``training`` says about logging and tracing; the rest of it is the trainer's."""
    training = into.mapping(plain, "training", "")
    if plain.get("training") is None:
        return
    if training and not any(name in training for name in KNOWN):
        held = ", ".join(map(str, training))
        into.problems.append(f"training: expected UniLab's section ({', '.join(KNOWN[:4])} ...), got one with {held}")
        return
    _refuse_misspelt(training, into)
    _take_names(plain, training, into)
    _take_logger(training, environ, into)
    for theirs, ours in FIELDS.items():
        into.take(ours, _clamped(training), theirs, "training")
    _share_launcher_dir(environ, into)


def _refuse_misspelt(training: Mapping[str, Any], into: Fields) -> None:
    """``training`` holds much that is none of our business, but what is named like ours has to be ours."""
    for name in training:
        if str(name).startswith(_OUR_SUBJECTS) and name not in KNOWN:
            into.problems.append(f"training.{name}: unknown key{suggestion(name, KNOWN)}")


def _take_names(plain: Mapping[str, Any], training: Mapping[str, Any], into: Fields) -> None:
    """What UniLab fills in by itself: the folder's names, W&B's project, group, job type and tags."""
    algo = plain.get("algo")
    name = "algo_log_name" if isinstance(algo, Mapping) and is_set(algo.get("algo_log_name")) else "algo"
    algorithm = into.text(algo, name, "algo") if isinstance(algo, Mapping) else None
    task, backend = (into.text(training, each, "training") for each in ("task_name", "sim_backend"))
    into.put("wandb.project", "unilab", "training (UniLab's default)")
    if algorithm:
        into.put("run.algo", algorithm, f"algo.{name}")
        into.put("wandb.job_type", algorithm, f"algo.{name}")
    if task:
        into.put("wandb.group", task, "training.task_name")
    tags = [tag for tag in (algorithm, task, backend) if tag]
    given = training.get("wandb_tags") if is_set(training.get("wandb_tags")) else []
    if isinstance(given, list):
        given = [*given, *(tag for tag in tags if tag not in given)]
    into.put("wandb.tags", given, "training.wandb_tags")


def _take_logger(training: Mapping[str, Any], environ: Mapping[str, str], into: Fields) -> None:
    """``logger`` switches one backend on: TensorBoard unless told otherwise."""
    given = training.get("logger", "tensorboard")
    chosen = "none" if given is None else str(given).lower()
    mode = training.get("wandb_mode")
    if chosen not in LOGGERS:
        choices = ", ".join(f'"{name}"' for name in LOGGERS)
        into.problems.append(f"training.logger: expected one of {choices}, got {shown(given, 'logger')}")
    if is_set(mode) and not fits(mode, TYPES["wandb.mode"]):
        into.problems.append(misfit("training.wandb_mode", TYPES["wandb.mode"], mode))
    elif chosen == "wandb":
        _switch_wandb_on(mode, environ, into)
    if chosen == "tensorboard":
        into.put("tensorboard.path", "{run_dir}", "training.logger")


def _switch_wandb_on(mode: Any, environ: Mapping[str, str], into: Fields) -> None:
    """Where UniLab leaves the mode open, W&B's own variable decides, else it is online."""
    outside = environ.get("WANDB_MODE", "").strip().lower()
    if is_set(mode):
        into.put("wandb.mode", mode, "training.wandb_mode")
    elif outside:
        into.put("wandb.mode", outside, "WANDB_MODE")
    else:
        into.put("wandb.mode", "online", "training.logger")


def _clamped(training: Mapping[str, Any]) -> Mapping[str, Any]:
    """UniLab takes an interval below one for one."""
    interval = training.get("log_interval")
    if isinstance(interval, int) and not isinstance(interval, bool):
        return {**training, "log_interval": max(1, interval)}
    return training


def _share_launcher_dir(environ: Mapping[str, str], into: Fields) -> None:
    """The ranks that UniLab's launcher started share a folder; its name is the id that they share."""
    shared = environ.get(_LAUNCHER_DIR, "").strip()
    if shared:
        into.put("run.dir", shared, _LAUNCHER_DIR)
        into.put("run.id", Path(shared).name, _LAUNCHER_DIR)
