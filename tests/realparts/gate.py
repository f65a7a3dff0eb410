"""A port whose other side comes, goes and misbehaves, while the receiver behind it stays what it is.

So a receiver can be dead, silent or slow for a program that is running, and answer at the same address later.
"""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Literal, Self
from urllib.parse import urlsplit

from realparts.processes import HOST, free_port

Mode = Literal["open", "silent", "dripping"]
"""``open``: what comes is passed on, both ways. ``silent``: nothing is answered. ``dripping``: a byte now and then."""
DRIP_S = 0.05
_HEAD = b"HTTP/1.1 200 OK\r\nX-Slow: "
_SETTINGS = b"\x00\x00\x00\x04\x00\x00\x00\x00\x00"  # an empty frame of HTTP/2, with which each side begins
_HTTP2 = b"PRI * HTTP/2"


class Gate:
    """Stands before a receiver. Nobody listens until it is told a mode.

    Args:
        behind: URL of the receiver.
    """

    def __init__(self, behind: str) -> None:
        self._behind = urlsplit(behind).port or 0
        self._listener: socket.socket | None = None
        self._accepting: threading.Thread | None = None
        self._connections: list[socket.socket] = []
        self._is_mute = False
        self.port = free_port()  # not one of those that outgoing connections get meanwhile
        self.url = f"http://{HOST}:{self.port}"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.shut()

    def open(self, mode: Mode = "open") -> None:
        """Listen, from here on in this mode."""
        self.shut()
        self._is_mute = False
        self._listener = listener = socket.create_server((HOST, self.port))
        self._accepting = threading.Thread(target=self._accept, args=(listener, self._talk(mode)), daemon=True)
        self._accepting.start()

    def shut(self) -> None:
        """Nobody listens any more; what was connected is cut."""
        if self._listener is not None:
            with suppress(OSError):
                self._listener.shutdown(socket.SHUT_RDWR)
            self._listener.close()
            self._listener = None
        if self._accepting is not None:
            self._accepting.join()  # what it has just accepted is cut, too
            self._accepting = None
        for connection in self._connections:
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
            connection.close()
        self._connections.clear()

    def mute(self) -> None:
        """From here on, also on what is connected, requests are passed on and answers are not."""
        self._is_mute = True

    def _accept(self, listener: socket.socket, talk: Callable[[socket.socket], None]) -> None:
        while True:
            try:
                client = listener.accept()[0]
            except OSError:
                return
            self._connections.append(client)
            threading.Thread(target=_quietly, args=(talk, client), daemon=True).start()

    def _talk(self, mode: Mode) -> Callable[[socket.socket], None]:
        return {"open": self._relay, "silent": _swallow, "dripping": _drip}[mode]

    def _relay(self, client: socket.socket) -> None:
        server = self._reach()
        threading.Thread(target=_quietly, args=(self._answer, server, client), daemon=True).start()
        while content := client.recv(65536):
            server.sendall(content)
        server.shutdown(socket.SHUT_WR)

    def _answer(self, server: socket.socket, client: socket.socket) -> None:
        while content := server.recv(65536):
            if not self._is_mute:
                client.sendall(content)
        if not self._is_mute:
            client.shutdown(socket.SHUT_WR)

    def _reach(self) -> socket.socket:
        server = socket.create_connection((HOST, self._behind))
        self._connections.append(server)
        return server


def _quietly(talk: Callable[..., None], *connections: socket.socket) -> None:
    with suppress(OSError):  # one side has gone
        talk(*connections)


def _swallow(client: socket.socket) -> None:
    while client.recv(65536):
        pass


def _drip(client: socket.socket) -> None:
    """Of what a true answer could begin with."""
    speaks_http2 = client.recv(65536).startswith(_HTTP2)
    if not speaks_http2:
        _slowly(client, _HEAD)
    while True:
        _slowly(client, _SETTINGS if speaks_http2 else b"x")


def _slowly(client: socket.socket, content: bytes) -> None:
    for each in content:
        client.sendall(bytes([each]))
        time.sleep(DRIP_S)
