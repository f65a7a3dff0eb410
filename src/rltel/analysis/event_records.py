"""The records of an event file, read as they stream by, and what of them could not be read.

TensorBoard's own reader stops at a damaged record without a word, and computes checksums in a Python loop.
"""

import os
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rltel.core.errors import RltelError
from rltel.export.tensorboard.crc32c import masked_crc32c

_LENGTH, _SUM = struct.Struct("<Q"), struct.Struct("<I")
_HEAD = _LENGTH.size + _SUM.size


class EventRecords:
    """Iterate to get each record's bytes; afterwards ``damage`` says what was not read, None if nothing is missing.

    A record that is damaged inside is left out; behind one whose length is, or that is cut short, nothing can be found.
    Raises `RltelError` for a file that is no event file, OSError if it cannot be read.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.damage: str | None = None
        self._read = self._damaged = 0

    def __iter__(self) -> Iterator[bytes]:
        self._read = self._damaged = 0
        self.damage = None
        with self.path.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            while head := file.read(_HEAD):
                begin = file.tell() - len(head)
                length = self._length(head)
                if length is None:
                    break
                data, its_sum = file.read(min(length, size)), file.read(_SUM.size)
                if len(data) + len(its_sum) < length + _SUM.size:
                    break
                if _SUM.unpack(its_sum)[0] == masked_crc32c(data):
                    self._read += 1
                    yield data
                else:
                    self._damaged += 1
            else:
                self._say(None)
                return
            self._say(f"stops at byte {begin} of {size}, where one is cut short or damaged")

    def _length(self, head: bytes) -> int | None:
        """None if the head does not say."""
        if len(head) < _HEAD:
            return None
        if _SUM.unpack_from(head, _LENGTH.size)[0] != masked_crc32c(head[: _LENGTH.size]):
            if not self._read + self._damaged:
                raise RltelError(f"{self.path}: expected a TensorBoard event file, got something else, or a packed one")
            return None
        return int(_LENGTH.unpack_from(head)[0])

    def _say(self, stop: str | None) -> None:
        skipped = [f"leaves out {self._damaged} damaged records"] if self._damaged else []
        parts = [*skipped, *([stop] if stop else [])]
        if parts:
            self.damage = f"{self.path}: {self._read} records read; reading {' and '.join(parts)}"


def record_of(data: bytes) -> bytes:
    """A record as it stands in a file, with both checksums."""
    length = _LENGTH.pack(len(data))
    return b"".join((length, _SUM.pack(masked_crc32c(length)), data, _SUM.pack(masked_crc32c(data))))


def events_of(records: EventRecords) -> Iterator[tuple[bytes, Any]]:
    """Each record, and what it is as TensorBoard's official ``Event``.

    Raises `RltelError` for records of another kind, or if TensorBoard is not installed.
    """
    try:
        from google.protobuf.message import DecodeError  # heavy, and an extra: only where they are used
        from tensorboard.compat.proto.event_pb2 import Event
    except ImportError as missing:
        raise RltelError('event files: need the extra: pip install "rltel[tensorboard]"') from missing
    for data in records:
        try:
            event = Event.FromString(data)
        except DecodeError as error:
            raise RltelError(f"{records.path}: expected TensorBoard events, got records of another kind") from error
        yield data, event
