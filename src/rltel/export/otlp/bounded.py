"""HTTP requests that end by a deadline, however the other side goes about it.

The libraries below bound each wait for the network, so that one that sends a byte now and then is waited for without
end. Here every wait gets what is left of the whole. (Looking up a host's name takes what the system allows, and of
several addresses of a name each is given the time to connect.)
"""

import io
import time
from functools import partial
from http.client import HTTPResponse
from typing import Any

from requests.adapters import HTTPAdapter

_SLICE = 16384  # what TLS writes at once: the most that waits only once


class Deadline:
    """When the request that is on its way has to be done. One at a time."""

    def __init__(self) -> None:
        self._at = 0.0

    def begin(self, seconds: float) -> None:
        """It has so many seconds from now."""
        self._at = time.monotonic() + seconds

    def left_s(self) -> float:
        """Raises TimeoutError if nothing is left."""
        left = self._at - time.monotonic()
        if left <= 0:
            raise TimeoutError("timed out")
        return left


class BoundedAdapter(HTTPAdapter):
    """Puts a deadline on whatever a session sends and reads, through a proxy too."""

    def __init__(self, deadline: Deadline) -> None:
        super().__init__()
        self._deadline = deadline

    def get_connection_with_tls_context(self, *args: Any, **kwargs: Any) -> Any:
        """As before, with connections that look at the deadline."""
        pool = super().get_connection_with_tls_context(*args, **kwargs)
        if not issubclass(pool.ConnectionCls, _Bounded):
            pool.ConnectionCls = type("BoundedConnection", (_Bounded, pool.ConnectionCls), {"deadline": self._deadline})
        return pool


class _Bounded:
    """Goes before a class of connections."""

    deadline: Deadline
    sock: Any

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.response_class = partial(_BoundedResponse, self.deadline)

    def send(self, data: Any) -> None:
        for begin in range(0, len(data), _SLICE):
            if self.sock is not None:  # else this connects first, which has its own bound
                self.sock.settimeout(self.deadline.left_s())
            super().send(data[begin : begin + _SLICE])  # type: ignore[misc]  # of the class that follows


class _BoundedResponse(HTTPResponse):
    def __init__(self, deadline: Deadline, sock: Any, *args: Any, **kwargs: Any) -> None:
        super().__init__(sock, *args, **kwargs)
        self.fp.close()
        self.fp = io.BufferedReader(_BoundedReader(deadline, sock))


class _BoundedReader(io.RawIOBase):
    """What comes from a socket, with what is left of the time for each wait."""

    def __init__(self, deadline: Deadline, sock: Any) -> None:
        self._deadline = deadline
        self._sock = sock
        self._raw = sock.makefile("rb", buffering=0)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:
        self._sock.settimeout(self._deadline.left_s())
        taken: int | None = self._raw.readinto(buffer)
        return taken

    def close(self) -> None:
        self._raw.close()
        super().close()
