"""SwanLab: cloud, offline (synced later by ``swanlab sync``) or local.

Every key of SwanLab has steps of its own, so axes do not disturb each other, and a step may go back.
"""

import colorsys
import glob
import html
import logging
import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from zlib import crc32

from rltel.core.config import SwanlabConfig
from rltel.core.errors import ConfigError
from rltel.export.commit import Commit
from rltel.export.media import Media, Table, unsupported
from rltel.export.tracking.hooks import Outcome
from rltel.export.tracking.labels import DEFAULT_PROJECT, Labels, config_of, fit_id
from rltel.export.tracking.service import load_package, need_package

_log = logging.getLogger("rltel")
_MODES = {"cloud": "online"}  # what the package calls it
_STATES = {"finished": "success", "failed": "crashed", "interrupted": "aborted"}
_UNFIT_PROJECT = re.compile(r"[^0-9A-Za-z_.+-]+")
_COLLECTED = ("hardware", "runtime", "requirements", "conda", "git", "swanlab", "monitor")
_NAME_LENGTH = 512
_OLDEST = "0.10"
_IMAGES = {".png", ".jpg", ".jpeg", ".bmp"}


class SwanlabClient:
    """One SwanLab run. Online, its id is the run's, so that a restart of the run goes on in it."""

    name = "swanlab"

    def __init__(self, config: SwanlabConfig, labels: Labels) -> None:
        need_package("swanlab")
        self._config = config
        self._labels = labels
        self._mode = _MODES.get(config.mode, config.mode)
        self._folder = Path(config.logdir) if config.logdir else labels.run_dir / "swanlab"
        self._swanlab: Any = None
        self._run: Any = None

    def describe(self) -> str:
        """The mode, and where the run is."""
        if self._mode == "online":
            return f"cloud {self._project()}/{self._config.name or self._labels.name}"
        return f"{self._mode} {self._folder}"

    @property
    def url(self) -> str | None:
        """Where the run is to be seen, once it is open and online."""
        return self._run.url if self._run is not None and self._mode == "online" else None

    @property
    def folder(self) -> Path | None:
        """Where the package keeps what is not sent; None if it sends it."""
        return self._folder if self._mode != "online" else None

    def open(self) -> None:
        """Begin the run."""
        self._swanlab = load_package("swanlab")
        if not hasattr(self._swanlab.Settings, "Probe"):
            version = getattr(self._swanlab, "__version__", "unknown")
            raise ConfigError(f"swanlab.mode: needs swanlab {_OLDEST} or newer, got {version}")
        self._folder.mkdir(parents=True, exist_ok=True)
        if self._mode == "local" and find_spec("swanboard") is None:
            _log.warning('swanlab: local mode has no dashboard without: pip install "swanlab[dashboard]"')
        labels = self._labels
        resumed = {"id": fit_id(labels.run_id), "resume": "allow"} if self._mode == "online" else {}
        with self._quiet():
            self._run = self._swanlab.init(
                mode=self._mode,
                project=self._project(),
                name=(self._config.name or labels.name)[:_NAME_LENGTH],
                group=labels.group,
                job_type=labels.job_type,
                color=os.environ.get("SWANLAB_EXP_COLOR") or _color(labels.run_id),
                tags=list(labels.tags),
                config=config_of(labels, self._config.config),
                settings=self._settings(),
                **resumed,
            )

    def log(self, commit: Commit) -> None:
        """One commit's numbers. NaN and infinity are kept."""
        self._run.log(dict(commit.values), step=commit.position(self._labels.step_axis))

    def show(self, media: Media) -> None:
        """A text, table or image as such, a video if it is a GIF, and what the package cannot show as a file."""
        made = self._made(media)
        if made is None:
            self._save(media)
        else:
            self._run.log({media.key: made}, step=media.position(self._labels.step_axis))

    def finish(self, how: Outcome) -> None:
        """The end of the run."""
        with self._quiet():
            state = _STATES[how]
            self._run.finish(state=state, **({"error": f"the program {how}"} if how == "failed" else {}))

    # --- the run ----------------------------------------------------------------------------------------------------

    def _project(self) -> str:
        return _UNFIT_PROJECT.sub("-", self._config.project or DEFAULT_PROJECT)[:100]

    def _settings(self) -> Any:
        """Asks nobody for a key; captures no output; collects the machine only where host names may be written."""
        kind = self._swanlab.Settings
        given: dict[str, Any] = {"log_dir": str(self._folder), "interactive": False}
        if self._config.api_key:
            given["api_key"] = self._config.api_key
        collected = {name: False for name in _COLLECTED if name != "hardware" or not self._labels.include_host}
        return kind(probe=kind.Probe(**collected), terminal=kind.Terminal(proxy_type="none"), **given)

    @contextmanager
    def _quiet(self) -> Iterator[None]:
        """Without the package's greetings on the training's terminal."""
        console = _console()
        before = getattr(console, "quiet", False)
        if console is not None:
            console.quiet = True
        try:
            yield
        finally:
            if console is not None:
                console.quiet = before

    # --- media ------------------------------------------------------------------------------------------------------

    def _made(self, media: Media) -> Any:
        if media.kind == "text":
            return self._swanlab.Text(media.text())
        if media.kind == "table":
            return self._table(media)
        if media.kind == "image" and media.path().suffix.lower() in _IMAGES:
            return self._swanlab.Image(str(media.path()))
        if media.kind == "video" and media.path().suffix.lower() == ".gif":
            return self._swanlab.Video(str(media.path()))
        return None

    def _table(self, media: Media) -> Any:
        made = getattr(getattr(self._swanlab, "echarts", None), "Table", None)
        if made is None:
            return self._swanlab.Html(_as_html(media.table()))
        return made().add(list(media.table().columns), [list(row) for row in media.table().rows])

    def _save(self, media: Media) -> None:
        """Copied, since the package takes the file later than we are asked to."""
        if not hasattr(self._run, "save"):
            raise unsupported(self.name, media)
        source = media.path()
        place = self._folder / "media" / fit_id(media.key) / f"{fit_id(media.axis)}-{media.step}" / source.name
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, place)
        self._run.save(glob.escape(str(place)), base_path=str(self._folder / "media"), policy="now")


def _console() -> Any:
    """The package's Rich console, where this version of it has one."""
    try:
        return load_package("swanlab.sdk.internal.pkg.console").c
    except (ValueError, AttributeError):  # ValueError: our ConfigError for a module that is not there
        return None


def _as_html(table: Table) -> str:
    rows = [table.columns, *table.rows]
    cells = ("".join(f"<td>{html.escape(str(cell))}</td>" for cell in row) for row in rows)
    return f"<table>{''.join(f'<tr>{row}</tr>' for row in cells)}</table>"


def _color(run_id: str) -> str:
    """The run's colour in charts. The package would draw one, from the random numbers of the training."""
    red, green, blue = colorsys.hsv_to_rgb(crc32(run_id.encode()) % 360 / 360, 0.5, 0.9)
    return f"#{round(red * 255):02x}{round(green * 255):02x}{round(blue * 255):02x}"
