"""Keeps what libraries log about our own exports out of the log: it is counted and said once, redacted, by us.

They log failures and retries with addresses as they are (at debug level whole URLs, with tokens in their queries).
"""

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager

HTTP_LOGGERS = ("urllib3.connectionpool", "urllib3.connection", "urllib3.util.retry")
"""Of what is below ``requests``."""


class _Quiet(threading.local):
    """Whether this thread is in an exporter of ours."""

    exporting = False

    def filter(self, record: logging.LogRecord) -> bool:
        """Of the libraries' loggers: what they say of others' exports stays."""
        return not self.exporting


_quiet = _Quiet()


def quieten(*loggers: str) -> None:
    """These loggers say nothing while their thread is in `quietly`. (A filter does not reach a logger's children.)"""
    for name in loggers:
        logging.getLogger(name).addFilter(_quiet)


@contextmanager
def quietly() -> Iterator[None]:
    """While an exporter of ours runs on this thread."""
    _quiet.exporting = True
    try:
        yield
    finally:
        _quiet.exporting = False
