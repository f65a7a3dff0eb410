"""Each of the real parts works by itself, before the library's tests rely on it."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import time
import zlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace

import pytest
from opentelemetry.exporter.otlp.proto.grpc.metric_exporter import (
    OTLPMetricExporter as GrpcMetricExporter,
)
from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import (
    OTLPSpanExporter as GrpcSpanExporter,
)
from opentelemetry.exporter.otlp.proto.http import Compression
from opentelemetry.exporter.otlp.proto.http.metric_exporter import (
    OTLPMetricExporter as HttpMetricExporter,
)
from opentelemetry.exporter.otlp.proto.http.trace_exporter import (
    OTLPSpanExporter as HttpSpanExporter,
)
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import (
    InMemoryMetricReader,
    MetricExporter,
    MetricExportResult,
)
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor, SpanExporter
from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import Trace, TrackEvent
from prometheus_client import CollectorRegistry, Gauge, start_http_server

from export.making import wait_until
from realparts import requirements
from realparts.otlp_receiver import OtlpSink, RotelAgent, otlp_sink, rotel
from realparts.perfetto_reader import parse_packets, read_packets
from realparts.processes import HOST, accepts, http_get, parent_death_prefix, server
from realparts.prometheus import PrometheusError, prometheus, promtool_check_metrics
from realparts.trace_processor import TraceQueryError, query

BIG = 2**62 + 1
"""No float, nor a JavaScript number, holds it."""


class TestRequirements:
    def test_what_is_found_is_returned(self) -> None:
        assert requirements.require("a thing", Path("x"), "unused") == Path("x")

    def test_what_is_missing_skips(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.delenv("RLTEL_REQUIRE_SERVERS", raising=False)
        with pytest.raises(pytest.skip.Exception, match="needs a thing: not here"):
            requirements.require("a thing", None, "not here")

    def test_what_is_missing_fails_where_all_is_required(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("RLTEL_REQUIRE_SERVERS", "1")
        with pytest.raises(pytest.fail.Exception, match="needs a thing: not here"):
            requirements.require("a thing", None, "not here")

    def test_an_empty_tools_folder_has_nothing(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("RLTEL_TOOLS_DIR", str(tmp_path))
        monkeypatch.setenv("PATH", str(tmp_path))
        assert requirements.find_trace_processor() is None
        assert requirements.find_prometheus() is None
        assert requirements.find_promtool() is None
        assert requirements.find_victoria_metrics() is None


KILLED_PARENT = """
import sys, time
from pathlib import Path
from realparts.otlp_receiver import rotel

with rotel(Path(sys.argv[1])) as agent:
    print(agent.grpc_endpoint, flush=True)
    time.sleep(60)
"""


class TestServer:
    def test_another_start_gets_other_ports(self, tmp_path: Path) -> None:
        starts: list[Sequence[int]] = []

        def command(ports: Sequence[int]) -> list[str]:
            starts.append(ports)
            listen = f"http.server.HTTPServer(({HOST!r}, {ports[0]}), None).serve_forever()"
            code = "raise SystemExit(1)" if len(starts) == 1 else f"import http.server; {listen}"
            return [sys.executable, "-c", code]

        log = tmp_path / "log"
        with server(command, ports=1, ready=lambda ports: accepts(ports[0]), log=log) as ports:
            assert len(starts) == 2
            assert ports == starts[-1]
        assert not accepts(ports[0])

    def test_one_that_never_starts_shows_its_output(self, tmp_path: Path) -> None:
        with (
            pytest.raises(RuntimeError, match="no such luck"),
            server(
                lambda _: [sys.executable, "-c", "raise SystemExit('no such luck')"],
                ports=1,
                ready=lambda _: False,
                log=tmp_path / "log",
            ),
        ):
            pass

    def test_it_is_stopped_when_the_block_raises(self, tmp_path: Path) -> None:
        with contextlib.suppress(KeyError), rotel(tmp_path) as agent:
            assert accepts(port_of(agent.grpc_endpoint))
            raise KeyError
        assert not accepts(port_of(agent.grpc_endpoint))

    def test_it_ends_with_a_killed_parent(self, tmp_path: Path) -> None:
        requirements.require("setpriv", parent_death_prefix() or None, "part of util-linux")
        requirements.need_rotel()
        parent = subprocess.Popen(
            [sys.executable, "-c", KILLED_PARENT, str(tmp_path)],
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])},
        )
        try:
            assert parent.stdout is not None
            port = port_of(parent.stdout.readline())
            assert accepts(port)
        finally:
            parent.kill()
            parent.communicate()
        wait_until(lambda: not accepts(port), "its end")


def port_of(endpoint: str) -> int:
    return int(endpoint.rpartition(":")[2])


def two_packets() -> Trace:
    """A track with one slice of 50 ns."""
    trace = Trace()
    descriptor = trace.packet.add()
    descriptor.track_descriptor.uuid = 7
    descriptor.track_descriptor.name = "phases"
    for timestamp, kind in ((100, TrackEvent.TYPE_SLICE_BEGIN), (150, TrackEvent.TYPE_SLICE_END)):
        packet = trace.packet.add(timestamp=timestamp, trusted_packet_sequence_id=1)
        packet.track_event.track_uuid = 7
        packet.track_event.type = kind
    trace.packet[1].track_event.name = "rollout"
    note = trace.packet[1].track_event.debug_annotations.add()
    note.name = "env_steps"
    note.int_value = BIG
    return trace


class TestTraceProcessor:
    def test_queries_on_a_trace(self, tmp_path: Path) -> None:
        file = tmp_path / "trace.perfetto-trace"
        file.write_bytes(two_packets().SerializeToString())
        text = "\u2028\u00e9\n"
        slices, notes, values = query(
            file,
            "select slice.name, ts, dur, track.name as track from slice join track on track_id = track.id",
            "select key, int_value from args where key = 'debug.env_steps'",
            f"select 1e300 * 1e10 as inf, 0.5 as half, null as none, x'00ff' as blob, '{text}' as text",
        )
        assert slices == [{"name": "rollout", "ts": 100, "dur": 50, "track": "phases"}]
        assert notes == [{"key": "debug.env_steps", "int_value": BIG}]
        assert values == [{"inf": float("inf"), "half": 0.5, "none": None, "blob": "00ff", "text": text}]

    def test_a_refused_query_raises_what_was_said(self, tmp_path: Path) -> None:
        file = tmp_path / "trace.perfetto-trace"
        file.write_bytes(two_packets().SerializeToString())
        with pytest.raises(TraceQueryError, match="no such table: nowhere"):
            query(file, "select * from nowhere")


class TestPerfettoReader:
    def test_reads_what_pb2_wrote(self, tmp_path: Path) -> None:
        trace = two_packets()
        file = tmp_path / "trace"
        file.write_bytes(trace.SerializeToString())
        assert list(read_packets(file)) == list(trace.packet)

    def test_expands_compressed_packets_in_place(self) -> None:
        first, *others = two_packets().packet
        compressed = Trace()
        compressed.packet.add().CopyFrom(first)
        compressed.packet.add().compressed_packets = zlib.compress(Trace(packet=others).SerializeToString())
        assert list(parse_packets(compressed.SerializeToString())) == [first, *others]

    def test_a_cut_at_any_byte_leaves_the_complete_packets(self) -> None:
        trace = two_packets()
        data = trace.SerializeToString()
        ends = [Trace(packet=trace.packet[:n]).ByteSize() for n in range(len(trace.packet) + 1)]
        for cut in range(len(data) + 1):
            complete = sum(end <= cut for end in ends) - 1
            assert list(parse_packets(data[:cut])) == list(trace.packet[:complete])

    @pytest.mark.parametrize("data", [b"\x12\x00", b"{}", b"\x0a" + b"\xff" * 10 + b"\x01"])
    def test_what_is_no_trace_raises(self, data: bytes) -> None:
        with pytest.raises(ValueError, match=r"no (trace packet|length) at byte"):
            list(parse_packets(data))


@pytest.fixture
def exposition() -> Iterator[SimpleNamespace]:
    """A scraped endpoint with a gauge ``demo`` (labels: rank)."""
    registry = CollectorRegistry()
    gauge = Gauge("demo", "A demonstration.", ["rank"], registry=registry)
    gauge.labels("0").set(2.5)
    httpd, thread = start_http_server(0, addr=HOST, registry=registry)
    yield SimpleNamespace(gauge=gauge, target=f"{HOST}:{httpd.server_port}")
    httpd.shutdown()
    httpd.server_close()
    thread.join()


class TestPrometheus:
    def test_scrapes_and_answers(self, tmp_path: Path, exposition: SimpleNamespace) -> None:
        started = time.time()
        with prometheus([exposition.target], tmp_path=tmp_path) as server_:
            ((labels, value),) = server_.wait_for("demo")
            assert value == 2.5
            expected = {
                "__name__": "demo",
                "rank": "0",
                "instance": exposition.target,
                "job": "test",
            }
            assert labels == expected

            exposition.gauge.labels("0").set(3.0)
            server_.wait_for("demo", lambda vector: [value for _, value in vector] == [3.0])  # none after a late scrape
            assert server_.query("1 + 1") == [({}, 2.0)]
            assert server_.query("demo", time=started - 60) == []

            ((_, samples),) = server_.samples("demo[5m]")
            assert [samples[0][1], samples[-1][1]] == [2.5, 3.0]
            assert started < samples[0][0] < samples[-1][0] < time.time() + 1
            doubled = "last_over_time(demo[5m]) * 2"  # also where the next scrape comes too late, and nothing is there
            ((_, points),) = server_.query_range(doubled, samples[-1][0], samples[-1][0] + 2, 1)
            assert [value for _, value in points] == [6.0, 6.0, 6.0]
            assert points[2][0] - points[0][0] == pytest.approx(2)

            with pytest.raises(PrometheusError, match="parse error"):
                server_.query("demo{")
            with pytest.raises(TypeError, match="use samples"):
                server_.query("demo[5m]")
            with pytest.raises(AssertionError, match=r"last value: \[\]"):
                server_.wait_for("nothing_of_the_kind", timeout=0.2)

    def test_finds_targets_in_a_file(self, tmp_path: Path, exposition: SimpleNamespace) -> None:
        targets = tmp_path / "targets.json"
        targets.write_text(json.dumps([{"targets": [exposition.target], "labels": {"role": "actor"}}]))
        with prometheus(file_sd=targets, tmp_path=tmp_path) as server_:
            server_.wait_for('demo{role="actor"}')
            wait_until(lambda: [target["health"] for target in server_.targets()] == ["up"], "its health")

    def test_a_bad_configuration_shows_the_reason(self, tmp_path: Path) -> None:
        requirements.need_prometheus()
        with (
            pytest.raises(RuntimeError, match="no_such_option"),
            prometheus([], tmp_path=tmp_path, no_such_option=1),
        ):
            pass


class TestPromtool:
    def test_accepts_a_good_exposition(self) -> None:
        assert promtool_check_metrics("# HELP demo A demonstration.\n# TYPE demo gauge\ndemo 1\n") == (0, "")

    def test_flags_a_metric_without_help(self) -> None:
        code, output = promtool_check_metrics("# TYPE demo gauge\ndemo 1\n")
        assert (code, "no help text" in output) == (3, True)

    def test_flags_a_family_that_comes_twice(self) -> None:
        family = "# HELP demo A demonstration.\n# TYPE demo gauge\ndemo 1\n"
        code, output = promtool_check_metrics(family * 2)
        assert (code, "demo" in output) == (1, True)


class TestVictoriaMetrics:
    def test_starts(self, tmp_path: Path) -> None:
        program = requirements.need_victoria_metrics()
        with server(
            lambda ports: [
                str(program),
                f"-httpListenAddr={HOST}:{ports[0]}",
                f"-storageDataPath={tmp_path / 'data'}",
            ],
            ports=1,
            ready=lambda ports: accepts(ports[0]),
            log=tmp_path / "log",
        ) as ports:
            assert http_get(f"http://{HOST}:{ports[0]}/health") == b"OK"


def send_metric(exporter: MetricExporter) -> None:
    """A counter ``rl.steps`` at 3 and a histogram ``rl.return`` with one value."""
    reader = InMemoryMetricReader()
    meters = MeterProvider([reader], Resource({"service.name": "demo"}), shutdown_on_exit=False)
    meter = meters.get_meter("scope")
    meter.create_counter("rl.steps", unit="{step}").add(3, {"rank": 1, "roles": ["a", "b"]})
    meter.create_histogram("rl.return").record(0.5)
    data = reader.get_metrics_data()
    assert data is not None
    assert exporter.export(data) is MetricExportResult.SUCCESS
    exporter.shutdown()


def assert_metric_arrived(sink: OtlpSink) -> None:
    steps = sink.wait_for_metric("rl.steps", predicate=lambda metric: metric.value == 3)
    assert (steps.kind, steps.unit, steps.metric.sum.is_monotonic) == ("sum", "{step}", True)
    assert steps.attributes == {"rank": 1, "roles": ["a", "b"]}
    assert steps.resource["service.name"] == "demo"
    assert steps.scope.name == "scope"
    returns = sink.wait_for_metric("rl.return")
    assert (returns.kind, returns.attributes) == ("histogram", {})
    with pytest.raises(TypeError, match="histogram"):
        _ = returns.value


def send_span(exporter: SpanExporter) -> None:
    tracers = TracerProvider(resource=Resource({"service.name": "demo"}), shutdown_on_exit=False)
    tracers.add_span_processor(SimpleSpanProcessor(exporter))
    with tracers.get_tracer("scope").start_as_current_span("rollout", attributes={"iteration": 4}):
        pass
    tracers.shutdown()


def assert_span_arrived(sink: OtlpSink) -> None:
    span = sink.wait_for_span("rollout", predicate=lambda span: span.attributes["iteration"] == 4)
    assert span.resource["service.name"] == "demo"
    assert (span.scope.name, len(span.span.trace_id)) == ("scope", 16)


class TestOtlpSink:
    @pytest.mark.parametrize("compression", [Compression.NoCompression, Compression.Gzip])
    def test_takes_metrics_and_spans(self, compression: Compression) -> None:
        with otlp_sink() as sink:
            send_metric(HttpMetricExporter(f"{sink.endpoint}/v1/metrics", compression=compression))
            send_span(HttpSpanExporter(f"{sink.endpoint}/v1/traces", headers={"x-key": "k"}, compression=compression))
            assert_metric_arrived(sink)
            assert_span_arrived(sink)
            assert [request.path for request in sink.requests()] == ["/v1/metrics", "/v1/traces"]
            assert sink.requests()[1].headers["x-key"] == "k"

    def test_refuses_when_told_to(self) -> None:
        with otlp_sink() as sink:
            sink.status = 400
            exporter = HttpSpanExporter(f"{sink.endpoint}/v1/traces")
            send_span(exporter)
            assert (sink.requests(), sink.refused) == ([], 1)
            with pytest.raises(AssertionError, match="span 'rollout' did not arrive"):
                sink.wait_for_span("rollout", timeout=0.1)


class TestRotel:
    @pytest.fixture
    def agent(self, tmp_path: Path) -> Iterator[RotelAgent]:
        with rotel(tmp_path) as agent:
            yield agent

    @pytest.mark.parametrize("protocol", ["grpc", "http"])
    def test_relays_metrics(self, agent: RotelAgent, protocol: str) -> None:
        make: dict[str, Callable[[], MetricExporter]] = {
            "grpc": lambda: GrpcMetricExporter(agent.grpc_endpoint),
            "http": lambda: HttpMetricExporter(f"{agent.http_endpoint}/v1/metrics"),
        }
        send_metric(make[protocol]())
        assert_metric_arrived(agent)

    @pytest.mark.parametrize("protocol", ["grpc", "http"])
    def test_relays_spans(self, agent: RotelAgent, protocol: str) -> None:
        make: dict[str, Callable[[], SpanExporter]] = {
            "grpc": lambda: GrpcSpanExporter(agent.grpc_endpoint),
            "http": lambda: HttpSpanExporter(f"{agent.http_endpoint}/v1/traces"),
        }
        send_span(make[protocol]())
        assert_span_arrived(agent)

    def test_sends_again_what_the_receiver_refused(self, agent: RotelAgent) -> None:
        agent.status = 503
        send_metric(HttpMetricExporter(f"{agent.http_endpoint}/v1/metrics"))
        agent.wait_for(lambda: agent.refused, "a refused request")
        agent.status = 200
        assert_metric_arrived(agent)
