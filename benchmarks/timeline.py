"""What the timeline costs, side by side with OpenTelemetry's SDK, UniLab's recorder, AReaL's tracer and viztracer.

    make bench                                     # all of it
    python benchmarks/timeline.py RUN_DIR ...      # and bytes a slice of these runs' trace files

Ratios decide. Candidates take turns, so that a machine that slows down slows all. "net" is without what the empty call
costs that carries each candidate. End-to-end figures are CPU time of the whole process (all its threads): recording,
encoding, compressing, writing or sending.
"""

import contextlib
import importlib.util
import io
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
import types
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult

import rltel
from rltel.record.phase_sets import SAC_LEARNER
from rltel.record.phases import PhaseClock
from rltel.record.recorder import Recorder
from rltel.reduce.trackers import StatsTracker

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tests"))

from realparts.areal import find_areal, real_modules  # noqa: E402  # the tests' helpers

ROUNDS = 15
CALLS = 10_000
END_TO_END = 200_000
PORTION = 5_000
Call = Callable[[], object]


class _Nowhere(SpanExporter):
    def export(self, spans: "list[ReadableSpan]") -> SpanExportResult:  # type: ignore[override]  # a list is enough here
        return SpanExportResult.SUCCESS


@dataclass
class Candidate:
    """Something that is called once for each slice. ``empty``: forgets what was recorded, off the clock."""

    name: str
    call: Call
    empty: Call = lambda: None


# --- on the training thread -------------------------------------------------------------------------------------------


def ours(recorder: Recorder) -> Iterator[Candidate]:
    """Slices of all kinds."""
    tracker = StatsTracker("bench", recorder)
    clock = PhaseClock(SAC_LEARNER, tracker, recorder)
    clock.iteration().__enter__()

    def plain() -> None:
        with recorder.slice("x"):
            pass

    def phase() -> None:
        with clock.phase("inference_h2d"):
            pass

    def timing() -> None:
        with tracker.record_timing("x"):
            pass

    def rich() -> None:
        with recorder.slice("x", flow=7, attributes={"rows": 32}):
            pass

    def empty() -> None:
        for lane in recorder.lanes():
            lane.take()

    named = {"slice": plain, "phase": phase, "record_timing": timing, "slice, arrow, attribute": rich}
    for name, call in named.items():
        yield Candidate(f"rltel {name}", call, empty)


def sdk() -> Candidate:
    """OpenTelemetry's own span, batched, to nowhere."""
    provider = TracerProvider()
    provider.add_span_processor(BatchSpanProcessor(_Nowhere()))
    tracer = provider.get_tracer("bench")

    def span() -> None:
        with tracer.start_as_current_span("x"):
            pass

    return Candidate("OpenTelemetry SDK span, batched", span)


def unilab() -> Candidate | None:
    """UniLab's recorder, from the wheel that tests/tools/get_unilab.sh unpacks."""
    package = ROOT / ".tools" / "unilab"
    if not (package / "uni_rl" / "logging" / "trace_event.py").is_file():
        return None
    spec = importlib.util.spec_from_file_location("trace_event", package / "uni_rl" / "logging" / "trace_event.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    recorder = module.TraceRecorder("bench")
    now = time.perf_counter_ns

    def add() -> None:
        begin = now()
        recorder.add_slice("x", category="learner", start_ns=begin, end_ns=now())

    return Candidate("UniLab add_slice", add, recorder.drain_events)


@contextlib.contextmanager
def areal() -> Iterator[Candidate | None]:
    """AReaL's perf tracer, flushed by hand, off the clock."""
    if find_areal() is None:
        yield None
        return
    configs = types.ModuleType("areal.api.cli_args")
    made = types.SimpleNamespace
    configs.PerfTracerConfig = made  # type: ignore[attr-defined]  # two dataclasses of AReaL's, as namespaces
    configs.SessionTracerConfig = made  # type: ignore[attr-defined]
    with tempfile.TemporaryDirectory() as folder, real_modules("areal.utils.perf_tracer") as (module,):
        sys.modules["areal.api.cli_args"] = configs
        config = made(
            experiment_name="e", trial_name="t", fileroot=folder, enabled=True, save_interval=1, profile_steps=None,
            session_tracer=None,
        )  # fmt: skip
        module.configure(config, rank=0)

        def scope() -> None:
            with module.trace_scope("x", category="compute"):
                pass

        yield Candidate("AReaL trace_scope", scope, lambda: module.save(force=True))
        module.reset()


_VIZTRACER = """
import statistics, time
from viztracer import VizTracer
tracer = VizTracer(tracer_entries=4 * {calls}, verbose=0)
tracer.enable = True
def event():
    with tracer.log_event("x"):
        pass
def nothing():
    pass
times = {{event: [], nothing: []}}
for _ in range({rounds}):
    for call, seen in times.items():
        begin = time.perf_counter()
        for _ in range({calls}):
            call()
        seen.append((time.perf_counter() - begin) / {calls})
    tracer.clear()
print(statistics.median(times[event]) - statistics.median(times[nothing]))
"""


def viztracer() -> None:
    """The event of viztracer itself. In a process of its own: its hooks slow everything else down."""
    program = _VIZTRACER.format(calls=CALLS, rounds=ROUNDS)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    told = f"net {float(done.stdout) * 1e6:7.3f} us" if done.returncode == 0 else "is not installed"
    print(f"  {'viztracer log_event':36} {told}")


def nothing() -> None:
    """What the empty call costs."""


def on_the_caller() -> None:
    """Medians on the thread that records."""
    on, off = Recorder(), Recorder()
    on.start()

    def quiet() -> None:
        with off.slice("x"):
            pass

    with areal() as areal_candidate:
        found = [
            Candidate("nothing", nothing),
            *ours(on),
            Candidate("rltel slice, timeline off", quiet),
            unilab(),
            areal_candidate,
            sdk(),
        ]
        measure([candidate for candidate in found if candidate is not None])


def measure(candidates: list[Candidate]) -> None:
    """Median and best net time a call, as a ratio to the SDK's."""
    times: dict[str, list[float]] = {candidate.name: [] for candidate in candidates}
    for _ in range(ROUNDS):
        for candidate in candidates:
            begin = time.perf_counter()
            for _ in range(CALLS):
                candidate.call()
            times[candidate.name].append((time.perf_counter() - begin) / CALLS)
            candidate.empty()
    empty = statistics.median(times["nothing"])
    base = statistics.median(times[candidates[-1].name]) - empty
    for name, seen in times.items():
        net = statistics.median(seen) - empty
        best = min(seen) - min(times["nothing"])
        print(f"  {name:36} net {net * 1e6:7.3f} us (best {best * 1e6:6.3f})   {net / base:7.4f} of the SDK's")


# --- end to end -------------------------------------------------------------------------------------------------------

_RECEIVER = """
import http.server
class Take(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(200); self.send_header("Content-Length", "0"); self.end_headers()
    def log_message(self, *a): pass
server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Take)
print(server.server_port, flush=True)
server.serve_forever()
"""


@contextlib.contextmanager
def receiver() -> Iterator[str]:
    """Takes any request, in a process of its own."""
    process = subprocess.Popen([sys.executable, "-c", _RECEIVER], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        yield f"http://127.0.0.1:{process.stdout.readline().strip()}"
    finally:
        process.kill()
        process.wait()


def demo_mix(clock: PhaseClock, ticks: int) -> int:
    """Iterations as the SAC demo has them: phases in phases, arrows, attributes, a counter. How many slices it made."""
    for tick in range(ticks):
        flow = rltel.new_flow()
        with clock.iteration(tick):
            with clock.phase("collector_wait"):
                pass
            with clock.phase("inference", flow=flow):
                for nested in ("inference_h2d", "inference_forward", "inference_d2h"):
                    with clock.phase(nested):
                        pass
            with clock.phase("collector_release", flow=flow):
                pass
            with clock.phase("replay_batch_wait"), rltel.slice("ingest", flow=rltel.new_flow()):
                pass
            with clock.phase("replay_sample"):
                pass
            with clock.phase("learning", updates=1):
                for name in ("update_critic", "update_actor", "update_target"):
                    with rltel.slice(name):
                        pass
        rltel.counter("replay size", tick, "rows")
    return ticks * 14


def bare_mix(_clock: PhaseClock, ticks: int) -> int:
    """As many bare slices."""
    for _ in range(ticks * 14):
        with rltel.slice("x"):
            pass
    return ticks * 14


def end_to_end() -> None:
    """CPU of the whole process for a slice, from ``with`` to the file or the receiver's answer."""
    print("End to end: CPU of the process a slice")
    for name, mix in (("bare", bare_mix), ("the demo's mix", demo_mix)):
        with tempfile.TemporaryDirectory() as folder:
            cpu, slices = through({"trace": {"enabled": True}}, folder, mix)
            size = sum(path.stat().st_size for path in Path(folder).rglob("*.pftrace"))
            print(f"  rltel to Perfetto, {name:16} {cpu * 1e6:7.2f} us   {size / slices:6.1f} bytes a slice on disk")
        with receiver() as endpoint, tempfile.TemporaryDirectory() as folder:
            otlp = {"enabled": True, "endpoint": endpoint, "metrics": False}
            cpu, _ = through({"otlp": otlp}, folder, mix)
            print(f"  rltel to OTLP, {name:20} {cpu * 1e6:7.2f} us")
    with receiver() as endpoint:
        print(f"  OpenTelemetry SDK to OTLP, bare     {through_sdk(endpoint) * 1e6:7.2f} us")


def through(config: dict[str, Any], folder: str, mix: Callable[[PhaseClock, int], int]) -> tuple[float, int]:
    """CPU a slice, and how many slices."""
    with contextlib.redirect_stderr(io.StringIO()):
        rltel.init({"run": {"dir": folder}, **config})
    clock = rltel.learner("sac")
    mix(clock, 100)
    rltel.flush()
    begin = time.process_time()
    slices = 0
    while slices < END_TO_END:  # in portions as they come in a second of a fast trainer
        slices += mix(clock, PORTION // 14)
        rltel.flush(60.0)
    cpu = time.process_time() - begin
    rltel.shutdown()
    return cpu / slices, slices


def through_sdk(endpoint: str) -> float:
    """The same with OpenTelemetry's exporter. Its queue drops what is too much: it is given time."""
    provider = TracerProvider()
    exporter = OTLPSpanExporter(f"{endpoint}/v1/traces")
    provider.add_span_processor(BatchSpanProcessor(exporter, max_queue_size=1 << 18, max_export_batch_size=2048))
    tracer = provider.get_tracer("bench")
    slices = END_TO_END // 10
    begin = time.process_time()
    for _ in range(slices):
        with tracer.start_as_current_span("x"):
            pass
    provider.force_flush()
    cpu = time.process_time() - begin
    provider.shutdown()
    return cpu / slices


def memory() -> None:
    """What two million slices leave behind in the process."""
    with tempfile.TemporaryDirectory() as folder:
        with contextlib.redirect_stderr(io.StringIO()):
            rltel.init({"run": {"dir": folder}, "trace": {"enabled": True}})
        clock = rltel.learner("sac")
        print("Memory over 2 million slices, resident (most so far)")
        for part in range(5):
            slices = demo_mix(clock, 400_000 // 14)
            rltel.flush(60.0)
            peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
            print(f"  after {(part + 1) * slices:9,} slices {resident_mb():7.1f} MB ({peak:.1f})")
        rltel.shutdown()


def resident_mb() -> float:
    """Of this process, now."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


def bytes_of(run_dirs: list[Path]) -> None:
    """Bytes on disk a slice, of real runs."""
    from rltel.traces.reader import read_packets

    for run_dir in run_dirs:
        files = sorted(run_dir.rglob("trace/*.pftrace"))
        slices = sum(packet.track_event.type == 1 for path in files for packet in read_packets(path))
        size = sum(path.stat().st_size for path in files)
        print(f"  {run_dir.name}: {size:,} bytes, {slices:,} slices: {size / slices:.1f} bytes a slice")


if __name__ == "__main__":
    print(f"zlib {zlib.ZLIB_RUNTIME_VERSION}, Python {sys.version.split()[0]}")
    print("On the training thread")
    on_the_caller()
    viztracer()
    end_to_end()
    memory()
    bytes_of([Path(argument) for argument in sys.argv[1:]])
