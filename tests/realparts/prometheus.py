"""A real Prometheus server and promtool."""

from __future__ import annotations

import json
import subprocess
import time
import urllib.error
import urllib.parse
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeAlias

from realparts import requirements
from realparts.processes import HOST, http_get, server, tail

Labels: TypeAlias = dict[str, str]
Vector: TypeAlias = list[tuple[Labels, float]]
Matrix: TypeAlias = list[tuple[Labels, list[tuple[float, float]]]]

_POLL = 0.1


class PrometheusError(Exception):
    """Prometheus refused a query; the message is its own."""


class Prometheus:
    """A running server, as its HTTP API shows it."""

    def __init__(self, url: str, log: Path) -> None:
        self.url = url
        self.log = log

    def query(self, promql: str, time: float | None = None) -> Vector:
        """The value of an instant query, as (labels, value) for each series.

        Labels hold ``__name__``, ``job`` and ``instance`` too. A scalar is a series without any.

        Args:
            promql: An expression whose value is an instant vector or a scalar.
            time: Seconds since the epoch; the server's now by default.
        """
        kind, result = self._result("query", query=promql, time=time)
        if kind == "scalar":
            return [({}, float(result[1]))]
        if kind != "vector":
            raise TypeError(f"{promql!r} is a {kind}; use samples() for a range of raw samples")
        return [(series["metric"], float(series["value"][1])) for series in result]

    def samples(self, promql: str, time: float | None = None) -> Matrix:
        """The stored samples of a range selector such as ``up[5m]``, with their timestamps."""
        kind, result = self._result("query", query=promql, time=time)
        if kind != "matrix":
            raise TypeError(f"{promql!r} is a {kind}; samples() takes a range selector such as up[5m]")
        return _matrix(result)

    def query_range(self, promql: str, start: float, end: float, step: float) -> Matrix:
        """The expression at ``start``, ``start + step``, ... up to ``end``, all in seconds."""
        return _matrix(self._result("query_range", query=promql, start=start, end=end, step=step)[1])

    def wait_for(self, promql: str, predicate: Callable[[Vector], object] = bool, timeout: float = 60.0) -> Vector:
        """Repeats the instant query until the predicate holds of its value, which it returns.

        By default that is as soon as there is any series. A first scrape comes up to about 5 s
        after the start, more on a loaded machine.

        Raises:
            AssertionError: It did not hold in time; the message has the last value and the targets'
                state.
        """
        deadline = time.monotonic() + timeout
        while True:
            value = self.query(promql)
            if predicate(value):
                return value
            if time.monotonic() > deadline:
                raise AssertionError(
                    f"{promql!r} did not come to hold in {timeout} s\n"
                    f"last value: {value}\ntargets: {self.targets()}\nlog: {tail(self.log)}"
                )
            time.sleep(_POLL)

    def targets(self) -> list[dict[str, Any]]:
        """The active targets as the API has them: ``scrapeUrl``, ``health``, ``lastError``, ..."""
        targets: list[dict[str, Any]] = self._get("targets", {"state": "active"})["activeTargets"]
        return targets

    def _result(self, endpoint: str, **parameters: str | float | None) -> tuple[str, Any]:
        data = self._get(endpoint, {name: value for name, value in parameters.items() if value is not None})
        return data["resultType"], data["result"]

    def _get(self, endpoint: str, parameters: dict[str, str | float]) -> Any:
        url = f"{self.url}/api/v1/{endpoint}?{urllib.parse.urlencode(parameters)}"
        try:
            return json.loads(http_get(url))["data"]
        except urllib.error.HTTPError as refusal:
            raise PrometheusError(refusal.read().decode(errors="replace")) from refusal


@contextmanager
def prometheus(
    scrape_targets: Sequence[str] = (),
    *,
    tmp_path: Path,
    file_sd: Path | None = None,
    scrape_interval: str = "0.5s",
    rule_files: Sequence[Path] = (),
    **scrape_options: object,
) -> Iterator[Prometheus]:
    """Runs a server with its own data directory under ``tmp_path``.

    Args:
        scrape_targets: ``host:port`` of each target; the path is /metrics.
        tmp_path: A directory of this test alone. One server at a time in it.
        file_sd: A file (or a pattern of files) in the format of file_sd_configs, read again each
            second.
        scrape_interval: As Prometheus writes it; a fraction of a second is taken too.
        rule_files: Alerting and recording rules, evaluated at the scrape interval.
        scrape_options: Further keys of the one scrape config, named "test", such as
            ``honor_labels=True``.

    Raises:
        RuntimeError: The server did not start, for instance since the configuration is not valid.
    """
    program = requirements.need_prometheus()
    interval = _duration(scrape_interval)
    scrape: dict[str, object] = {"job_name": "test", **scrape_options}
    if scrape_targets:
        scrape["static_configs"] = [{"targets": list(scrape_targets)}]
    if file_sd is not None:
        scrape["file_sd_configs"] = [{"files": [str(file_sd)], "refresh_interval": "1s"}]
    config = tmp_path / "prometheus.yml"
    config.write_text(  # JSON is YAML
        json.dumps(
            {
                "global": {
                    "scrape_interval": interval,
                    "scrape_timeout": interval,
                    "evaluation_interval": interval,
                },
                "rule_files": [str(file) for file in rule_files],
                "scrape_configs": [scrape],
            }
        )
    )
    log = tmp_path / "prometheus.log"
    data = _data(tmp_path)

    def command(ports: Sequence[int]) -> list[str]:
        return [
            str(program),
            f"--config.file={config}",
            f"--storage.tsdb.path={data}",
            f"--web.listen-address={HOST}:{ports[0]}",
        ]

    with server(command, ports=1, ready=lambda ports: _is_ready(_url(ports[0])), log=log) as ports:
        yield Prometheus(_url(ports[0]), log)


def backfill(tmp_path: Path, openmetrics: str) -> None:
    """Puts samples of any time into the data that a server with the same ``tmp_path`` will have.

    Args:
        tmp_path: Of the server, which does not run yet.
        openmetrics: An exposition whose samples have timestamps in seconds, those of a series in ascending order.

    Raises:
        PrometheusError: promtool refused it; the message is its own.
    """
    source = tmp_path / "backfill.om"
    source.write_text(openmetrics)
    program = requirements.need_promtool()
    done = subprocess.run(
        [program, "tsdb", "create-blocks-from", "openmetrics", source, _data(tmp_path)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=60,
        check=False,
    )
    if done.returncode != 0:
        raise PrometheusError(done.stdout)


def promtool_check_metrics(text: str) -> tuple[int, str]:
    """What ``promtool check metrics`` says of an exposition.

    Returns:
        The exit code (0 good, 1 not parsed or inconsistent, 3 lint) and what it printed.
    """
    done = subprocess.run(
        [requirements.need_promtool(), "check", "metrics"],
        input=text,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=60,
        check=False,
    )
    return done.returncode, done.stdout


def _data(tmp_path: Path) -> Path:
    return tmp_path / "prometheus-data"


def _matrix(result: Any) -> Matrix:
    return [(series["metric"], [(float(at), float(value)) for at, value in series["values"]]) for series in result]


def _duration(text: str) -> str:
    """Prometheus has no fractions: "0.5s" is "500ms"."""
    if "." not in text:
        return text
    return f"{round(float(text.removesuffix('s')) * 1000)}ms"


def _url(port: int) -> str:
    return f"http://{HOST}:{port}"


def _is_ready(url: str) -> bool:
    try:
        http_get(f"{url}/-/ready", timeout=5)
    except OSError:  # HTTPError is one, for the status 503 of a server that still starts
        return False
    return True
