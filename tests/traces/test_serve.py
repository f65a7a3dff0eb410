"""One trace file, served to the Perfetto UI."""

import http.client
import os
import socket
import sys
import threading
import urllib.parse
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from rltel.core.errors import TraceError
from rltel.traces.serve import HOST, PORT, UI, TraceServer

DATA = os.urandom(300_000)
ANY = 0  # the kernel's choice: one that was found free may be taken by now


@pytest.fixture
def path(tmp_path: Path) -> Path:
    (tmp_path / "other.pftrace").write_bytes(b"secret")
    (tmp_path / "t.pftrace").write_bytes(DATA)
    return tmp_path / "t.pftrace"


@contextmanager
def running(path: Path, grace_s: float = 60.0) -> Iterator[tuple[TraceServer, threading.Thread]]:
    server = TraceServer(path, ANY, grace_s)
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        yield server, thread
    finally:
        server._server.shutdown()
        thread.join(60)
        server.close()


def ask(server: TraceServer, path: str, method: str = "GET", **headers: str) -> tuple[int, dict[str, str], bytes]:
    connection = http.client.HTTPConnection(HOST, server._server.server_port, timeout=60)
    connection.request(method, path, headers=headers)
    response = connection.getresponse()
    body = response.read()
    connection.close()
    return response.status, {key.lower(): value for key, value in response.getheaders()}, body


def test_the_file_comes_with_what_the_ui_needs(path: Path) -> None:
    with running(path) as (server, _):
        status, headers, body = ask(server, "/t.pftrace", Origin=UI)
    assert (status, body) == (200, DATA)
    assert headers["access-control-allow-origin"] == "https://ui.perfetto.dev"
    assert headers["content-length"] == str(len(DATA))


@pytest.mark.parametrize(
    "asked",
    [
        "/",
        "/other.pftrace",
        "/../t.pftrace",
        "/status",
        "/t.pftrace/",
        "/%2e%2e/other.pftrace",
        "/T.pftrace",
    ],
)
def test_nothing_else_does(path: Path, asked: str) -> None:
    with running(path) as (server, _):
        assert ask(server, asked)[0] == 404
        assert ask(server, asked, "HEAD")[0] == 404


def test_a_page_that_had_its_own_name_pointed_at_this_machine_gets_nothing(path: Path) -> None:
    with running(path) as (server, _):
        assert ask(server, "/t.pftrace", Host="evil.example:9001")[0] == 404
        assert ask(server, "/t.pftrace", Host="localhost:9001")[0] == 200


def test_asked_before_the_fetch_it_allows_only_the_ui(path: Path) -> None:
    with running(path) as (server, _):
        status, headers, _ = ask(server, "/t.pftrace", "OPTIONS", Origin="https://evil.example")
        head = ask(server, "/t.pftrace", "HEAD")
    assert status == 204
    assert headers["access-control-allow-origin"] == UI
    assert headers["access-control-allow-private-network"] == "true"
    assert (head[0], head[1]["content-length"], head[2]) == (200, str(len(DATA)), b"")


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE"])
def test_it_only_gives(path: Path, method: str) -> None:
    with running(path) as (server, _):
        assert ask(server, "/t.pftrace", method)[0] == 501


def test_it_listens_on_this_machine_only(path: Path) -> None:
    with running(path) as (server, _):
        assert server._server.server_address[0] == "127.0.0.1"


def test_it_ends_once_the_file_was_fetched(path: Path) -> None:
    server = TraceServer(path, ANY, grace_s=0.05)
    thread = threading.Thread(target=server.run)
    thread.start()
    assert ask(server, "/other")[0] == 404
    assert ask(server, "/t.pftrace", "HEAD")[0] == 200
    assert thread.is_alive(), "neither is a fetch"
    assert ask(server, "/t.pftrace")[0] == 200
    thread.join(60)
    assert not thread.is_alive()
    assert server._server.socket.fileno() < 0, "it listens no more"


def test_a_browser_that_goes_away_halfway_has_not_fetched_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "t.pftrace"
    path.write_bytes(os.urandom(30_000_000))  # more than sockets hold
    fetched: list[str] = []
    with running(path) as (server, _):
        monkeypatch.setattr(server, "fetched", lambda: fetched.append(threading.current_thread().name))
        with socket.create_connection((HOST, server._server.server_port), timeout=60) as half:
            half.sendall(b"GET /t.pftrace HTTP/1.0\r\nHost: 127.0.0.1\r\n\r\n")
            assert half.recv(1_000)
        assert ask(server, "/t.pftrace")[0] == 200
        for thread in threading.enumerate():
            if "process_request_thread" in thread.name:
                thread.join(60)
    assert len(fetched) == 1


@pytest.mark.parametrize(
    "name", ["a b.pftrace", "ü#1?x=y&z.pftrace", "100%.pftrace", "a+b.pftrace", "%2e%2e", "'\"<>.pftrace"]
)
def test_odd_names_are_data(tmp_path: Path, name: str) -> None:
    """The UI decodes the link's parameter once, and its fetch must then name the file."""
    (tmp_path / name).write_bytes(DATA)
    with running(tmp_path / name) as (server, _):
        _, _, parameters = server.link.partition("?")
        assert parameters.startswith("url=")
        url = urllib.parse.unquote(parameters.removeprefix("url="))
        assert url == server.url
        assert not set(parameters.removeprefix("url=")) & set("&=?#+ '\"<>")
        assert ask(server, urllib.parse.urlsplit(url).path)[2] == DATA


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere names are text")
def test_names_that_are_no_text_too(tmp_path: Path) -> None:
    path = tmp_path / os.fsdecode(b"\xff.pftrace")
    path.write_bytes(DATA)
    with running(path) as (server, _):
        assert ask(server, urllib.parse.urlsplit(server.url).path)[2] == DATA


def test_the_link_is_the_one_of_the_ui(path: Path) -> None:
    with running(path) as (server, _):
        port = server._server.server_port
        assert server.link == f"https://ui.perfetto.dev/#!/?url=http://127.0.0.1:{port}/t.pftrace"
    assert PORT == 9001, "the one loopback port that the UI's content policy admits"


def test_a_port_that_is_taken_is_said(path: Path) -> None:
    with running(path) as (server, _):
        port = server._server.server_port
        with pytest.raises(TraceError, match=f"port {port} on 127.0.0.1 cannot be had"):
            TraceServer(path, port)


def test_a_file_that_is_not_there_is_said_before(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match=r"no\.pftrace: no such file; expected a trace file or a folder"):
        TraceServer(tmp_path / "no.pftrace", ANY)
