"""Opens the destinations of numbers that a config switches on, each with its account and, if it is slow, its thread."""

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TextIO

from prometheus_client import CollectorRegistry

from rltel.core.clock import Clock
from rltel.core.config import TelemetryConfig
from rltel.core.identity import Identity
from rltel.core.rundir import placed
from rltel.export.console import ConsoleSink
from rltel.export.ledger import Ledger
from rltel.export.pipeline import RemoteWorker
from rltel.export.prometheus.service import OpenPrometheus, PrometheusSurroundings, open_prometheus
from rltel.export.sink import Destination, Sink
from rltel.names.otel import Namer

Facts = Callable[[], Mapping[str, Any]]
_REPLAYED = {"otlp", "tensorboard", "wandb", "swanlab", "trackio"}


@dataclass(frozen=True, slots=True)
class SinkSurroundings:
    """What destinations need to know of their process."""

    config: TelemetryConfig
    identity: Identity
    clock: Clock
    environ: Mapping[str, str]
    namer: Namer
    stdout: TextIO
    registry: CollectorRegistry | None
    destination: Callable[[str], Destination]
    """Makes the account of one more."""
    destinations: Callable[[], Iterable[Destination]]
    """The accounts of all."""
    trouble: Callable[[], str]
    """What is wrong with the process's telemetry: nothing if all is well."""
    facts: Facts
    """What `rltel.system` was told."""
    extra: tuple[Sink, ...] = ()
    """Destinations that were built by hand."""


@dataclass
class OpenSinks:
    """What was opened: nothing, if nothing is switched on."""

    local: list[tuple[Sink, Destination]] = field(default_factory=list)
    remote: list[RemoteWorker] = field(default_factory=list)
    others: list[Any] = field(default_factory=list)
    """Workers that take no commits."""
    prometheus: OpenPrometheus = field(default_factory=OpenPrometheus)
    places: list[str] = field(default_factory=list)


def open_sinks(of: SinkSurroundings, run_dir: Path, undo: contextlib.ExitStack) -> OpenSinks:
    """Open them: everything that can fail first, threads last. What was opened is closed by `undo`, if that unwinds.

    Raises `ConfigError` for settings that cannot be, OSError for folders that cannot be made.
    """
    opened = OpenSinks()
    for sink in _local_sinks(of, run_dir, opened, undo):
        undo.callback(sink.close)
        opened.local.append((sink, _account(of, run_dir, sink, undo)))
    queue_bytes = int(of.config.pipeline.queue_mb * 1e6)
    accounts = [(sink, _account(of, run_dir, sink, undo)) for sink in _remote_sinks(of)]
    opened.remote.extend(RemoteWorker(sink, account, queue_bytes) for sink, account in accounts)
    opened.remote.extend(_tracking_workers(of, run_dir, queue_bytes, undo))
    for worker in opened.remote:
        undo.callback(worker.close, 0.0)
    sinks = [*(sink for sink, _ in opened.local), *(worker.sink for worker in opened.remote)]
    opened.places = [*(f"{sink.name} {sink.describe()}" for sink in sinks), *opened.prometheus.places]
    return opened


def _account(of: SinkSurroundings, run_dir: Path, sink: Sink, undo: contextlib.ExitStack) -> Destination:
    """A destination's account; of those that a replay can bring up to date, with a ledger."""
    account = of.destination(sink.name)
    if sink.name in _REPLAYED:
        about: Mapping[str, Any] | None = getattr(sink, "about", None)
        with contextlib.suppress(OSError):  # the disk takes nothing: then a replay sends what it sends again
            account.ledger = Ledger(run_dir, of.identity.name, sink.name, sink.describe(), about=about, account=account)
            undo.callback(account.ledger.close)
    return account


def _local_sinks(of: SinkSurroundings, run_dir: Path, opened: OpenSinks, undo: contextlib.ExitStack) -> Iterator[Sink]:
    config = of.config
    surroundings = PrometheusSurroundings(
        config, of.identity, of.destinations, of.destination, of.namer, of.registry, of.trouble
    )
    opened.prometheus = open_prometheus(surroundings, run_dir)
    undo.callback(opened.prometheus.close)
    opened.others.extend(opened.prometheus.workers)
    if opened.prometheus.sink is not None:
        yield opened.prometheus.sink
    if config.tensorboard.path is not None and of.identity.is_writer:
        yield _tensorboard(of, config.tensorboard.path, run_dir)
    yield from of.extra
    if of.identity.is_writer:
        yield from _screens(of)


def _screens(of: SinkSurroundings) -> Iterator[Sink]:
    """What is printed: lines, the panel, or both; where there is no screen for a panel, lines once."""
    config, now = of.config, of.clock.monotonic_ns
    if config.console.enabled:
        yield ConsoleSink(of.stdout, config.console.interval_s, now, table=config.console.table)
    if not config.terminal.enabled:
        return
    from rltel.export.panel.sink import PanelSettings, PanelSink, open_panel  # draws with rich

    terminal, run = config.terminal, config.run
    settings = PanelSettings(terminal.refresh_hz, terminal.window_s, run.algo, run.task)
    interval_s = config.console.interval_s
    panel = open_panel(of.stdout, settings, environ=of.environ, facts=of.facts, now=now, interval_s=interval_s)
    if isinstance(panel, PanelSink) or not config.console.enabled:
        yield panel


def _tensorboard(of: SinkSurroundings, path: str, run_dir: Path) -> Sink:
    # What it imports on the pipeline's thread registers for the end of threads, which a short program is past by then.
    import concurrent.futures.thread  # noqa: F401

    from rltel.export.tensorboard.sink import open_tensorboard  # imports tensorboard

    return open_tensorboard(of.config, of.identity, placed(path, run_dir))


def _remote_sinks(of: SinkSurroundings) -> Iterator[Sink]:
    config = of.config
    if config.otlp.enabled and config.otlp.metrics:
        from rltel.export.otlp.metrics import open_otlp_metrics  # imports the OTLP encoders
        from rltel.export.resource import resource_of

        resource = resource_of(of.identity, config.run, of.environ)
        started_ns = of.clock.realtime_ns()
        yield open_otlp_metrics(config.otlp, resource, started_ns, of.environ, of.destinations, of.namer)


def _tracking_workers(
    of: SinkSurroundings, run_dir: Path, queue_bytes: int, undo: contextlib.ExitStack
) -> Iterator[RemoteWorker]:
    """W&B, SwanLab and Trackio: of the writer alone."""
    modes = (of.config.wandb.mode, of.config.swanlab.mode, of.config.trackio.mode)
    if all(mode == "disabled" for mode in modes):
        return
    from rltel.export.tracking.clients import clients_of
    from rltel.export.tracking.service import TrackingSink, TrackingWorker  # only where there is one

    for client in list(clients_of(of.config, of.identity)):
        sink = TrackingSink(client)
        yield TrackingWorker(sink, _account(of, run_dir, sink, undo), queue_bytes)
