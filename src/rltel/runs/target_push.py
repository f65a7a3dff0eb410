"""A replay to a Pushgateway, which holds one value of each series."""

from collections.abc import Iterable, Sequence
from typing import Any

from rltel.core.errors import ConfigError
from rltel.core.identity import Identity
from rltel.core.redact import redact_url
from rltel.export.commit import Commit
from rltel.export.points import Point
from rltel.export.prometheus.push import PushTarget as GatewayGroup
from rltel.export.prometheus.push import push, push_target
from rltel.export.prometheus.table import PrometheusSink
from rltel.export.sink import Sink
from rltel.runs.target import Setting, Target


class PushTarget(Target):
    """A Pushgateway holds the last value of each series, and refuses times: it gets where each process ended."""

    name = "prometheus-push"
    sums = at_once = True
    note = "a Pushgateway takes no old times: it gets the last value of every series, as of now"

    def __init__(self, setting: Setting) -> None:
        self._setting = setting
        url = setting.config.prometheus.push_url
        if not url:
            raise ConfigError("prometheus.push_url: expected the address of a Pushgateway; set it, or use --endpoint")
        self._url = url
        self.place = redact_url(url)

    def open(self, identity: Identity, started_ns: int) -> Sink:
        """A table for this process, which is its group at the gateway."""
        return _PushSink(push_target(self._url, self._setting.config.run, identity))


class _PushSink:
    """Keeps a process's table, as of the last commit's time, and pushes it at the flush."""

    name = "prometheus-push"

    def __init__(self, where: GatewayGroup) -> None:
        self._where = where
        self._time_s = 0.0
        self._table = PrometheusSink(now=lambda: self._time_s)

    def describe(self) -> str:
        return self._where.url

    def write(self, commit: Commit, points: Sequence[Point]) -> None:
        self._time_s = commit.time_ns / 1e9
        self._table.write(commit, points)

    def flush(self) -> None:
        """Raises OSError if the gateway does not take it."""
        push(self, self._where)

    def collect(self) -> Iterable[Any]:
        """The families, as `push` asks for them."""
        return self._table.families()

    def close(self) -> None:
        """Nothing is open."""
