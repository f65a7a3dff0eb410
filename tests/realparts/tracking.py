"""Drives the tracking destinations in tests: their real packages offline, or a package that misbehaves."""

from __future__ import annotations

import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from export.making import TIME_NS, identity
from rltel.core.config import RunConfig, TelemetryConfig
from rltel.export.commit import Commit
from rltel.export.media import Kind, Media, media
from rltel.export.sink import Destination
from rltel.export.tracking.labels import Labels, labels_of
from rltel.export.tracking.service import Client, TrackingSink, TrackingWorker

ENOUGH_S = 60.0


def labels(run_dir: Path, **run: Any) -> Labels:
    """A run's, by its config."""
    run_dir.mkdir(parents=True, exist_ok=True)
    return labels_of(TelemetryConfig(run=RunConfig(**run)), identity(run_dir))


def shown(kind: Kind, key: str, payload: Any, **changed: Any) -> Media:
    """Something to show."""
    return media(kind, key, payload, **{"step": 1, "axis": "train", "time_ns": TIME_NS, **changed})


def worker_of(client: Client, name: str | None = None) -> TrackingWorker:
    """A client on its thread."""
    return TrackingWorker(TrackingSink(client), Destination(name or client.name), 10_000_000)


def drive(client: Client, *things: Commit | Media) -> Destination:
    """Send commits and media through a client, and end its run."""
    worker = worker_of(client)
    send(worker, things)
    worker.close(time.monotonic() + ENOUGH_S)
    return worker.destination


def send(worker: TrackingWorker, things: Sequence[Commit | Media]) -> None:
    """In their order."""
    for thing in things:
        if isinstance(thing, Media):
            worker.put_media(thing)
        else:
            worker.put(thing, [])


@pytest.fixture
def offline(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """Fails whoever connects to anything but this machine; a home of its own, so that no key of anybody is found."""
    tried: list[Any] = []
    connect = socket.socket.connect

    def guarded(self: socket.socket, address: Any) -> None:
        if self.family != socket.AF_UNIX and address[0] not in ("127.0.0.1", "::1", "localhost"):
            tried.append(address)
            raise OSError(f"tests do not leave this machine: {address}")
        connect(self, address)

    def no_names(host: Any, *rest: Any, **more: Any) -> Any:
        tried.append(host)
        raise OSError(f"tests look up no names: {host}")

    monkeypatch.setattr(socket.socket, "connect", guarded)
    monkeypatch.setattr(socket, "getaddrinfo", no_names)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    for name in ("WANDB_API_KEY", "WANDB_MODE", "WANDB_PROJECT", "SWANLAB_API_KEY", "TRACKIO_DIR", "HF_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    yield
    assert tried == []


class Misbehaving:
    """A tracking package that does what it is told to at one of its calls: ``init``, ``log`` or ``finish``."""

    def __init__(self, at: str = "", act: Callable[[], object] = lambda: None) -> None:
        self._at, self._act = at, act
        self.calls: list[str] = []
        self.rows: list[dict[str, Any]] = []
        self.options: dict[str, Any] = {}
        self.ended: dict[str, Any] | None = None
        self.thread: int | None = None
        self.settings = SimpleNamespace()

    def init(self, **options: Any) -> Misbehaving:
        self.options = options
        self._call("init")
        return self

    def log(self, row: dict[str, Any], **_: Any) -> None:
        self._call("log")
        self.rows.append(row)

    def finish(self, **how: Any) -> None:
        self._call("finish")
        self.ended = how

    def define_metric(self, *_: Any, **__: Any) -> None:
        """As wandb's."""

    @property
    def config(self) -> dict[str, Any]:
        return {}

    def _call(self, what: str) -> None:
        self.thread = threading.get_ident()
        self.calls.append(what)
        if what == self._at:
            self._act()

    def as_module(self, name: str) -> ModuleType:
        """A package of that name."""
        made = ModuleType(name)
        made.__dict__.update(init=self.init, Settings=_Settings, Table=type("Table", (), {}), Histogram=dict)
        return made


class _Settings(SimpleNamespace):
    """Takes anything, as the packages' settings take what they know."""

    Probe = Terminal = SimpleNamespace


@contextmanager
def package(name: str, fake: Misbehaving) -> Iterator[Misbehaving]:
    """While ``import name`` finds the fake."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, name, fake.as_module(name))
        if name == "trackio":
            patch.setitem(sys.modules, "trackio.utils", ModuleType("trackio.utils"))
        yield fake
