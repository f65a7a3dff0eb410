"""What recording costs on the caller's thread, beside what people would use instead, in one run.

    python benchmarks/recording.py

Ratios decide: absolute times depend on the machine. Each figure is the median over rounds in which all candidates take
turns, so that a machine that slows down slows all of them.
"""

import statistics
import time
from collections.abc import Callable

import numpy as np
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
from prometheus_client import CollectorRegistry, Gauge

from rltel.record.phase_sets import SAC_LEARNER
from rltel.record.phases import PhaseClock
from rltel.record.recorder import Recorder
from rltel.reduce.trackers import StatsTracker

ROUNDS = 15
Bench = tuple[str, Callable[[], object], int]


class _Nowhere(SpanExporter):
    def export(self, spans: "list[ReadableSpan]") -> SpanExportResult:  # type: ignore[override]  # a list is enough here
        return SpanExportResult.SUCCESS


def numbers() -> list[Bench]:
    """One number, a timing, a scope."""
    tracker = StatsTracker("bench", Recorder())
    otel = MeterProvider([InMemoryMetricReader()]).get_meter("bench").create_gauge("x")
    prometheus = Gauge("x", "x", registry=CollectorRegistry())

    def timing() -> None:
        with tracker.record_timing("x"):
            pass

    def scope() -> None:
        with tracker.scope("x"):
            pass

    return [
        ("rltel scalar(x=1.0)", lambda: tracker.scalar(x=1.0), 20_000),
        ("rltel scalar of three", lambda: tracker.scalar(x=1.0, y=2.0, z=3.0), 10_000),
        ("rltel record_timing, timeline off", timing, 10_000),
        ("rltel scope, timeline off", scope, 10_000),
        ("OpenTelemetry gauge.set", lambda: otel.set(1.0), 5_000),
        ("prometheus_client Gauge.set", lambda: prometheus.set(1.0), 20_000),
    ]


def slices() -> list[Bench]:
    """One slice of the timeline."""
    recorder = Recorder()
    recorder.start()
    tracker = StatsTracker("bench", recorder)
    clock = PhaseClock(SAC_LEARNER, tracker, recorder)
    provider = TracerProvider()
    provider.add_span_processor(BatchSpanProcessor(_Nowhere()))
    tracer = provider.get_tracer("bench")

    clock.iteration().__enter__()

    def phase() -> None:
        with clock.phase("inference_h2d"):
            pass

    def plain() -> None:
        with recorder.slice("x"):
            pass

    def timing() -> None:
        with tracker.record_timing("x"):
            pass

    def span() -> None:
        with tracer.start_as_current_span("x"):
            pass

    def emptied(call: Callable[[], object]) -> Callable[[], object]:
        """What the pipeline does once a second: take what was recorded."""
        rest = [0]

        def run() -> None:
            call()
            rest[0] += 1
            if rest[0] % 10_000 == 0:
                for lane in recorder.lanes():
                    lane.take()

        return run

    return [
        ("rltel slice", emptied(plain), 10_000),
        ("rltel phase", emptied(phase), 10_000),
        ("rltel record_timing, timeline on", emptied(timing), 10_000),
        ("OpenTelemetry SDK span, batch processor", span, 1_000),
    ]


def tensors() -> list[Bench]:
    """One masked tensor of [64, 4096] float32."""
    tracker = StatsTracker("bench", Recorder())
    values = np.random.default_rng(0).standard_normal((64, 4096)).astype(np.float32)
    mask = np.random.default_rng(1).random((64, 4096)) > 0.3

    def by_hand() -> tuple[float, float, float]:
        valid = values[mask]
        return valid.sum(dtype=np.float64), valid.min(), valid.max()

    return [
        ("rltel stat, masked", lambda: tracker.stat({"x": values}, mask=mask), 10),
        ("numpy sum, min and max by hand", by_hand, 10),
    ]


def measure(benches: list[Bench]) -> None:
    """Prints each candidate's median time and its ratio to the last one's."""
    times: dict[str, list[float]] = {name: [] for name, _, _ in benches}
    for _ in range(ROUNDS):
        for name, call, number in benches:
            begin = time.perf_counter()
            for _ in range(number):
                call()
            times[name].append((time.perf_counter() - begin) / number)
    base = statistics.median(times[benches[-1][0]])
    for name, seen in times.items():
        median = statistics.median(seen)
        spread = f"(min {min(seen) * 1e6:.3f}, max {max(seen) * 1e6:.3f})"
        print(f"  {name:42} {median * 1e6:9.3f} us  {median / base:7.3f}x  {spread}")
    print(f"  {'':42} ratios to: {benches[-1][0]}\n")


if __name__ == "__main__":
    for group in (numbers, slices, tensors):
        print(group.__doc__)
        measure(group())
