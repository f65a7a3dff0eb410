"""Takes pushes as Prometheus's Pushgateway does, and keeps what came."""

from __future__ import annotations

import base64
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from realparts.processes import HOST


@dataclass
class Push:
    """One request."""

    method: str
    path: str
    credentials: str | None
    samples: list[Sample]


@dataclass
class Pushgateway:
    """What came, and how it is answered. As the real one, it refuses samples that have a time (400)."""

    url: str = ""
    pushes: list[Push] = field(default_factory=list)
    status: int = 200
    hold: threading.Event = field(default_factory=threading.Event)
    """Not set: requests hang until it is."""

    def __post_init__(self) -> None:
        self.hold.set()

    def value(self, name: str) -> float:
        """The value of the only series of that name in the last push."""
        (found,) = [sample.value for sample in self.pushes[-1].samples if sample.name == name]
        return found

    def answer(self, push: Push) -> int:
        """Keep it, if it is taken."""
        if self.status == 200 and any(sample.timestamp is not None for sample in push.samples):
            return 400
        if self.status == 200:
            self.pushes.append(push)
        return self.status


@contextmanager
def pushgateway() -> Iterator[Pushgateway]:
    """Serves on a loopback port for the length of the block."""
    gateway = Pushgateway()

    class Handler(BaseHTTPRequestHandler):
        def do_PUT(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"])).decode()
            gateway.hold.wait(30)
            samples = [sample for family in text_string_to_metric_families(body) for sample in family.samples]
            status = gateway.answer(Push("PUT", self.path, _credentials(self.headers["Authorization"]), samples))
            self.send_response(status)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: Any) -> None:
            """Requests are kept, not printed."""

    class Server(ThreadingHTTPServer):
        request_queue_size = 128  # a stalled machine must not refuse

        def handle_error(self, request: Any, client_address: Any) -> None:
            """A client that went away is what some tests want."""

    server = Server((HOST, 0), Handler)
    gateway.url = f"http://{HOST}:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield gateway
    finally:
        gateway.hold.set()
        server.shutdown()
        server.server_close()
        thread.join()


def _credentials(header: str | None) -> str | None:
    return None if header is None else base64.b64decode(header.removeprefix("Basic ")).decode()
