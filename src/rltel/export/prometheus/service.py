"""Everything of Prometheus that one process has: the table, the collector, the endpoint, and the pushes."""

import contextlib
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple

from prometheus_client import CollectorRegistry

from rltel.core.config import TelemetryConfig
from rltel.core.identity import Identity
from rltel.export.prometheus.app import no_trouble
from rltel.export.prometheus.collector import RunCollector, join
from rltel.export.prometheus.endpoint import Endpoint
from rltel.export.prometheus.push import PushWorker, push_target
from rltel.export.prometheus.table import PrometheusSink
from rltel.export.sink import Destination
from rltel.names.otel import Namer


class PrometheusSurroundings(NamedTuple):
    """What the process has that Prometheus is shown."""

    config: TelemetryConfig
    identity: Identity
    destinations: Callable[[], Iterable[Destination]]
    """The accounts of all, for ``rltel_*``."""
    account: Callable[[str], Destination]
    """Makes the account of one more."""
    namer: Namer | None = None
    registry: CollectorRegistry | None = None
    """A user's own; None for one of ours."""
    trouble: Callable[[], str] = no_trouble
    """What ``/healthz`` says: nothing if all is well."""


class OpenPrometheus:
    """What was switched on. With nothing on, it does nothing."""

    def __init__(self) -> None:
        self.sink: PrometheusSink | None = None
        """Takes the commits: one of the pipeline's local sinks."""
        self.workers: tuple[PushWorker, ...] = ()
        """Have a thread of their own: among the pipeline's ``others``."""
        self.places: tuple[str, ...] = ()
        """Where things go, for the line at the start."""
        self.url: str | None = None
        """The scrape endpoint, if there is one."""
        self._collector: RunCollector | None = None
        self._closing = contextlib.ExitStack()

    def linger(self, seconds: float) -> None:
        """Stay up until the last step was scraped twice, at most this long. If nobody ever scraped, nobody will.

        Ctrl+C ends the wait, and nothing else.
        """
        if self._collector is None or self.url is None:
            return
        seen = self._collector.scrapes
        deadline = time.monotonic() + seconds
        with contextlib.suppress(KeyboardInterrupt):
            while seen and self._collector.scrapes < seen + 2 and time.monotonic() < deadline:
                time.sleep(0.05)

    def close(self) -> None:
        """Stop serving, and leave the registry. (The pipeline has closed the workers.)"""
        self._closing.close()


def open_prometheus(of: PrometheusSurroundings, run_dir: Path) -> OpenPrometheus:
    """Open what the config asks for. Raises `ConfigError`, with everything closed again."""
    opened = OpenPrometheus()
    settings = of.config.prometheus
    if not settings.enabled and settings.push_url is None:
        return opened
    with contextlib.ExitStack() as undo:
        undo.push(opened._closing)
        target = None if settings.push_url is None else push_target(settings.push_url, of.config.run, of.identity)
        registry = of.registry or CollectorRegistry()
        opened.sink = PrometheusSink(settings.timestamps)
        opened.sink.address = "(no endpoint)"
        opened._collector = RunCollector(opened.sink, of.destinations, of.identity, of.namer)
        opened._closing.callback(join(registry, opened._collector))
        if settings.enabled:
            _serve(of, registry, run_dir, opened)
        if target is not None:
            worker = PushWorker(registry, target, of.account("prometheus-push"))
            opened.workers = (worker,)
            opened.places = (f"prometheus-push {worker.describe()}",)
        undo.pop_all()
    return opened


def _serve(of: PrometheusSurroundings, registry: CollectorRegistry, run_dir: Path, opened: OpenPrometheus) -> None:
    settings, identity = of.config.prometheus, of.identity
    first_port = settings.port + (0 if identity.is_writer or not settings.port else 1)  # the writer goes first
    endpoint = Endpoint(settings, registry, first_port, of.trouble)
    opened._closing.callback(endpoint.close)
    endpoint.advertise(run_dir / "prometheus_sd" / f"{identity.role}-{identity.index}.json", identity)
    opened.url = endpoint.url
    assert opened.sink is not None
    opened.sink.address = endpoint.url
