"""Requests over HTTP that end in time, though the other side never stops."""

import socket
import ssl
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from export.otlp.test_transport import body, failure, silent_server, transport
from realparts.certificate import certificate
from rltel.export.otlp.bounded import Deadline
from rltel.export.otlp.transport import Answer, SendError, Transport

Talk = Callable[[socket.socket], None]
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/x-protobuf\r\n"
ENDLESS = 180.0  # what one of these takes at the least, if nobody ends it: seconds
LONGER_AND_LONGER = (0.5, 5.0, 15.0)  # how long a try has: a busy machine may not come to a head in the first


def drip(connection: socket.socket, content: bytes) -> None:
    """A byte every 20 ms, for `ENDLESS` and longer."""
    for at in range(len(content)):
        connection.sendall(content[at : at + 1])
        time.sleep(0.02)
    while True:
        connection.sendall(b"x")
        time.sleep(0.02)


def read_request(connection: socket.socket) -> None:
    """All of one: its head and its body may come apart."""
    came = b""
    while b"\r\n\r\n" not in came:
        came += received(connection)
    head, _, content = came.partition(b"\r\n\r\n")
    (length,) = [int(line[15:]) for line in head.splitlines() if line.lower().startswith(b"content-length:")]
    while len(content) < length:
        content += received(connection)


def received(connection: socket.socket) -> bytes:
    """Some of what comes. OSError at its end: the client had no more time, and waiting for the rest would spin."""
    content = connection.recv(65536)
    if not content:
        raise ConnectionError("hung up")
    return content


def after_request(talk: Talk) -> Talk:
    def answer(connection: socket.socket) -> None:
        read_request(connection)
        talk(connection)

    return answer


@contextmanager
def bounded() -> Iterator[None]:
    began = time.monotonic()
    yield
    assert time.monotonic() - began < ENDLESS / 3, "a bound, not a measurement"


def test_a_head_that_drips_ends_in_time() -> None:
    with silent_server(after_request(lambda made: drip(made, HEAD))) as port, bounded():
        error = failure(f"http://127.0.0.1:{port}", timeout_s=0.5)
    assert error.retryable
    address, _, why = str(error).rpartition(": ")
    assert address == f"http://127.0.0.1:{port}/v1/traces"
    assert why in ("no answer within 0.5 s", "timed out"), "the second if it took so long to send"


def test_what_was_taken_is_not_sent_again_though_the_answer_never_ends() -> None:
    """Else every point would arrive as often as it is tried."""

    def talk(connection: socket.socket) -> None:
        connection.sendall(HEAD + b"Content-Length: 1000000\r\n\r\n")
        drip(connection, b"")

    with silent_server(after_request(talk)) as port, transport(f"http://127.0.0.1:{port}") as made, bounded():
        assert in_time_for_the_head(made) == Answer(0, "")


def in_time_for_the_head(made: Transport) -> Answer:
    """What the first try comes to that had the time to be sent and to see the answer's head."""
    for timeout_s in LONGER_AND_LONGER[:-1]:
        try:
            return made.send(body(), timeout_s)
        except SendError as error:
            if not error.retryable:
                raise
    return made.send(body(), LONGER_AND_LONGER[-1])


def test_a_refusal_is_one_though_its_words_never_end() -> None:
    def talk(connection: socket.socket) -> None:
        connection.sendall(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 1000000\r\n\r\n")
        drip(connection, b"")

    with (
        silent_server(after_request(talk)) as port,
        transport(f"http://127.0.0.1:{port}") as made,
        bounded(),
        pytest.raises(SendError, match="HTTP 400 Bad Request") as raised,
    ):
        in_time_for_the_head(made)
    assert not raised.value.retryable


def test_the_next_request_has_its_own_time() -> None:
    def talk(connection: socket.socket) -> None:
        for _ in range(3):
            read_request(connection)
            connection.sendall(HEAD + b"Content-Length: 0\r\n\r\n")

    with silent_server(talk) as port, transport(f"http://127.0.0.1:{port}") as made:
        for _ in range(3):
            assert made.send(body(), 30.0) == Answer(0, "")
            made._deadline.begin(0.0)  # type: ignore[attr-defined]  # the last one's has passed


@pytest.mark.parametrize("scheme", ["http", "https"])
def test_one_that_reads_a_little_at_a_time_ends_in_time(scheme: str, tmp_path: Path) -> None:
    made = certificate(tmp_path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*made)

    def sip(connection: socket.socket) -> None:
        if scheme == "https":
            connection = context.wrap_socket(connection, server_side=True)
        while connection.recv(100):
            time.sleep(0.02)

    large = body("x" * 3_000_000)
    with silent_server(sip) as port, bounded():
        given = {"certificate": made.cert} if scheme == "https" else {}
        with transport(f"{scheme}://127.0.0.1:{port}", **given) as sender, pytest.raises(ConnectionError) as raised:
            sender.send(large, 0.5)
    assert any(why in str(raised.value) for why in ("timed out", "no answer within")), "the second if it never began"


def test_a_deadline_that_has_passed() -> None:
    deadline = Deadline()
    with pytest.raises(TimeoutError):
        deadline.left_s()
    deadline.begin(60.0)
    assert 0 < deadline.left_s() <= 60
