"""What a process opens for Prometheus, and a real server that scrapes it."""

import math
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from export.making import Points, commit, identity, recorded, wait_until
from export.scraping import Labels, endpoint, everything, status, value
from realparts.certificate import Certificate, certificate
from realparts.processes import accepts, http_get
from realparts.prometheus import prometheus
from realparts.pushgateway import pushgateway
from rltel.core.config import PrometheusConfig, RunConfig, TelemetryConfig
from rltel.core.errors import ConfigError
from rltel.export.prometheus import service
from rltel.export.prometheus.exposition import expose
from rltel.export.prometheus.service import OpenPrometheus, PrometheusSurroundings, open_prometheus
from rltel.export.sink import Destination


@contextmanager
def opened(
    tmp_path: Path, accounts: list[Destination] | None = None, registry: CollectorRegistry | None = None, **config: Any
) -> Iterator[OpenPrometheus]:
    kept: list[Destination] = [] if accounts is None else accounts

    def account(name: str) -> Destination:
        kept.append(Destination(name))
        return kept[-1]

    settings = TelemetryConfig(prometheus=PrometheusConfig(**config), run=RunConfig(name="mine"))
    made = open_prometheus(
        PrometheusSurroundings(settings, identity(), lambda: kept, account, None, registry), tmp_path
    )
    try:
        yield made
    finally:
        for worker in made.workers:
            worker.close(time.monotonic())
        made.close()


class TestOpened:
    def test_nothing_unless_asked(self, tmp_path: Path) -> None:
        before = set(threading.enumerate())  # some of these, of other tests, may end meanwhile
        with opened(tmp_path) as made:
            assert (made.sink, made.workers, made.url, made.places) == (None, (), None, ())
            made.linger(10.0)
            assert set(threading.enumerate()) <= before
        assert list(tmp_path.iterdir()) == []

    def test_an_endpoint_that_serves_what_its_sink_takes(self, tmp_path: Path) -> None:
        with opened(tmp_path, enabled=True, port=0) as made:
            assert made.sink is not None
            assert made.url is not None
            assert made.sink.describe() == made.url
            step = commit({"x": 1.5})
            made.sink.write(step, Points().of(step))
            assert value(http_get(made.url).decode(), "rl_stats_x") == 1.5
            assert (tmp_path / "prometheus_sd" / "learner-0.json").exists()
        assert not accepts(int(made.url.split(":")[2].split("/")[0]))
        assert not (tmp_path / "prometheus_sd" / "learner-0.json").exists()

    def test_pushes_without_an_endpoint(self, tmp_path: Path) -> None:
        accounts: list[Destination] = []
        with pushgateway() as gateway, opened(tmp_path, accounts, push_url=gateway.url) as made:
            assert made.url is None
            assert made.sink is not None
            assert made.sink.describe() == "(no endpoint)"
            step = commit({"x": 1.5})
            made.sink.write(step, Points().of(step))
            (worker,) = made.workers
            worker.close(time.monotonic() + 10)
            assert gateway.value("rl_stats_x") == 1.5
            assert made.places == (f"prometheus-push {gateway.url} (job mine, instance run-1-learner-0)",)
        assert [(account.name, account.exported_total) for account in accounts] == [("prometheus-push", 1)]

    def test_leaves_a_user_s_registry_as_it_was(self, tmp_path: Path) -> None:
        registry = CollectorRegistry()
        with opened(tmp_path, registry=registry, enabled=True, port=0):
            assert b"rltel_series" in expose(registry, "").body
        assert expose(registry, "").body == b""

    @pytest.mark.parametrize("bad", [{"push_url": "nowhere"}, {"host": "203.0.113.1"}, {"username": "half"}])
    def test_what_cannot_be_leaves_nothing_open(self, tmp_path: Path, bad: dict[str, Any]) -> None:
        registry = CollectorRegistry()
        before = set(threading.enumerate())
        with pytest.raises(ConfigError), opened(tmp_path, registry=registry, **{"enabled": True, "port": 0, **bad}):
            pass
        assert expose(registry, "").body == b""
        assert set(threading.enumerate()) <= before

    def test_lingers_until_two_scrapes_came(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        waits = threading.Event()

        def sleep(seconds: float) -> None:
            waits.set()  # so it has counted the scrapes before
            time.sleep(seconds)

        monkeypatch.setattr(service, "time", SimpleNamespace(monotonic=time.monotonic, sleep=sleep))
        with opened(tmp_path, enabled=True, port=0) as made:
            assert made.url is not None
            made.linger(3600.0)  # nobody ever asked: nobody will
            assert status(made.url) == 200
            waiting = threading.Thread(target=made.linger, args=(3600.0,), daemon=True)
            waiting.start()
            assert waits.wait(60)
            for _ in range(2):
                assert waiting.is_alive()
                assert status(made.url) == 200
            waiting.join(60)
            assert not waiting.is_alive()


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
            # Each is asked again: a scrape of more than half a second fails, and there is nothing until the next one.
            server.wait_for("rl_stats_was", lambda vector: [math.isnan(value) for _, value in vector] == [True])
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
                server.wait_for(question, self.near(wanted))

    def test_timestamps_found_by_file_sd_behind_tls_and_password(self, tmp_path: Path) -> None:
        made_certificate: Certificate = certificate(tmp_path)
        config = PrometheusConfig(
            tls_cert=made_certificate.cert,
            tls_key=made_certificate.key,
            username="scraper",
            password="geheim",  # no secret
        )
        made = commit({"x": 1.0}, time_ns=time.time_ns() - 10**9)
        options: dict[str, Any] = {  # that it is HTTPS stands in the file
            "tls_config": {"ca_file": made_certificate.cert},
            "basic_auth": {"username": "scraper", "password": "geheim"},
        }
        found = tmp_path / "prometheus_sd" / "learner-0.json"
        with endpoint(made, config=config, timestamps=True) as served:
            served.advertise(found, identity())
            with prometheus(tmp_path=tmp_path, file_sd=found.parent / "*.json", **options) as server:
                ((labels, _),) = server.wait_for("rl_stats_x")
                assert (labels["rl_run_id"], labels["rl_role"], labels["rl_rank"]) == ("run-1", "learner", "0")
                wait_until(lambda: server.query("sum_over_time(up[10m]) >= 3"), "three scrapes")
                ((_, stored),) = server.samples("rl_stats_x[10m]")
        assert [at for at, _ in stored] == [made.time_ns // 10**6 / 1000], "one sample, at the step's time"
