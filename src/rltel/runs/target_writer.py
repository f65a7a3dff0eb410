"""Replays to what a run has once, from its writer and all the restarts of it: TensorBoard and tracking services."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from rltel.core.config import TelemetryConfig
from rltel.core.identity import Identity
from rltel.core.rundir import placed
from rltel.export.sink import Sink
from rltel.runs.target import Setting, Target

_PATIENCE_S = 600.0  # for the end of a tracking service's run: nobody trains meanwhile
_NOTES = {
    "swanlab": "SwanLab takes no old times: rows have their own steps, and the time of the replay",
    "trackio": "Trackio takes no old times: rows have their own steps, and the time of the replay",
}


class _OneSink(Target):
    """A destination with one sink for the writer and all its restarts."""

    of_writer = True

    def __init__(self, make: Callable[[], Sink]) -> None:
        self._make = make
        self._sink: Sink | None = None

    def open(self, identity: Identity, started_ns: int) -> Sink:
        self._sink = self._sink or self._make()
        return self._sink

    def close(self) -> None:
        if self._sink is not None:
            self._sink.close()
        self._sink = None


class TensorBoardTarget(_OneSink):
    """Event files beside those of the run itself."""

    name = "tensorboard"
    ordered = True

    def __init__(self, setting: Setting, identity: Identity) -> None:
        from rltel.export.tensorboard.folder import folder_of_run, take_folder
        from rltel.export.tensorboard.sink import TensorBoardSink  # imports tensorboard

        config, run_dir = setting.config, setting.run_dir
        wanted = placed(config.tensorboard.path or "", run_dir)
        folder = folder_of_run(wanted, identity.run_id)
        self.place = f"tensorboard --logdir {folder}"

        def make() -> Sink:
            taken = take_folder(wanted, identity.run_id)
            return TensorBoardSink(taken, config.run.step_axis, writer=f"{identity.name}-replay", restarts=False)

        super().__init__(make)


class TrackingTarget(_OneSink):
    """W&B, SwanLab or Trackio. "Had" means handed to the package, which keeps it on disk until it is uploaded."""

    def __init__(self, name: str, setting: Setting, identity: Identity) -> None:
        from rltel.export.tracking.labels import labels_of
        from rltel.export.tracking.service import TrackingSink

        self.name = name
        self.note = _NOTES.get(name, "")
        labels = replace(labels_of(setting.config, identity, setting.environ), timeout_s=_PATIENCE_S)
        client = _client(name, setting.config, labels)
        self.place = client.describe()
        super().__init__(lambda: TrackingSink(client))


def _client(name: str, config: TelemetryConfig, labels: Any) -> Any:
    if name == "wandb":
        from rltel.export.tracking.wandb import WandbClient

        return WandbClient(config.wandb, labels)
    if name == "swanlab":
        from rltel.export.tracking.swanlab import SwanlabClient

        return SwanlabClient(config.swanlab, labels)
    from rltel.export.tracking.trackio import TrackioClient

    return TrackioClient(config.trackio, labels)
