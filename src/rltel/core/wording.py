"""Words for people: whether a value fits a field of the config, how an error says so, and text for a terminal."""

import json
import math
import types
import typing
from collections.abc import Iterable
from difflib import get_close_matches
from typing import Annotated, Any, Literal, get_args, get_origin

import msgspec

from rltel.core.redact import redact

_MAX_SHOWN = 200
_PLAIN = {str: "a string", bool: "true or false", int: "a whole number", float: "a number", type(None): "null"}


def fits(value: Any, kind: Any) -> bool:
    """Whether plain data is of this type, bounds included. Numbers have to be finite."""
    try:
        msgspec.convert(value, kind)
    except msgspec.ValidationError:
        return False
    return not isinstance(value, float) or math.isfinite(value)


def has_nul(value: Any) -> bool:
    """Whether a text, or one of a list, has a NUL: no path, URL or header can."""
    texts = value if isinstance(value, (list, tuple)) else (value,)
    return any(isinstance(text, str) and "\0" in text for text in texts)


def misfit(path: str, kind: Any, value: Any, origin: str = "") -> str:
    """The sentence about a value that does not fit: ``trace.steps: expected ..., got ...``. Secrets are redacted."""
    return f"{path}: expected {described(kind)}, got {shown(value, path)}{f' (from {origin})' if origin else ''}"


def suggestion(name: Any, known: Iterable[str]) -> str:
    """`` (did you mean "port"?)``, or nothing if nothing is close."""
    close = get_close_matches(str(name), list(known), n=1)
    return f' (did you mean "{close[0]}"?)' if close else ""


def shown(value: Any, name: str) -> str:
    """A value for people, without secrets and without end."""
    try:
        text = json.dumps(redact(value, name))
    except TypeError:
        text = repr(redact(value, name))
    return text if len(text) <= _MAX_SHOWN else f"{text[:_MAX_SHOWN]}..."


def printable(text: str) -> str:
    """Somebody's text in one line of a terminal: control characters would move the cursor."""
    return text if text.isprintable() else "".join(each if each.isprintable() else "?" for each in text)


def writable(text: str) -> str:
    """The text, with half characters spelled out (``os.listdir`` gives such names): no destination can write them.

    The same object if there are none.
    """
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode(errors="backslashreplace").decode()
    return text


def alternatives(kind: Any) -> tuple[Any, ...]:
    """The members of a union, without their annotations."""
    if get_origin(kind) is Annotated:
        return alternatives(get_args(kind)[0])
    if get_origin(kind) in (typing.Union, types.UnionType):
        return tuple(part for member in get_args(kind) for part in alternatives(member))
    return (kind,)


def literals(kind: Any) -> tuple[Any, ...]:
    """The words that a field takes, if it takes only those."""
    return tuple(v for part in alternatives(kind) if get_origin(part) is Literal for v in get_args(part))


def described(kind: Any) -> str:
    """A field's type in words: ``a number > 0``, ``one of "step", "env_steps"``, ``a string or null``."""
    if get_origin(kind) is Annotated:
        base, *notes = get_args(kind)
        for note in notes:
            if isinstance(note, msgspec.Meta) and note.description is not None:
                return note.description  # better words than those that are made of the type
        return described(base) + "".join(_bounds(note) for note in notes if isinstance(note, msgspec.Meta))
    if get_origin(kind) in (typing.Union, types.UnionType):
        return " or ".join(described(member) for member in get_args(kind))
    if get_origin(kind) is Literal:
        choices = [json.dumps(choice) for choice in get_args(kind)]
        return choices[0] if len(choices) == 1 else "one of " + ", ".join(choices)
    if get_origin(kind) is list:
        return f"a list ({described(get_args(kind)[0])} each)"
    if get_origin(kind) is dict:
        return "a mapping with strings as keys" + (" and values" if get_args(kind)[1] is str else "")
    return _PLAIN.get(kind, str(kind))


def _bounds(meta: msgspec.Meta) -> str:
    if meta.min_length is not None and meta.min_length == meta.max_length:
        return f" of length {meta.min_length}"
    parts = [
        f"{sign} {bound:g}" for sign, bound in ((">", meta.gt), (">=", meta.ge), ("<=", meta.le)) if bound is not None
    ]
    return " " + " and ".join(parts) if parts else ""
