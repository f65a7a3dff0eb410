"""The timeline's hot path: small records appended to per-thread buffers, turned into packets by the pipeline.

A record is as little as can be: a slice's begin is one tuple, its end is one integer, and nesting follows from their
order on the thread. The ends of slices are separate records, so that a slice that is open when the process dies is in
the file, open.
"""

import os
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from types import TracebackType
from typing import Any, NamedTuple, Self

from rltel.core.context import new_id

# Asked of the system: in a forked child, Thread.native_id still is the parent's.
_thread_id: Callable[[], int] = getattr(threading, "get_native_id", threading.get_ident)
MAX_RECORDS = 1 << 20  # per thread, between two flushes: about 100 MB; what does not fit is counted, not kept

Flows = tuple[int, ...]
Attributes = Mapping[str, Any]


class Begin(NamedTuple):
    """A slice begins. (On the hot path a plain tuple of the same shape is appended.)"""

    time_ns: int
    name: str
    category: str
    flows: Flows | None = None
    attributes: Attributes | None = None


class End(NamedTuple):
    """A slice ends with something to say about it (without, the end is just the time, an int)."""

    time_ns: int
    attributes: Attributes


class Instant(NamedTuple):
    """Something that happened at one moment."""

    time_ns: int
    name: str
    category: str
    flows: Flows | None
    attributes: Attributes | None


class CounterSample(NamedTuple):
    """One sample of a counter track."""

    time_ns: int
    name: str
    unit: str
    value: float


Record = int | tuple[Any, ...]


@dataclass(slots=True)
class ThreadBuffer:
    """What one thread recorded and nobody has taken yet. Appended to by its thread only."""

    records: list[Record]
    thread_id: int
    thread_name: str
    dropped: int = 0

    def take(self) -> list[Record]:
        """Remove and return what is there. Safe while the thread goes on appending: each step is atomic."""
        count = len(self.records)
        taken = self.records[:count]
        del self.records[:count]
        return taken


class Recorder:
    """Where slices go. Off until the telemetry starts it; then every thread gets a buffer at its first record."""

    def __init__(self, now: Callable[[], int] = time.perf_counter_ns, limit: int = MAX_RECORDS) -> None:
        self.now = now
        self.on = False
        self._limit = limit
        self._local = threading.local()
        self._buffers: list[ThreadBuffer] = []
        self._lock = threading.Lock()

    def start(self) -> None:
        """Begin to record."""
        self.on = True

    def stop(self) -> None:
        """Stop recording. What is in the buffers stays to be taken; slices that are open still write their end."""
        self.on = False

    def reset(self) -> None:
        """Forget everything (a forked child must not write its parent's records)."""
        self.on = False
        self._local = threading.local()
        self._buffers = []
        self._lock = threading.Lock()

    def buffers(self) -> list[ThreadBuffer]:
        """The buffers of all threads that have recorded."""
        with self._lock:
            return list(self._buffers)

    @property
    def dropped(self) -> int:
        """Records that were not kept because a buffer was full."""
        return sum(buffer.dropped for buffer in self.buffers())

    def here(self) -> ThreadBuffer:
        """This thread's buffer."""
        try:
            return self._local.buffer  # type: ignore[no-any-return]  # threading.local has no types
        except AttributeError:
            return self._new_buffer()

    def _new_buffer(self) -> ThreadBuffer:
        thread = threading.current_thread()
        buffer = ThreadBuffer([], _thread_id(), thread.name)
        self._local.buffer = buffer
        with self._lock:
            self._buffers.append(buffer)
        return buffer

    def begin(self, begin: Record) -> ThreadBuffer | None:
        """Record the begin of a slice; the buffer to record its end in, or None if it was not kept."""
        buffer = self.here()
        if len(buffer.records) >= self._limit:
            buffer.dropped += 2  # the begin, and the end that goes with it
            return None
        buffer.records.append(begin)
        return buffer

    def slice(
        self,
        name: str,
        category: str = "",
        *,
        flow: int | Iterable[int] | None = None,
        attributes: Attributes | None = None,
    ) -> AbstractContextManager[Any]:
        """A context manager that draws what runs inside as a slice of this thread.

        ``flow``: ids (`new_flow`) of arrows that pass through this slice; slices with the same id are joined in the
        order of time, over threads and processes.
        """
        return Slice(self, name, category, as_flows(flow), attributes) if self.on else NOTHING

    def instant(
        self,
        name: str,
        category: str = "",
        *,
        flow: int | Iterable[int] | None = None,
        attributes: Attributes | None = None,
    ) -> None:
        """Mark one moment on this thread's track."""
        if self.on:
            self._append(Instant(self.now(), name, category, as_flows(flow), attributes))

    def counter(self, name: str, value: float, unit: str = "") -> None:
        """One sample of a counter, drawn as a track of its own."""
        if self.on:
            self._append(CounterSample(self.now(), name, unit, float(value)))

    def _append(self, record: Record) -> None:
        buffer = self.here()
        if len(buffer.records) >= self._limit:
            buffer.dropped += 1
        else:
            buffer.records.append(record)


class Slice:
    """One slice of a thread's track, from ``with`` to its end. An exception that passes through is noted on it."""

    __slots__ = ("_buffer", "_category", "_flows", "_name", "_recorder", "attributes")

    def __init__(
        self, recorder: Recorder, name: str, category: str, flows: Flows | None, attributes: Attributes | None
    ) -> None:
        self._recorder = recorder
        self._name = name
        self._category = category
        self._flows = flows
        self.attributes = attributes

    def __enter__(self) -> Self:
        recorder = self._recorder
        self._buffer = recorder.begin((recorder.now(), self._name, self._category, self._flows, self.attributes))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._buffer is not None:
            end = self._recorder.now()
            self._buffer.records.append(end if kind is None else End(end, {"error": kind.__name__}))


class Nothing:
    """Does nothing, for where nothing is switched on."""

    __slots__ = ()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        return None


NOTHING = Nothing()


def new_flow() -> int:
    """The id of a new arrow. Send it along with a message; give it to the slices at both ends."""
    return new_id()


def as_flows(flow: int | Iterable[int] | None) -> Flows | None:
    """Flow ids as a tuple."""
    if flow is None:
        return None
    return (flow,) if isinstance(flow, int) else tuple(flow)


timeline = Recorder()
"""The process's recorder."""
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=timeline.reset)
