"""Opens what a config wants of the timeline: the trace file, spans over OTLP, spans of the user's own provider."""

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from opentelemetry.context import Context
from opentelemetry.trace import ProxyTracerProvider, SpanContext, TracerProvider, get_tracer_provider

from rltel.core.clock import Clock
from rltel.core.config import TelemetryConfig, TraceConfig
from rltel.core.context import with_span
from rltel.core.errors import ConfigError
from rltel.core.identity import Identity
from rltel.export.sink import Destination
from rltel.export.timeline import TimelineConsumer, TimelineDrain
from rltel.export.worker import Worker
from rltel.record.device.device_timeline import DeviceTimeline
from rltel.record.recorder import Recorder
from rltel.record.records import Ids
from rltel.version import VERSION

if TYPE_CHECKING:
    from rltel.export.perfetto.files import PerfettoWriter


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What the parts of a timeline need to know of their process."""

    config: TelemetryConfig
    identity: Identity
    recorder: Recorder
    clock: Clock
    environ: Mapping[str, str]
    destination: Callable[[str], Destination]
    root: Ids
    parent: SpanContext | None
    """What the process's own span lies in: the caller's, in another process."""
    process_track: int
    device: DeviceTimeline | None
    tracer_provider: TracerProvider | None

    @property
    def process_name(self) -> str:
        """What the process is called where people look at it."""
        return f"{self.identity.role} {self.identity.index}"


@dataclass
class OpenTimeline:
    """What was opened: nothing, if nothing of it is switched on."""

    drain: TimelineDrain | None = None
    writer: "PerfettoWriter | None" = None
    workers: list[Worker] = field(default_factory=list)
    places: list[str] = field(default_factory=list)
    root: SpanContext | None = None
    """The process's own span, where the user's TracerProvider has made it."""


def open_timeline(of: Surroundings, run_dir: Path) -> OpenTimeline:
    """Open what is switched on, and start the recorder if there is any.

    Raises `ConfigError` for settings of OTLP that cannot be, OSError if the trace file cannot be made.
    """
    opened = OpenTimeline()
    if of.tracer_provider is not None and not isinstance(of.tracer_provider, TracerProvider):
        raise ConfigError(f"tracer_provider: expected an OpenTelemetry TracerProvider, got {of.tracer_provider!r}")
    of.recorder.tracer = None
    trace = of.config.trace
    if not _is_traced(trace, of.identity.rank):
        return opened
    consumers: list[tuple[TimelineConsumer, Destination]] = []
    with ExitStack() as undo:
        if trace.enabled:
            writer, destination = _trace_file(of, run_dir, opened)
            undo.callback(writer.close, of.clock.monotonic_ns())
            consumers.append((writer, destination))
        if of.tracer_provider is not None:
            consumers.append(_own_spans(of, of.tracer_provider, opened))
        elif of.config.otlp.enabled and of.config.otlp.traces:
            consumers.append(_otlp_spans(of, opened))
        undo.pop_all()
    if consumers:
        opened.drain = TimelineDrain(of.recorder, consumers, of.device)
        of.recorder.root = of.root if opened.root is None else Ids(opened.root.trace_id, opened.root.span_id)
        of.recorder.adopted = of.parent is not None
        of.recorder.start(steps=trace.steps, thread_time=trace.thread_time)
        if trace.cuda_events and of.device is not None:
            of.device.start()
            of.recorder.after_iteration = of.device.poll
    return opened


def _is_traced(trace: TraceConfig, rank: int) -> bool:
    return trace.ranks == "all" or rank in trace.ranks


def _trace_file(of: Surroundings, run_dir: Path, opened: OpenTimeline) -> "tuple[PerfettoWriter, Destination]":
    from rltel.export.perfetto.files import PerfettoWriter  # imports Perfetto's schema

    trace = of.config.trace
    folder = Path((trace.output_dir or "{run_dir}/trace").replace("{run_dir}", str(run_dir)))
    destination = of.destination("trace")
    sizes = int(trace.max_file_mb * 1e6), int(trace.max_total_mb * 1e6)
    writer = PerfettoWriter(
        folder, of.identity, of.clock, destination, *sizes, of.process_track, show_ids=_has_spans(of)
    )
    opened.writer = writer
    opened.places.append(f"trace {writer.path}")
    return writer, destination


def _has_spans(of: Surroundings) -> bool:
    """Whether the ids of spans lead anywhere: ours leave, or the program has spans of its own."""
    ours = of.tracer_provider is not None or (of.config.otlp.enabled and of.config.otlp.traces)
    return ours or not isinstance(get_tracer_provider(), ProxyTracerProvider)


def _otlp_spans(of: Surroundings, opened: OpenTimeline) -> tuple[TimelineConsumer, Destination]:
    from rltel.export.otlp.transport import trace_transport  # imports the OTLP schema and its transports
    from rltel.export.resource import resource_of
    from rltel.export.spans.sending import SpanSending
    from rltel.export.spans.spans import RootSpan, SpanWriter

    transport, address = trace_transport(of.config.otlp, of.environ)
    resource = resource_of(of.identity, of.config.run, of.environ)
    destination = of.destination("spans")
    sending = SpanSending(transport, address, destination, int(of.config.pipeline.queue_mb * 1e6))
    opened.workers.append(sending.worker)
    opened.places.append(f"spans {address}")
    parent = None if of.parent is None else Ids(of.parent.trace_id, of.parent.span_id)
    root = RootSpan(of.root, of.process_name, of.clock.monotonic_ns(), parent)
    return SpanWriter(root, resource, of.clock.anchor().realtime_of(0), sending.put, destination), destination


def _own_spans(
    of: Surroundings, provider: TracerProvider, opened: OpenTimeline
) -> tuple[TimelineConsumer, Destination]:
    from rltel.export.spans.live_spans import LiveSpans  # only where they are used
    from rltel.export.spans.live_tracer import Contexts, LiveTracer

    tracer = provider.get_tracer("rltel", VERSION)
    to_unix = of.clock.anchor().realtime_of(0)
    parent = Context() if of.parent is None else with_span(of.parent)
    process = tracer.start_span(of.process_name, parent, start_time=of.clock.monotonic_ns() + to_unix)
    contexts = Contexts()
    of.recorder.tracer = LiveTracer(tracer, process.get_span_context(), contexts)
    opened.root = process.get_span_context()
    destination = of.destination("spans")
    opened.places.append("spans of the given TracerProvider")
    return LiveSpans(tracer, process, to_unix, destination, contexts), destination
