"""The scrape endpoint, read by the library's parser, by promtool and by a real Prometheus."""

import base64
import errno
import json
import math
import os
import signal
import socket
import ssl
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.openmetrics.exposition import generate_latest as generate_openmetrics
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from export.making import Points, commit, identity, recorded, wait_until
from realparts.processes import HOST, accepts, free_port, http_get
from realparts.prometheus import prometheus, promtool_check_metrics
from rltel.core.config import PrometheusConfig
from rltel.core.errors import ConfigError
from rltel.export.commit import Commit
from rltel.export.prometheus import Endpoint, PrometheusSink, RunCollector
from rltel.export.sink import Destination
from rltel.reduce.trackers import Trackers

Labels = dict[str, str]


def everything(trackers: Trackers) -> None:
    """One metric of each kind, and names of each sort."""
    tracker = trackers.default
    with tracker.scope("ppo_actor"):
        tracker.denominator(n_valid_tokens=np.array([True, True, False]))
        tracker.stat(loss=np.array([1.0, 2.5, math.nan]), denominator="n_valid_tokens")
    tracker.scalar({"pass@1": 0.25, 'eval/ü"\\\n': 1.0})
    tracker.gauge({"Loss/actor": -0.5, "queue": 3.0, "Perf/total_fps": 1e5})
    tracker.gauge({"Perf/learner_inference_ms": 250.0})
    tracker.count(episodes=2)
    tracker.distribution(seq_len=np.array([-1.5, 0.0, 3.0, 1000.0]))
    with tracker.record_timing("rollout"):
        pass
    trackers.get("rollout").scalar(reward=0.5)


def exposed(*commits: Commit, timestamps: bool = False) -> str:
    """What a scrape shows after these commits."""
    return generate_latest(registry_after(*commits, timestamps=timestamps)).decode()


def registry_after(*commits: Commit, timestamps: bool = False) -> CollectorRegistry:
    sink, points = PrometheusSink(timestamps), Points()
    for made in commits:
        sink.write(made, points.of(made))
    registry = CollectorRegistry()
    destination = Destination("otlp")
    destination.exported(3)
    destination.dropped("queue_full", 2)
    registry.register(RunCollector(sink, lambda: [destination], identity()))
    return registry


def samples(text: str) -> list[Sample]:
    return [sample for family in text_string_to_metric_families(text) for sample in family.samples]


def value(text: str, name: str, **labels: str) -> float:
    (found,) = [
        sample.value for sample in samples(text) if sample.name == name and labels.items() <= sample.labels.items()
    ]
    return found


class TestExposition:
    def test_reads_back_with_the_library_s_parser(self) -> None:
        text = exposed(commit(recorded(everything), env_steps=640))
        assert value(text, "rl_stats_ppo_actor_loss", rl_stat="avg") == 1.75
        assert value(text, "rl_stats_ppo_actor_loss_numerator") == 3.5
        assert value(text, "rl_stats_ppo_actor_loss_denominator") == 2.0
        assert value(text, "rl_stats_pass_at_1", rl_stat="avg", rl_key="pass@1") == 0.25
        assert value(text, "rl_train_loss", rl_loss_type="actor") == -0.5
        assert value(text, "rl_samples_rate_per_second") == 1e5
        assert value(text, "rl_stats_episodes_total") == 2.0
        assert value(text, "rl_stats_seq_len_distribution_bucket", le="4.0") == 3.0
        assert value(text, "rl_stats_seq_len_distribution_bucket", le="+Inf") == 4.0
        assert value(text, "rl_stats_seq_len_distribution_sum") == 1001.5
        assert value(text, "rl_timing_duration_seconds_count", rl_timing="rollout") == 1.0
        assert value(text, "rl_phase_duration_seconds_sum", rl_phase="inference") == 0.25
        assert (value(text, "rl_step", rl_axis="train"), value(text, "rl_env_steps")) == (1.0, 640.0)

    def test_keys_with_any_character_come_back(self) -> None:
        text = exposed(commit(recorded(everything)))
        keys = {sample.labels["rl_key"] for sample in samples(text) if "rl_key" in sample.labels}
        assert 'eval/ü"\\\n' in keys

    def test_promtool_finds_nothing_to_say(self) -> None:
        assert promtool_check_metrics(exposed(commit(recorded(everything), env_steps=640))) == (0, "")

    def test_no_series_comes_twice_and_no_family_either(self) -> None:
        text = exposed(commit(recorded(everything)), commit(recorded(everything), step=2))
        found = [(sample.name, tuple(sorted(sample.labels.items()))) for sample in samples(text)]
        assert len(found) == len(set(found))
        types = [line.split()[2] for line in text.splitlines() if line.startswith("# TYPE")]
        assert len(types) == len(set(types))

    def test_openmetrics_reads_back_too(self) -> None:
        """What a newer Prometheus asks for."""
        text = generate_openmetrics(registry_after(commit(recorded(everything)))).decode()
        # OpenMetrics has no histogram below 0; ours stand on Prometheus's format, which has.
        positive = "\n".join(line for line in text.splitlines() if "seq_len_distribution" not in line) + "\n"
        found = {sample.name for family in parse_openmetrics(positive) for sample in family.samples}
        assert {"rl_stats_episodes_total", "rl_timing_duration_seconds_bucket", "target_info"} <= found

    def test_who_is_scraped(self) -> None:
        (info,) = [sample for sample in samples(exposed(commit())) if sample.name == "target_info"]
        assert info.labels == {
            "instance_id": identity().instance_id,
            "rl_run_id": "run-1",
            "rl_role": "learner",
            "rl_rank": "0",
        }

    def test_what_was_lost_is_shown(self) -> None:
        text = exposed(commit())
        assert value(text, "rltel_exported_total", destination="otlp") == 3.0
        assert value(text, "rltel_dropped_total", destination="otlp", reason="queue_full") == 2.0

    def test_the_last_commit_counts_and_sums_go_on(self) -> None:
        text = exposed(*(commit(recorded(everything), step=step) for step in (1, 2, 3)))
        assert value(text, "rl_step") == 3.0
        assert value(text, "rl_stats_episodes_total") == 6.0
        assert value(text, "rl_stats_ppo_actor_loss_numerator") == 10.5
        assert value(text, "rl_stats_seq_len_distribution_count") == 12.0

    def test_axes_stand_side_by_side(self) -> None:
        """wandb#10628: rollout@8073 and train@0 are both kept."""
        text = exposed(commit({"a": 1.0}, step=8073, axis="rollout"), commit({"b": 1.0}, step=0))
        assert (value(text, "rl_step", rl_axis="rollout"), value(text, "rl_step", rl_axis="train")) == (8073.0, 0.0)

    def test_open_telemetry_python_5330_nan_is_scraped_as_nan(self) -> None:
        text = exposed(commit({"x": 1.25}), commit({"x": math.nan}))
        assert math.isnan(value(text, "rl_stats_x"))
        assert value(text, "rl_stats_nonfinite_total", rl_key="x") == 1.0

    @pytest.mark.parametrize("number", [math.inf, -math.inf, 1e-300, 123456789.125])
    def test_any_number_is_exact(self, number: float) -> None:
        assert value(exposed(commit({"x": number})), "rl_stats_x") == number

    def test_timestamps_are_the_step_s_own_if_asked(self) -> None:
        made = commit(recorded(everything))
        with_them = [sample for sample in samples(exposed(made, timestamps=True)) if sample.name.startswith("rl_")]
        assert {sample.timestamp for sample in with_them} == {made.time_ns // 10**6 / 1000}
        without = samples(exposed(made))
        assert {sample.timestamp for sample in without} == {None}

    def test_open_telemetry_python_3928_keys_that_collide_are_two_series_of_one_family(self) -> None:
        text = exposed(commit({"one/two_three": 1.0, "one_two/three": 2.0}))
        found = {
            sample.labels.get("rl_key"): sample.value
            for sample in samples(text)
            if sample.name == "rl_stats_one_two_three"
        }
        assert found == {None: 1.0, "one_two/three": 2.0}
        assert promtool_check_metrics(text) == (0, "")

    def test_a_name_of_two_types_is_still_an_exposition(self) -> None:
        """A counter `steps` is `steps_total` in Prometheus, and so is a gauge `steps_total`; suffixes clash, too."""

        def record(trackers: Trackers) -> None:
            trackers.default.count({"steps": 1, "steps/total": 2})
            trackers.default.gauge({"steps_total": 3.0, "x/distribution": 4.0})
            trackers.default.distribution(x=np.array([1.0]))

        text = exposed(commit(recorded(record)))
        assert value(text, "rl_stats_x_distribution", rl_stat="last") == 4.0
        assert value(text, "rl_stats_x_distribution_bucket", le="+Inf") == 1.0
        totals = sorted(sample.value for sample in samples(text) if sample.name == "rl_stats_steps_total")
        assert totals == [1.0, 2.0, 3.0]
        for name in ("rl_stats_x_distribution", "rl_stats_steps_total"):
            assert [line for line in text.splitlines() if line.startswith(f"# TYPE {name} ")] == [
                f"# TYPE {name} untyped"
            ]
        code, said = promtool_check_metrics(text)
        assert code != 1, said

    def test_ray_40586_one_bad_name_costs_nothing_else(self) -> None:
        """A file name that is no text (`os.listdir` gives such) as a key."""
        text = exposed(commit({"ok": 1.0, "data/\udcff": 2.0}))
        assert value(text, "rl_stats_ok") == 1.0
        assert value(text, "rl_stats_data_udcff", rl_key="data/\\udcff") == 2.0

    @settings(max_examples=25, deadline=None)
    @given(st.dictionaries(st.text(min_size=1).filter(lambda key: key.strip("/")), st.floats(), max_size=8))
    def test_any_keys_and_numbers_read_back(self, numbers: dict[str, float]) -> None:
        text = exposed(commit(numbers))
        gauges = [sample for sample in samples(text) if sample.labels.get("rl_stat") == "last"]
        shown, given = [sample.value for sample in gauges], [number + 0.0 for number in numbers.values()]  # no -0.0
        assert sorted(map(str, shown)) == sorted(map(str, given))

    def test_vllm_39906_a_second_instance_is_no_duplicate(self) -> None:
        """Two telemetries of one process, in one registry: each registers without an error."""
        registry = CollectorRegistry()
        for _ in range(2):
            registry.register(RunCollector(PrometheusSink(), list, identity()))


@contextmanager
def endpoint(
    *commits: Commit, config: PrometheusConfig | None = None, port: int = 0, timestamps: bool = False
) -> Iterator[Endpoint]:
    served = Endpoint(config or PrometheusConfig(), registry_after(*commits, timestamps=timestamps), port)
    try:
        yield served
    finally:
        served.close()


def status(url: str, **headers: str) -> int:
    request = urllib.request.Request(url, headers=headers)
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(request, timeout=10) as response:
            return int(response.status)
    except urllib.error.HTTPError as refusal:
        return refusal.code


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

    def test_no_free_port_is_named(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("rltel.export.prometheus_endpoint._TRIED_PORTS", 1)
        with endpoint(port=free_port()) as first, pytest.raises(ConfigError, match=f"none of {first.port} to"):
            Endpoint(PrometheusConfig(), CollectorRegistry(), first.port)

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

        monkeypatch.setattr("rltel.export.prometheus_endpoint.make_server", taken)
        with pytest.raises(ConfigError, match=f"none of {wanted[0]} to {wanted[-1]} on 127"):
            Endpoint(PrometheusConfig(), CollectorRegistry(), first)
        assert tried == list(wanted)

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
        assert group["labels"] == {"rl_run": "run-1", "rl_role": "learner", "rl_index": "0"}

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
            assert not accepts(served.port)
        finally:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)


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


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    """A certificate of 127.0.0.1 and its key."""
    folder = tmp_path_factory.mktemp("tls")
    cert, key = folder / "cert.pem", folder / "key.pem"
    try:
        subprocess.run(
            [
                *("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"),
                *("-keyout", key, "-out", cert, "-days", "1", "-subj", "/CN=localhost"),
                *("-addext", "subjectAltName=IP:127.0.0.1"),
            ],
            check=True,
            capture_output=True,
        )
    except FileNotFoundError:
        pytest.skip("no openssl here")
    return str(cert), str(key)


class TestTls:
    @pytest.fixture
    def served(self, certificate: tuple[str, str]) -> Iterator[Endpoint]:
        config = PrometheusConfig(tls_cert=certificate[0], tls_key=certificate[1])
        with endpoint(commit({"x": 1.0}), config=config) as served:
            yield served

    def scrape(self, served: Endpoint, certificate: tuple[str, str]) -> bytes:
        trusting = ssl.create_default_context(cafile=certificate[0])
        opener = urllib.request.build_opener(
            urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=trusting)
        )
        with opener.open(served.url, timeout=10) as response:
            body: bytes = response.read()
        return body

    def test_serves_https(self, served: Endpoint, certificate: tuple[str, str]) -> None:
        assert served.url.startswith("https://")
        assert value(self.scrape(served, certificate).decode(), "rl_stats_x") == 1.0

    def test_refuses_plain_http_without_a_word(self, served: Endpoint, capfd: pytest.CaptureFixture[str]) -> None:
        with pytest.raises(OSError, match=r"(?i)reset|closed|aborted|refused|response"):
            http_get(served.url.replace("https", "http"))
        assert capfd.readouterr().err == ""

    def test_a_client_that_never_shakes_hands_keeps_nobody_waiting(self, certificate: tuple[str, str]) -> None:
        config = PrometheusConfig(tls_cert=certificate[0], tls_key=certificate[1])
        with endpoint(commit({"x": 1.0}), config=config) as served, socket.create_connection((HOST, served.port)):
            assert self.scrape(served, certificate)
            served.close()
            assert not accepts(served.port)

    def test_a_certificate_that_cannot_be_read_is_named(self, tmp_path: Path) -> None:
        config = PrometheusConfig(tls_cert=str(tmp_path / "none"), tls_key=str(tmp_path / "none"))
        with pytest.raises(ConfigError, match=r"prometheus.tls_cert, prometheus.tls_key: cannot use"):
            Endpoint(config, CollectorRegistry(), 0)


class TestRealPrometheus:
    """Scraped and asked by PromQL."""

    def near(self, wanted: float) -> Callable[[Sequence[tuple[Labels, float]]], bool]:
        return lambda vector: len(vector) == 1 and math.isclose(vector[0][1], wanted, rel_tol=1e-9)

    def test_answers_are_the_commit_s(self, tmp_path: Path) -> None:
        """Among them open-telemetry/opentelemetry-python#5330: what was 1.25 and is NaN is stored as NaN."""
        made = commit(recorded(everything), env_steps=640, step=41)
        before = (commit({"was": 1.25}), commit({"was": math.nan}))
        with endpoint(*before, made) as served, prometheus([served.target], tmp_path=tmp_path) as server:
            server.wait_for("rl_step", self.near(41.0))
            ((_, nan),) = server.query("rl_stats_was")
            assert math.isnan(nan)
            questions = {
                'rl_stats_ppo_actor_loss{rl_stat="avg"}': made.values["ppo_actor/loss/avg"],
                'rl_stats_ppo_actor_loss{rl_stat="max"}': made.values["ppo_actor/loss/max"],
                "rl_stats_ppo_actor_loss_numerator / rl_stats_ppo_actor_loss_denominator": 1.75,
                'rl_stats_pass_at_1{rl_key="pass@1",rl_stat="avg"}': made.values["pass@1"],
                'rl_train_loss{rl_loss_type="actor"}': -0.5,
                "rl_samples_rate_per_second": 1e5,
                "rl_stats_episodes_total": 2.0,
                "rl_stats_seq_len_distribution_sum / rl_stats_seq_len_distribution_count": 1001.5 / 4,
                'rl_stats_seq_len_distribution_bucket{le="4.0"}': 3.0,
                "histogram_quantile(1, rl_phase_duration_seconds_bucket)": 0.25,
                "rl_env_steps": 640.0,
                'rl_stats_rollout_reward{rl_stat="avg"}': 0.5,
                'rl_stats_nonfinite_total{rl_key="was"}': 1.0,
                "target_info * on (instance) group_left () up": 1.0,
            }
            for question, wanted in questions.items():
                assert self.near(wanted)(server.query(question)), (question, server.query(question))

    def test_timestamps_found_by_file_sd_behind_tls_and_password(
        self, tmp_path: Path, certificate: tuple[str, str]
    ) -> None:
        config = PrometheusConfig(
            tls_cert=certificate[0],
            tls_key=certificate[1],
            username="scraper",
            password="geheim",  # no secret
        )
        made = commit({"x": 1.0}, time_ns=time.time_ns() - 10**9)
        options: dict[str, Any] = {
            "scheme": "https",
            "tls_config": {"ca_file": certificate[0]},
            "basic_auth": {"username": "scraper", "password": "geheim"},
        }
        found = tmp_path / "prometheus_sd" / "learner-0.json"
        with endpoint(made, config=config, timestamps=True) as served:
            served.advertise(found, identity())
            with prometheus(tmp_path=tmp_path, file_sd=found.parent / "*.json", **options) as server:
                ((labels, _),) = server.wait_for("rl_stats_x")
                assert (labels["rl_run"], labels["rl_index"]) == ("run-1", "0")
                wait_until(lambda: server.query("count_over_time(up[1m]) >= 3"), "three scrapes")
                ((_, stored),) = server.samples("rl_stats_x[1m]")
        assert [at for at, _ in stored] == [made.time_ns // 10**6 / 1000], "one sample, at the step's time"
