"""Requests of spans on their way: again where that is allowed, and counted where it is not."""

import time

import pytest

from rltel.export.otlp.transport import Answer, SendError
from rltel.export.sink import Destination
from rltel.export.spans.sending import SpanSending


class Receiver:
    """A transport that does what it is told, one thing a try."""

    timeout_s = 30.0

    def __init__(self, *does: Answer | SendError) -> None:
        self.does = list(does)
        self.bodies: list[bytes] = []
        self.closed = False

    def send(self, body: bytes, timeout_s: float) -> Answer:
        assert timeout_s > 0
        self.bodies.append(body)
        does = self.does.pop(0) if self.does else Answer(0, "")
        if isinstance(does, SendError):
            raise does
        return does

    def close(self) -> None:
        self.closed = True


def sent(receiver: Receiver) -> Destination:
    """The account of one request with 10 spans, when it has arrived or is given up."""
    account = Destination("spans")
    sending = SpanSending(receiver, "http://there", account, 10**6)
    sending.put(b"body", 10)
    assert sending.worker.wait_empty(time.monotonic() + 30)
    sending.worker.close(time.monotonic() + 30)
    assert receiver.closed
    return account


def busy(retry_after_s: float | None = None) -> SendError:
    return SendError("http://there: HTTP 503", retryable=True, retry_after_s=retry_after_s)


def test_what_arrives_is_counted_in_spans() -> None:
    receiver = Receiver()
    assert sent(receiver).exported_total == 10
    assert receiver.bodies == [b"body"]


def test_a_busy_receiver_is_asked_again() -> None:
    receiver = Receiver(busy(retry_after_s=0.01), busy())
    account = sent(receiver)
    assert (account.exported_total, account.dropped_totals, len(receiver.bodies)) == (10, {}, 3)


def test_one_that_says_no_costs_the_spans() -> None:
    receiver = Receiver(SendError("http://there: HTTP 400", retryable=False))
    account = sent(receiver)
    assert (account.exported_total, account.dropped_totals, len(receiver.bodies)) == (0, {"error": 10}, 1)


def test_what_was_rejected_is_counted_as_such_and_said(caplog: pytest.LogCaptureFixture) -> None:
    account = sent(Receiver(Answer(3, "too old")))
    assert (account.exported_total, account.dropped_totals) == (7, {"rejected": 3})
    assert "http://there rejected spans: too old" in caplog.text
