"""Sends encoded spans through a worker, and again where the protocol allows it, while there is time."""

import time
from collections.abc import Callable

from rltel.export.otlp_transport import SendError, Transport
from rltel.export.sink import Destination
from rltel.export.worker import Parcel, Worker

_FIRST_PAUSE_S = 0.2


class SpanSending:
    """The way of spans to one receiver."""

    def __init__(
        self,
        transport: Transport,
        address: str,
        destination: Destination,
        queue_bytes: int,
        pause: Callable[[float], None] = time.sleep,
    ) -> None:
        self.worker = Worker("spans", transport.close, destination, queue_bytes)
        self._transport = transport
        self._address = address
        self._destination = destination
        self._pause = pause

    def put(self, body: bytes, spans: int) -> None:
        """Queue one request with so many spans. Never waits."""
        self.worker.put_parcel(Parcel(lambda: self._deliver(body), len(body), spans))

    def _deliver(self, body: bytes) -> int:
        """Returns how many were refused. Raises `SendError` if none arrived within the time of one request."""
        deadline = time.monotonic() + self._transport.timeout_s
        pause_s = _FIRST_PAUSE_S
        while True:
            try:
                answer = self._transport.send(body, max(deadline - time.monotonic(), pause_s))
                break
            except SendError as error:
                wait_s = pause_s if error.retry_after_s is None else error.retry_after_s
                if not error.retryable or time.monotonic() + wait_s >= deadline:
                    raise
                self._pause(wait_s)
                pause_s *= 2
        if answer.rejected:
            refusal = ConnectionError(f"{self._address} rejected spans: {answer.message}")
            self._destination.failed(refusal, "rejected", answer.rejected)
        return answer.rejected
