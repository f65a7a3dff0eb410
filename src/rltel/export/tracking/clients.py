"""Which tracking services a config switches on."""

from collections.abc import Iterator

from rltel.core.config import TelemetryConfig
from rltel.core.identity import Identity
from rltel.export.tracking.labels import labels_of
from rltel.export.tracking.service import Client
from rltel.export.tracking.swanlab import SwanlabClient
from rltel.export.tracking.trackio import TrackioClient
from rltel.export.tracking.wandb import WandbClient


def clients_of(config: TelemetryConfig, identity: Identity) -> Iterator[Client]:
    """Their clients, none of which has imported its package yet. Only the writer process has any.

    Raises `ConfigError` for a package that is not there, or a place that a service cannot go to.
    """
    if not identity.is_writer or identity.run_dir is None:
        return
    labels = labels_of(config, identity)
    if config.wandb.mode != "disabled":
        yield WandbClient(config.wandb, labels)
    if config.swanlab.mode != "disabled":
        yield SwanlabClient(config.swanlab, labels)
    if config.trackio.mode != "disabled":
        yield TrackioClient(config.trackio, labels)
