"""A real VictoriaMetrics, which takes OTLP metrics and answers PromQL."""

from __future__ import annotations

import json
import time
import urllib.error
import urllib.parse
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from realparts import requirements
from realparts.processes import HOST, accepts, http_get, server, tail
from realparts.prometheus import Labels, PrometheusError, Vector

_POLL = 0.1


class VictoriaMetrics:
    """A running server."""

    def __init__(self, url: str, log: Path) -> None:
        self.url = url
        self.log = log

    @property
    def otlp_endpoint(self) -> str:
        """The base that ``/v1/metrics`` is appended to."""
        return f"{self.url}/opentelemetry"

    def query(self, promql: str, time: float | None = None) -> Vector:
        """The value of an instant query, as (labels, value) for each series; at the server's now by default."""
        http_get(f"{self.url}/internal/force_flush")  # else what came in shows after some seconds
        parameters = {"query": promql, "nocache": "1"} | ({} if time is None else {"time": f"{time:.3f}"})
        result = self._get("/api/v1/query", parameters)
        return [(series["metric"], float(series["value"][1])) for series in result["result"]]

    def wait_for(self, promql: str, predicate: Callable[[Vector], object] = bool, timeout: float = 60.0) -> Vector:
        """Repeats the query until the predicate holds of its value, which it returns."""
        deadline = time.monotonic() + timeout
        while not predicate(value := self.query(promql)):
            if time.monotonic() > deadline:
                raise AssertionError(
                    f"{promql!r} did not come to hold in {timeout} s\nlast value: {value}\nlog: {tail(self.log)}"
                )
            time.sleep(_POLL)
        return value

    def series(self, match: str) -> list[Labels]:
        """The label sets, ``__name__`` among them, of what matches a selector."""
        http_get(f"{self.url}/internal/force_flush")
        found: list[Labels] = self._get("/api/v1/series", {"match[]": match, "start": "-10y"})
        return found

    def _get(self, path: str, parameters: dict[str, str]) -> Any:
        url = f"{self.url}{path}?{urllib.parse.urlencode(parameters)}"
        try:
            return json.loads(http_get(url))["data"]
        except urllib.error.HTTPError as refusal:
            raise PrometheusError(refusal.read().decode(errors="replace")) from refusal


@contextmanager
def victoria_metrics(tmp_path: Path) -> Iterator[VictoriaMetrics]:
    """Runs a server with its own data directory under ``tmp_path``; names are translated as Prometheus has them."""
    program = requirements.need_victoria_metrics()
    log = tmp_path / "victoria-metrics.log"

    def command(ports: Sequence[int]) -> list[str]:
        return [
            str(program),
            f"-httpListenAddr={HOST}:{ports[0]}",
            f"-storageDataPath={tmp_path / 'victoria-metrics-data'}",
            "-search.latencyOffset=0s",
            "-retentionPeriod=10y",
            "-opentelemetry.usePrometheusNaming",
        ]

    with server(command, ports=1, ready=lambda ports: accepts(ports[0]), log=log) as ports:
        yield VictoriaMetrics(f"http://{HOST}:{ports[0]}", log)
