"""JSON files about a run: a reader sees the old one or the new, and another program's file is never overwritten."""

import json
import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from rltel.version import VERSION

_SIGNATURE = "written_by"
_NAME = "rltel"


def write_json(path: Path, content: Mapping[str, Any]) -> Path:
    """Write it, signed as ours, and give back where: beside a file of that name that another program wrote.

    Written whole under another name and then renamed, without fsync: it survives the death of the process, and not
    that of the machine. Raises OSError, and leaves no draft; ValueError for numbers that JSON cannot hold.
    """
    text = json.dumps({_SIGNATURE: f"{_NAME} {VERSION}", **content}, indent=2, allow_nan=False)
    place = place_of(path)
    draft = place.with_name(f".{place.name}.{os.getpid()}.{os.urandom(4).hex()}")
    try:
        draft.write_text(text + "\n", encoding="utf-8", errors="backslashreplace")
        draft.replace(place)
    except OSError as error:
        with suppress(OSError):
            draft.unlink(missing_ok=True)
        raise OSError(error.errno, error.strerror, str(place)) from error  # a write's own error names no file
    return place


def read_json(path: Path) -> dict[str, Any] | None:
    """What we wrote under this name; None if we wrote nothing, or it is broken."""
    found = _read(place_of(path))
    return found if found is not None and _is_ours(found) else None


def place_of(path: Path) -> Path:
    """Where ours is: ``run_summary.json``, or ``run_summary.rltel.json`` if the first is another program's.

    A trainer like UniLab writes files of these names itself, and its readers want its own.
    """
    is_free = not path.exists() or _is_ours(_read(path) or {})
    return path if is_free else path.with_suffix(f".{_NAME}{path.suffix}")


def _read(path: Path) -> dict[str, Any] | None:
    with suppress(OSError, ValueError):
        found = json.loads(path.read_text(encoding="utf-8"))
        if isinstance(found, dict):
            return found
    return None


def _is_ours(content: Mapping[str, Any]) -> bool:
    return str(content.get(_SIGNATURE, "")).split(" ")[0] == _NAME
