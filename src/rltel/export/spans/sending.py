"""Sends encoded spans through a worker, which tries again where the protocol allows it."""

from rltel.export.otlp.transport import Transport
from rltel.export.sink import Destination
from rltel.export.worker import Parcel, Worker


class SpanSending:
    """The way of spans to one receiver."""

    def __init__(self, transport: Transport, address: str, destination: Destination, queue_bytes: int) -> None:
        self.worker = Worker("spans", transport.close, destination, queue_bytes)
        self._transport = transport
        self._address = address
        self._destination = destination

    def put(self, body: bytes, spans: int) -> None:
        """Queue one request with so many spans. Never waits."""
        self.worker.put_parcel(Parcel(lambda: self._deliver(body), len(body), spans))

    def _deliver(self, body: bytes) -> int:
        """Returns how many were refused. Raises `SendError` if none arrived."""
        answer = self._transport.send(body, self._transport.timeout_s)
        if answer.rejected:
            refusal = ConnectionError(f"{self._address} rejected spans: {answer.message}")
            self._destination.failed(refusal, "rejected", answer.rejected)
        return answer.rejected
