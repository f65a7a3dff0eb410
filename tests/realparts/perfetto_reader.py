"""Reads a native Perfetto trace with the official protobuf classes."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import TypeAlias

from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import TracePacket as TracePacketMessage

TracePacket: TypeAlias = TracePacketMessage
"""The official class, for annotations in tests."""

_PACKET_TAG = 0x0A  # field 1 of the message Trace, length-delimited
_VARINT_BYTES = 10


def read_packets(trace_path: Path | str) -> Iterator[TracePacket]:
    """Yields the packets of a trace file in file order, those of compressed packets in their place.

    A last packet that is cut off is left out, as the trace processor does: a writer that was killed
    leaves such a file.

    Raises:
        ValueError: What stands in the file is not a trace. A cut alone never raises.
        zlib.error: A compressed packet is damaged.
    """
    return parse_packets(Path(trace_path).read_bytes())


def parse_packets(data: bytes) -> Iterator[TracePacket]:
    """Like `read_packets`, for bytes."""
    for message in _complete_messages(data):
        packet = TracePacketMessage.FromString(message)
        if packet.HasField("compressed_packets"):
            yield from parse_packets(zlib.decompress(packet.compressed_packets))
        else:
            yield packet


def _complete_messages(data: bytes) -> Iterator[bytes]:
    at = 0
    while at < len(data):
        if data[at] != _PACKET_TAG:
            raise ValueError(f"no trace packet at byte {at}: tag {data[at]:#04x} in place of {_PACKET_TAG:#04x}")
        length, start = _varint(data, at + 1)
        if start is None or start + length > len(data):
            return
        yield data[start : start + length]
        at = start + length


def _varint(data: bytes, at: int) -> tuple[int, int | None]:
    """The number at ``at`` and where the next byte is, which is None if the data end before."""
    value = 0
    for index, byte in enumerate(data[at : at + _VARINT_BYTES]):
        value |= (byte & 0x7F) << (7 * index)
        if byte < 0x80:
            return value, at + index + 1
    if at + _VARINT_BYTES <= len(data):
        raise ValueError(f"no length at byte {at}: a varint of more than {_VARINT_BYTES} bytes")
    return 0, None
