"""Small files that several processes may want to make at once."""

import json
import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any


def publish(path: Path, content: Mapping[str, Any]) -> bool:
    """Write a JSON file that appears whole or not at all. False if it was there already: exactly one process wins."""
    draft = _draft(path, content)
    try:
        os.link(draft, path)
    except FileExistsError:
        return draft.stat().st_nlink == 2  # NFS repeats a call whose answer was lost: then the link is ours
    finally:
        draft.unlink()
    return True


def replace(path: Path, content: Any) -> None:
    """Write a JSON file so that a reader sees the old content or the new, never a part."""
    _draft(path, content).replace(path)


def _draft(path: Path, content: Any) -> Path:
    draft = path.with_name(f".{path.name}.{os.getpid()}.{os.urandom(4).hex()}")
    try:
        draft.write_text(json.dumps(content) + "\n")
    except OSError as error:
        with suppress(OSError):
            draft.unlink(missing_ok=True)
        raise OSError(error.errno, error.strerror, str(path)) from error  # a write's own error names no file
    return draft
