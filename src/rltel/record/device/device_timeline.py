"""Device work on the timeline: what a stream ran, drawn where the device ran it.

``device_slice`` records a pair of events around the work and draws its submit. Later, at iteration ends, the thread
that recorded them asks which are done (`DeviceTimeline.poll`) and measures those from the device's last anchor. When
the next anchor is there, some seconds later, the pipeline's thread draws them (`DeviceTimeline.draw`), each joined to
its submit by an arrow. Nothing here waits for the device, except the end of the process, for a moment.
"""

import os
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from rltel.core.errors import RecordError
from rltel.record.device.cuda_events import CudaEventSource
from rltel.record.device.event_source import EventSource, StreamRef
from rltel.record.device.losses import Losses
from rltel.record.device.measuring import MAX_HELD, Measuring
from rltel.record.device.pending import Pending
from rltel.record.device.slice import NOTHING, DeviceSlice, Nothing
from rltel.record.device.work import Drawn, Measured, Stream, Submitted, draw
from rltel.record.recorder import Recorder, timeline
from rltel.record.records import Attributes, Begin, Placed, Site

MAX_PENDING = 10_000  # pairs of events, per thread
POLL_EVERY = 64  # slices of a thread, for programs and threads without iterations
NOTED_NS = 50_000  # what may be off by more says so
_LAST_WAIT_S = 0.2
_PAUSE_S = 0.001


class _Here(threading.local):
    """This thread's own."""

    pending: Pending | None = None


class DeviceTimeline:
    """Device work of this process. Does nothing until it is started, and then nothing before a device is in use."""

    def __init__(
        self,
        recorder: Recorder,
        *,
        max_pending: int = MAX_PENDING,
        max_held: int = MAX_HELD,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._recorder = recorder
        self._now = recorder.now
        self._max_pending = max_pending
        self._max_held = max_held
        self._sleep = sleep
        self._of_the_parent: list[object] = []
        self._clear()

    on: bool
    """Whether device work is measured now."""

    def _clear(self) -> None:
        self.on = False
        self._losses = Losses()
        self._source: EventSource | None = None
        self._measuring: Measuring | None = None
        self._is_ready = False
        self._streams: dict[tuple[str, int], Stream] = {}
        self._pending: list[Pending] = []
        self._here = _Here()
        self._polling = threading.Lock()
        self._drawing = threading.Lock()
        self._changing = threading.Lock()  # never held for long

    # --- on and off -------------------------------------------------------------------------------------------------

    def start(self, source: EventSource | None = None) -> None:
        """Begin to measure, with CUDA's events unless given others. Touches no device."""
        self._clear()
        self._source = source or CudaEventSource()
        self._measuring = Measuring(self._source, self._now, self._losses, self._max_held)
        self.on = True

    def close(self, wait_s: float = _LAST_WAIT_S) -> None:
        """The end: take what all threads' devices finish within ``wait_s`` seconds, draw it, count the rest.

        Call it before the recorder is drained for the last time. Here alone somebody waits for a device.
        """
        measuring, self._measuring = self._measuring, None
        if not self.on or measuring is None:
            return
        self.on = False
        until_ns = self._now() + round(wait_s * 1e9)
        if self._polling.acquire(timeout=wait_s):  # else a thread hangs in the device's driver, as we would
            try:
                self._poll_last(measuring, until_ns)
            except Exception as error:  # the device may be going down, too
                self._losses.failed(error)
            finally:
                measuring.release_all()
                self._polling.release()
        self._draw(measuring)
        self._losses.add("device_unfinished", sum(pending.size for pending in self._pending))
        self._pending = []

    def _poll_last(self, measuring: Measuring, until_ns: int) -> None:
        while self._may_ask():
            measuring.poll(self._pending)
            if self._now() >= until_ns or not any(pending.size for pending in self._pending):
                break
            self._sleep(_PAUSE_S)
        if self._may_ask():
            measuring.finish()

    def reset(self) -> None:
        """In a forked child: start empty.

        What is the parent's is kept as it is: its device may not be used here, not even to free its events.
        """
        self._of_the_parent.append((self._measuring, self._streams, self._pending, self._here))
        self._clear()

    # --- slices -----------------------------------------------------------------------------------------------------

    def slice(
        self,
        name: str,
        stream: Any = None,
        *,
        flow: int | Iterable[int] | None = None,
        attributes: Attributes | None = None,
    ) -> DeviceSlice | Nothing:
        """A context manager that draws the work put on a stream inside, where the device runs it, and its submit.

        Args:
            name: of both slices.
            stream: a ``torch.cuda.Stream``; None is this thread's current one. What goes to other streams is not seen.
            flow: ids (`new_flow`) of arrows through the submit.
            attributes: drawn with both slices. What is known only inside goes to ``.set(key=value)``.

        Raises `RecordError` for what is no stream. While the timeline or ``trace.cuda_events`` is off, before CUDA is
        in use, and while a CUDA graph is captured, it does nothing.
        """
        if not (self.on and self._recorder.on):
            return NOTHING
        try:
            source = self._source_in_use()
            if source is None:
                return NOTHING
            ref = source.stream(stream)
            if source.is_capturing(ref):
                return NOTHING
        except RecordError:
            raise
        except Exception as error:  # of the device: the program will hear of it from the device
            self._losses.failed(error, lost=1)
            return NOTHING
        return DeviceSlice(self, self._recorder, name, self._stream(ref), flow, attributes)

    def name_stream(self, stream: Any, name: str) -> None:
        """Call a stream's track by a name instead of a number: ``cuda:0 h2d``. Does nothing before CUDA is in use.

        Raises `RecordError` for what is no stream.
        """
        source = self._source_in_use() if self.on else None
        if source is not None:
            ref = source.stream(stream)
            self._stream(ref).name = f"{ref.device} {name}"

    def _source_in_use(self) -> EventSource | None:
        """The source, once it has a device, and as long as that answers."""
        source = self._source
        if source is None or self._losses.is_device_lost:
            return None
        if not self._is_ready:
            self._is_ready = source.ready()
        return source if self._is_ready else None

    def _may_ask(self) -> bool:
        """Whether the device can be asked about its events: never while a graph is captured."""
        source = self._source_in_use()
        return source is not None and not source.is_capturing()

    def _stream(self, ref: StreamRef) -> Stream:
        found = self._streams.get((ref.device, ref.key))
        if found is not None:
            return found
        with self._changing:
            numbered = sum(device == ref.device and key != 0 for device, key in self._streams)
            made = Stream(ref, f"{ref.device} stream {numbered + 1 if ref.key else 0}")
            return self._streams.setdefault((ref.device, ref.key), made)

    def begin(self, work: Submitted) -> bool:
        """Record the event before the work; False if the device refuses."""
        measuring, source = self._measuring, self._source
        if measuring is None or source is None:
            return False
        stream = work.stream
        try:
            if measuring.wants_anchor(stream.ref.device):
                self._take_anchor(measuring, stream.ref.device)
            work.begin = measuring.new_event(stream.ref.device)
            work.submit_ns = self._now()
            work.begin_order = next(stream.order)
            source.record(work.begin, stream.ref)
        except Exception as error:
            self._losses.failed(error, lost=1)
            return False
        return True

    def end(self, work: Submitted) -> None:
        """Record the event after the work, and wait for nothing."""
        measuring, source = self._measuring, self._source
        if measuring is None or source is None:
            self._losses.add("device_unfinished")
            return
        stream = work.stream
        try:
            if source.is_capturing(stream.ref):
                self._losses.add("device_capturing")
                return
            work.end = measuring.new_event(stream.ref.device)
            work.end_order = next(stream.order)
            source.record(work.end, stream.ref)
        except Exception as error:
            self._losses.failed(error, lost=1)
            return
        self._losses.succeeded()
        self._wait_for(work, measuring)

    def _wait_for(self, work: Submitted, measuring: Measuring) -> None:
        pending = self._here.pending
        if pending is None:
            pending = self._here.pending = Pending()
            with self._changing:
                self._pending.append(pending)
        pending.add(work)
        if pending.size > self._max_pending:
            measuring.use_again(pending.drop_oldest())
            self._losses.add("device_pending_full")
        pending.since_poll += 1
        if pending.since_poll >= POLL_EVERY:
            self.poll()

    def _take_anchor(self, measuring: Measuring, device: str) -> None:
        """Before the first work, and if nobody has polled for long. Unless another thread is at it."""
        if self._polling.acquire(blocking=False):
            try:
                measuring.anchor(device)
            finally:
                self._polling.release()

    # --- what is done -----------------------------------------------------------------------------------------------

    def poll(self) -> None:
        """Ask which of this thread's device work is done, and of threads that have ended. Never waits, never raises."""
        measuring, mine = self._measuring, self._here.pending
        if measuring is None or not (self._pending or measuring.is_holding):
            return
        if not self._polling.acquire(blocking=False):
            return  # another thread is at it; there is a next time
        try:
            ended = [each for each in self._pending if not each.thread.is_alive()]
            if self._may_ask():
                measuring.poll(ended if mine is None else [mine, *ended])
            for each in ended:
                if not each.size:
                    with self._changing:
                        self._pending.remove(each)
        except Exception as error:  # never the training's
            self._losses.failed(error)
        finally:
            self._polling.release()

    def draw(self) -> None:
        """Draw what lies between two anchors. For the pipeline's thread: no device is asked."""
        measuring = self._measuring
        if measuring is not None:
            self._draw(measuring)

    def _draw(self, measuring: Measuring) -> None:
        with self._drawing:
            by_stream: dict[Stream, list[Measured]] = {}
            for measured in measuring.take_ready():
                by_stream.setdefault(measured.work.stream, []).append(measured)
            for stream, works in by_stream.items():
                for drawn in draw(stream, works):
                    self._place(drawn)

    def _place(self, drawn: Drawn) -> None:
        lane = self._recorder.shared  # not through its gate: the work was submitted while the timeline was on
        if len(lane.records) >= lane.limit:
            self._losses.add("device_buffer_full")
            return
        work = drawn.work
        begin = Begin(drawn.begin_ns, Site(work.name, "device"), work.flows, _attributes(drawn))
        lane.records.append(Placed(work.stream.name, begin, drawn.end_ns))

    # --- what is lost -----------------------------------------------------------------------------------------------

    @property
    def drops(self) -> Mapping[str, int]:
        """Device slices that were submitted and are not drawn, by reason.

        ``device_pending_full``, ``device_error``, ``device_capturing`` (a capture began inside), ``device_unfinished``
        (at the end), ``device_buffer_full``.
        """
        return dict(self._losses.by_reason)

    @property
    def dropped(self) -> int:
        """How many, in all."""
        return sum(self.drops.values())


def _attributes(drawn: Drawn) -> dict[str, Any] | None:
    said = dict(drawn.work.attributes)
    if drawn.uncertainty_ns > NOTED_NS:
        said["uncertainty_us"] = round(drawn.uncertainty_ns / 1e3)
    if drawn.clamped:
        said["clamped"] = drawn.clamped
    return said or None


device_timeline = DeviceTimeline(timeline)
"""The process's own."""
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=device_timeline.reset)
