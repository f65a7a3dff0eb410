"""Pushing to a gateway, for batch jobs that end before anybody scrapes them: every few seconds, and at the end."""

import threading
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol
from urllib.parse import unquote, urlsplit, urlunsplit

from prometheus_client.core import Metric
from prometheus_client.exposition import basic_auth_handler, default_handler, push_to_gateway

from rltel.core.config import RunConfig
from rltel.core.errors import ConfigError
from rltel.core.identity import Identity
from rltel.core.redact import redact_url
from rltel.export.prometheus.exposition import text_name
from rltel.export.sink import Destination

INTERVAL_S = 10.0
_TIMEOUT_S = 5.0
_LAST_S = 0.1  # what the last push gets where no time is left
_WAIT_S = 0.02


class Collecting(Protocol):
    """A registry, as far as a push needs it."""

    def collect(self) -> Any:
        """All families."""


@dataclass(frozen=True)
class PushTarget:
    """Where to, and under which group. A restart of the same process replaces what it pushed before."""

    url: str
    """Without the user's name and password."""
    job: str
    instance: str
    username: str = field(default="", repr=False)
    password: str = field(default="", repr=False)


def push_target(url: str, run: RunConfig, identity: Identity) -> PushTarget:
    """The gateway of ``prometheus.push_url``. Raises `ConfigError` if it is no URL of one."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise ConfigError(f'prometheus.push_url: {error}, got "{redact_url(url)}"') from None
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ConfigError(
            f'prometheus.push_url: expected a URL such as "http://127.0.0.1:9091", got "{redact_url(url)}"'
        )
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    place = host if port is None else f"{host}:{port}"
    return PushTarget(
        urlunsplit((parts.scheme, place, parts.path.rstrip("/"), "", "")),
        run.name or "rl-training",
        f"{identity.run_id}-{identity.role}-{identity.index}",
        unquote(parts.username or ""),
        unquote(parts.password or ""),
    )


class _ForGateway:
    """A registry for a gateway, which refuses families that come twice, and samples with a time of their own."""

    def __init__(self, registry: Collecting) -> None:
        self._registry = registry

    def collect(self) -> Iterable[Metric]:
        families: dict[str, Metric] = {}
        for family in self._registry.collect():
            bare = Metric(family.name, family.documentation, family.type, family.unit)
            bare = families.setdefault(text_name(family), bare)
            bare.samples += [sample._replace(timestamp=None) for sample in family.samples]
        return families.values()


def push(registry: Collecting, target: PushTarget, timeout_s: float = _TIMEOUT_S) -> None:
    """Replace the group's metrics by what the registry has now. Raises OSError if the gateway did not take it."""
    handler = default_handler
    if target.username or target.password:
        handler = partial(basic_auth_handler, username=target.username, password=target.password)
    push_to_gateway(
        target.url,
        job=target.job,
        registry=_ForGateway(registry),
        grouping_key={"instance": target.instance},
        timeout=timeout_s,
        handler=handler,
    )


class PushWorker:
    """The thread that pushes. To the pipeline it is one more worker: it is waited for, and closed, like those."""

    def __init__(
        self, registry: Collecting, target: PushTarget, destination: Destination, interval_s: float = INTERVAL_S
    ) -> None:
        self.destination = destination
        self._registry = registry
        self._target = target
        self._interval_s = interval_s
        self._changed = threading.Condition()
        self._wanted = 0  # the push that somebody waits for
        self._begun = 0
        self._done = 0
        self._deadline: float | None = None  # of the last push; None while more are to come
        self._thread = threading.Thread(target=self._run, name="rltel-push", daemon=True)
        self._thread.start()

    def describe(self) -> str:
        """The gateway, without secrets."""
        return f"{self._target.url} (job {self._target.job}, instance {self._target.instance})"

    def wait_empty(self, deadline: float) -> bool:
        """Push what is there now; False if the deadline (monotonic) comes first."""
        with self._changed:
            wanted = self._wanted = self._begun + 1  # one that is on its way may have missed the latest
            self._changed.notify_all()
            return self._changed.wait_for(lambda: self._done >= wanted, max(0.0, deadline - time.monotonic()))

    def begin_close(self, deadline: float) -> None:
        """Push once more, for the last time. Does not wait."""
        with self._changed:
            if self._deadline is None:
                self._wanted = self._begun + 1
            self._deadline = deadline
            self._changed.notify_all()

    def close(self, deadline: float) -> None:
        """Push once more, within the deadline; what is not through by then is counted as lost."""
        self.begin_close(deadline)
        self._thread.join(max(_LAST_S, deadline - time.monotonic()) + _WAIT_S)
        if self._thread.is_alive():
            self.destination.dropped("shutdown")

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._wanted > self._begun, self._interval_s)
                self._begun += 1
                last = self._deadline
            self._push(_TIMEOUT_S if last is None else min(_TIMEOUT_S, max(_LAST_S, last - time.monotonic())))
            with self._changed:
                self._done = self._begun
                self._changed.notify_all()
            if last is not None:
                return

    def _push(self, timeout_s: float) -> None:
        try:
            with self.destination.timed():
                push(self._registry, self._target, timeout_s)
        except Exception as error:  # whatever a gateway does, the next push may be better
            self.destination.failed(error)
        else:
            self.destination.exported()
