"""rsl_rl's log writer on rltel: a commit an iteration, under rsl_rl's own tags."""

import atexit
import logging
import math
import os
from collections import Counter
from collections.abc import Callable, Mapping
from operator import index
from pathlib import Path
from typing import Any

from rltel.core.errors import ConfigError, RecordError, RltelError
from rltel.core.files import replace
from rltel.export.strict import StrictNames
from rltel.integrations.rsl_rl.settings import with_defaults
from rltel.integrations.rsl_rl.stored import num_envs_in, plain
from rltel.integrations.rsl_rl.videos import Videos
from rltel.names.schema import METRIC_SCHEMA_VERSION, gauge_rule, removed
from rltel.process import Process
from rltel.process import process as this_process
from rltel.record.phase_sets import PPO_LEARNER
from rltel.reduce.snapshot import Snapshot

_log = logging.getLogger("rltel")

CONFIG_FILE = "rsl_rl_config.json"
_TIMED = {phase.key: phase for phase in PPO_LEARNER.phases if phase.name in ("collection", "learning")}
_LAST_TAG = "Train/mean_episode_length/time"
_SECONDS_TAGS = ("Train/mean_reward/time", _LAST_TAG)
"""Written after all others of an iteration, over whole seconds of training."""


class RltelLogWriter:
    """What ``cfg["logger"]["class_name"]`` names; rsl_rl passes the other keys of ``cfg["logger"]`` on to it.

    Args:
        log_dir: rsl_rl's folder. It becomes the run directory, unless ``run.dir``, ``run.log_root`` or ``run.id`` is
            set, and TensorBoard's folder, unless ``tensorboard.path`` is set (None switches it off).
        config: the telemetry's configuration, in any form that `rltel.init` takes; or
        sections: its sections one by one (``trace={"enabled": True}``). If `rltel.init` was called before, what that
            switched on is used, and stays on at the end.
        num_envs: environments of one rank, for the axis of environment steps; default: what the environment's own
            configuration says, if it does. (`instrument` knows it.)
        time_axis: also write rsl_rl's ``Train/*/time``, the same values over whole seconds, as axis ``time``.

    Raises `ConfigError` or `IdentityError`, as `rltel.init` does. No call after that raises: what cannot be written is
    counted in `lost`, and said once.
    """

    def __init__(
        self,
        log_dir: str,
        *,
        config: Any = None,
        num_envs: int | None = None,
        time_axis: bool = False,
        process: Process = this_process,
        **sections: Any,
    ) -> None:
        if config is not None and sections:
            raise ConfigError(f"logger: expected config or sections, not both, got config and {', '.join(sections)}")
        _be_a_log_writer(type(self))
        self.lost: Counter[str] = Counter()
        """What was not written, by reason: ``refused``, ``removed``, ``repeated``, ``commit``, ``config``."""
        self.paced = False
        """Whether `instrument` commits, at the end of each iteration, instead of this."""
        self._process = process
        self._num_envs = num_envs
        self._time_axis = time_axis
        self._steps_per_iteration: int | None = None
        self._step: int | None = None
        self._tags: set[str] = set()
        self._seconds: dict[str, Any] = {}
        self._timers: dict[str, Callable[[int], None]] = {}
        self._said: set[tuple[str, str]] = set()
        self._videos = Videos()
        self._last_step = 0
        self._is_stopped = False
        self._pid = os.getpid()
        self._owns = self._open(str(log_dir), sections if config is None else config)
        telemetry = self._process.telemetry
        self._strict = StrictNames() if telemetry is not None and telemetry.config.names.strict else None
        self._run_at_exit()

    # --- what rsl_rl calls --------------------------------------------------------------------------------------------

    def add_scalar(self, tag: str, scalar_value: Any, global_step: int) -> None:
        """One number of an iteration. What lies on a device is not waited for here.

        Tags that the metric schema has removed (``Episode_Reward/<term>``) are not written.
        """
        step = self._as_step(tag, global_step)
        if step is None:
            return
        if tag in _SECONDS_TAGS:
            self._over_seconds(tag, scalar_value, step)
            return
        if step != self._step:
            self._commit()
            self._step = step
        gone = removed(tag)
        if gone is not None:
            self._lose(tag, "removed", f"{gone.prefix} is not written any more; see {gone.instead}")
            return
        if tag in self._tags:
            self._lose(tag, "repeated", "came twice in one iteration; the later value counts")
        self._tags.add(tag)
        try:
            self._record(tag, scalar_value)
        except RecordError as error:
            self._lose(tag, "refused", str(error))

    def store_config(self, env_cfg: Any, train_cfg: Mapping[str, Any]) -> None:
        """Keeps both configurations with the run, without secrets, and the version of the metric schema."""
        self._count_steps(env_cfg, train_cfg)
        telemetry = self._process.telemetry
        if telemetry is None or telemetry.run_dir is None:
            return
        path = telemetry.run_dir / CONFIG_FILE
        try:
            content = {"metric_schema_version": METRIC_SCHEMA_VERSION, "train_cfg": plain(train_cfg)}
            replace(path, {**content, "env_cfg": plain(env_cfg)})
        except (OSError, ValueError, RecursionError) as error:  # a full disk; an object that contains itself
            self._lose(CONFIG_FILE, "config", f"{type(error).__name__}: {error}")
            return
        self._show("file", CONFIG_FILE, path, 0)

    def save_model(self, model_path: str, it: int) -> None:
        """A checkpoint was written: the iteration before it is committed, and tracking services get the file."""
        self._commit()
        self._show("file", f"model/{Path(model_path).name}", model_path, it)
        self._process.summary({"last_checkpoint": str(model_path)})

    def save_file(self, path: str) -> None:
        """A file for the tracking services (rsl_rl's git diffs)."""
        self._show("file", f"files/{Path(path).name}", path, self._step or 0)

    def save_video(self, video: Path, it: int) -> None:
        """A video for the tracking services: once it has ceased to grow, and again when it has changed."""
        if self._videos.is_due(Path(video)):
            self._show("video", f"video/{Path(video).stem}", video, it)

    def stop(self) -> None:
        """Commit what is left, and bring everything home if this had switched it on. A second call does nothing."""
        if self._is_stopped:
            return
        self._finish()
        atexit.unregister(self._finish)
        if self._owns:
            self._process.shutdown()
        elif self._process.telemetry is not None:
            self._process.telemetry.flush()

    # --- what `instrument` calls --------------------------------------------------------------------------------------

    def commit_iteration(self, number: int, env_steps: int) -> None:
        """The iteration has ended, with all that belongs to it."""
        self._commit()
        self._send(None, step=number, env_steps=env_steps)

    # --- inside -------------------------------------------------------------------------------------------------------

    def _open(self, log_dir: str, given: Any) -> bool:
        """Whether this switched the telemetry on."""
        if self._process.telemetry is None:
            self._process.init(with_defaults(given, log_dir))
            return True
        if given:
            _log.warning("rsl_rl: rltel.init was called before and holds: what cfg['logger'] sets is not used")
        return False

    def _run_at_exit(self) -> None:
        """rsl_rl calls `stop` only where training ends well; the last iteration is wanted where it does not."""
        atexit.register(self._finish)  # runs before the telemetry's own, which was registered before it
        telemetry = self._process.telemetry
        if telemetry is not None and telemetry.tracks:
            from rltel.export.tracking.hooks import at_end  # only where there is a tracking service

            at_end(self._finish)  # its packages end before atexit

    def _finish(self) -> None:
        """Commit and show what is left; once."""
        if self._is_stopped or os.getpid() != self._pid:
            return  # in a forked child the parent's numbers are not ours
        self._commit()
        for video in self._videos.left():
            self._show("video", f"video/{video.stem}", video, self._last_step)
        self._is_stopped = True
        if self.lost:
            _log.warning("rsl_rl: not written, by reason: %s", dict(self.lost))

    def _as_step(self, tag: Any, given: Any) -> int | None:
        try:
            step = index(given)
        except TypeError:
            step = -1
        if step < 0 or not isinstance(tag, str):
            self._lose(str(tag), "refused", f"expected a tag and a step >= 0, got {tag!r} and {given!r}")
            return None
        return step

    def _record(self, tag: str, value: Any) -> None:
        tracker = self._process.trackers.default
        if tag in _TIMED:
            if not self.paced:  # else the clock measures it
                self._time(tag, value)
            return
        if self._strict is not None:  # else one strange tag would hold up the whole commit
            self._strict.check(Snapshot.of_numbers({tag: 0.0}))
        with tracker.disable_scope():  # tags are whole names, wherever rsl_rl runs
            tracker.gauge({tag: value}, ranks=gauge_rule(tag).ranks)

    def _time(self, tag: str, value: Any) -> None:
        """Seconds, as one observation of the phase: the kind that `instrument` records, so either may come first."""
        seconds = _as_seconds(tag, value)
        if tag not in self._timers:
            metric = PPO_LEARNER.metrics[_TIMED[tag].name]
            self._timers[tag] = self._process.trackers.default.timing_appender(tag, metric)
        self._timers[tag](round(seconds * 1e9))

    def _over_seconds(self, tag: str, value: Any, seconds: int) -> None:
        """The values that rsl_rl repeats over seconds. They come last, so the iteration is complete."""
        self._seconds[tag] = value
        if tag != _LAST_TAG:
            return
        values, self._seconds = self._seconds, {}
        self._commit()
        if self._time_axis:
            self._send(values, step=seconds, axis="time")

    def _commit(self) -> None:
        step, self._step = self._step, None
        self._tags.clear()
        if step is None:
            return
        self._last_step = step
        if not self.paced:
            size = self._steps_per_iteration
            self._send(None, step=step, env_steps=None if size is None else (step + 1) * size)

    def _send(self, values: Mapping[str, Any] | None, **where: Any) -> None:
        if self._process.telemetry is None:
            self._lose("commit", "commit", "rltel.shutdown was called before it")
            return
        try:
            self._process.commit(values, **where)
        except RltelError as error:  # names.strict, about a key of the user's own; what was recorded is kept
            self._lose("commit", "commit", str(error))

    def _count_steps(self, env_cfg: Any, train_cfg: Mapping[str, Any]) -> None:
        num_envs = self._num_envs or num_envs_in(env_cfg)
        steps = train_cfg.get("num_steps_per_env")
        ranks = (train_cfg.get("multi_gpu") or {}).get("world_size", 1)
        if num_envs is not None and steps is not None:
            self._steps_per_iteration = int(steps) * num_envs * int(ranks)

    def _show(self, kind: Any, key: str, path: Any, step: int) -> None:
        telemetry = self._process.telemetry
        if telemetry is None or not telemetry.tracks:
            return  # files are where rsl_rl put them; only tracking services want a copy
        try:
            telemetry.show(kind, key, path, step=step)
        except RltelError as error:
            self._lose(key, "refused", str(error))

    def _lose(self, what: str, reason: str, why: str) -> None:
        self.lost[reason] += 1
        if (what, reason) not in self._said:
            self._said.add((what, reason))
            _log.warning("rsl_rl: %s: %s (counted; said once)", what, why)


def _be_a_log_writer(kind: type) -> None:
    """rsl_rl asks whether its writer is a `LogWriter`; to inherit from it would import torch with this module."""
    try:
        from rsl_rl.utils import LogWriter  # rsl_rl imports torch
    except ImportError as error:
        raise ConfigError(f"RltelLogWriter: needs rsl-rl-lib 5.4 or later, which has LogWriter: {error}") from error
    LogWriter.register(kind)


def _as_seconds(tag: str, value: Any) -> float:
    try:
        seconds = float(value)
    except (TypeError, ValueError, RuntimeError) as error:
        raise RecordError(f"{tag}: expected seconds, got {value!r}") from error
    if not (math.isfinite(seconds) and seconds >= 0):
        raise RecordError(f"{tag}: expected seconds >= 0, got {seconds} (rsl_rl's clock can be set back)")
    return seconds
