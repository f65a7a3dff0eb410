"""VictoriaMetrics, a Prometheus with data of another time, and the gateway work by themselves."""

import time
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry, Gauge, push_to_gateway

from realparts.processes import http_get
from realparts.prometheus import PrometheusError, backfill, prometheus
from realparts.pushgateway import pushgateway
from realparts.victoriametrics import victoria_metrics


def test_victoria_metrics_answers(tmp_path: Path) -> None:
    with victoria_metrics(tmp_path) as server:
        assert server.query("1 + 1") == [({}, 2.0)]
        assert server.series('{__name__="nothing"}') == []
        with pytest.raises(PrometheusError, match="unexpected token"):
            server.query("rate(")


def test_prometheus_has_what_was_put_there(tmp_path: Path) -> None:
    at = int(time.time()) - 7200
    backfill(tmp_path, f'# TYPE x gauge\nx{{a="b"}} 1.5 {at}\n# EOF\n')
    with prometheus(tmp_path=tmp_path) as server:
        assert server.query("x", time=at + 1) == [({"__name__": "x", "a": "b"}, 1.5)]
        assert server.query("x") == []


def test_what_cannot_be_put_there_is_said(tmp_path: Path) -> None:
    with pytest.raises(PrometheusError):
        backfill(tmp_path, "no exposition\n")


def test_the_gateway_keeps_and_refuses() -> None:
    registry = CollectorRegistry()
    Gauge("x", "x", registry=registry).set(3)
    with pushgateway() as gateway:
        push_to_gateway(gateway.url, job="j", registry=registry)
        assert (gateway.pushes[0].path, gateway.value("x")) == ("/metrics/job/j", 3.0)
        gateway.status = 503
        with pytest.raises(OSError, match="503"):
            push_to_gateway(gateway.url, job="j", registry=registry)
        assert len(gateway.pushes) == 1
    with pytest.raises(OSError, match="refused"):
        http_get(gateway.url)
