"""`StatsLogger` with AReaL's constructor and calls: one process of the run commits, and every destination gets it."""

import logging
import os
import time
from collections.abc import Mapping, Sequence
from operator import index
from pathlib import Path
from typing import Any

from rltel.core.areal_config import log_path
from rltel.core.config import RunConfig, TelemetryConfig
from rltel.core.errors import RecordError
from rltel.core.foreign_fields import is_set
from rltel.core.identity import find_place
from rltel.core.resolve import disabled, resolve_with_origins
from rltel.process import Process
from rltel.process import process as this_process
from rltel.reduce.snapshot import Snapshot
from rltel.reduce.stats import Stats, numbers_of

_log = logging.getLogger("rltel")
_COUNT = "__count"
_NOTHING_YET = -1


class StatsLogger:
    """What to use in the place of ``areal.utils.stats_logger.StatsLogger``.

    Args:
        config: AReaL's experiment config or its ``stats_logger``, as an object, a mapping, OmegaConf or the path of a
            YAML file; or a config of our own. If `rltel.init` was called before, what that switched on is used.
        ft_spec: AReaL's ``FinetuneSpec``, of which only the totals are shown; None where there is none.
        process: whose telemetry it is; default: this process's own.

    Raises `ConfigError` or `IdentityError`, as `rltel.init` does. No call after that raises because of a destination.
    """

    def __init__(self, config: Any = None, ft_spec: Any = None, *, process: Process = this_process) -> None:
        self.ft_spec = ft_spec
        self._process = process
        self._config = config
        self._last_commit_step = _NOTHING_YET
        self._keys_of_last_step: set[str] | None = None
        """None where the next commit is another step in any case."""
        self._started_s = time.monotonic()
        self._owns = False
        self._is_active = True
        self.init()

    def init(self) -> None:
        """Switch on what the config says. Only the process that commits does; the constructor calls it."""
        there = self._process.telemetry
        if there is None:
            self._is_active = not disabled() and _commits(resolve_with_origins(self._config).config.run)
            if self._is_active:
                self._process.init(self._config)
                self._owns = True
        else:
            self._is_active = _commits(there.config.run, there.identity.rank, there.identity.world_size)
            _say_what_stays_off(there.config, self._config)

    def commit(
        self, epoch: int, step: int, global_step: int, data: Mapping[str, Any] | Sequence[Mapping[str, Any]]
    ) -> None:
        """Send one step's numbers everywhere, or one step's each of several.

        The step is `global_step`, and never before the last one. It is counted on if the last step already has one of
        the keys, so that an evaluation before training and the first training step share step 0. Keys that end in
        ``__count`` are not sent. Raises `RecordError`, and sends nothing, for values that are not one number each.
        """
        if not self._is_active:
            return
        items = [_without_counts(item) for item in ([data] if isinstance(data, Mapping) else data)]
        epoch, step, wanted = _whole("epoch", epoch), _whole("step", step), _whole("global_step", global_step)
        where = {"epoch": epoch, "epoch_step": step}
        known = {name: value for name, value in where.items() if value >= 0}  # before training there may be none
        if _log.isEnabledFor(logging.INFO):
            _log.info("%s", self._progress(epoch, step, wanted))
        for item in items:
            at = self._next_step(wanted, item)
            self._process.commit(item, step=at, **known)
            wanted = at + 1  # the next item of a list is another step
        if len(items) > 1:
            self._keys_of_last_step = None  # a list counts steps of its own: nothing else belongs to its last one

    def _next_step(self, wanted: int, item: Mapping[str, float]) -> int:
        last, held = self._last_commit_step, self._keys_of_last_step
        is_free = held is not None and held.isdisjoint(item)
        at = max(wanted, last if is_free and last > _NOTHING_YET else last + 1)
        same = at == last and held is not None
        self._keys_of_last_step = {*(held if same and held else ()), *item}
        self._last_commit_step = at
        return at

    def state_dict(self) -> dict[str, int]:
        """What a checkpoint has to hold: the last step."""
        return {"last_commit_step": self._last_commit_step}

    def load_state_dict(self, state_dict: Mapping[str, int]) -> None:
        """Go on after the last step of a checkpoint."""
        self._last_commit_step = _whole("last_commit_step", state_dict["last_commit_step"])
        self._keys_of_last_step = None

    def close(self) -> None:
        """Bring everything home, in bounded time. What `rltel.init` had switched on before stays on."""
        if not self._is_active:
            return
        _log.info("training completes after %.2f s", time.monotonic() - self._started_s)
        if self._owns:
            self._process.shutdown()
        elif self._process.telemetry is not None:
            self._process.telemetry.flush()

    def _progress(self, epoch: int, step: int, global_step: int) -> str:
        """How far training is, counted from one, with AReaL's totals where they are known."""
        counted = (
            ("epoch", epoch, "total_train_epochs"),
            ("step", step, "steps_per_epoch"),
            ("train step", global_step, "total_train_steps"),
        )
        return ", ".join(f"{name} {at + 1}{self._of(total)}" for name, at, total in counted)

    def _of(self, name: str) -> str:
        total = getattr(self.ft_spec, name, None)
        return "" if total is None else f"/{total}"

    @staticmethod
    def get_log_path(
        config: Any = None,
        experiment_name: str | None = None,
        trial_name: str | None = None,
        fileroot: str | None = None,
    ) -> str:
        """The folder that AReaL logs to; it is made. Raises ValueError if a part of its name is missing."""
        given = {"experiment_name": experiment_name, "trial_name": trial_name, "fileroot": fileroot}
        if config is not None:
            given = {name: getattr(config, name, None) for name in given}
        missing = [name for name, value in given.items() if not is_set(value)]
        if missing:
            raise ValueError(
                f"get_log_path: expected experiment_name, trial_name and fileroot, no {', '.join(missing)}"
            )
        path = log_path(str(given["fileroot"]), str(given["experiment_name"]), str(given["trial_name"]))
        Path(path).mkdir(parents=True, exist_ok=True)
        return path


def _commits(run: RunConfig, rank: int | None = None, world_size: int | None = None) -> bool:
    """Whether this is the process whose commits count: rank 0, unless ``run.writer`` says otherwise."""
    place = find_place(run, os.environ, rank=rank, world_size=world_size)
    return place.rank == (place.world_size - 1 if run.writer == "last" else run.writer)


def _say_what_stays_off(there: TelemetryConfig, config: Any) -> None:
    """`rltel.init` came first and holds: what this config would have switched on beside it is said."""
    asked = resolve_with_origins(config).config
    backends = [f"{name}.mode" for name in ("wandb", "swanlab", "trackio")]
    switches = [*backends, "tensorboard.path", "prometheus.enabled", "otlp.enabled", "trace.enabled", "console.enabled"]
    off = [path for path in switches if _is_on(asked, path) and not _is_on(there, path)]
    if off:
        _log.warning("StatsLogger: rltel.init was called before and holds; not switched on: %s", ", ".join(off))


def _is_on(config: TelemetryConfig, path: str) -> bool:
    section, name = path.split(".")
    return getattr(getattr(config, section), name) not in (False, None, "disabled")


def _without_counts(item: Any) -> Mapping[str, float]:
    """What to commit: the numbers, with the states behind them where there are any."""
    if not isinstance(item, Mapping):
        raise RecordError(f"commit: data: expected a mapping of numbers, or a list of them, got {type(item).__name__}")
    if not isinstance(item, Stats):
        return numbers_of({key: value for key, value in item.items() if not str(key).endswith(_COUNT)})
    snapshot = item.snapshot
    kept = {key: metric for key, metric in snapshot.items() if not key.endswith(_COUNT)}
    return item if len(kept) == len(snapshot) else Stats(Snapshot(kept))


def _whole(name: str, value: Any) -> int:
    try:
        return index(value)
    except TypeError:
        raise RecordError(f"commit: {name}: expected a whole number, got {value!r}") from None
