"""Serves one trace file on this machine, for as long as the Perfetto UI in a browser needs to fetch it.

The UI's content policy admits one loopback port. The file goes from this machine to its own browser, nowhere else.
"""

import os
import shutil
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import quote, unquote_to_bytes

from rltel.core.errors import TraceError
from rltel.traces.writing import check_input

HOST, PORT = "127.0.0.1", 9001
UI = "https://ui.perfetto.dev"


class TraceServer:
    """Listens from its construction on; `run` answers until the file was fetched.

    Raises `TraceError` if there is no such file or the port is taken, `OSError` if the file cannot be read.
    """

    def __init__(self, path: Path, port: int = PORT, grace_s: float = 2.0) -> None:
        check_input(path, "a trace file or a folder with traces")
        with path.open("rb"):
            pass  # better said now than to a browser
        self._path = path
        self._grace_s = grace_s
        self._ending: threading.Timer | None = None
        self._lock = threading.Lock()
        try:
            self._server = _Server((HOST, port), _handler(self, path))
        except OSError as error:
            raise TraceError(
                f"port {port} on {HOST} cannot be had ({error.strerror}): end what has it (another served trace, or a "
                "trace processor); the Perfetto UI reaches no other port"
            ) from error
        self.url = f"http://{HOST}:{self._server.server_port}/{quote(os.fsencode(path.name))}"

    @property
    def link(self) -> str:
        """The address at which the Perfetto UI opens the file."""
        return f"{UI}/#!/?url={quote(self.url, safe=':/')}"

    def run(self) -> None:
        """Answer until the file was fetched in full and nobody asked again for a while, or until Ctrl+C."""
        try:
            self._server.serve_forever(poll_interval=0.1)
        finally:
            self.close()

    def close(self) -> None:
        """Stop listening."""
        self._stop_ending()
        self._server.server_close()

    def begun(self) -> None:
        """Somebody fetches: do not end now."""
        self._stop_ending()

    def fetched(self) -> None:
        """Somebody has the file: end soon."""
        with self._lock:
            self._ending = threading.Timer(self._grace_s, self._server.shutdown)
            self._ending.daemon = True
            self._ending.start()

    def _stop_ending(self) -> None:
        with self._lock:
            if self._ending is not None:
                self._ending.cancel()


class _Server(ThreadingHTTPServer):
    daemon_threads = True


def _handler(server: TraceServer, path: Path) -> Callable[..., BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if not self._is_ours():
                self.send_error(404)
                return
            server.begun()
            with path.open("rb") as file:
                self._head(200, os.fstat(file.fileno()).st_size)
                try:
                    shutil.copyfileobj(file, self.wfile)
                except ConnectionError:
                    return  # the browser went away; it may come again
            server.fetched()

        def do_HEAD(self) -> None:
            if self._is_ours():
                self._head(200, path.stat().st_size)
            else:
                self.send_error(404)

        def do_OPTIONS(self) -> None:
            """Browsers ask before they let a page of the internet fetch from this machine."""
            self.send_response(204)
            self.send_header("Access-Control-Allow-Origin", UI)
            self.send_header("Access-Control-Allow-Methods", "GET, HEAD")
            self.send_header("Access-Control-Allow-Private-Network", "true")
            self.end_headers()

        def _is_ours(self) -> bool:
            """Whether it asks for the file, and asks this machine: a page whose name was rebound to it does not."""
            host = self.headers.get("Host", "").partition(":")[0]
            asked = unquote_to_bytes(self.path.partition("?")[0])
            return host in (HOST, "localhost") and asked == b"/" + os.fsencode(path.name)

        def _head(self, status: int, size: int) -> None:
            self.send_response(status)
            self.send_header("Content-Type", "application/octet-stream")
            self.send_header("Content-Length", str(size))
            self.send_header("Access-Control-Allow-Origin", UI)
            self.send_header("Cache-Control", "no-cache")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """The command says what matters itself."""

    return Handler
