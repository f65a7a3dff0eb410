"""The process's one set of trackers and one telemetry: what the functions of the package act on."""

import atexit
import logging
import os
import signal
import sys
import threading
from collections.abc import Mapping, MutableMapping
from contextlib import suppress
from dataclasses import asdict
from multiprocessing.util import Finalize
from types import NoneType
from typing import Any

from rltel.core.claims import Claim
from rltel.core.clock import SystemClock
from rltel.core.config import TelemetryConfig
from rltel.core.errors import ConfigError, RltelError
from rltel.core.identity import Identity, find_place, identify
from rltel.core.resolve import disabled, resolve
from rltel.core.wording import printable
from rltel.export.media import Kind
from rltel.export.panel.system import SystemFacts
from rltel.record.recorder import Recorder, timeline
from rltel.reduce.clock_offsets import ClockOffset, measure_offsets
from rltel.reduce.ranks import tell
from rltel.reduce.stats import Stats
from rltel.reduce.trackers import Trackers, of_process
from rltel.reduce.workers import Receiver, Sender
from rltel.runs.processes import End
from rltel.runs.run_summary import checked_fields
from rltel.telemetry import Telemetry, checked, checked_media

_log = logging.getLogger("rltel")


class Process:
    """The trackers and the telemetry of this process: what the functions of the package act on."""

    def __init__(
        self,
        recorder: Recorder = timeline,
        environ: MutableMapping[str, str] | None = None,
        trackers: Trackers | None = None,
    ) -> None:
        self.recorder = recorder
        self.trackers = Trackers(recorder) if trackers is None else trackers
        self.sender = Sender()
        self.receiver = Receiver(self.trackers)
        self.system = SystemFacts()
        """What the trainer told the panel."""
        self.telemetry: Telemetry | None = None
        self.lost_commits = 0
        """Commits, texts and the like of a process that never called init (said once)."""
        self._environ: MutableMapping[str, str] = os.environ if environ is None else environ
        self._lock = threading.RLock()  # of init and shutdown, which several threads may call at once
        self._asked: Any = None
        self._injected: Mapping[str, Any] = {}
        self._claim: Claim | None = None
        self._finalizer: Finalize | None = None
        self._published: dict[str, str | None] = {}

    def init(
        self,
        config: Any = None,
        *,
        role: str | None = None,
        rank: int | None = None,
        world_size: int | None = None,
        run_id: str | None = None,
        run_dir: str | os.PathLike[str] | None = None,
        **injected: Any,
    ) -> Telemetry:
        """See `rltel.init`."""
        with self._lock:
            return self._init(config, (run_id, run_dir), (role, rank, world_size), injected)

    def _init(
        self,
        config: Any,
        run: tuple[str | None, str | os.PathLike[str] | None],
        place: tuple[str | None, int | None, int | None],
        injected: Mapping[str, Any],
    ) -> Telemetry:
        self.recorder.is_awaited()
        outside = self._outside()
        resolved = _resolved(config, outside, *run)
        asked = (resolved, *place)
        if self.telemetry is not None:
            if asked != self._asked:
                raise RltelError("init: called again with another config; call rltel.shutdown() first")
            for name, part in injected.items():
                if part is not None and part is not self._injected.get(name):
                    raise RltelError(f"init: called again with another {name}; call rltel.shutdown() first")
            return self.telemetry
        self.telemetry = self._start(resolved, outside, place, injected)
        self._asked, self._injected = asked, injected
        atexit.register(self._at_exit)
        if resolved.pipeline.sigterm:
            _leave_on_sigterm()
        if self.telemetry.tracks:
            from rltel.export.tracking.hooks import at_end  # only where there is a tracking service

            at_end(self._at_exit)  # their packages need threads, which Python's own end no longer gives
        self._finalizer = Finalize(None, self._at_exit, exitpriority=10)  # multiprocessing's children skip atexit
        if self.telemetry.run_dir is not None:
            with suppress(OSError, ValueError):  # nobody is there to read it: closed, or a pipe without an end
                print(printable(self.telemetry.describe()), file=sys.stderr, flush=True)
        return self.telemetry

    def _start(
        self,
        config: TelemetryConfig,
        environ: Mapping[str, str],
        place: tuple[str | None, int | None, int | None],
        injected: Mapping[str, Any],
    ) -> Telemetry:
        on = config.anything_on() or injected.get("tracer_provider") is not None
        found = find_place(config.run, environ if on else {}, *place)  # with nothing on, nothing there can be wrong
        identity, self._claim = identify(config.run, found, environ, claim=on)
        try:
            telemetry = Telemetry(
                config,
                identity,
                trackers=self.trackers,
                recorder=self.recorder,
                environ=environ,
                facts=self.system,
                **injected,
            )
        except BaseException:
            self._release()
            raise
        self._publish(identity)
        return telemetry

    def _publish(self, identity: Identity) -> None:
        """Children find the run through the environment."""
        if identity.run_dir is None:
            return
        for name, value in (("RLTEL_RUN_ID", identity.run_id), ("RLTEL_RUN_DIR", str(identity.run_dir))):
            self._published[name] = self._environ.get(name)
            self._environ[name] = value

    def _outside(self) -> dict[str, str]:
        """The environment as it was before we put the run into it."""
        environ = dict(self._environ)
        for name, before in self._published.items():
            environ.pop(name, None)
            if before is not None:
                environ[name] = before
        return environ

    def _release(self, end: End | None = None) -> None:
        if self._claim is not None:
            self._claim.release(None if end is None else asdict(end))
            self._claim = None

    def shutdown(self, *, linger: bool = True) -> None:
        """See `rltel.shutdown`."""
        with self._lock:
            telemetry, self.telemetry = self.telemetry, None
        if telemetry is None:
            return
        telemetry.shutdown(linger=linger)
        self._release(telemetry.end)
        for name, before in self._published.items():
            self._environ.pop(name, None)
            if before is not None:
                self._environ[name] = before
        self._published = {}
        atexit.unregister(self._at_exit)
        if self._finalizer is not None:
            self._finalizer.cancel()

    def _at_exit(self) -> None:
        self.shutdown(linger=getattr(sys, "last_type", None) is None)  # no lingering after an exception

    def export_all(self, reduce_group: Any, **how: Any) -> Stats:
        """See `rltel.export_all`."""
        is_writer = self.telemetry.identity.is_writer if self.telemetry and self.telemetry.run_dir else None
        return self.trackers.export_all(reduce_group, is_writer=is_writer, **how)

    def sync_clocks(self, group: Any) -> ClockOffset:
        """See `rltel.sync_clocks`. A process without telemetry takes part all the same."""
        if self.telemetry is not None:
            return self.telemetry.sync_clocks(group)
        offset = measure_offsets(group, SystemClock())
        tell(group, 0)
        return offset

    def commit(self, stats: Mapping[str, Any] | None = None, **where: Any) -> None:
        """See `rltel.commit`."""
        if self.telemetry is not None:
            self.telemetry.commit(stats, **where)
            return
        checked(stats, **where)  # what is wrong is wrong now, and not only once somebody switches something on
        self._lost("commit")

    def show(self, kind: Kind, key: str, payload: Any, **where: Any) -> None:
        """See `rltel.log_text` and its like."""
        if self.telemetry is not None:
            self.telemetry.show(kind, key, payload, **where)
        else:
            checked_media(kind, key, payload, **where)  # as above
            self._lost(f"log_{kind}")

    def _lost(self, call: str) -> None:
        self.lost_commits += 1
        if self.lost_commits == 1:
            _log.warning("%s: rltel.init was not called in this process, so nothing is sent (counted; said once)", call)

    def summary(self, fields: Mapping[str, Any]) -> None:
        """See `rltel.summary`."""
        record = None if self.telemetry is None else self.telemetry.run_record
        if record is None:
            checked_fields(fields)  # what is wrong is wrong on every rank
        else:
            record.put(fields)

    def noticed(self, error: BaseException) -> None:
        """An exception came out of a step: how the process ended may have to say so."""
        if self.telemetry is not None:
            self.telemetry.noticed(error)

    def forget(self) -> None:
        """In a forked child: start empty. The parent's files, threads and numbers are not ours."""
        if self.telemetry is not None:
            self.telemetry.abandon()
        self.telemetry = None
        self._lock = threading.RLock()
        self._asked = None
        self._claim = None
        self._published = {}
        self.lost_commits = 0
        self.system = SystemFacts()
        self.trackers.reset()
        self.sender = Sender()
        self.receiver = Receiver(
            self.trackers
        )  # the lock of the old one may have been held by a thread that is not here
        atexit.unregister(self._at_exit)


def _leave_on_sigterm() -> None:
    """SIGTERM ends the program as ``sys.exit`` does, so what runs at exit runs. A handler of the user's own stays."""
    is_main = threading.current_thread() is threading.main_thread()
    if is_main and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        signal.signal(signal.SIGTERM, _leave)
    elif signal.getsignal(signal.SIGTERM) is not _leave:
        _log.warning("pipeline.sigterm: SIGTERM has a handler already, or this is no main thread: it is left alone")


def _leave(number: int, frame: object) -> None:
    sys.exit(128 + number)


def _resolved(
    config: Any, environ: Mapping[str, str], run_id: str | None, run_dir: str | os.PathLike[str] | None
) -> TelemetryConfig:
    """The config in force, arguments included."""
    if disabled(environ):
        return TelemetryConfig()
    if not isinstance(run_id, (str, NoneType)):
        raise ConfigError(f"run_id: expected a string, got {run_id!r}")
    if not isinstance(run_dir, (str, os.PathLike, NoneType)):  # bytes are none: paths go into the environment
        raise ConfigError(f"run_dir: expected a path, got {run_dir!r}")
    arguments = {"RLTEL_RUN_ID": run_id, "RLTEL_RUN_DIR": None if run_dir is None else os.fspath(run_dir)}
    given = {name: value for name, value in arguments.items() if value is not None}
    return resolve(config, {**environ, **given})


process = Process(trackers=of_process)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=process.forget)
