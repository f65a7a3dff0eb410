"""The file that a command makes: written beside its place, and moved there when all is done.

What goes wrong is told of the file that was asked for; nobody asked for a draft.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from rltel.core.errors import TraceError

Write = Callable[[bytes], object]


@contextmanager
def draft(output: Path) -> Iterator[Write]:
    """What to write with; ``output`` is replaced when the block ends without an error, else left as it was.

    Raises `TraceError` if it cannot be written.
    """
    if output.is_dir():
        raise TraceError(f"{output}: is a folder; expected the name of the file to write")
    if not output.parent.is_dir():
        raise TraceError(f"{output}: cannot be written: there is no folder {output.parent}")
    part = output.with_name(f".{output.name}.part")
    try:
        with _told(output):
            file = part.open("wb")
        try:
            yield _telling(file.write, output)
        finally:
            with _told(output):
                file.close()
        with _told(output):
            part.replace(output)
    finally:
        part.unlink(missing_ok=True)  # it is there only if something failed


def check_input(path: Path, expected: str) -> None:
    """Raises `TraceError` if this is no file; ``expected``: what one would be, in words."""
    if path.is_dir():
        raise TraceError(f"{path}: is a folder; expected {expected}")
    if not path.exists():
        raise TraceError(f"{path}: no such file; expected {expected}")


def _telling(write: Write, output: Path) -> Write:
    def told(data: bytes) -> None:
        with _told(output):
            write(data)

    return told


@contextmanager
def _told(output: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise TraceError(f"{output}: cannot be written: {error.strerror or error}") from error
