"""Ports and endpoints, against real ones."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from realparts.certificate import certificate
from realparts.otlp_receiver import otlp_grpc_sink, otlp_sink
from realparts.processes import HOST, free_port
from rltel.cli.checks import network
from rltel.cli.checks.finding import Finding
from rltel.cli.checks.network import check_network
from rltel.core.config import OtlpConfig, PrometheusConfig, SwanlabConfig, TelemetryConfig, WandbConfig

SECRET = "geheim"  # no secret


def of(config: TelemetryConfig, **environ: str) -> dict[str, Finding]:
    return {finding.area: finding for finding in check_network(config, environ)}


def otlp(endpoint: str, **more: Any) -> TelemetryConfig:
    return TelemetryConfig(otlp=OtlpConfig(enabled=True, endpoint=endpoint, **more))


def prometheus(**more: Any) -> TelemetryConfig:
    return TelemetryConfig(prometheus=PrometheusConfig(enabled=True, **more))


@pytest.fixture
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """For what does answer: a second is long for a receiver, and not for a machine that stands still meanwhile."""
    monkeypatch.setattr(network, "BOUND_S", 60.0)


@contextmanager
def silent() -> Iterator[int]:
    """Takes connections, and never says a word."""
    with closing(socket.create_server((HOST, 0))) as listening:
        yield listening.getsockname()[1]


def test_what_is_off_is_not_asked() -> None:
    config = TelemetryConfig(
        prometheus=PrometheusConfig(push_url=None, port=1), otlp=OtlpConfig(endpoint="http://127.0.0.1:1")
    )
    assert of(config) == {}


class TestPrometheus:
    @pytest.mark.usefixtures("patience")
    def test_a_free_port(self) -> None:
        port = free_port()
        assert of(prometheus(port=port))["prometheus.port"] == Finding(
            "prometheus.port", "ok", f"{HOST}:{port} is free"
        )
        with closing(socket.create_server((HOST, port))):
            pass  # the doctor left it free

    def test_any_port(self) -> None:
        assert of(prometheus(port=0))["prometheus.port"].what == "any free port"

    @pytest.mark.usefixtures("patience")
    def test_a_port_that_is_taken_still_works(self) -> None:
        with silent() as port:
            finding = of(prometheus(port=port))["prometheus.port"]
        assert (finding.status, finding.what) == ("warning", f"{HOST}:{port} is taken")
        assert "prometheus_sd/" in finding.do

    @pytest.mark.parametrize("host", ["203.0.113.1", "no.such.host.invalid"])
    def test_a_host_that_is_not_this_one(self, host: str) -> None:
        assert of(prometheus(port=0, host=host))["prometheus.host"].status in ("problem", "warning")
        assert "problem" in {finding.status for finding in check_network(prometheus(port=0, host=host), {})}

    def test_open_to_others_without_a_password(self) -> None:
        finding = of(prometheus(port=0, host="0.0.0.0"))["prometheus.host"]
        assert (finding.status, "without a password" in finding.what) == ("warning", True)
        assert "prometheus.host" not in of(prometheus(port=0, host="0.0.0.0", username="me", password=SECRET))

    def test_a_certificate_and_its_key(self, tmp_path: Path) -> None:
        made = certificate(tmp_path)
        assert (
            of(prometheus(port=0, tls_cert=str(made.cert), tls_key=str(made.key)))["prometheus.tls_cert"].status == "ok"
        )
        wrong = of(prometheus(port=0, tls_cert=str(made.cert), tls_key=str(tmp_path / "no.pem")))["prometheus.tls_cert"]
        assert (wrong.status, str(tmp_path / "no.pem") in wrong.what) == ("problem", True)


class TestOtlp:
    @pytest.mark.usefixtures("patience")
    def test_a_receiver_over_http_answers_and_stores_nothing(self) -> None:
        with otlp_sink() as sink:
            found = of(otlp(sink.endpoint))
            assert {finding.status for finding in found.values()} == {"ok"}
            assert found["otlp metrics"].what == f"{sink.endpoint}/v1/metrics answers (http/protobuf)"
            assert [request.path for request in sink.requests()] == ["/v1/metrics", "/v1/traces"]
            assert sink.metrics() == sink.spans() == []

    @pytest.mark.usefixtures("patience")
    def test_a_receiver_over_grpc(self) -> None:
        with otlp_grpc_sink() as sink:
            found = of(otlp(sink.endpoint, protocol="grpc"))
            assert {finding.status for finding in found.values()} == {"ok"}
            assert sink.metrics() == sink.spans() == []

    def test_only_the_signals_that_are_sent(self) -> None:
        with otlp_sink() as sink:
            assert set(of(otlp(sink.endpoint, traces=False))) == {"otlp metrics"}

    @pytest.mark.parametrize("protocol", ["http/protobuf", "grpc"])
    def test_nobody_there(self, protocol: str) -> None:
        found = of(otlp(f"http://{HOST}:{free_port()}", protocol=protocol))
        assert {finding.status for finding in found.values()} == {"problem"}
        assert all("start the receiver" in finding.do for finding in found.values())

    @pytest.mark.parametrize("protocol", ["http/protobuf", "grpc"])
    def test_one_that_never_answers_is_given_up(self, protocol: str) -> None:
        """The time-out of the config, hours here, does not matter."""
        with silent() as port:
            found = of(otlp(f"http://{HOST}:{port}", protocol=protocol, timeout_s=10_000.0))
        assert {finding.status for finding in found.values()} == {"problem"}

    @pytest.mark.usefixtures("patience")
    @pytest.mark.parametrize(("status", "advice"), [(401, "otlp.headers"), (404, "something else listens there")])
    def test_what_it_says_tells_what_to_do(self, status: int, advice: str) -> None:
        with otlp_sink() as sink:
            sink.status = status
            finding = of(otlp(sink.endpoint, headers={"api-key": SECRET}))["otlp metrics"]
        assert finding.status == "problem"
        assert advice in finding.do
        assert SECRET not in finding.what + finding.do

    def test_settings_that_cannot_be(self) -> None:
        found = of(otlp("http://127.0.0.1:1"), OTEL_EXPORTER_OTLP_HEADERS=f"no pair {SECRET}")
        assert found["otlp metrics"].what.startswith("OTEL_EXPORTER_OTLP_HEADERS: expected name=value")
        assert SECRET not in str(found)


class TestOthers:
    @pytest.mark.usefixtures("patience")
    def test_a_gateway(self) -> None:
        with silent() as port:
            url = f"http://me:{SECRET}@{HOST}:{port}"
            config = TelemetryConfig(prometheus=PrometheusConfig(push_url=url))
            assert of(config) == {
                "prometheus.push_url": Finding("prometheus.push_url", "ok", f"http://{HOST}:{port} listens")
            }
        closed = of(config)["prometheus.push_url"]
        assert (closed.status, SECRET in closed.what) == ("problem", False)

    @pytest.mark.parametrize("mode", ["online", "shared"])
    def test_wandb_needs_a_key(self, mode: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        monkeypatch.setenv("HOME", str(tmp_path))
        assert of(TelemetryConfig(wandb=WandbConfig(mode=mode)))["wandb.api_key"].status == "problem"
        assert of(TelemetryConfig(wandb=WandbConfig(mode=mode)), WANDB_API_KEY=SECRET)["wandb.api_key"].status == "ok"
        assert of(TelemetryConfig(wandb=WandbConfig(mode=mode, api_key=SECRET)))["wandb.api_key"].status == "ok"
        (tmp_path / ".netrc").write_text(f"machine api.wandb.ai login user password {SECRET}\n")
        (tmp_path / ".netrc").chmod(0o600)
        assert of(TelemetryConfig(wandb=WandbConfig(mode=mode)))["wandb.api_key"].status == "ok"

    def test_wandb_s_own_server_is_asked_only_where_the_config_names_one(self) -> None:
        config = TelemetryConfig(wandb=WandbConfig(mode="online", api_key=SECRET))
        assert set(of(config)) == {"wandb.api_key"}
        own = TelemetryConfig(wandb=WandbConfig(mode="online", api_key=SECRET, base_url=f"http://{HOST}:{free_port()}"))
        assert of(own)["wandb.base_url"].status == "problem"

    def test_offline_needs_nothing(self) -> None:
        assert of(TelemetryConfig(wandb=WandbConfig(mode="offline"), swanlab=SwanlabConfig(mode="local"))) == {}

    def test_swanlab_s_key(self) -> None:
        cloud = TelemetryConfig(swanlab=SwanlabConfig(mode="cloud"))
        assert of(cloud)["swanlab.api_key"].status == "warning"
        assert of(cloud, SWANLAB_API_KEY=SECRET)["swanlab.api_key"].status == "ok"
