"""CUDA's events, through torch. Nothing here imports torch unless the program has done so already."""

import sys
from typing import Any

from rltel.core.errors import RecordError
from rltel.record.device.event_source import StreamRef


class CudaEventSource:
    """The real device (ROCm's, too: torch calls it ``cuda``)."""

    def ready(self) -> bool:
        """Whether this process uses CUDA by now: measuring must not cost a process that does not a CUDA context."""
        cuda = getattr(sys.modules.get("torch"), "cuda", None)
        return cuda is not None and bool(cuda.is_initialized())

    def stream(self, given: Any) -> StreamRef:
        """See `EventSource.stream`."""
        from torch import cuda  # heavy; imported already when we get here

        stream = cuda.current_stream() if given is None else given
        if not isinstance(stream, cuda.Stream):
            raise RecordError(f"device_slice: expected a torch.cuda.Stream, or None for the current one, got {given!r}")
        return StreamRef(f"cuda:{stream.device_index}", stream.cuda_stream, stream)

    def is_capturing(self, stream: StreamRef | None = None) -> bool:
        """See `EventSource.is_capturing`."""
        from torch import cuda  # heavy; imported already when we get here

        if cuda.is_current_stream_capturing():
            return True
        if stream is None or stream.handle == cuda.current_stream():
            return False
        with cuda.stream(stream.handle):
            return cuda.is_current_stream_capturing()

    def own_stream(self, device: str) -> StreamRef:
        """One of high priority. torch hands streams out of a pool in turn; few programs use this one.

        If one does, anchors wait behind its work: they get wide, and say so.
        """
        from torch import cuda  # heavy; imported already when we get here

        stream = cuda.Stream(device=device, priority=-1)  # type: ignore[no-untyped-call]  # torch has no types for it
        return StreamRef(device, stream.cuda_stream, stream)

    def new_event(self, device: str) -> Any:
        """See `EventSource.new_event`. torch binds it to a device when it is recorded first."""
        from torch import cuda  # heavy; imported already when we get here

        return cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]  # torch has no types for it

    def record(self, event: Any, stream: StreamRef) -> None:
        """See `EventSource.record`."""
        event.record(stream.handle)

    def query(self, event: Any) -> bool:
        """See `EventSource.query`."""
        return bool(event.query())

    def elapsed_ms(self, first: Any, second: Any) -> float:
        """See `EventSource.elapsed_ms`."""
        return float(first.elapsed_time(second))
