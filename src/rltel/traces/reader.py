"""Reads native Perfetto files as a stream of packets, with a memory that does not grow with the file."""

import zlib
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path
from typing import BinaryIO

from google.protobuf.message import DecodeError
from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import TracePacket

from rltel.core.errors import TraceError

_PACKET_TAG = 0x0A
_LONGEST = 1 << 31  # protobuf's own limit of a message


def read_packets(path: Path) -> Iterator[TracePacket]:
    """Every complete packet of a file, blocks of compressed ones taken apart. A cut at the end is no error.

    Raises `TraceError` if the file is not a native Perfetto trace, or is damaged inside.
    """
    with path.open("rb") as file:
        for raw in _framed(file, path):
            packet = _parsed(raw, path)
            if packet.HasField("compressed_packets"):
                block = BytesIO(_inflated(packet.compressed_packets, path))
                yield from (_parsed(inner, path) for inner in _framed(block, path))
            else:
                yield packet


def _parsed(raw: bytes, path: Path) -> TracePacket:
    try:
        return TracePacket.FromString(raw)
    except DecodeError as error:
        raise TraceError(f"{path}: a damaged packet: {error}") from error


def _inflated(block: bytes, path: Path) -> bytes:
    try:
        return zlib.decompress(block)
    except zlib.error as error:
        raise TraceError(f"{path}: a damaged block of packets: {error}") from error


def _framed(file: BinaryIO, path: Path) -> Iterator[bytes]:
    while tag := file.read(1):
        if tag[0] != _PACKET_TAG:
            raise TraceError(f"{path}: not a native Perfetto trace (byte {tag[0]:#04x} where a packet should begin)")
        length = _varint(file)
        if length is None:
            return
        if length >= _LONGEST:
            raise TraceError(f"{path}: not a native Perfetto trace (a packet of {length} bytes)")
        raw = file.read(length)
        if len(raw) < length:
            return
        yield raw


def _varint(file: BinaryIO) -> int | None:
    """A base-128 number; None if the file ends inside it. Nothing longer than 64 bits is read."""
    value = shift = 0
    while shift < 64 and (byte := file.read(1)):
        value |= (byte[0] & 0x7F) << shift
        if byte[0] < 0x80:
            return value
        shift += 7
    return value if shift >= 64 else None
