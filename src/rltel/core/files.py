"""Small files that several processes may want to make at once."""

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
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


@contextmanager
def one_at_a_time(folder: Path) -> Iterator[None]:
    """Processes of one host go through the body one after the other, as far as the file system knows locks.

    A courtesy: what has to be exclusive is so without it. A process that dies lets the next one in.
    """
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        with suppress(ImportError, OSError):  # Windows has no such module, some network file systems no locks
            import fcntl

            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _draft(path: Path, content: Any) -> Path:
    draft = path.with_name(f".{path.name}.{os.getpid()}.{os.urandom(4).hex()}")
    try:
        draft.write_text(json.dumps(content) + "\n")
    except OSError as error:
        with suppress(OSError):
            draft.unlink(missing_ok=True)
        raise OSError(error.errno, error.strerror, str(path)) from error  # a write's own error names no file
    return draft
