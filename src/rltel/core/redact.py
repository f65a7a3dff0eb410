"""Secrets never reach a file, a log or a backend: one place decides what a secret is."""

import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit, urlunsplit

HIDDEN = "[redacted]"
_SECRET_NAME = re.compile(r"(api_?key|token|secret|password|passwd|credential|authorization)", re.IGNORECASE)
_SECRET_SECTIONS = frozenset({"headers"})


def redact_url(url: str) -> str:
    """The same URL without its user name, password and query (tokens travel in all three)."""
    parts = urlsplit(url)
    host = parts.netloc.rpartition("@")[2]
    return urlunsplit((parts.scheme, host, parts.path, HIDDEN if parts.query else "", ""))


def redact(value: Any, name: str = "") -> Any:
    """A copy of plain data with every secret replaced by ``[redacted]``.

    A value is a secret if its key reads like one (``api_key``, ``password``, ``token`` ...), if it is a header,
    or if it is the password part of a URL.
    """
    if isinstance(value, Mapping):
        if name in _SECRET_SECTIONS:
            return dict.fromkeys(value, HIDDEN)
        return {key: redact(item, str(key)) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [redact(item, name) for item in value]
    if value is not None and _SECRET_NAME.search(name):
        return HIDDEN
    if isinstance(value, str) and "://" in value:
        return redact_url(value)
    return value
