"""Weights & Biases: online, offline (synced later by ``wandb sync``) or shared.

W&B has one row counter of its own and drops rows whose step goes back, so we never give it a step. Each axis is a
metric (``rltel/step/<axis>``) that the keys logged on it have as their x axis: rollout at 8073 and train at 0 stay.
"""

import glob
import html
import logging
import os
import re
import shutil
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from rltel.core.config import WandbConfig
from rltel.core.errors import ConfigError
from rltel.core.redact import redact_url
from rltel.export.commit import Commit
from rltel.export.media import Media, Table, unsupported
from rltel.export.tracking.bins import bins_of
from rltel.export.tracking.expert_loads import expert_loads
from rltel.export.tracking.hooks import Outcome
from rltel.export.tracking.labels import DEFAULT_PROJECT, Labels, config_of, fit_id
from rltel.export.tracking.service import load_package, need_package

_log = logging.getLogger("rltel")
_MAX_ROWS = 10_000_000  # W&B cuts a table off at 10,000 rows unless it is told otherwise
_EXIT_CODES = {"finished": 0, "failed": 1, "interrupted": 255}
_VIDEOS = {".gif", ".mp4", ".ogg", ".webm"}
_KEYS = ("WANDB_API_KEY", "WANDB_IDENTITY_TOKEN_FILE")
_STEP, _ENV_STEPS = "rltel/step", "rltel/env_steps"
_ROWS_OWN = {"_step", "_timestamp", "_runtime", "_wandb", _ENV_STEPS}
_UNFIT_PATH = re.compile(r"[^A-Za-z0-9_.=+-]+")


class WandbClient:
    """One W&B run. Its id is the run's and ``id_suffix``, so that a restart of the run goes on in it."""

    name = "wandb"

    def __init__(
        self, config: WandbConfig, labels: Labels, now: Callable[[], time.struct_time] = time.localtime
    ) -> None:
        need_package("wandb")
        self._config = config
        self._labels = labels
        suffix = time.strftime("%Y_%m_%d_%H_%M_%S", now()) if config.id_suffix == "timestamp" else config.id_suffix
        self.run_id = fit_id("_".join(part for part in (labels.run_id, suffix) if part))
        self._wandb: Any = None
        self._run: Any = None
        self._placed: set[str] = set()  # keys whose x axis W&B has learnt: it does so once
        self._known_axes: set[str] = set()

    def describe(self) -> str:
        """The mode and the run; where it is, if that is a folder."""
        if self._config.mode == "offline":
            return f"offline {self._labels.run_dir / 'wandb'}"
        where = f" at {redact_url(self._config.base_url)}" if self._config.base_url else ""
        return f"{self._config.mode} {self._project()}/{self.run_id}{where}"

    @property
    def url(self) -> str | None:
        """Where the run is to be seen, once it is open and online."""
        # Asked for it, an offline run prints a warning, each time.
        return None if self._run is None or self._config.mode == "offline" else self._run.url

    @property
    def folder(self) -> Path | None:
        """Where the package keeps what is not sent; None if it sends it."""
        return self._labels.run_dir if self._config.mode == "offline" else None

    def open(self) -> None:
        """Begin the run, or resume it."""
        os.environ.setdefault("WANDB_ERROR_REPORTING", "false")  # W&B's reports on itself, from our process
        self._wandb = load_package("wandb")
        for limit in ("MAX_ROWS", "MAX_ARTIFACT_ROWS"):
            setattr(self._wandb.Table, limit, max(_MAX_ROWS, getattr(self._wandb.Table, limit, 0)))
        if self._config.mode != "offline":
            self._need_key()
        self._run = self._wandb.init(config=config_of(self._labels, self._config.config), settings=self._settings())

    def log(self, commit: Commit) -> None:
        """One row, at the commit's own time. NaN and infinity are kept."""
        numbers, tables = expert_loads(commit.values)
        shown: dict[str, Any] = dict(numbers)
        shown.update({key: self._table(made) for key, made in tables.items()})
        for key, metric in commit.snapshot.items():
            bins = bins_of(metric.state)
            if bins is not None:
                shown.setdefault(key, self._wandb.Histogram(np_histogram=bins))
        self._row(commit, shown)

    def show(self, media: Media) -> None:
        """A table as such, a text as HTML, a video or image as such, a file beside the run."""
        if media.kind == "file" or (media.kind == "video" and media.path().suffix.lower() not in _VIDEOS):
            self._save(media)
        else:
            self._row(media, {media.key: self._made(media)})

    def finish(self, how: Outcome) -> None:
        """The end of the run."""
        self._run.finish(exit_code=_EXIT_CODES[how])

    # --- the run ----------------------------------------------------------------------------------------------------

    def _project(self) -> str:
        return self._config.project or os.environ.get("WANDB_PROJECT") or DEFAULT_PROJECT

    def _settings(self) -> Any:
        """Silent, with nothing collected or captured: console, code, git, machine and packages."""
        config, labels = self._config, self._labels
        settings = {
            "mode": config.mode,
            "root_dir": str(labels.run_dir),
            "run_id": self.run_id,
            "resume": "allow",
            "reinit": "create_new",  # a run of the trainer's own stays as it is
            "project": self._project(),
            "entity": config.entity,
            "run_name": config.name or labels.name,
            "run_group": config.group or labels.group,
            "run_job_type": config.job_type or labels.job_type,
            "run_tags": tuple(dict.fromkeys((*config.tags, *labels.tags))),
            "run_notes": config.notes,
            "base_url": config.base_url,
            "api_key": config.api_key,
            "x_label": labels.process,  # else it would be the host's name, in shared mode
            "silent": True,
            "console": "off",
            "disable_code": True,
            "disable_git": True,
            "save_code": False,
            "x_disable_stats": True,
            "x_save_requirements": False,
            "finish_timeout": labels.timeout_s,
            "finish_timeout_raises": True,
            "stop_fn": _stop_was_asked,
            **({} if labels.include_host else {"host": "", "x_disable_meta": True, "x_disable_machine_info": True}),
        }
        kind = self._wandb.Settings
        known = getattr(kind, "model_fields", settings)  # of this version of wandb
        return kind(**{name: value for name, value in settings.items() if value is not None and name in known})

    def _need_key(self) -> None:
        """On a terminal wandb would ask for a key, on a thread that nobody looks at."""
        if self._config.api_key or any(map(os.environ.get, _KEYS)):
            return
        if sys.stdin is None or not sys.stdin.isatty() or self._knows_key():
            return  # without a terminal wandb raises by itself
        raise ConfigError("wandb.mode: no API key; set wandb.api_key or WANDB_API_KEY, or run `wandb login`")

    def _knows_key(self) -> bool:
        from requests.utils import get_netrc_auth  # comes with wandb, which looks there too

        url = self._config.base_url or os.environ.get("WANDB_BASE_URL") or "https://api.wandb.ai"
        return get_netrc_auth(url) is not None or bool(self._wandb.setup().settings.api_key)

    # --- rows -------------------------------------------------------------------------------------------------------

    def _row(self, of: Commit | Media, shown: dict[str, Any]) -> None:
        steps: dict[str, Any] = {f"{_STEP}/{of.axis}": of.step}
        if of.env_steps is not None:
            steps[_ENV_STEPS] = of.env_steps
        shown = {f"user/{key}" if _is_taken(key) else key: value for key, value in shown.items()}
        by_env_steps = self._labels.step_axis == "env_steps" and of.env_steps is not None
        self._define(shown, _ENV_STEPS if by_env_steps else f"{_STEP}/{of.axis}")
        self._run.log({**shown, **steps, "_timestamp": of.time_ns / 1e9})

    def _define(self, keys: Iterable[str], x_axis: str) -> None:
        for key in keys:
            if key in self._placed:
                continue
            if x_axis not in self._known_axes:
                self._known_axes.add(x_axis)
                self._run.define_metric(x_axis, hidden=True)
            self._placed.add(key)
            for name in _names(key):
                self._run.define_metric(name, step_metric=x_axis)

    # --- media ------------------------------------------------------------------------------------------------------

    def _made(self, media: Media) -> Any:
        if media.kind == "table":
            return self._table(media.table())
        if media.kind == "text":
            return self._wandb.Html(f"<pre>{html.escape(media.text())}</pre>", inject=False)
        if media.kind == "video":
            return self._wandb.Video(str(media.path()), format=media.path().suffix[1:].lower())
        if media.kind == "image":
            return self._wandb.Image(str(media.path()))
        raise unsupported(self.name, media)

    def _table(self, table: Table) -> Any:
        return self._wandb.Table(
            columns=list(table.columns), data=[list(row) for row in table.rows], allow_mixed_types=True
        )

    def _save(self, media: Media) -> None:
        """Copied into the run, since W&B would only link to it."""
        source = media.path()
        parts = (_UNFIT_PATH.sub("_", part).strip(".") or "_" for part in media.key.split("/"))
        place = Path(self._run.dir, *parts, f"{media.axis}-{media.step}", source.name)
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, place)
        self._run.save(glob.escape(str(place)), base_path=self._run.dir, policy="now")


def _is_taken(key: str) -> bool:
    """Whether a row has something else under this key: it would be gone without a word."""
    return key in _ROWS_OWN or key.startswith(f"{_STEP}/")


def _names(key: str) -> Iterable[str]:
    """What W&B may know a key by. It reads ``*`` as a pattern: such a key is shown over W&B's own step.

    Where it looks for the definition of a key with a dot, it looks for the dot as it is here and escaped there.
    """
    if "*" in key:
        return ()
    return (key, key.replace(".", "\\.")) if "." in key else (key,)


def _stop_was_asked() -> None:
    """The stop button of W&B would interrupt the main thread, in the middle of whatever it does."""
    _log.warning("wandb: a stop was asked for in W&B; the training goes on")
