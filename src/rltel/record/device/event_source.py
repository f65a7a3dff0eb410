"""What the device timeline needs of a device: events on streams. All that is CUDA's stands behind this protocol.

There is no way to wait for a device here, on purpose: the thread that trains must never do so.
"""

from typing import Any, NamedTuple, Protocol


class StreamRef(NamedTuple):
    """One stream: ``device`` (``cuda:0``) and ``key`` say which; 0 is the device's default stream."""

    device: str
    key: int
    handle: Any
    """What the source itself knows it by."""


class EventSource(Protocol):
    """A device's events. Any call may raise what the device raises (it is lost, say)."""

    def ready(self) -> bool:
        """Whether there is a device in use by now. Asked often until it says so once; never starts the device."""

    def stream(self, given: Any) -> StreamRef:
        """The stream given, or this thread's current one for None. Raises `RecordError` for what is no stream."""

    def is_capturing(self, stream: StreamRef | None = None) -> bool:
        """Whether a graph is being captured on this thread's current stream, or on the one given."""

    def own_stream(self, device: str) -> StreamRef:
        """A stream that nobody else puts work on, and that waits for no other."""

    def new_event(self, device: str) -> Any:
        """An event with a time, for streams of this device."""

    def record(self, event: Any, stream: StreamRef) -> None:
        """Let the event complete when all work put on the stream so far is done. Does not wait for that."""

    def query(self, event: Any) -> bool:
        """Whether it has completed. Does not wait for that."""

    def elapsed_ms(self, first: Any, second: Any) -> float:
        """Milliseconds (float32) from one completed event to another; negative if they came the other way round."""
