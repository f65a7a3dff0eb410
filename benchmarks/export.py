"""What a scrape and a commit's way to the destinations cost, beside what people would use instead, in one run.

    python benchmarks/export.py

Ratios decide: absolute times depend on the machine. Each figure is the median over rounds in which all candidates take
turns, so that a machine that slows down slows all of them.
"""

import os
import statistics
import time
from collections.abc import Callable
from pathlib import Path

from opentelemetry.exporter.otlp.proto.common.metrics_encoder import encode_metrics
from opentelemetry.exporter.prometheus import PrometheusMetricReader
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.resources import Resource
from prometheus_client import REGISTRY, CollectorRegistry, Gauge, generate_latest

from rltel.core.identity import Identity
from rltel.export.commit import Commit
from rltel.export.jsonl import JsonlFile
from rltel.export.otlp.data import metrics_data
from rltel.export.otlp.metrics_wire import MetricsEncoder
from rltel.export.points import Point, Totals, points_of
from rltel.export.prometheus.collector import RunCollector, join
from rltel.export.prometheus.exposition import expose
from rltel.export.prometheus.table import PrometheusSink
from rltel.export.sink import Destination
from rltel.names.otel import Namer
from rltel.reduce.snapshot import Snapshot
from rltel.reduce.trackers import Trackers

ROUNDS = 25
OPENMETRICS = "application/openmetrics-text;version=1.0.0"
WHO = Identity("run-1", None, "learner", 0, 1, 0, 1, True)
Bench = tuple[str, Callable[[], object]]


class Way:
    """One commit's way: names and totals, points, the scrape table."""

    def __init__(self, snapshot: Snapshot) -> None:
        self.commit = Commit(WHO, 0, time.time_ns(), 1, "train", snapshot)
        self.namer = Namer()
        self.totals = Totals(self.namer)
        self.sink = PrometheusSink()
        self.registry = CollectorRegistry()
        join(self.registry, RunCollector(self.sink, list, WHO, self.namer))
        self.totals.add(self.commit)
        self.points: list[Point] = points_of(self.commit, self.totals)
        self.sink.write(self.commit, self.points)


def numbers(count: int) -> Snapshot:
    """So many gauges."""
    return Snapshot.of_numbers({f"module_{i % 20}/value_{i}": i + 0.5 for i in range(count)})


def scrapes() -> list[Bench]:
    """A scrape of 300 gauges."""
    way = Way(numbers(300))
    gauges = MeterProvider([PrometheusMetricReader(scope_info_enabled=False)]).get_meter("bench")
    for i in range(300):
        gauges.create_gauge(f"rl.stats.module_{i % 20}.value_{i}").set(i + 0.5, {"rl.stat": "last"})
    plain = CollectorRegistry()
    for i in range(300):
        Gauge(f"module_{i % 20}_value_{i}", "A value.", ["rl_stat"], registry=plain).labels("last").set(i + 0.5)
    return [
        ("rltel, Prometheus's text (and 300 counters)", lambda: expose(way.registry, "")),
        ("rltel, OpenMetrics (and 300 counters)", lambda: expose(way.registry, OPENMETRICS)),
        ("prometheus_client's own gauges", lambda: generate_latest(plain)),
        ("opentelemetry-exporter-prometheus", lambda: generate_latest(REGISTRY)),
    ]


def growth() -> list[Bench]:
    """A scrape of 20,000 series, half of them gauges, and a sixteenth of it: ratios of about 16 are linear."""
    large, small = Way(numbers(10_000)), Way(numbers(625))
    return [
        ("20,000 series", lambda: expose(large.registry, "")),
        ("1,250 series", lambda: expose(small.registry, "")),
    ]


def ways() -> list[Bench]:
    """A commit of 300 scalars (an average each), on the pipeline's thread and, the line, on the caller's."""
    trackers = Trackers()
    trackers.default.scalar({f"module_{i % 20}/value_{i}": i + 0.5 for i in range(300)})
    with trackers.taken() as snapshot:
        way = Way(snapshot)
    file = JsonlFile(Path(os.devnull), WHO, Destination("jsonl"))
    encoder = MetricsEncoder(Resource({}), 0)
    data = metrics_data(way.points, Resource({}), 0, 1)
    reader = InMemoryMetricReader()
    meter = MeterProvider([reader]).get_meter("bench")
    gauges = [meter.create_gauge(f"module_{i % 20}.value_{i}") for i in range(300)]

    def sdk() -> None:
        for gauge in gauges:
            gauge.set(1.0)
        reader.get_metrics_data()

    return [
        ("rltel, caller: the JSONL line", lambda: file.write(way.commit)),
        ("rltel, pipeline: totals and names", lambda: way.totals.add(way.commit)),
        ("rltel, pipeline: 1,201 points", lambda: points_of(way.commit, way.totals)),
        ("rltel, pipeline: into the scrape table", lambda: way.sink.write(way.commit, way.points)),
        ("rltel, otlp thread: encoded", lambda: encoder.encode(way.points, 1)),
        ("for an exporter: as MetricsData", lambda: metrics_data(way.points, Resource({}), 0, 1)),
        ("OpenTelemetry's encoder of it", lambda: encode_metrics(data).SerializeToString()),
        ("OpenTelemetry SDK: 300 gauges set, collected", sdk),
    ]


def measure(benches: list[Bench]) -> None:
    """Prints each candidate's median time and its ratio to the last one's."""
    times: dict[str, list[float]] = {name: [] for name, _ in benches}
    for _ in range(ROUNDS):
        for name, call in benches:
            begin = time.perf_counter()
            call()
            times[name].append(time.perf_counter() - begin)
    base = statistics.median(times[benches[-1][0]])
    for name, seen in times.items():
        median = statistics.median(seen)
        spread = f"(min {min(seen) * 1e3:.3f}, max {max(seen) * 1e3:.3f})"
        print(f"  {name:46} {median * 1e3:9.3f} ms  {median / base:7.3f}x  {spread}")
    print(f"  {'':46} ratios to: {benches[-1][0]}\n")


if __name__ == "__main__":
    for group in (scrapes, growth, ways):
        print(group.__doc__)
        measure(group())
