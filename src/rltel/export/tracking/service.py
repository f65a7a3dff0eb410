"""Tracking services (W&B, SwanLab, Trackio): their packages are guests, driven on a thread of their own.

A `Client` translates; `TrackingSink` drives it, and `TrackingWorker` gives it its thread. The package is imported and
its run opened on that thread, so whatever a client does, raises or waits for costs its own destination only. Only the
writer process has them, as `telemetry.py` decides.
"""

import errno
import importlib
import importlib.util
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

from rltel.core.errors import ConfigError, RltelError
from rltel.core.undisturbed import undisturbed
from rltel.export.commit import Commit
from rltel.export.media import Media, MediaLostError
from rltel.export.pipeline import RemoteWorker
from rltel.export.points import Point
from rltel.export.sink import Destination
from rltel.export.tracking.hooks import HeldHooks, Outcome, outcome
from rltel.export.worker import Parcel

_RETRY_S, _LONGEST_RETRY_S = 5.0, 600.0
_OPENING_BYTES = 0
_ROOM_BYTES = 1_000_000  # below this a disk counts as full


class Client(Protocol):
    """A tracking service's own package. All methods are called on one thread, and may raise or block."""

    name: str

    def describe(self) -> str:
        """Where things go, for the line at the start. No secrets; the package is not imported for it."""

    def open(self) -> None:
        """Import the package and begin (or resume) the run."""

    def log(self, commit: Commit) -> None:
        """One commit's numbers."""

    def show(self, media: Media) -> None:
        """One text, table, file, video or image. Raises `MediaLostError` for what it cannot hold."""

    def finish(self, how: Outcome) -> None:
        """The end of the run."""


class NotOpenError(RltelError):
    """A run could not be opened, as while its service is away: what is to go there may wait in the queue."""

    retryable = True

    def __init__(self, message: str, retry_after_s: float) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class TrackingSink:
    """A `Sink` and `MediaSink` over a client. What comes while the run is not open raises `NotOpenError`."""

    takes_points = False

    def __init__(self, client: Client, now: Callable[[], float] = time.monotonic) -> None:
        self.name = client.name
        self._client = client
        self._now = now
        self._hooks = HeldHooks()
        self._is_open = False
        self._failures = 0
        self._retry_at = 0.0
        self._why = ""

    def describe(self) -> str:
        """Where things go."""
        return self._client.describe()

    @property
    def url(self) -> str | None:
        """Where the run is to be seen; None while it is not open, or for a service that has no place for it."""
        found: str | None = getattr(self._client, "url", None)
        return found

    def open(self) -> None:
        """Open the run, unless it is. After a failure it is tried again, at ever longer intervals.

        Raises `ConfigError` for what no second try would help, else `NotOpenError`.
        """
        if self._is_open:
            return
        wait_s = self._retry_at - self._now()
        if self._failures and wait_s > 0:
            raise NotOpenError(f"its run is not open: {self._why}", wait_s)
        try:
            with self._hooks.holding(), _no_exit(self.name):
                self._client.open()
        except ConfigError:
            raise
        except Exception as error:  # whatever a package raises
            wait_s = min(_RETRY_S * 2**self._failures, _LONGEST_RETRY_S)
            self._failures += 1
            self._retry_at, self._why = self._now() + wait_s, str(error)
            raise NotOpenError(f"cannot open its run: {error}", wait_s) from error
        self._is_open, self._failures = True, 0

    def write(self, commit: Commit, points: Sequence[Point]) -> None:
        """One commit. Raises OSError if the disk that its package writes to is full: the package would not say so."""
        self.open()
        _need_room(getattr(self._client, "folder", None))
        with _no_exit(self.name):
            self._client.log(commit)

    def write_media(self, media: Media) -> None:
        """One text, table, file, video or image."""
        self.open()
        with _no_exit(self.name):
            self._client.show(media)

    def flush(self) -> None:
        """The packages send on their own."""

    def close(self) -> None:
        """The end of the run, and of what its package hooked into the process."""
        if self._is_open:
            self._is_open = False
            with _no_exit(self.name):
                self._client.finish(outcome())
        self._hooks.release()


def _need_room(folder: Path | None) -> None:
    if folder is None:
        return
    try:
        found = os.statvfs(folder)
    except OSError:  # not there yet
        return
    if found.f_bavail * found.f_frsize < _ROOM_BYTES:
        raise OSError(errno.ENOSPC, "no space left for what its package writes", str(folder))


class TrackingWorker(RemoteWorker):
    """The thread of one tracking sink. Opens its run at once, so that a short program has it before it ends."""

    def __init__(self, sink: TrackingSink, destination: Destination, queue_bytes: int) -> None:
        super().__init__(sink, destination, queue_bytes)
        self._tracking = sink
        with undisturbed():
            import rich.style  # noqa: F401  # the packages import it on our thread, and it draws from `random`
        self.put_parcel(Parcel(sink.open, _OPENING_BYTES, 0))

    def put_media(self, media: Media) -> None:
        """Queue one."""
        self.put_parcel(Parcel(lambda: self._show(media), media.size_bytes, 1))

    def close(self, deadline: float) -> None:
        """As `Worker.close`; a client whose end hangs is abandoned, and that is counted."""
        super().close(deadline)
        if self._thread.is_alive() and not self._given_up:
            late = TimeoutError("the end of its run did not come in time, and was abandoned")
            self.destination.failed(late, reason="unfinished")

    def _show(self, media: Media) -> int:
        """How many were not taken."""
        try:
            self._tracking.write_media(media)
        except MediaLostError as lost:
            self.destination.failed(lost, reason=lost.reason)
            return 1
        return 0


def need_package(package: str) -> None:
    """Raises `ConfigError` if a tracking service's package is not there. Does not import it."""
    if package in sys.modules:
        return
    found = importlib.util.find_spec(package)
    if found is None or found.origin is None:  # without an origin it is somebody's folder of that name
        raise ConfigError(f'{package}.mode: needs the extra: pip install "rltel[{package}]"')


def load_package(package: str) -> Any:
    """Import it; only ever called on its destination's own thread."""
    try:
        return importlib.import_module(package)
    except ImportError as missing:
        raise ConfigError(f"{package}.mode: the package {package} cannot be imported: {missing}") from missing


@contextmanager
def _no_exit(name: str) -> Iterator[None]:
    """A package that would leave the program would only end our thread, without a word."""
    try:
        yield
    except SystemExit as leaving:
        raise RltelError(f"{name}: its package wanted to end the program: {leaving}") from leaving
