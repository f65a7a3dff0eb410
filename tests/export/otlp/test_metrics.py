"""OTLP metrics, received by the real agent and by a receiver of the test."""

import math
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsPartialSuccess,
    ExportMetricsServiceResponse,
)
from opentelemetry.sdk.metrics.export import MetricExporter, MetricExportResult
from opentelemetry.sdk.resources import Resource

from export.making import Points, commit, identity, recorded
from realparts.otlp_receiver import OtlpSink as Receiver
from realparts.otlp_receiver import ReceivedMetric, RotelAgent, otlp_grpc_sink, otlp_sink, rotel
from realparts.processes import free_port
from rltel.core.config import OtlpConfig, RunConfig
from rltel.export.commit import Commit
from rltel.export.otlp.data import ExporterCarrier, metrics_data
from rltel.export.otlp.metrics import OtlpSink, open_otlp_metrics
from rltel.export.otlp.transport import SendError
from rltel.export.resource import resource_of
from rltel.export.sink import PartlyTakenError
from rltel.reduce.trackers import Trackers
from rltel.version import VERSION

STARTED_NS = 1_795_987_000_000_000_000


def everything(trackers: Trackers) -> None:
    trackers.default.stat(loss=np.array([1.0, 2.5]))
    trackers.default.gauge({"was": math.nan, "Loss/actor": -0.5})
    trackers.default.count(episodes=2)
    trackers.default.distribution(seq_len=np.array([-1.5, 0.0, 3.0, 1e9]))
    trackers.get("rollout").scalar({"pass@1": 0.5})


def sink_for(config: OtlpConfig, **environ: str) -> OtlpSink:
    resource = resource_of(identity(), RunConfig(algo="sac", task="ant"), {})
    return open_otlp_metrics(config, resource, STARTED_NS, environ)


def address_of(config: OtlpConfig, environ: dict[str, str]) -> str:
    return open_otlp_metrics(config, Resource({}), 0, environ).describe()


def send(sink: OtlpSink, *commits: Commit) -> None:
    points = Points()
    for made in commits:
        sink.write(made, points.of(made))
    sink.close()


def of_stat(stat: str) -> Callable[[ReceivedMetric], bool]:
    return lambda metric: metric.attributes.get("rl.stat") == stat


class TestThroughRotel:
    """Decoded and encoded by an implementation that is not Python's."""

    @pytest.fixture(params=["grpc", "http/protobuf"])
    def agent_and_config(
        self, request: pytest.FixtureRequest, tmp_path: Path
    ) -> Iterator[tuple[RotelAgent, OtlpConfig]]:
        with rotel(tmp_path) as agent:
            endpoint = agent.grpc_endpoint if request.param == "grpc" else agent.http_endpoint
            yield agent, OtlpConfig(enabled=True, endpoint=endpoint, protocol=request.param, compression="gzip")

    def test_every_kind_arrives(self, agent_and_config: tuple[RotelAgent, OtlpConfig]) -> None:
        agent, config = agent_and_config
        made = commit(recorded(everything), step=7, env_steps=56)
        send(sink_for(config), commit(recorded(everything), step=6), made)
        for step in (6, 7):  # the agent has several batches on their way at once: the last may be the first to arrive
            last = agent.wait_for_metric("rl.step", 60.0, lambda metric, step=step: metric.value == step)
        assert last.attributes == {"rl.axis": "train"}
        before = [metric for metric in agent.metrics() if metric.point.time_unix_nano != made.time_ns]
        assert {metric.name.rpartition(".")[2] for metric in before} == {"numerator", "denominator"}
        assert {metric.value for metric in before} == {0.0}, "all others are at their step's own time"
        average = agent.wait_for_metric("rl.stats.loss", predicate=of_stat("avg"))
        assert (average.kind, average.value, average.scope.name) == ("gauge", 1.75, "rltel")
        nan = agent.wait_for_metric("rl.stats.was")
        assert math.isnan(nan.value)
        lost = agent.wait_for_metric("rl.stats.nonfinite", predicate=lambda m: m.attributes["rl.key"] == "was")
        assert (lost.kind, lost.metric.sum.is_monotonic) == ("sum", True)
        histogram = agent.wait_for_metric("rl.stats.seq_len.distribution", predicate=lambda m: m.point.count == 8)
        assert dict(buckets(histogram))[4.0] == 2
        passed = agent.wait_for_metric("rl.stats.rollout.pass_at_1")
        assert (passed.scope.name, passed.scope.version) == ("rltel.rollout", VERSION)
        assert passed.attributes == {"rl.stat": "avg", "rl.key": "rollout/pass@1"}
        assert passed.resource["rl.role"] == "learner"

    def test_exponential_histograms_arrive(self, agent_and_config: tuple[RotelAgent, OtlpConfig]) -> None:
        agent, config = agent_and_config
        fields = {name: getattr(config, name) for name in config.given()}
        send(sink_for(OtlpConfig(**fields, exponential_histograms=True)), commit(recorded(everything)))
        found = agent.wait_for_metric("rl.stats.seq_len.distribution")
        point: Any = found.point
        assert (found.kind, point.scale, point.count, point.zero_count) == ("exponential_histogram", 4, 4, 1)
        assert (len(point.positive.bucket_counts), len(point.negative.bucket_counts)) == (384 - 25 + 1, 1)


def buckets(metric: ReceivedMetric) -> list[tuple[float, int]]:
    """(upper bound, how many are in the bucket below it)."""
    point: Any = metric.point
    return list(zip([*point.explicit_bounds, math.inf], point.bucket_counts, strict=True))


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with otlp_sink() as sink:
        yield sink


class TestReceived:
    """By the test's own receiver, which keeps what was sent as it was."""

    def received(self, receiver: Receiver, *commits: Commit, **config: Any) -> Receiver:
        send(sink_for(OtlpConfig(enabled=True, endpoint=receiver.endpoint, **config)), *commits)
        return receiver

    def test_each_step_is_sent_once_with_its_own_time(self, receiver: Receiver) -> None:
        steps = [commit({"x": float(step)}, step=step, time_ns=STARTED_NS + step) for step in (1, 2, 3)]
        self.received(receiver, *steps)
        found = [(m.value, m.point.time_unix_nano) for m in receiver.metrics() if m.name == "rl.stats.x"]
        assert found == [(1.0, STARTED_NS + 1), (2.0, STARTED_NS + 2), (3.0, STARTED_NS + 3)]

    def test_sums_are_cumulative_since_the_start(self, receiver: Receiver) -> None:
        self.received(receiver, *(commit(recorded(everything), step=step) for step in (1, 2)))
        total = [m for m in receiver.metrics() if m.name == "rl.stats.episodes"][-1]
        assert (total.value, total.metric.sum.is_monotonic, total.metric.sum.aggregation_temporality) == (4.0, True, 2)
        assert total.point.start_time_unix_nano == STARTED_NS
        numerator = [m for m in receiver.metrics() if m.name == "rl.stats.loss.numerator"][-1]
        assert (numerator.value, numerator.metric.sum.is_monotonic, numerator.unit) == (7.0, False, "")

    def test_a_new_pair_begins_at_zero(self, receiver: Receiver) -> None:
        """Else a backend that sees it for the first time leaves out the first step in `delta`."""
        steps = [commit(recorded(everything), step=step, time_ns=STARTED_NS + step * 10**9) for step in (1, 2)]
        self.received(receiver, *steps)
        found = [(m.value, m.point.time_unix_nano) for m in receiver.metrics() if m.name == "rl.stats.loss.denominator"]
        first, second = (step.time_ns for step in steps)
        assert found == [(0.0, first - 10**6), (2.0, first), (4.0, second)]
        counter = [m.value for m in receiver.metrics() if m.name == "rl.stats.episodes"]
        assert counter == [2.0, 4.0], "counters begin where they are"

    def test_a_zero_that_was_refused_is_sent_again(self, receiver: Receiver) -> None:
        sink, points = sink_for(OtlpConfig(endpoint=receiver.endpoint)), Points()
        receiver.status = 400
        made = commit(recorded(everything))
        with pytest.raises(ConnectionError):
            sink.write(made, points.of(made))
        receiver.status = 200
        sink.write(made, points.of(made))
        found = [m.value for m in receiver.metrics() if m.name == "rl.stats.loss.denominator"]
        assert found == [0.0, 4.0]

    def test_exponential_histograms_if_asked(self, receiver: Receiver) -> None:
        config = OtlpConfig(endpoint=receiver.endpoint, exponential_histograms=True)
        made = commit(recorded(everything))
        sink = open_otlp_metrics(config, Resource({}), STARTED_NS, {})
        sink.write(made, Points().of(made))
        found = receiver.wait_for_metric("rl.stats.seq_len.distribution")
        assert found.kind == "exponential_histogram"
        point: Any = found.point
        assert (point.scale, point.count, point.zero_count, point.sum) == (4, 4, 1, 1e9 + 1.5)

    def test_histogram_counts_add_up(self, receiver: Receiver) -> None:
        self.received(receiver, commit(recorded(everything)))
        histogram = receiver.wait_for_metric("rl.stats.seq_len.distribution")
        point: Any = histogram.point
        counts = dict(buckets(histogram))
        assert (counts[-1.0], counts[0.0], counts[4.0], counts[math.inf]) == (1, 1, 1, 1)
        assert (sum(point.bucket_counts), point.count, point.sum) == (4, 4, 1e9 + 1.5)

    def test_an_extreme_that_is_not_known_is_not_sent(self, receiver: Receiver) -> None:
        self.received(receiver, commit(recorded(everything)))
        point: Any = receiver.wait_for_metric("rl.stats.seq_len.distribution").point
        assert not point.HasField("min")
        assert not point.HasField("max")

    def test_half_weights_leave_whole_counts(self, receiver: Receiver) -> None:
        """A catalogue histogram that is fed weighted numbers: OTLP's counts are whole, and their sum is the count."""

        def weighted(trackers: Trackers) -> None:
            trackers.default.scalar({"Perf/learner_inference_ms": 100.0}, weight=1.5)

        def other(trackers: Trackers) -> None:
            trackers.default.scalar({"Perf/learner_inference_ms": 900.0}, weight=1.5)

        self.received(receiver, commit(recorded(weighted)), commit(recorded(other)))
        point: Any = [m for m in receiver.metrics() if m.name == "rl.phase.duration"][-1].point
        assert sum(point.bucket_counts) == point.count == 3

    @pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
    def test_what_is_not_finite_arrives(self, receiver: Receiver, value: float) -> None:
        self.received(receiver, commit({"x": value}))
        assert str(receiver.wait_for_metric("rl.stats.x").value) == str(value)

    def test_a_counter_and_a_gauge_of_one_name_keep_their_kinds(self, receiver: Receiver) -> None:
        """ray#40586: one odd name must not cost the rest, nor change it. `Steps` loses its capital, `x` its slash."""

        def record(trackers: Trackers) -> None:
            trackers.default.count(steps=2)
            trackers.default.gauge({"Steps": 7.0, "x/distribution": 4.0})
            trackers.default.distribution(x=np.array([1.0]))

        self.received(receiver, commit(recorded(record)))
        kinds = {(m.name, m.attributes.get("rl.key")): m.kind for m in receiver.metrics()}
        assert kinds["rl.stats.steps", None] == "sum"
        assert kinds["rl.stats.steps", "Steps"] == "gauge"
        both = [m.kind for m in receiver.metrics() if m.name == "rl.stats.x.distribution"]
        assert sorted(both) == ["gauge", "histogram"]

    def test_ray_40586_a_bad_name_costs_nothing_else(self, receiver: Receiver) -> None:
        self.received(receiver, commit({"ok": 1.0, "data/\udcff": 2.0}))
        assert receiver.wait_for_metric("rl.stats.ok").value == 1.0

    def test_resource_says_who_we_are(self, receiver: Receiver) -> None:
        resource = self.received(receiver, commit({"x": 1.0})).metrics()[0].resource
        wanted = {
            "service.name": "rl-training",
            "service.instance.id": identity().instance_id,
            "rl.run.id": "run-1",
            "rl.role": "learner",
            "rl.rank": 0,
            "rl.world_size": 1,
            "rl.algorithm": "sac",
            "rl.environment.name": "ant",
        }
        assert wanted.items() <= resource.items()
        assert "host.name" not in resource, "the host is nobody's business unless run.include_host"

    def test_headers_and_compression(self, receiver: Receiver) -> None:
        self.received(receiver, commit({"x": 1.0}), headers={"X-Key": "k"}, compression="gzip")
        (request,) = receiver.requests()
        assert (request.headers["x-key"], request.headers["content-encoding"]) == ("k", "gzip")

    def test_the_endpoint_may_end_in_a_slash(self, receiver: Receiver) -> None:
        send(sink_for(OtlpConfig(endpoint=f"{receiver.endpoint}/")), commit({"x": 1.0}))
        assert receiver.requests()[0].path == "/v1/metrics"


class TestEndpoint:
    NOBODY = "http://127.0.0.1:1"

    def test_the_config_s_endpoint_is_the_base(self) -> None:
        address = address_of(OtlpConfig(endpoint="http://here:4318"), {})
        assert address == "http://here:4318/v1/metrics"

    def test_the_variable_for_metrics_is_taken_as_it_is(self) -> None:
        address = address_of(OtlpConfig(), {"OTEL_EXPORTER_OTLP_METRICS_ENDPOINT": "http://there:1/x"})
        assert address == "http://there:1/x"

    @pytest.mark.parametrize("protocol", ["http/protobuf", "grpc"])
    def test_and_is_stronger_than_the_general_variable(self, protocol: Any) -> None:
        """The general one has become `otlp.endpoint` when the config was resolved."""
        environ = {
            "OTEL_EXPORTER_OTLP_ENDPOINT": "http://general:1",
            "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT": "http://metrics:2",
        }
        address = address_of(OtlpConfig(endpoint="http://general:1", protocol=protocol), environ)
        assert address == "http://metrics:2"

    @pytest.mark.parametrize("protocol", ["http/protobuf", "grpc"])
    def test_but_not_than_the_config(self, protocol: Any) -> None:
        environ = {"OTEL_EXPORTER_OTLP_METRICS_ENDPOINT": "http://metrics:2"}
        address = address_of(OtlpConfig(endpoint="http://config:3", protocol=protocol), environ)
        assert address.startswith("http://config:3")

    @pytest.mark.parametrize(
        ("protocol", "address"),
        [("http/protobuf", "http://127.0.0.1:4318/v1/metrics"), ("grpc", "http://127.0.0.1:4317")],
    )
    def test_default(self, protocol: Any, address: str) -> None:
        assert address_of(OtlpConfig(protocol=protocol), {}) == address

    def test_no_secret_is_in_the_address(self) -> None:
        address = address_of(OtlpConfig(endpoint="http://me:geheim@here:4318"), {})
        assert address == "http://here:4318/v1/metrics"

    def test_grpc_takes_headers_with_capitals(self, tmp_path: Path) -> None:
        """gRPC refuses metadata with capitals: every export would fail."""
        with rotel(tmp_path) as agent:
            config = OtlpConfig(endpoint=agent.grpc_endpoint, protocol="grpc", headers={"Authorization": "Bearer k"})
            send(sink_for(config), commit({"x": 1.0}))
            agent.wait_for_metric("rl.stats.x")


class Kept(MetricExporter):
    """Somebody's own exporter."""

    def __init__(self) -> None:
        super().__init__()
        self.batches: list[Any] = []
        self.timeouts: list[float] = []
        self.result = MetricExportResult.SUCCESS

    def export(self, metrics_data: Any, timeout_millis: float = 0, **kwargs: Any) -> MetricExportResult:
        self.batches.append(metrics_data)
        self.timeouts.append(timeout_millis)
        return self.result

    def force_flush(self, timeout_millis: float = 0) -> bool:
        return True

    def shutdown(self, timeout_millis: float = 0, **kwargs: Any) -> None:
        self.batches.append("shutdown")


class TestFailures:
    @pytest.mark.parametrize("protocol", ["http/protobuf", "grpc"])
    def test_a_receiver_that_is_not_there_raises_and_says_nothing_else(
        self, protocol: Any, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
    ) -> None:
        """The exporters of OpenTelemetry would log every failure and every retry; the pipeline says it once."""
        config = OtlpConfig(endpoint=f"http://127.0.0.1:{free_port()}", protocol=protocol, timeout_s=0.3)
        sink = open_otlp_metrics(config, Resource({}), 0, {})
        with pytest.raises(SendError) as raised:
            send(sink, commit({"x": 1.0}, step=7))
        assert raised.value.retryable
        sink.close()
        assert caplog.records == []
        assert capfd.readouterr().err == ""

    @pytest.mark.parametrize(("status", "retryable"), [(400, False), (401, False), (429, True), (503, True)])
    def test_a_refusal_says_whether_it_may_be_sent_again(
        self, receiver: Receiver, status: int, retryable: bool
    ) -> None:
        receiver.status = status
        with pytest.raises(SendError, match=f"/v1/metrics: HTTP {status}") as raised:
            send(sink_for(OtlpConfig(endpoint=receiver.endpoint)), commit({"x": 1.0}))
        assert raised.value.retryable is retryable

    @pytest.mark.parametrize("protocol", ["http/protobuf", "grpc"])
    def test_points_that_a_receiver_rejects_are_not_passed_over(self, protocol: Any) -> None:
        """A partial success: most was taken; the commit does not count as one that arrived, and is not sent again."""
        made = otlp_grpc_sink() if protocol == "grpc" else otlp_sink()
        with made as receiver:
            partial = ExportMetricsPartialSuccess(rejected_data_points=2, error_message="too old")
            receiver.answer = ExportMetricsServiceResponse(partial_success=partial).SerializeToString()
            config = OtlpConfig(endpoint=receiver.endpoint, protocol=protocol)
            with pytest.raises(PartlyTakenError, match="rejected 2 data points: too old"):
                send(sink_for(config), commit({"x": 1.0}))

    def test_an_injected_exporter_that_fails_raises(self) -> None:
        exporter = Kept()
        exporter.result = MetricExportResult.FAILURE
        with pytest.raises(ConnectionError, match="exporter did not take"):
            send(OtlpSink(ExporterCarrier(exporter, Resource({}), 0, 1.0), "here"), commit({"x": 1.0}, step=7))

    def test_the_time_of_one_export_is_bounded(self, receiver: Receiver) -> None:
        receiver.status = 503
        sink = sink_for(OtlpConfig(endpoint=receiver.endpoint, timeout_s=0.5))
        began = time.monotonic()
        with pytest.raises(ConnectionError):
            send(sink, commit({"x": 1.0}))
        assert time.monotonic() - began < 60, "a bound, not a measurement"

    @pytest.mark.parametrize(
        ("environ", "wanted"),
        [
            ({"OTEL_EXPORTER_OTLP_METRICS_TIMEOUT": "0.25"}, 0.25),
            ({"OTEL_EXPORTER_OTLP_TIMEOUT": "7"}, 7.0),
            ({"OTEL_EXPORTER_OTLP_METRICS_TIMEOUT": "0.25", "OTEL_EXPORTER_OTLP_TIMEOUT": "7"}, 0.25),
            ({"OTEL_EXPORTER_OTLP_TRACES_TIMEOUT": "3"}, 5.0),
        ],
        ids=["metrics", "general", "both", "of the other signal"],
    )
    def test_the_time_out_of_the_variables_reaches_the_export(self, environ: dict[str, str], wanted: float) -> None:
        sink = open_otlp_metrics(OtlpConfig(endpoint="http://127.0.0.1:1"), Resource({}), 0, environ)
        assert sink._carrier._transport.timeout_s == wanted  # type: ignore[attr-defined]  # of the one that was opened

    def test_an_injected_exporter_gets_the_metrics(self) -> None:
        exporter = Kept()
        send(OtlpSink(ExporterCarrier(exporter, Resource({}), 0, 1.0), "here"), commit({"x": 1.0}))
        assert len(exporter.batches) == 2
        assert exporter.batches[1] == "shutdown"


def test_a_replay_can_say_who_we_were() -> None:
    sink = open_otlp_metrics(OtlpConfig(), Resource({"rl.rank": 3}), 7, {})
    assert sink.about == {"resource": {"rl.rank": 3}, "started_ns": 7}


def test_sums_that_began_before_do_not_begin_again(receiver: Receiver) -> None:
    """A replay goes on where the run left off."""
    sink, points = open_otlp_metrics(OtlpConfig(endpoint=receiver.endpoint), Resource({}), 0, {}), Points()
    sink.have_begun(points.of(commit(recorded(everything))))
    made = commit(recorded(everything))
    sink.write(made, points.of(made))
    sink.close()
    assert [m.value for m in receiver.metrics() if m.name == "rl.stats.loss.denominator"] == [4.0]


def test_a_scope_for_each_tracker_and_a_metric_for_each_name() -> None:
    made = commit(recorded(everything))
    (of_resource,) = metrics_data(Points().of(made), Resource({}), 0, made.time_ns).resource_metrics
    scopes = {scope.scope.name: [metric.name for metric in scope.metrics] for scope in of_resource.scope_metrics}
    assert set(scopes) == {"rltel", "rltel.rollout"}
    assert all(len(names) == len(set(names)) for names in scopes.values())


class TestResource:
    def test_the_environment_s_words_are_stronger(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("OTEL_SERVICE_NAME", "theirs")
        monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "service.namespace=ours,rl.role=judge,team=x")
        found = resource_of(identity(), RunConfig(name="mine"), os.environ).attributes
        assert found["service.name"] == "theirs"
        assert (found["service.namespace"], found["rl.role"], found["team"]) == ("ours", "judge", "x")

    def test_the_run_s_name_is_the_service_s(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.delenv("OTEL_SERVICE_NAME", raising=False)
        monkeypatch.delenv("OTEL_RESOURCE_ATTRIBUTES", raising=False)
        assert resource_of(identity(), RunConfig(name="mine"), os.environ).attributes["service.name"] == "mine"

    def test_open_telemetry_python_4390_instances_are_told_apart(self) -> None:
        """Forked workers had one service.instance.id; ours are of their places, and stay over restarts."""
        ids = {identity(index=index, incarnation=inc).instance_id for index in (0, 1) for inc in (1, 2)}
        assert len(ids) == 2
