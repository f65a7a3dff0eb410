"""Which tracking services are on, and in which process."""

from pathlib import Path

import pytest

from export.making import identity
from rltel.core.config import SwanlabConfig, TelemetryConfig, TrackioConfig, WandbConfig
from rltel.core.errors import ConfigError
from rltel.export.tracking.clients import clients_of

ALL = TelemetryConfig(
    wandb=WandbConfig(mode="offline"), swanlab=SwanlabConfig(mode="offline"), trackio=TrackioConfig(mode="local")
)


def test_those_that_are_switched_on(tmp_path: Path) -> None:
    assert [client.name for client in clients_of(ALL, identity(tmp_path))] == ["wandb", "swanlab", "trackio"]
    only = TelemetryConfig(swanlab=SwanlabConfig(mode="offline"))
    assert [client.name for client in clients_of(only, identity(tmp_path))] == ["swanlab"]


def test_none_unless_asked(tmp_path: Path) -> None:
    assert list(clients_of(TelemetryConfig(), identity(tmp_path))) == []


def test_only_the_writer_has_any(tmp_path: Path) -> None:
    assert list(clients_of(ALL, identity(tmp_path, is_writer=False, rank=1, index=1))) == []


def test_a_package_that_is_not_there_is_an_error_at_the_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    monkeypatch.setattr("sys.modules", {})
    with pytest.raises(ConfigError, match=r"wandb.mode: needs the extra"):
        list(clients_of(ALL, identity(tmp_path)))
