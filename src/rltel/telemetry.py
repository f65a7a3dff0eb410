"""Builds everything from a config: who we are, where things go, and what one step's commit does.

`Telemetry` can be built by hand with every part injected; `init` keeps the process's one.
"""

import atexit
import contextlib
import logging
import os
import sys
import threading
import time
from collections.abc import Iterable, Mapping, MutableMapping
from multiprocessing.util import Finalize
from pathlib import Path
from typing import Any, TextIO

from opentelemetry.trace import SpanContext, TracerProvider
from prometheus_client import CollectorRegistry

from rltel.core.claims import Claim
from rltel.core.clock import Clock, SystemClock
from rltel.core.config import TelemetryConfig
from rltel.core.context import new_id, new_trace_id, remote_parent, span_context
from rltel.core.errors import ConfigError, RecordError, RltelError
from rltel.core.identity import Identity, find_place, identify
from rltel.core.resolve import disabled, resolve
from rltel.export.commit import Commit
from rltel.export.console import ConsoleSink
from rltel.export.jsonl import JsonlFile
from rltel.export.open_timeline import OpenTimeline, Surroundings, open_timeline
from rltel.export.pipeline import Pipeline, RemoteWorker
from rltel.export.prometheus import Endpoint, PrometheusSink, RunCollector
from rltel.export.sink import Destination, Sink
from rltel.names.otel import Namer
from rltel.record.device.device_timeline import device_timeline
from rltel.record.recorder import Recorder, timeline
from rltel.record.records import Ids
from rltel.reduce.clock_offsets import ClockOffset, measure_offsets
from rltel.reduce.ranks import tell
from rltel.reduce.snapshot import Snapshot
from rltel.reduce.stats import Stats, snapshot_of
from rltel.reduce.trackers import Trackers
from rltel.reduce.workers import Receiver, Sender

_log = logging.getLogger("rltel")
_NOT_YET = {
    "terminal.enabled": "the live panel",
    "wandb.mode": "Weights & Biases",
    "swanlab.mode": "SwanLab",
    "trackio.mode": "Trackio",
    "prometheus.push_url": "pushing to a gateway",
}


_WITHOUT_EFFECT = (
    "run.config",
    "run.include_host",
    "otlp.exponential_histograms",
    "jsonl.write",
    "names.strict",
    "names.max_series_per_metric",
    "pipeline.sigterm",
)


class Telemetry:
    """One process's telemetry, from a resolved config. With nothing switched on it does nothing, cheaply."""

    def __init__(
        self,
        config: TelemetryConfig,
        identity: Identity,
        *,
        trackers: Trackers,
        recorder: Recorder = timeline,
        clock: Clock | None = None,
        registry: CollectorRegistry | None = None,
        stdout: TextIO | None = None,
        sinks: Iterable[Sink] = (),
        environ: Mapping[str, str] | None = None,
        tracer_provider: TracerProvider | None = None,
    ) -> None:
        _refuse_what_is_not_there(config)
        _say_what_has_no_effect(config)
        self.config = config
        self.identity = identity
        self._environ = os.environ if environ is None else environ
        self._parent = remote_parent(self._environ)
        self.root: SpanContext = span_context(
            self._parent.trace_id if self._parent else new_trace_id(), new_id(), self._parent
        )
        """The process's own span: what lies in nothing else is part of it."""
        self.process_track = new_id()
        """Which process this is in a timeline."""
        self._tracer_provider = tracer_provider
        self._device = device_timeline if recorder is timeline else None  # it draws on the process's recorder
        self._timeline = OpenTimeline()
        self._trackers = trackers
        self._recorder = recorder
        self._clock = clock or SystemClock()
        self._stdout = stdout or sys.stdout
        self._registry = registry
        self._collector: RunCollector | None = None
        self._lock = threading.Lock()
        self._commits = 0
        self._closed = False
        self._destinations: list[Destination] = []
        self._places: list[str] = []
        self._close_last = contextlib.ExitStack()
        self._endpoint: Endpoint | None = None
        self._jsonl: JsonlFile | None = None
        self._pipeline: Pipeline | None = None
        if identity.run_dir is not None:
            with contextlib.ExitStack() as undo:
                undo.push(self._close_last)
                self._build(identity.run_dir, list(sinks), undo)
                undo.pop_all()

    # --- building ---------------------------------------------------------------------------------------------------

    def _build(self, run_dir: Path, extra: list[Sink], undo: contextlib.ExitStack) -> None:
        """Everything that can fail first; threads, which cannot be undone, last."""
        self._open_jsonl(run_dir)
        timeline = self._open_timeline(run_dir)
        for worker in timeline.workers:
            undo.callback(worker.close, 0.0)
        local: list[Sink] = []
        for sink in (*self._local_sinks(run_dir), *extra):
            undo.callback(sink.close)
            local.append(sink)
        remote = list(self._remote_sinks())
        self._places.extend(f"{sink.name} {sink.describe()}" for sink in (*local, *remote))
        self._pipeline = Pipeline(
            [(sink, self._destination(sink.name)) for sink in local],
            [self._remote(sink) for sink in remote],
            Namer(),
            drain=timeline.drain.drain if timeline.drain else _nothing,
            finish=timeline.drain.close if timeline.drain else None,
            others=timeline.workers,
            flush_interval_s=self.config.trace.flush_interval_s,
            log_interval=self.config.run.log_interval,
            queue_bytes=int(self.config.pipeline.queue_mb * 1e6),
        )
        self._destinations.append(self._pipeline.account)

    def _destination(self, name: str) -> Destination:
        made = Destination(name)
        self._destinations.append(made)
        return made

    def _open_jsonl(self, run_dir: Path) -> None:
        given = self.config.jsonl.path
        path = _placed(given, run_dir) if given else run_dir / "metrics" / f"{self.identity.name}.jsonl"
        self._jsonl = JsonlFile(path, self.identity, self._destination("jsonl"))
        self._close_last.callback(self._jsonl.close)
        self._places.append(f"jsonl {path}")

    def _local_sinks(self, run_dir: Path) -> Iterable[Sink]:
        config = self.config
        if config.prometheus.enabled:
            yield self._open_endpoint(run_dir)
        if config.tensorboard.path is not None and self.identity.is_writer:
            from rltel.export.tensorboard import TensorBoardSink  # imports tensorboard

            folder = _placed(config.tensorboard.path, run_dir)
            yield TensorBoardSink(folder, config.run.step_axis)
        if config.console.enabled and self.identity.is_writer:
            yield ConsoleSink(self._stdout, config.console.interval_s, self._clock.monotonic_ns)

    def _open_endpoint(self, run_dir: Path) -> PrometheusSink:
        settings = self.config.prometheus
        sink = PrometheusSink(settings.timestamps)
        registry = self._registry or CollectorRegistry()
        self._collector = RunCollector(sink, lambda: list(self._destinations), self.identity)
        registry.register(self._collector)
        first_port = settings.port + (0 if self.identity.is_writer or not settings.port else 1)  # the writer goes first
        self._endpoint = Endpoint(settings, registry, first_port)
        self._close_last.callback(self._endpoint.close)
        self._endpoint.advertise(
            run_dir / "prometheus_sd" / f"{self.identity.role}-{self.identity.index}.json", self.identity
        )
        sink.address = self._endpoint.url
        return sink

    def _remote_sinks(self) -> Iterable[Sink]:
        config = self.config
        if config.otlp.enabled and config.otlp.metrics:
            from rltel.export.otlp import OtlpSink, metric_exporter  # imports the OTLP encoders
            from rltel.export.resource import resource_of

            exporter, address = metric_exporter(config.otlp, self._environ)
            resource = resource_of(self.identity, config.run, self._environ)
            yield OtlpSink(exporter, resource, self._clock.realtime_ns(), address, config.otlp.timeout_s)

    def _remote(self, sink: Sink) -> RemoteWorker:
        return RemoteWorker(sink, self._destination(sink.name), int(self.config.pipeline.queue_mb * 1e6))

    def _open_timeline(self, run_dir: Path) -> OpenTimeline:
        surroundings = Surroundings(
            self.config,
            self.identity,
            self._recorder,
            self._clock,
            self._environ,
            self._destination,
            Ids(self.root.trace_id, self.root.span_id),
            self._parent,
            self.process_track,
            self._device,
            self._tracer_provider,
        )
        self._timeline = open_timeline(surroundings, run_dir)
        self.root = self._timeline.root or self.root
        if self._timeline.drain is not None:
            self._close_last.callback(self._timeline.drain.close)
        self._places.extend(self._timeline.places)
        return self._timeline

    # --- use --------------------------------------------------------------------------------------------------------

    @property
    def run_dir(self) -> Path | None:
        """The run directory; None if nothing is switched on."""
        return self.identity.run_dir

    @property
    def prometheus_url(self) -> str | None:
        """The scrape endpoint, if there is one."""
        return self._endpoint.url if self._endpoint else None

    def describe(self) -> str:
        """One line: which run, who we are, and where each thing goes."""
        if self._pipeline is None:
            return "rltel: nothing is switched on"
        who = f"{self.identity.role} {self.identity.index}{', writer' if self.identity.is_writer else ''}"
        return f"rltel: run {self.identity.run_id} ({who}): {', '.join(self._places)}"

    def commit(
        self,
        stats: Mapping[str, Any] | None = None,
        *,
        step: int,
        env_steps: int | None = None,
        epoch: int | None = None,
        epoch_step: int | None = None,
        axis: str = "train",
    ) -> None:
        """Send one step's numbers everywhere. Without `stats`, everything recorded since the last export.

        When it returns, the step is in the run directory's JSONL, in the kernel's hands. Raises `RecordError` for
        numbers or steps that are none; nothing is lost then.
        """
        check_steps(step=step, env_steps=env_steps, epoch=epoch, epoch_step=epoch_step)
        if stats is not None:
            self._commit(snapshot_of(stats), step, env_steps, epoch, epoch_step, axis)
            return
        with self._trackers.taken(derive=True) as snapshot:
            self._commit(snapshot, step, env_steps, epoch, epoch_step, axis)

    def _commit(
        self, snapshot: Snapshot, step: int, env_steps: int | None, epoch: int | None, epoch_step: int | None, axis: str
    ) -> None:
        if self._pipeline is None:
            return
        if not self.identity.is_writer:
            mine = {key: metric for key, metric in snapshot.items() if not metric.reduced}
            if snapshot and not mine:
                return  # what was reduced over a group is the writer's to export, alone
            snapshot = Snapshot(mine)
        with self._lock:
            if self._closed:
                return
            number = self._commits
            self._commits += 1
            commit = Commit(
                self.identity, number, self._clock.realtime_ns(), step, axis, snapshot, env_steps, epoch, epoch_step
            )
            if self._jsonl is not None:
                self._jsonl.write(commit)
            self._pipeline.submit(commit)

    def sync_clocks(self, group: Any) -> ClockOffset:
        """See `rltel.sync_clocks`."""
        offset = measure_offsets(group, self._clock)
        reference = tell(group, self.process_track)[0]
        if self._timeline.writer is not None:
            self._timeline.writer.note_offset(reference, offset)
        return offset

    def flush(self, timeout_s: float = 5.0) -> bool:
        """Wait until every commit so far has reached its destinations; False if the time runs out first."""
        return self._pipeline is None or self._pipeline.flush(timeout_s)

    def abandon(self) -> None:
        """In a forked child: do nothing from here on. Threads, files and sockets are the parent's."""
        self._lock = threading.Lock()
        self._closed = True

    def shutdown(self, *, linger: bool = True) -> None:
        """Bring everything home, within ``pipeline.shutdown_timeout_s`` (and ``prometheus.linger_s``, if `linger`).

        Commits after this do nothing. A second call does nothing.
        """
        with self._lock:
            if self._closed:
                return
            self._closed = True
        if self._device is not None:
            self._device.close()
        if self._pipeline is not None:
            self._pipeline.close(self.config.pipeline.shutdown_timeout_s)
        if self._collector is not None and linger:
            _linger(self._collector, self.config.prometheus.linger_s)
        self._close_last.close()
        for destination in self._destinations:
            lost = sum(destination.dropped_totals.values())
            if lost:
                _log.warning("%s: lost %d in all (%s)", destination.name, lost, destination.dropped_totals)


def _placed(path: str, run_dir: Path) -> Path:
    """A path of the config, with ``{run_dir}`` filled in."""
    return Path(path.replace("{run_dir}", str(run_dir)))


def _nothing() -> None:
    """Nothing to drain."""


def _linger(collector: RunCollector, seconds: float) -> None:
    """Stay up until the last step was scraped twice, at most this long. If nobody ever scraped, nobody will.

    Ctrl+C ends the wait, and nothing else.
    """
    seen = collector.scrapes
    deadline = time.monotonic() + seconds
    with contextlib.suppress(KeyboardInterrupt):
        while seen and collector.scrapes < seen + 2 and time.monotonic() < deadline:
            time.sleep(0.05)


def check_steps(**steps: int | None) -> None:
    """Refuse steps that are no whole numbers >= 0."""
    for name, value in steps.items():
        if value is None and name != "step":
            continue
        if not hasattr(value, "__index__") or isinstance(value, bool) or int(value) < 0:  # type: ignore[arg-type]  # has __index__
            raise RecordError(f"commit: {name}: expected a whole number >= 0, got {value!r}")


def _refuse_what_is_not_there(config: TelemetryConfig) -> None:
    for path, what in _NOT_YET.items():
        value = _setting(config, path)
        if value not in (False, None, "disabled"):
            raise ConfigError(f"{path}: {what} is not in this version of rltel, got {value!r}")


def _say_what_has_no_effect(config: TelemetryConfig) -> None:
    default = TelemetryConfig()
    changed = [path for path in _WITHOUT_EFFECT if _setting(config, path) != _setting(default, path)]
    if changed:
        _log.warning("%s: set, but without effect in this version of rltel", ", ".join(changed))


def _setting(config: TelemetryConfig, path: str) -> Any:
    section, field = path.split(".")
    return getattr(getattr(config, section), field)


# --- the process's one ----------------------------------------------------------------------------------------------


class Process:
    """The trackers and the telemetry of this process: what the functions of the package act on."""

    def __init__(self, recorder: Recorder = timeline, environ: MutableMapping[str, str] | None = None) -> None:
        self.recorder = recorder
        self.trackers = Trackers(recorder)
        self.sender = Sender()
        self.receiver = Receiver(self.trackers)
        self.telemetry: Telemetry | None = None
        self.lost_commits = 0
        """Commits of a process that never called init (said once)."""
        self._environ: MutableMapping[str, str] = os.environ if environ is None else environ
        self._asked: Any = None
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
        self.recorder.is_awaited()
        outside = self._outside()
        resolved = _resolved(config, outside, run_id, run_dir)
        asked = (resolved, role, rank, world_size)
        if self.telemetry is not None:
            if asked != self._asked:
                raise RltelError("init: called again with another config; call rltel.shutdown() first")
            return self.telemetry
        self.telemetry = self._start(resolved, outside, (role, rank, world_size), injected)
        self._asked = asked
        atexit.register(self._at_exit)
        self._finalizer = Finalize(None, self._at_exit, exitpriority=10)  # multiprocessing's children skip atexit
        if self.telemetry.run_dir is not None:
            print(self.telemetry.describe(), file=sys.stderr, flush=True)
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
                config, identity, trackers=self.trackers, recorder=self.recorder, environ=environ, **injected
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

    def _release(self) -> None:
        if self._claim is not None:
            self._claim.release()
            self._claim = None

    def shutdown(self, *, linger: bool = True) -> None:
        """See `rltel.shutdown`."""
        telemetry, self.telemetry = self.telemetry, None
        if telemetry is None:
            return
        telemetry.shutdown(linger=linger)
        self._release()
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
        self.lost_commits += 1
        if self.lost_commits == 1:
            _log.warning("commit: rltel.init was not called in this process, so nothing is sent (counted; said once)")

    def forget(self) -> None:
        """In a forked child: start empty. The parent's files, threads and numbers are not ours."""
        if self.telemetry is not None:
            self.telemetry.abandon()
        self.telemetry = None
        self._asked = None
        self._claim = None
        self._published = {}
        self.lost_commits = 0
        self.trackers.reset()
        self.sender = Sender()
        self.receiver = Receiver(
            self.trackers
        )  # the lock of the old one may have been held by a thread that is not here
        atexit.unregister(self._at_exit)


def _resolved(
    config: Any, environ: Mapping[str, str], run_id: str | None, run_dir: str | os.PathLike[str] | None
) -> TelemetryConfig:
    """The config in force, arguments included."""
    if disabled(environ):
        return TelemetryConfig()
    arguments = {"RLTEL_RUN_ID": run_id, "RLTEL_RUN_DIR": None if run_dir is None else os.fspath(run_dir)}
    given = {name: value for name, value in arguments.items() if value is not None}
    return resolve(config, {**environ, **given})


process = Process()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=process.forget)
