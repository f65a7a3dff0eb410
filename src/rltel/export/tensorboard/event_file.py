"""One TensorBoard event file: records with their checksums, each with the kernel when `write` returns.

TensorBoard's own writer has a thread and a queue, computes checksums in a Python loop, and puts the host's name into
the file's.
"""

import errno
import os
import struct
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

from rltel.core.errors import ConfigError
from rltel.export.tensorboard.crc32c import masked_crc32c

_WRITER = "rltel"


class EventFile:
    """A file of its own, made when this is. ``writer``: a name that tells processes apart, without the host's.

    Readers take a folder's files in the order of their names, so those begin with the time. Raises OSError, which names
    the file, if it cannot be made; none is left then.
    """

    def __init__(self, folder: Path, writer: str = "") -> None:
        self._protos = protos()
        folder.mkdir(parents=True, exist_ok=True)
        self.path, self._descriptor = _create(folder, writer or str(os.getpid()))
        self._size = 0
        self._torn = False  # whether it ends in half a record
        about = self._protos.SourceMetadata(writer=_WRITER)
        head = self._protos.Event(wall_time=time.time(), file_version="brain.Event:2", source_metadata=about)
        try:
            self._append(head)
        except OSError:
            self.close()
            with suppress(OSError):
                self.path.unlink()
            raise

    def write(self, time_ns: int, step: int, values: Iterable[Any]) -> None:
        """One event with all these ``Summary.Value``. Raises OSError for a full disk; the file stays readable."""
        summary = self._protos.Summary(value=values)
        self._append(self._protos.Event(wall_time=time_ns / 1e9, step=step, summary=summary))

    def start(self, time_ns: int, step: int) -> None:
        """Say that the run begins (again) at this step: what readers have from this step on is void."""
        began = self._protos.SessionLog(status=self._protos.SessionLog.START)
        self._append(self._protos.Event(wall_time=time_ns / 1e9, step=step, session_log=began))

    def close(self) -> None:
        """Close the file. A second call does nothing."""
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)

    def _append(self, event: Any) -> None:
        data = event.SerializeToString()
        length = struct.pack("<Q", len(data))
        sums = (struct.pack("<I", masked_crc32c(part)) for part in (length, data))
        record = b"".join((length, next(sums), data, next(sums)))
        try:
            self._mend()
            written = os.write(self._descriptor, record)
            if written != len(record):
                self._torn = True
                self._mend()
                raise OSError(errno.ENOSPC, f"only {written} of {len(record)} bytes written")
        except OSError as error:
            raise OSError(error.errno, error.strerror, str(self.path)) from error  # a write's own names no file
        self._size += written

    def _mend(self) -> None:
        """Cut off half a record: readers stop there, whatever follows."""
        if self._torn:
            os.ftruncate(self._descriptor, self._size)
            self._torn = False


def _create(folder: Path, writer: str) -> tuple[Path, int]:
    while True:
        seconds, nanoseconds = divmod(time.time_ns(), 10**9)
        path = folder / f"events.out.tfevents.{seconds:010d}.{nanoseconds:09d}.{writer}"
        try:
            return path, os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_EXCL, 0o644)
        except FileExistsError:
            continue  # another of this name, in the same nanosecond


class _Protos:
    """TensorBoard's official classes."""

    def __init__(self) -> None:
        from tensorboard.compat.proto import event_pb2, summary_pb2  # heavy, and an extra: only where it is used

        self.Event, self.SessionLog = event_pb2.Event, event_pb2.SessionLog
        self.SourceMetadata = event_pb2.SourceMetadata
        self.Summary, self.Histogram = summary_pb2.Summary, summary_pb2.HistogramProto


def protos() -> Any:
    """The official classes. Raises `ConfigError` if TensorBoard is not installed."""
    try:
        return _Protos()
    except ImportError as missing:
        raise ConfigError('tensorboard.path: needs the extra: pip install "rltel[tensorboard]"') from missing
