"""Secrets never reach a file, a log or a backend: one place decides what a secret is."""

import re
from collections.abc import Mapping
from typing import Any

HIDDEN = "[redacted]"
_SECRET_NAME = re.compile(
    r"(api|access|private|account)[-_ ]?key|secret|passw|passphrase|credential|authorization|cookie|headers\b"
    r"|(?<![a-z])auth(?![a-z])",
    re.IGNORECASE,
)
_TOKEN_NAME = re.compile(r"token(?!i[sz])", re.IGNORECASE)  # a tokenizer is no secret
_URL = re.compile(r"\S+://\S*")
_USER = re.compile(r"(?:^|(?<=://))[^/\s?#]*@")


def redact_url(url: str) -> str:
    """The same URL without its user name, password and query (tokens travel in all three)."""
    address, _, query = _USER.sub("", url).partition("#")[0].partition("?")
    return f"{address}?{HIDDEN}" if query else address


def redact(value: Any, name: str = "") -> Any:
    """A copy of plain data with every secret replaced by ``[redacted]``.

    A value is a secret if its key, or a key around it, reads like one (``api_key``, ``password``, ``token``,
    ``headers`` ...), or if it is the password part of a URL. Numbers of tokens are not: ``max_tokens`` is a setting.
    """
    if isinstance(value, Mapping):
        return {key: redact(item, f"{name}.{key}" if _reads_secret(name) else str(key)) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [redact(item, name) for item in value]
    if value is not None and _is_secret(name, value):
        return HIDDEN
    if isinstance(value, str) and "://" in value:
        return _URL.sub(lambda found: redact_url(found.group()), value)
    return value


def _reads_secret(name: str) -> bool:
    return bool(_SECRET_NAME.search(name) or _TOKEN_NAME.search(name))


def _is_secret(name: str, value: Any) -> bool:
    if _SECRET_NAME.search(name):
        return True
    is_amount = isinstance(value, (int, float)) and not name.lower().endswith("token")
    return bool(_TOKEN_NAME.search(name)) and not is_amount
