"""Secrets never reach a file, a log or a backend: one place decides what a secret is."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

HIDDEN = "[redacted]"
_SECRET_NAME = re.compile(
    r"(api|access|private|account|ssh|gpg|encryption|signing|session|master|wandb|swanlab|openai|hf)[-_ ]?key"
    r"|secret|passw|passphrase|credential|authorization|cookie|headers\b|bearer|webhook"
    r"|(?<![a-z])(o?auths?|jwt|pat)(?![a-z])"
    r"|(?<=[-_ ])pwd|(?-i:(?<![A-Za-z])pwd)",  # the shells' PWD is a folder
    re.IGNORECASE,
)
_TOKEN_NAME = re.compile(r"token(?!i[sz])", re.IGNORECASE)  # a tokenizer is no secret
_URL = re.compile(r"\S+://\S*")
_USER = re.compile(r"(?:^|(?<=://))[^/\s?#]*@")

# In a text, as a command line or an error message has them. A name is bounded, so that no text takes forever.
_SCHEME = re.compile(r"(authorization\W{1,4}(?:\w{1,20} +)?|\b(?-i:Bearer) +)([^\s\"',;]{4,})", re.IGNORECASE)
_ASSIGNED = re.compile(r"(?<![\w.-])([\w.-]{1,80})([\"']?\s?[=:]\s?[\"']?)([^\s\"',;&{(\[][^\s\"',;&]*)")
_OPTION = re.compile(r"(?<![\w-])(--?[A-Za-z][\w.-]{0,80})(\s)([^\s\"'-][^\s\"',;]*)")
_LOOKS = re.compile(
    r"\b(?:hf_[A-Za-z0-9]{20,}|sk-[A-Za-z0-9_-]{20,}|gh[opsu]_[A-Za-z0-9]{20,}|github_pat_\w{20,}|glpat-[\w-]{16,}"
    r"|AKIA[A-Z0-9]{16}|xox[abprs]-[\w-]{10,}|eyJ[\w-]{10,}\.[\w-]{10,}\.[\w-]+)"
)
_WEBHOOK = re.compile(r"(://hooks\.slack\.com|://discord(?:app)?\.com/api/webhooks)/[^\s\"']*")
_SCHEMES = {"bearer", "basic", "digest", "token"}  # what follows them in a header is hidden already
_SHORTEST = 6  # what is shorter would be found in every second word


def redact_url(url: str) -> str:
    """The same URL without its user name, password and query (tokens travel in all three)."""
    address, _, query = _USER.sub("", url).partition("#")[0].partition("?")
    return f"{address}?{HIDDEN}" if query else address


def redact(value: Any, name: str = "") -> Any:
    """A copy of plain data with every secret replaced by ``[redacted]``.

    A value is a secret if its key, or a key around it, reads like one (``api_key``, ``password``, ``token``,
    ``headers`` ...), or if it is the password part of a URL. Numbers of tokens are not: ``max_tokens`` is a setting.
    In the middle of a text it is one where it is given to such a name (``password=...``, ``--api-key ...``,
    ``Authorization: Bearer ...``), or looks like a well-known service's (``hf_...``, ``sk-...``).
    """
    if isinstance(value, Mapping):
        return {key: redact(item, f"{name}.{key}" if _reads_secret(name) else str(key)) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [redact(item, name) for item in value]
    if value is not None and _is_secret(name, value):
        return HIDDEN
    return _redact_text(value) if isinstance(value, str) else value


def secrets_in(value: Any) -> Iterator[str]:
    """The secrets that `redact` takes out of plain data, so that they can be found in other texts too.

    Short ones and numbers are left out: they would be found in every second word.
    """
    yield from _taken_out(value, redact(value))


def covered(value: Any, secrets: Iterable[str]) -> Any:
    """A copy of plain data in which these secrets are hidden in every text, keys included."""
    longest_first = sorted(secrets, key=len, reverse=True)  # one may be a part of another
    return _covered(value, longest_first)


def is_secret_option(name: str, text: str) -> bool:
    """Whether what an option is given, as text, is a secret: the 4096 of ``--max-tokens`` is not."""
    return _is_secret(name, float(text) if _is_number(text) else text)


def _covered(value: Any, secrets: Sequence[str]) -> Any:
    if isinstance(value, Mapping):
        return {_covered(str(key), secrets): _covered(item, secrets) for key, item in value.items()}
    if isinstance(value, list):
        return [_covered(item, secrets) for item in value]
    if isinstance(value, str):
        for secret in secrets:
            value = value.replace(secret, HIDDEN)
    return value


def _redact_text(text: str) -> str:
    if "://" in text:
        text = _WEBHOOK.sub(rf"\1/{HIDDEN}", _URL.sub(lambda found: redact_url(found.group()), text))
    text = _SCHEME.sub(rf"\1{HIDDEN}", text)
    for form in (_ASSIGNED, _OPTION):
        text = form.sub(_without_value, text)
    return _LOOKS.sub(HIDDEN, text)


def _without_value(found: re.Match[str]) -> str:
    name, between, value = found.groups()
    is_address = value.startswith("//")  # of `auth://host`
    is_scheme = value.lower() in _SCHEMES
    return f"{name}{between}{HIDDEN}" if not (is_address or is_scheme) and is_secret_option(name, value) else found[0]


def _reads_secret(name: str) -> bool:
    return bool(_SECRET_NAME.search(name) or _TOKEN_NAME.search(name))


def _is_secret(name: str, value: Any) -> bool:
    if _SECRET_NAME.search(name):
        return True
    is_amount = isinstance(value, (int, float)) and not name.lower().endswith("token")
    return bool(_TOKEN_NAME.search(name)) and not is_amount


def _taken_out(value: Any, shown: Any) -> Iterator[str]:
    if isinstance(value, Mapping):
        for key, item in value.items():
            yield from _taken_out(item, shown[key])
    elif isinstance(value, (list, tuple)):
        for item, item_shown in zip(value, shown, strict=True):
            yield from _taken_out(item, item_shown)
    elif shown == HIDDEN and isinstance(value, str) and len(value) >= _SHORTEST and not _is_number(value):
        yield value


def _is_number(text: str) -> bool:
    """``MAX_TOKENS=100000`` is no secret, whatever its name looks like."""
    try:
        float(text)
    except ValueError:
        return False
    return True
