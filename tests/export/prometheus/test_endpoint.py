"""The HTTP server: its port, its protection, and who finds it."""

import errno
import json
import os
import signal
import socket
import ssl
import urllib.request
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from export.making import commit, identity, wait_until
from export.scraping import endpoint, status, value
from realparts.certificate import Certificate, certificate
from realparts.processes import HOST, accepts, free_port, http_get
from rltel.core.config import PrometheusConfig, RunConfig
from rltel.core.errors import ConfigError
from rltel.export.prometheus.collector import RunCollector
from rltel.export.prometheus.endpoint import Endpoint
from rltel.export.prometheus.table import PrometheusSink
from rltel.export.resource import resource_of


class TestEndpoint:
    def test_serves_what_was_committed(self) -> None:
        with endpoint(commit({"x": 1.5})) as served:
            assert value(http_get(served.url).decode(), "rl_stats_x") == 1.5

    def test_binds_to_loopback(self) -> None:
        with endpoint() as served:
            assert served._server.socket.getsockname()[0] == HOST
            assert served.url == f"http://127.0.0.1:{served.port}/metrics"

    def test_a_port_that_is_taken_gives_the_next_free_one(self) -> None:
        with endpoint(port=free_port()) as first, endpoint(port=first.port) as second:
            assert first.port < second.port < first.port + 100
            assert str(second.port) in second.url
            for served in (first, second):
                assert status(served.url) == 200

    def test_two_instances_of_one_process_serve_side_by_side(self) -> None:
        """vllm#39906: "Duplicated timeseries" of a second instance in the process."""
        with endpoint(commit({"x": 1.0})) as first, endpoint(commit({"x": 2.0})) as second:
            assert [value(http_get(served.url).decode(), "rl_stats_x") for served in (first, second)] == [1.0, 2.0]

    def test_a_host_that_is_not_ours_is_named(self) -> None:
        with pytest.raises(ConfigError, match=r'prometheus.host: cannot listen on "203.0.113.1"'):
            Endpoint(PrometheusConfig(host="203.0.113.1"), CollectorRegistry(), 9464)

    def test_where_all_that_are_tried_are_taken_any_does_and_that_is_said(
        self, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        monkeypatch.setattr("rltel.export.prometheus.endpoint._TRIED_PORTS", 1)
        with endpoint() as first, endpoint(port=first.port) as second:
            assert second.port not in (0, first.port)
            assert status(second.url) == 200
        said = f"prometheus.port: none of {first.port} to {first.port} on 127.0.0.1 may be used: took {second.port}"
        assert [record.message for record in caplog.records] == [said]

    @pytest.mark.parametrize(
        ("first", "wanted"),
        [(9464, range(9464, 9564)), (65500, range(65500, 65536)), (65536, range(65535, 65536)), (0, range(1))],
    )
    def test_ports_up_to_the_last_are_tried(
        self, monkeypatch: pytest.MonkeyPatch, first: int, wanted: Sequence[int]
    ) -> None:
        """A collector begins one above the writer's port, which may be the last."""
        tried: list[int] = []

        def taken(host: str, port: int, *_: Any, **__: Any) -> Any:
            tried.append(port)
            raise OSError(errno.EADDRINUSE, "in use")

        monkeypatch.setattr("rltel.export.prometheus.endpoint.make_server", taken)
        with pytest.raises(ConfigError, match=f"none of {wanted[0]} to {wanted[-1]} on 127"):
            Endpoint(PrometheusConfig(), CollectorRegistry(), first)
        assert tried == [*wanted, 0]

    def test_an_ipv6_address(self) -> None:
        try:
            served = Endpoint(PrometheusConfig(host="::1"), CollectorRegistry(), 0)
        except ConfigError:
            pytest.skip("no IPv6 here")
        try:
            assert served.url == f"http://[::1]:{served.port}/metrics"
            assert status(served.url) == 200
        finally:
            served.close()

    def test_close_stops_listening(self, tmp_path: Path) -> None:
        with endpoint() as served:
            served.advertise(tmp_path / "sd" / "learner-0.json", identity())
        assert not accepts(served.port)
        assert not (tmp_path / "sd" / "learner-0.json").exists(), "another process may get the port"

    def test_advertises_itself_for_file_sd(self, tmp_path: Path) -> None:
        with endpoint(config=PrometheusConfig(advertise="node-7")) as served:
            served.advertise(tmp_path / "sd" / "learner-0.json", identity())
            (group,) = json.loads((tmp_path / "sd" / "learner-0.json").read_text())
        assert group["targets"] == [f"node-7:{served.port}"]
        assert group["labels"] == {
            "rl_run_id": "run-1",
            "rl_role": "learner",
            "rl_rank": "0",
            "__scheme__": "http",
            "__param_instance": identity().instance_id,
        }

    @pytest.mark.parametrize("given", ["fd00::7", "[fd00::7]"])
    def test_an_ipv6_address_is_advertised_as_a_url_has_it(self, given: str) -> None:
        """A pod's own address may be one."""
        with endpoint(config=PrometheusConfig(advertise=given)) as served:
            assert served.target == f"[fd00::7]:{served.port}"

    def test_collectors_that_inherited_one_rank_are_told_apart(self, tmp_path: Path) -> None:
        """Their places differ: `rl_rank` is the place, here and over OTLP."""
        found = []
        for index in (0, 1):
            who = identity(role="collector", rank=0, index=index)
            with endpoint() as served:
                served.advertise(tmp_path / "sd.json", who)
                (group,) = json.loads((tmp_path / "sd.json").read_text())
            found.append((group["labels"]["rl_rank"], resource_of(who, RunConfig(), {}).attributes["rl.rank"]))
        assert found == [("0", 0), ("1", 1)]

    @pytest.mark.parametrize("host", ["0.0.0.0", "127.0.0.1"])
    def test_an_address_that_only_this_machine_understands_is_said(
        self, tmp_path: Path, host: str, caplog: pytest.LogCaptureFixture
    ) -> None:
        """``0.0.0.0`` asked from elsewhere is whoever asks."""
        with endpoint(config=PrometheusConfig(host=host)) as served:
            served.advertise(tmp_path / "sd.json", identity())
            (group,) = json.loads((tmp_path / "sd.json").read_text())
        assert group["targets"] == [f"127.0.0.1:{served.port}"]
        assert ("prometheus.advertise is not set" in caplog.text) == (host == "0.0.0.0")

    def test_a_scrape_that_means_another_process_is_refused(self, tmp_path: Path) -> None:
        """A process that was killed leaves its file, and its port may be another run's by the next scrape."""
        with endpoint(commit({"x": 1.0})) as served:
            assert status(f"{served.url}?instance=whoever") == 200, "nobody knows who this is"
            served.advertise(tmp_path / "sd.json", identity())
            assert status(served.url) == 200
            assert status(f"{served.url}?instance={identity().instance_id}") == 200
            assert status(f"{served.url}?instance={identity(run_id='run-2').instance_id}") == 410
            assert status(f"{served.url}?other=1") == 200

    def test_scrapes_are_counted(self) -> None:
        collector = RunCollector(PrometheusSink(), list, identity())
        registry = CollectorRegistry()
        registry.register(collector)
        assert collector.scrapes == 0
        generate_latest(registry)
        assert collector.scrapes == 1

    @pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
    @pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
    def test_a_forked_child_does_not_hold_the_port(self) -> None:
        """Else the port of a trainer that ended stays open and dead while one of its workers lives."""
        with endpoint() as served:
            child = os.fork()
            if child == 0:
                signal.pause()
                os._exit(0)
        try:
            # The child may come to let go of it only now.
            wait_until(lambda: not accepts(served.port), "a port that nobody listens on")
        finally:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Certificate:
    """A certificate of 127.0.0.1 and its key."""
    return certificate(tmp_path_factory.mktemp("tls"))


class TestTls:
    @pytest.fixture
    def served(self, made: Certificate) -> Iterator[Endpoint]:
        config = PrometheusConfig(tls_cert=made.cert, tls_key=made.key)
        with endpoint(commit({"x": 1.0}), config=config) as served:
            yield served

    def scrape(self, served: Endpoint, made: Certificate) -> bytes:
        trusting = ssl.create_default_context(cafile=made.cert)
        opener = urllib.request.build_opener(
            urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=trusting)
        )
        with opener.open(served.url, timeout=10) as response:
            body: bytes = response.read()
        return body

    def test_serves_https(self, served: Endpoint, made: Certificate) -> None:
        assert served.url.startswith("https://")
        assert value(self.scrape(served, made).decode(), "rl_stats_x") == 1.0

    def test_refuses_plain_http_without_a_word(self, served: Endpoint, capfd: pytest.CaptureFixture[str]) -> None:
        with pytest.raises(OSError, match=r"(?i)reset|closed|aborted|refused|response"):
            http_get(served.url.replace("https", "http"))
        assert capfd.readouterr().err == ""

    def test_a_client_that_never_shakes_hands_keeps_nobody_waiting(self, made: Certificate) -> None:
        config = PrometheusConfig(tls_cert=made.cert, tls_key=made.key)
        with endpoint(commit({"x": 1.0}), config=config) as served, socket.create_connection((HOST, served.port)):
            assert self.scrape(served, made)
            served.close()
            assert not accepts(served.port)

    def test_a_certificate_that_cannot_be_read_is_named(self, tmp_path: Path) -> None:
        config = PrometheusConfig(tls_cert=str(tmp_path / "none"), tls_key=str(tmp_path / "none"))
        with pytest.raises(ConfigError, match=r"prometheus.tls_cert, prometheus.tls_key: cannot use"):
            Endpoint(config, CollectorRegistry(), 0)
