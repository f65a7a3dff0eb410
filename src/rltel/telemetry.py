"""Builds everything from a config: who we are, where things go, and what one step's commit does.

`Telemetry` can be built by hand with every part injected; `rltel.process` keeps the process's one.
"""

import contextlib
import logging
import os
import sys
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol, TextIO, runtime_checkable

from opentelemetry.trace import SpanContext, TracerProvider
from prometheus_client import CollectorRegistry

from rltel.core.clock import Clock, SystemClock
from rltel.core.config import TelemetryConfig
from rltel.core.context import new_id, new_trace_id, remote_parent, span_context
from rltel.core.errors import ConfigError, RecordError
from rltel.core.identity import Identity
from rltel.core.rundir import placed
from rltel.core.steps import check_axis, check_steps
from rltel.export.commit import Commit
from rltel.export.jsonl import JsonlFile
from rltel.export.media import Kind, Media, media
from rltel.export.open_sinks import Facts, OpenSinks, SinkSurroundings, open_sinks
from rltel.export.open_timeline import OpenTimeline, Surroundings, open_timeline
from rltel.export.pipeline import Pipeline
from rltel.export.removed import RemovedTags
from rltel.export.sink import Destination, Sink
from rltel.export.strict import StrictNames
from rltel.export.worker import Parcel, Worker
from rltel.names.otel import Namer
from rltel.names.schema import algorithm_named
from rltel.record.device.device_timeline import device_timeline
from rltel.record.recorder import Recorder, timeline
from rltel.record.records import Ids
from rltel.reduce.clock_offsets import ClockOffset, measure_offsets
from rltel.reduce.own_rank import OwnRank
from rltel.reduce.ranks import tell
from rltel.reduce.snapshot import Snapshot
from rltel.reduce.stats import snapshot_of
from rltel.reduce.trackers import Trackers
from rltel.rl.sessions.file import SessionFile
from rltel.rl.sessions.log import SessionLog
from rltel.rl.sessions.registry import process_sessions
from rltel.runs.ending import Ending
from rltel.runs.processes import End, end_of
from rltel.runs.run_config import sections_of
from rltel.runs.run_record import RunRecord
from rltel.runs.scrub import Scrub, home

_log = logging.getLogger("rltel")
_JSONL_BYTES = 1000  # about what a metric of a commit that waits to be written holds in memory


@runtime_checkable
class TakesMedia(Protocol):
    """A worker whose destination holds more than numbers."""

    def put_media(self, media: Media) -> None:
        """Queue one."""


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
        facts: Facts = dict,
    ) -> None:
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
        self._facts = facts
        self._device = device_timeline if recorder is timeline else None  # it draws on the process's recorder
        self._timeline = OpenTimeline()
        self._trackers = trackers
        self._recorder = recorder
        self._clock = clock or SystemClock()
        self._stdout = stdout or sys.stdout
        self._registry = registry
        self._namer = Namer(max_series=config.names.max_series_per_metric)
        self._destinations: list[Destination] = []
        self._strict = StrictNames(algorithm=algorithm_named(config.run.algo or "")) if config.names.strict else None
        self._removed = RemovedTags(self._destination("commit").dropped)
        self._own_rank = OwnRank(is_writer=identity.is_writer, world_size=identity.world_size)
        self._sinks = OpenSinks()
        self._lock = threading.Lock()
        self._commits = 0
        self._closed = False
        self._places: list[str] = []
        self._close_last = contextlib.ExitStack()
        self._jsonl: JsonlFile | None = None
        self._jsonl_worker: Worker | None = None
        self._pipeline: Pipeline | None = None
        self.run_record: RunRecord | None = None
        """What the run says about itself; only its writer has one."""
        self.end: End | None = None
        """How this process ended; None while it goes on."""
        self._ending = Ending()  # of a process that is not the writer: whose record watches itself
        if identity.run_dir is not None:
            with contextlib.ExitStack() as undo:
                undo.push(self._close_last)
                self._build(identity.run_dir, list(sinks), undo)
                undo.pop_all()

    # --- building ---------------------------------------------------------------------------------------------------

    def _build(self, run_dir: Path, extra: list[Sink], undo: contextlib.ExitStack) -> None:
        """Everything that can fail first; threads, which cannot be undone, last."""
        if self.identity.is_writer:
            self.run_record = self._make_record()
            undo.callback(self.run_record.abandon)
        else:
            self._ending.watch()
            undo.callback(self._ending.unwatch)
        self._open_jsonl(run_dir)
        timeline = self._open_timeline(run_dir)
        for worker in timeline.workers:
            undo.callback(worker.close, 0.0)
        # Sessions first: one that ends with the process is drawn.
        drained = [each for each in (self._open_sessions(run_dir), timeline.drain) if each is not None]
        surroundings = SinkSurroundings(
            self.config,
            self.identity,
            self._clock,
            self._environ,
            self._namer,
            self._stdout,
            self._registry,
            self._destination,
            lambda: list(self._destinations),
            self._trouble,
            self._facts,
            tuple(extra),
        )
        sinks = self._sinks = open_sinks(surroundings, run_dir, undo)
        self._close_last.callback(self._close_sinks)
        self._places.extend(sinks.places)
        self._pipeline = Pipeline(
            sinks.local,
            sinks.remote,
            self._namer,
            drain=_one_after_the_other([each.drain for each in drained]),
            finish=_one_after_the_other([each.close for each in drained]),
            others=[*timeline.workers, *sinks.others, *([self._jsonl_worker] if self._jsonl_worker else [])],
            flush_interval_s=self.config.trace.flush_interval_s,
            log_interval=self.config.run.log_interval,
            queue_bytes=int(self.config.pipeline.queue_mb * 1e6),
        )
        self._destinations.append(self._pipeline.account)
        if self.run_record is not None:
            self.run_record.start()

    def _make_record(self) -> RunRecord:
        return RunRecord(
            self.config,
            self.identity,
            clock=self._clock,
            environ=self._environ,
            about=self._known,
            account=self._destination("run_record"),
        )

    def _known(self) -> dict[str, Any]:
        """What the destinations know of the run, for its summary."""
        writer = self._timeline.writer
        urls = {worker.sink.name: getattr(worker.sink, "url", None) for worker in self._sinks.remote}
        return {
            "trace_path": None if writer is None else str(writer.path),
            "wandb_run_url": urls.get("wandb"),
            "dropped": {each.name: lost for each in self._destinations if (lost := each.dropped_totals)},
        }

    def _trouble(self) -> str:
        """What ``/healthz`` tells."""
        ended = self._pipeline is not None and not self._closed and not self._pipeline.is_alive
        return "the pipeline's thread has ended" if ended else ""

    def _destination(self, name: str) -> Destination:
        made = Destination(name)
        self._destinations.append(made)
        return made

    def _open_jsonl(self, run_dir: Path) -> None:
        given = self.config.jsonl.path
        path = placed(given, run_dir) if given else run_dir / "metrics" / f"{self.identity.name}.jsonl"
        self._jsonl = JsonlFile(path, self.identity, self._destination("jsonl"))
        self._close_last.callback(self._jsonl.close)
        if self.config.jsonl.write == "worker":
            queue = self._destination("jsonl-queue")
            queue_bytes = int(self.config.pipeline.queue_mb * 1e6)
            self._jsonl_worker = Worker("jsonl", _nothing, queue, queue_bytes)
        self._places.append(f"jsonl {path}")

    def _close_sinks(self) -> None:
        """What outlives the pipeline: the endpoint, which the last step waits at, and the ledgers."""
        self._sinks.prometheus.close()
        for destination in self._destinations:
            if destination.ledger is not None:
                destination.ledger.close()

    def _open_sessions(self, run_dir: Path) -> SessionLog | None:
        """The process's sessions are written by the process's own telemetry."""
        if self._recorder is not timeline:
            return None
        account = self._destination("sessions")
        log = SessionLog(process_sessions, SessionFile(run_dir / "sessions", self.identity, account), account)
        self._close_last.callback(log.close)
        return log

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
        try:
            self._timeline = open_timeline(surroundings, run_dir)
        except OSError as error:
            raise ConfigError(f"trace.output_dir: cannot write {error.filename}: {error.strerror}") from error
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
    def tracks(self) -> bool:
        """Whether a tracking service (W&B, SwanLab, Trackio) is on."""
        return any(isinstance(worker, TakesMedia) for worker in self._sinks.remote)

    @property
    def prometheus_url(self) -> str | None:
        """The scrape endpoint, if there is one."""
        return self._sinks.prometheus.url

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
        given = checked(stats, step=step, env_steps=env_steps, epoch=epoch, epoch_step=epoch_step, axis=axis)
        if given is not None:
            self._own_rank.given(stats, axis)
            self._commit(given, step, env_steps, epoch, epoch_step, axis)
            return
        with self._trackers.taken(derive=True) as snapshot:
            self._own_rank.recorded(snapshot, axis, step)
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
        if self._strict is not None:
            self._strict.check(snapshot)
        snapshot = self._removed.without(snapshot)
        with self._lock:
            if self._closed:
                return
            number = self._commits
            self._commits += 1
            commit = Commit(
                self.identity, number, self._clock.realtime_ns(), step, axis, snapshot, env_steps, epoch, epoch_step
            )
            self._record(commit)
            self._pipeline.submit(commit)
            if self.run_record is not None:
                self.run_record.observe(commit)
            else:
                self._ending.goes_on()

    def _record(self, commit: Commit) -> None:
        """The run's own record comes first: when this returns, the commit survives the process."""
        jsonl = self._jsonl
        if jsonl is None:
            return
        if self._jsonl_worker is None:
            jsonl.write(commit)
        else:
            size = _JSONL_BYTES * len(commit.snapshot)
            self._jsonl_worker.put_parcel(Parcel(lambda: jsonl.write(commit), size, 1))

    def show(
        self, kind: Kind, key: str, payload: Any, *, step: int, axis: str = "train", env_steps: int | None = None
    ) -> None:
        """Send a text, table, file, video or image to the destinations that can hold it.

        Raises `RecordError` for a payload of another type, or a step that is none. Touches no disk: a path is opened by
        the destinations' threads, a moment later.
        """
        time_ns = self._clock.realtime_ns()
        made = checked_media(kind, key, payload, step=step, axis=axis, env_steps=env_steps, time_ns=time_ns)
        if self._pipeline is None or self._closed or not self.identity.is_writer:
            return
        if kind == "video" and self.run_record is not None:
            self.run_record.showed()
        takers = [worker for worker in self._sinks.remote if isinstance(worker, TakesMedia)]
        for worker in takers:
            worker.put_media(made)
        if self._pipeline.shows:
            self._pipeline.show(made)
        elif not takers and self._pipeline.account.dropped("unsupported"):
            _log.warning("%s: no destination that is on can hold a %s (counted; said once)", key, kind)

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
        self._ending.unwatch()
        if self.run_record is not None:
            self.run_record.abandon()

    def shutdown(self, *, linger: bool = True) -> None:
        """Bring everything home, within ``pipeline.shutdown_timeout_s`` (and ``prometheus.linger_s``, if `linger`).

        Commits after this do nothing. A second call does nothing.
        """
        self._show_video()
        with self._lock:
            if self._closed:
                return
            self._closed = True
        self._ends()
        if self._device is not None:
            self._device.close()
        if self._pipeline is not None:
            self._pipeline.close(self.config.pipeline.shutdown_timeout_s)
        if linger:
            self._sinks.prometheus.linger(self.config.prometheus.linger_s)
        try:
            self._close_last.close()
        except Exception as error:  # a folder that is gone, say: the rest of the end comes all the same
            _log.warning("shutdown: %s", error)
        if self.run_record is not None:
            self.run_record.close()
        for destination in self._destinations:
            lost = sum(destination.dropped_totals.values())
            if lost:
                _log.warning("%s: lost %d in all (%s)", destination.name, lost, destination.dropped_totals)

    def noticed(self, error: BaseException) -> None:
        """An exception came out of a step."""
        (self._ending if self.run_record is None else self.run_record).noticed(error)

    def _ends(self) -> None:
        """The end begins: how, is what the process leaves in the run directory."""
        if self.run_record is not None:
            self.run_record.ends()
            self.end = self.run_record.end
        elif self.run_dir is not None:
            shown = Scrub([sections_of(self.config), self._environ], None if self.config.run.include_host else home())
            self.end = end_of(self.identity.name, self._ending.outcome(), self._clock.realtime_ns(), shown)
            self._ending.unwatch()

    def _show_video(self) -> None:
        """The video that the run made goes where videos are held, unless the trainer has shown it."""
        found = None if self.run_record is None or self._closed else self.run_record.video()
        if found is not None:
            path, step = found
            self.show("video", path.stem, path, step=step)


def _nothing() -> None:
    """Nothing to close."""


def _one_after_the_other(calls: Sequence[Callable[[], None]]) -> Callable[[], None]:
    """One call that makes all of these, whatever one of them raises."""

    def call_all() -> None:
        with contextlib.ExitStack() as stack:
            for call in reversed(calls):
                stack.callback(call)

    return call_all


def checked(stats: Mapping[str, Any] | None, *, axis: str = "train", **steps: int | None) -> Snapshot | None:
    """The numbers of a commit; None if those are meant that were recorded. Raises `RecordError`, as `commit` does."""
    check_steps(**steps)
    check_axis(axis)
    return None if stats is None else snapshot_of(stats)


def checked_media(
    kind: Kind,
    key: str,
    payload: Any,
    *,
    step: int,
    axis: str = "train",
    env_steps: int | None = None,
    time_ns: int = 0,
) -> Media:
    """What is shown at a step. Raises `RecordError`, as `Telemetry.show` does."""
    check_steps(step=step, env_steps=env_steps)
    check_axis(axis)
    if not isinstance(key, str) or not key.strip("/"):
        raise RecordError(f"{key!r} is not a key (expected a non-empty string)")
    return media(kind, key, payload, step=step, axis=axis, time_ns=time_ns, env_steps=env_steps)
