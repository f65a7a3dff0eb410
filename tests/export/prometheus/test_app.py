"""What the endpoint answers: formats, paths, the password, and health."""

import base64
import gzip
import http.client
import logging
import socket
from collections.abc import Iterable, Iterator

import pytest
from prometheus_client import CollectorRegistry, Gauge
from prometheus_client.core import Metric
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_text
from prometheus_client.registry import Collector

from export.making import commit, recorded
from export.scraping import endpoint, everything, registry_after, status, value
from realparts.processes import HOST
from rltel.core.config import PrometheusConfig
from rltel.export.prometheus.endpoint import Endpoint

OPENMETRICS = "application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5,*/*;q=0.1"


def ask(
    served: Endpoint, path: str = "/metrics", method: str = "GET", **headers: str
) -> tuple[int, dict[str, str], bytes]:
    """Status, headers (lower case) and body."""
    connection = http.client.HTTPConnection(HOST, served.port, timeout=10)
    try:
        connection.request(method, path, headers={name.replace("_", "-"): text for name, text in headers.items()})
        response = connection.getresponse()
        return response.status, {name.lower(): text for name, text in response.getheaders()}, response.read()
    finally:
        connection.close()


class TestFormats:
    @pytest.fixture
    def served(self) -> Iterator[Endpoint]:
        with endpoint(commit(recorded(everything), env_steps=640)) as served:
            yield served

    def test_text_unless_asked(self, served: Endpoint) -> None:
        code, headers, body = ask(served)
        assert (code, headers["content-type"]) == (200, "text/plain; version=0.0.4; charset=utf-8")
        assert value(body.decode(), "rl_env_steps") == 640.0

    def test_openmetrics_for_who_asks(self, served: Endpoint) -> None:
        """As Prometheus does; its strict parser reads all of it, histograms with bounds below 0 too."""
        code, headers, body = ask(served, Accept=OPENMETRICS)
        assert code == 200
        assert headers["content-type"].startswith("application/openmetrics-text; version=1.0.0")
        samples = {sample.name: sample for family in parse_openmetrics(body.decode()) for sample in family.samples}
        assert samples["rl_stats_episodes_total"].value == 2.0
        assert samples["rl_stats_seq_len_distribution_sum"].value == 1001.5
        assert body.endswith(b"# EOF\n")

    def test_both_say_the_same(self, served: Endpoint) -> None:
        found = [
            {
                (sample.name, frozenset(sample.labels.items())): repr(sample.value)
                for family in parse(ask(served, Accept=accept)[2].decode())
                for sample in family.samples
                if sample.name.startswith("rl_")
            }
            for parse, accept in ((parse_text, "text/plain"), (parse_openmetrics, OPENMETRICS))
        ]
        assert found[0] == found[1]
        assert len(found[0]) > 100

    @pytest.mark.parametrize("accept", ["", "*/*", "nonsense;;;=,", "application/json", "text/plain;version=0.0.4"])
    def test_anything_else_is_text(self, served: Endpoint, accept: str) -> None:
        code, headers, _ = ask(served, Accept=accept)
        assert (code, headers["content-type"].partition(";")[0]) == (200, "text/plain")

    def test_compressed_for_who_takes_it(self, served: Endpoint) -> None:
        _, headers, body = ask(served, Accept_Encoding="br, gzip;q=0.5")
        assert headers["content-encoding"] == "gzip"
        assert value(gzip.decompress(body).decode(), "rl_env_steps") == 640.0

    @pytest.mark.parametrize("accepted", ["", "br", "gzip;q=0", "xgzip"])
    def test_and_for_nobody_else(self, served: Endpoint, accepted: str) -> None:
        assert "content-encoding" not in ask(served, Accept_Encoding=accepted)[1]


class TestPaths:
    @pytest.fixture
    def served(self) -> Iterator[Endpoint]:
        with endpoint(commit({"x": 1.0})) as served:
            yield served

    def test_the_root_shows_metrics_too(self, served: Endpoint) -> None:
        assert b"rl_stats_x" in ask(served, "/")[2]

    def test_another_path_is_not_found(self, served: Endpoint) -> None:
        code, _, body = ask(served, "/other")
        assert (code, body) == (404, b"/metrics and /healthz are here\n")

    def test_a_query_changes_nothing(self, served: Endpoint) -> None:
        assert ask(served, "/metrics?name[]=y")[2] == ask(served)[2]

    def test_head_has_no_body(self, served: Endpoint) -> None:
        code, headers, body = ask(served, method="HEAD")
        assert (code, body) == (200, b"")
        assert int(headers["content-length"]) > 100

    @pytest.mark.parametrize("method", ["POST", "PUT", "DELETE"])
    def test_nothing_can_be_written(self, served: Endpoint, method: str) -> None:
        code, headers, _ = ask(served, method=method)
        assert (code, headers["allow"]) == (405, "GET, HEAD")


class TestHealth:
    def test_is_well_while_it_answers(self) -> None:
        with endpoint() as served:
            assert ask(served, "/healthz")[::2] == (200, b"ok\n")

    def test_says_what_is_wrong(self) -> None:
        served = Endpoint(PrometheusConfig(), CollectorRegistry(), 0, lambda: "the pipeline has ended")
        try:
            assert ask(served, "/healthz")[::2] == (503, b"the pipeline has ended\n")
        finally:
            served.close()

    def test_a_kubelet_has_no_password(self) -> None:
        with endpoint(config=TestPassword.CONFIG) as served:
            assert ask(served, "/healthz")[0] == 200
            assert ask(served, "/metrics")[0] == 401


class TestPassword:
    CONFIG = PrometheusConfig(username="scraper", password="geheimnis:ü")  # no secret

    def header(self, credentials: str) -> str:
        return "Basic " + base64.b64encode(credentials.encode()).decode()

    def test_opens_with_the_right_one_only(self) -> None:
        with endpoint(commit({"x": 1.0}), config=self.CONFIG) as served:
            assert status(served.url) == 401
            assert status(served.url, Authorization=self.header("scraper:falsch")) == 401
            assert status(served.url, Authorization="Basic not-base64") == 401
            assert status(served.url, Authorization=self.header("scraper:geheimnis:ü")) == 200

    def test_no_secret_is_in_the_url(self) -> None:
        with endpoint(config=self.CONFIG) as served:
            assert "geheimnis" not in served.url + served.target

    def test_a_bad_header_is_refused_and_breaks_nothing(self) -> None:
        bad = [b"Basic", b"Basic ", b"basic\t", b"Bearer x", b"\xff\xfe", "Basic ü".encode(), b"Basic " + b"A" * 10_000]
        with endpoint(commit({"x": 1.0}), config=self.CONFIG) as served:
            for header in bad:
                with socket.create_connection((HOST, served.port), timeout=10) as connection:
                    connection.sendall(b"GET /metrics HTTP/1.0\r\nAuthorization: " + header + b"\r\n\r\n")
                    answer = connection.makefile("rb").read()
                assert answer.split(b" ", 2)[1] == b"401", header

    def test_the_scheme_may_be_in_any_case(self) -> None:
        with endpoint(config=self.CONFIG) as served:
            right = self.header("scraper:geheimnis:ü").removeprefix("Basic ")
            assert status(served.url, Authorization=f"bAsIc {right}") == 200

    def test_what_is_compared_has_one_length(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Whatever is sent: the time of a comparison tells nothing of the password."""
        lengths: set[int] = set()

        def compare(given: bytes, wanted: bytes) -> bool:
            lengths.update((len(given), len(wanted)))
            return False

        monkeypatch.setattr("rltel.export.prometheus.app.hmac.compare_digest", compare)
        with endpoint(config=self.CONFIG) as served:
            for credentials in ("", "scraper:", "scraper:" + "x" * 1000):
                assert status(served.url, Authorization=self.header(credentials)) == 401
        assert lengths == {32}

    def test_is_asked_for_on_every_other_path(self) -> None:
        with endpoint(config=self.CONFIG) as served:
            assert ask(served, "/other")[0] == 401


class Broken(Collector):
    def collect(self) -> Iterable[Metric]:
        raise ValueError("of a user")


class TestOthersOnTheRegistry:
    def served(self, registry: CollectorRegistry) -> Endpoint:
        return Endpoint(PrometheusConfig(), registry, 0)

    def test_stand_beside_ours(self) -> None:
        registry = registry_after(commit({"x": 1.0}))
        Gauge("users_own", "A user's.", registry=registry).set(7)
        served = self.served(registry)
        try:
            for accept in ("", OPENMETRICS):
                body = ask(served, Accept=accept)[2].decode()
                assert "users_own 7.0" in body
                assert "rl_stats_x" in body
        finally:
            served.close()

    def test_one_that_raises_is_said_once_and_the_endpoint_lives(self, caplog: pytest.LogCaptureFixture) -> None:
        registry = registry_after(commit({"x": 1.0}))
        broken = Broken()
        registry._collector_to_names[broken] = []  # registering it would collect
        served = self.served(registry)
        try:
            with caplog.at_level(logging.WARNING):
                assert [ask(served)[0] for _ in range(3)] == [500, 500, 500]
            assert [record.message for record in caplog.records] == [
                "prometheus: a scrape failed: of a user (said once)"
            ]
            registry.unregister(broken)
            assert ask(served)[0] == 200
        finally:
            served.close()
