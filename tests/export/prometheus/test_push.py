"""Pushing to a gateway: when, under which group, with which credentials, and what a bad gateway costs."""

import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from prometheus_client import CollectorRegistry, Gauge, Info, generate_latest

from export.making import commit, identity, recorded, wait_until
from export.scraping import everything, registry_after, samples
from realparts.processes import free_port
from realparts.prometheus import promtool_check_metrics
from realparts.pushgateway import Pushgateway, pushgateway
from rltel.core.config import RunConfig
from rltel.core.errors import ConfigError
from rltel.export.prometheus.push import PushWorker, _ForGateway, push, push_target
from rltel.export.sink import Destination


@pytest.fixture
def gateway() -> Iterator[Pushgateway]:
    with pushgateway() as gateway:
        yield gateway


@contextmanager
def worker(url: str, registry: CollectorRegistry, **how: Any) -> Iterator[PushWorker]:
    made = PushWorker(registry, push_target(url, RunConfig(name="mine"), identity()), Destination("push"), **how)
    try:
        yield made
    finally:
        made.close(time.monotonic())


def soon(seconds: float = 10.0) -> float:
    return time.monotonic() + seconds


class TestPush:
    def test_everything_arrives_under_job_and_instance(self, gateway: Pushgateway) -> None:
        push(registry_after(commit(recorded(everything))), push_target(gateway.url, RunConfig(name="mine"), identity()))
        (only,) = gateway.pushes
        assert (only.method, only.path) == ("PUT", "/metrics/job/mine/instance/run-1-learner-0")
        assert gateway.value("rl_train_loss") == -0.5
        assert gateway.value("rl_stats_episodes_total") == 2.0

    def test_a_restart_has_the_same_group(self) -> None:
        """What it pushes replaces what the process before it left there."""
        again = identity(incarnation=2)
        run = RunConfig()
        assert push_target("http://g:9091", run, again) == push_target("http://g:9091", run, identity())

    def test_times_are_left_out(self, gateway: Pushgateway) -> None:
        """A gateway refuses samples that have one."""
        registry = registry_after(commit({"x": 1.5}), timestamps=True)
        push(registry, push_target(gateway.url, RunConfig(), identity()))
        assert gateway.value("rl_stats_x") == 1.5

    def test_no_family_comes_twice(self) -> None:
        """A gateway refuses that, too. OpenTelemetry's own reader has a ``target_info`` as we do."""
        registry = registry_after(commit({"x": 1.5}))
        Info("target", "Of somebody else.", registry=registry).info({"service_name": "simulator"})
        pushed = generate_latest(_ForGateway(registry)).decode()  # type: ignore[arg-type]  # it collects, as they do
        assert pushed.count("# TYPE target_info ") == 1
        assert {each.labels.get("service_name") for each in samples(pushed) if each.name == "target_info"} == {
            None,
            "simulator",
        }
        assert promtool_check_metrics(pushed)[0] == 0

    def test_credentials_come_from_the_url_and_stay_out_of_it(self, gateway: Pushgateway) -> None:
        url = gateway.url.replace("http://", "http://me:geheim%40nis@")  # no secret
        target = push_target(url, RunConfig(), identity())
        assert "geheim" not in repr(target) + target.url
        push(registry_after(commit({"x": 1.0})), target)
        assert gateway.pushes[0].credentials == "me:geheim@nis"

    def test_a_gateway_below_a_path(self, gateway: Pushgateway) -> None:
        push(CollectorRegistry(), push_target(f"{gateway.url}/below/", RunConfig(), identity()))
        assert gateway.pushes[0].path.startswith("/below/metrics/job/rl-training/")

    @pytest.mark.parametrize("url", ["gateway:9091", "ftp://gateway", "http://", "http://[::1", "http://g:port"])
    def test_what_is_no_url_is_named(self, url: str) -> None:
        with pytest.raises(ConfigError, match=r"prometheus\.push_url: "):
            push_target(url, RunConfig(), identity())

    def test_and_no_secret_with_it(self) -> None:
        with pytest.raises(ConfigError) as raised:
            push_target("ftp://me:geheim@gateway?token=geheim", RunConfig(), identity())
        assert "geheim" not in str(raised.value)

    def test_ipv6(self) -> None:
        assert push_target("http://u:p@[::1]:9091/x", RunConfig(), identity()).url == "http://[::1]:9091/x"


class TestWorker:
    def test_pushes_at_its_interval(self, gateway: Pushgateway) -> None:
        registry = CollectorRegistry()
        gauge = Gauge("x", "x", registry=registry)
        with worker(gateway.url, registry, interval_s=0.02):
            for number in (1.0, 2.0):
                gauge.set(number)
                wait_until(lambda number=number: gateway.pushes and gateway.value("x") == number, "a push of it")

    def test_the_end_is_pushed(self, gateway: Pushgateway) -> None:
        registry = CollectorRegistry()
        gauge = Gauge("x", "x", registry=registry)
        with worker(gateway.url, registry, interval_s=3600.0) as made:
            gauge.set(7)
            made.close(soon())
            assert gateway.value("x") == 7.0
            assert (made.destination.exported_total, made.destination.dropped_totals) == (1, {})
            assert made.destination.durations.counts[-1] == 1

    def test_waiting_is_for_what_is_there_now(self, gateway: Pushgateway) -> None:
        """A flush: a push that was on its way may have missed it."""
        registry = CollectorRegistry()
        gauge = Gauge("x", "x", registry=registry)
        with worker(gateway.url, registry, interval_s=3600.0) as made:
            for number in (1.0, 2.0, 3.0):
                gauge.set(number)
                assert made.wait_empty(soon())
                assert gateway.value("x") == number

    def test_a_gateway_that_is_not_there_is_counted_and_said_once(self, caplog: pytest.LogCaptureFixture) -> None:
        url = f"http://me:geheim@127.0.0.1:{free_port()}"
        with caplog.at_level(logging.WARNING), worker(url, CollectorRegistry(), interval_s=3600.0) as made:
            for _ in range(3):
                assert made.wait_empty(soon())
            assert made.destination.dropped_totals == {"error": 3}
        assert len(caplog.records) == 1
        assert "geheim" not in caplog.text

    def test_one_that_refuses_is_counted_and_may_take_the_next(self, gateway: Pushgateway) -> None:
        with worker(gateway.url, CollectorRegistry(), interval_s=3600.0) as made:
            gateway.status = 500
            assert made.wait_empty(soon())
            gateway.status = 200
            assert made.wait_empty(soon())
            assert (made.destination.exported_total, made.destination.dropped_totals) == (1, {"error": 1})

    def test_one_that_hangs_does_not_keep_the_program(
        self, gateway: Pushgateway, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("rltel.export.prometheus.push._TIMEOUT_S", 120.0)  # a busy machine must not come near it
        gateway.hold.clear()
        with worker(gateway.url, CollectorRegistry(), interval_s=3600.0) as made:
            assert not made.wait_empty(soon(0.05))
            began = time.monotonic()
            made.close(soon(0.2))
            assert time.monotonic() - began < 60.0, "less than the time-out of a push"
            assert made.destination.dropped_totals == {"shutdown": 1}
            gateway.hold.set()
            made._thread.join(60)  # what it says of a gateway that goes must not stand in another test's log

    def test_says_where_it_goes_without_secrets(self, gateway: Pushgateway) -> None:
        with worker(gateway.url.replace("//", "//me:geheim@"), CollectorRegistry()) as made:
            assert made.describe() == f"{gateway.url} (job mine, instance run-1-learner-0)"
