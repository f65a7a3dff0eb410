"""Trackio: a Hugging Face Space (online) or a local store.

A row of Trackio has the step that it is given, so axes do not disturb each other, and a step may go back.
"""

import builtins
import logging
import os
import re
import sys
import threading
from pathlib import Path
from typing import Any

from rltel.core.config import TrackioConfig
from rltel.core.errors import ConfigError
from rltel.export.commit import Commit
from rltel.export.media import Media, unsupported
from rltel.export.tracking.bins import bins_of
from rltel.export.tracking.hooks import Outcome
from rltel.export.tracking.labels import DEFAULT_PROJECT, Labels, config_of, fit_id
from rltel.export.tracking.service import load_package, need_package

_log = logging.getLogger("rltel")
_UNFIT_PROJECT = re.compile(r"[^0-9A-Za-z_.-]+")
_VIDEOS = {".gif", ".mp4", ".webm"}
_STORE = "TRACKIO_DIR"
_WHO = "_get_default_namespace"
_PLACES = ("TRACKIO_SPACE_ID", "TRACKIO_SERVER_URL")


class TrackioClient:
    """One Trackio run, named as the run is, so that a restart of the run goes on in it."""

    name = "trackio"

    def __init__(self, config: TrackioConfig, labels: Labels) -> None:
        need_package("trackio")
        _check_place(config)
        self._config = config
        self._labels = labels
        self._folder = _resolved(os.environ.get(_STORE) or labels.run_dir / "trackio")
        self._trackio: Any = None
        self._run: Any = None

    def describe(self) -> str:
        """Where the run is, and how to look at a local one."""
        if self._config.mode == "online":
            return f"{self._config.space_id or 'the space of the environment'} {self._project()}"
        return f"TRACKIO_DIR={self._folder} trackio show --project {self._project()}"

    @property
    def folder(self) -> Path | None:
        """Where the package keeps what is not sent; None if it sends it."""
        return self._folder if self._config.mode == "local" else None

    def open(self) -> None:
        """Begin the run, or resume it."""
        os.environ[_STORE] = str(self._folder)  # read when the package is imported, once a process
        self._trackio = load_package("trackio")
        store = getattr(load_package("trackio.utils"), _STORE, self._folder)
        if _resolved(store) != self._folder:
            _log.warning("trackio: keeps its store in %s, where this process first used it", store)
        _tame(self._config.mode == "local")
        labels = self._labels
        self._run = self._trackio.init(
            project=self._project(),
            name=self._config.name or labels.name,
            group=labels.group,
            space_id=self._config.space_id if self._config.mode == "online" else None,
            config=self._config_of_run(),
            resume="allow",
            embed=False,
            auto_log_gpu=False,
            auto_log_cpu=False,
        )
        if not labels.include_host and isinstance(self._run.config, dict):
            self._run.config.pop("_Username", None)

    def log(self, commit: Commit) -> None:
        """One commit's numbers and distributions. NaN and infinity are kept."""
        row: dict[str, Any] = dict(commit.values)
        for key, metric in commit.snapshot.items():
            bins = bins_of(metric.state)
            if bins is not None:
                row.setdefault(key, self._trackio.Histogram(np_histogram=bins))
        self._run.log(row, step=commit.position(self._labels.step_axis))

    def show(self, media: Media) -> None:
        """A table, video or image as such, a text as Markdown, a file as an artifact."""
        if media.kind == "file":
            self._run.log_artifact(str(media.path()), name=fit_id(media.key), type="file")
        else:
            self._run.log({media.key: self._made(media)}, step=media.position(self._labels.step_axis))

    def finish(self, how: Outcome) -> None:
        """The end of the run. (Trackio does not ask how it ended.)"""
        self._run.finish()

    def _project(self) -> str:
        return _UNFIT_PROJECT.sub("-", self._config.project or DEFAULT_PROJECT)

    def _config_of_run(self) -> dict[str, Any]:
        made = config_of(self._labels, {})
        return {key.lstrip("_") or "_": value for key, value in made.items()}  # which Trackio refuses

    def _made(self, media: Media) -> Any:
        if media.kind == "text":
            return self._trackio.Markdown(f"```\n{media.text()}\n```")
        if media.kind == "table":
            table = media.table()
            return self._trackio.Table(columns=list(table.columns), data=[list(row) for row in table.rows])
        if media.kind == "image":
            return self._trackio.Image(str(media.path()))
        if media.path().suffix.lower() in _VIDEOS:
            return self._trackio.Video(str(media.path()))
        raise unsupported(self.name, media)


def _check_place(config: TrackioConfig) -> None:
    """The package goes by what it is told, else by its variables, whatever the mode says. Raises `ConfigError`."""
    told = [name for name in _PLACES if os.environ.get(name)]
    if config.mode == "online" and not (config.space_id or told):
        raise ConfigError(f"trackio.space_id: online needs a space: set it, or {' or '.join(_PLACES)}")
    if config.mode == "local" and told:
        raise ConfigError(f"trackio.mode: local, but {told[0]} is set, and Trackio would go there: unset it")


def _resolved(path: str | Path) -> Path:
    return Path(path).expanduser().resolve()


def _tame(is_local: bool) -> None:
    """On this thread the package prints to the log, and for a local run does not ask Hugging Face who the user is."""
    thread = threading.get_ident()

    def say(*words: Any, **options: Any) -> None:
        if threading.get_ident() == thread:
            _log.debug("trackio: %s", " ".join(map(str, words)))
        else:
            builtins.print(*words, **options)  # noqa: T201  # another thread's, as it was

    for name in ("trackio", "trackio.run", "trackio.utils", "trackio.deploy"):
        if name in sys.modules:
            vars(sys.modules[name])["print"] = say  # looked up there before the builtins
    run = sys.modules.get("trackio.run")
    ask = getattr(run, _WHO, None)
    if run is not None and ask is not None and is_local:
        vars(run)[_WHO] = lambda: None if threading.get_ident() == thread else ask()
