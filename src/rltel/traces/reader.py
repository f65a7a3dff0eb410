"""Reads native Perfetto files as a stream of packets, with a memory that does not grow with the file."""

import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

from google.protobuf.message import DecodeError
from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import TracePacket

from rltel.core.errors import TraceError

SUFFIX = ".pftrace"
_PACKET_TAG = 0x0A
_COMPRESSED_TAG = b"\x92\x03"  # field 50 of TracePacket
_LONGEST = 1 << 31  # protobuf's own limit of a message
_OTHER_FORMATS = b"{[\x1f"  # JSON, or gzip
_CHUNK = 1 << 18
_FEED = 1 << 16


def read_packets(path: Path) -> Iterator[TracePacket]:
    """Every complete packet of a file, blocks of compressed ones taken apart. A cut at the end is no error.

    Raises `TraceError` if the file is not a native Perfetto trace, or is damaged inside.
    """
    for raw in raw_packets(path):
        yield parsed(raw, path)


def raw_packets(path: Path, passed: Callable[[int], None] | None = None) -> Iterator[bytes]:
    """Like `read_packets`, each packet as the bytes of its message. ``passed`` is told now and then how far it is."""
    frames, told = FileFrames(path), 0
    for raw in frames:
        if passed is not None and frames.offset - told >= _CHUNK:
            told = frames.offset
            passed(told)
        block = compressed_block(raw, path)
        if block is None:
            yield raw
        else:
            yield from inflated_packets(block, path)


def parsed(raw: bytes, path: Path) -> TracePacket:
    """One packet. Raises `TraceError` if it is none."""
    try:
        return TracePacket.FromString(raw)
    except DecodeError as error:
        raise TraceError(f"{path}: a damaged packet: {error}") from error


def text(found: str | bytes) -> str:
    """A string of a packet. What is no UTF-8 comes as bytes from the official classes: a name, and no damage."""
    return found if isinstance(found, str) else found.decode(errors="replace")


def compressed_block(raw: bytes, path: Path) -> bytes | None:
    """The deflated packets that a packet holds, or None if it is an ordinary one."""
    if raw.startswith(_COMPRESSED_TAG):
        length, start = read_varint(raw, len(_COMPRESSED_TAG))
        if start + length == len(raw):
            return raw[start:]
    if _COMPRESSED_TAG not in raw:
        return None
    packet = parsed(raw, path)
    return packet.compressed_packets if packet.HasField("compressed_packets") else None


def inflated_packets(block: bytes, path: Path) -> Iterator[bytes]:
    """The packets of a compressed block. Raises `TraceError` if the block is damaged."""
    frames = Frames(_Inflater(block, path).read, path)
    yield from frames
    if frames.cut:
        raise TraceError(f"{path}: a damaged block of packets: it ends within a packet")


class Frames:
    """The packets in a stream of bytes, as far as they are whole."""

    def __init__(self, read: Callable[[int], bytes], path: Path, size: int | None = None) -> None:
        self._read = read
        self._path = path
        self._size = size
        self.offset = 0
        """Where the packet that was given out last begins."""
        self.end = 0
        """Where the whole packets end."""
        self.cut = False
        """Whether something follows them: the stream ends within a packet."""

    def __iter__(self) -> Iterator[bytes]:
        data, at, base = b"", 0, 0  # base: where data begins in the stream
        while True:
            filled, stop = len(data), 0
            while at + 1 < filled:
                if data[at] != _PACKET_TAG:
                    raise self._no_packet(data[at], base + at)
                length, start = data[at + 1], at + 2
                if length >= 0x80:
                    length, start = read_varint(data, at + 1)
                    if not start:
                        break
                    if length >= _LONGEST:
                        raise TraceError(f"{self._path}: not a native Perfetto trace (a packet of {length} bytes)")
                stop = start + length
                if stop > filled:
                    break
                self.offset = base + at
                yield data[start:stop]
                at = stop
            self.end = base + at
            within = self._size is None or base + stop <= self._size
            more = self._read(max(_CHUNK, stop - filled)) if within else b""  # or it would be read for nothing
            if not more:
                self.cut = at < filled
                if self.cut and data[at] != _PACKET_TAG:
                    raise self._no_packet(data[at], self.end)
                return
            data, at, base = data[at:] + more, 0, self.end

    def _no_packet(self, byte: int, offset: int) -> TraceError:
        if offset == 0 and byte in _OTHER_FORMATS:
            return TraceError(f"{self._path}: not a native Perfetto trace; rltel trace convert makes one of JSON")
        where = f"byte {byte:#04x} at {offset} where a packet should begin"
        return TraceError(f"{self._path}: not a native Perfetto trace, or damaged ({where})")


class FileFrames(Frames):
    """The packets of a file as they stand there, compressed blocks unopened."""

    def __init__(self, path: Path) -> None:
        super().__init__(lambda _: b"", path, path.stat().st_size)
        self.size: int = path.stat().st_size

    def __iter__(self) -> Iterator[bytes]:
        with self._path.open("rb") as file:
            self._read = file.read
            yield from super().__iter__()


class _Inflater:
    """A deflated block, read piece by piece: inflated at once, a block can be a hundred times its size."""

    def __init__(self, block: bytes, path: Path) -> None:
        self._block = block
        self._path = path
        self._at = 0
        self._inflate = zlib.decompressobj()

    def read(self, size: int) -> bytes:
        """Up to ``size`` inflated bytes; none at the end."""
        try:
            while not self._inflate.eof:
                feed = self._inflate.unconsumed_tail or self._next_feed()
                data = self._inflate.decompress(feed, size)
                if data:
                    return data
                if not feed:
                    raise TraceError(f"{self._path}: a damaged block of packets: it is incomplete")
        except zlib.error as error:
            raise TraceError(f"{self._path}: a damaged block of packets: {error}") from error
        return b""

    def _next_feed(self) -> bytes:
        feed = self._block[self._at : self._at + _FEED]
        self._at += len(feed)
        return feed


def read_varint(data: bytes, at: int) -> tuple[int, int]:
    """A base-128 number and where the next byte is: 0 if the data end within the number.

    What is longer than 64 bits comes out as it would in 70, so that it is too large for anything.
    """
    if at < len(data) and data[at] < 0x80:
        return data[at], at + 1  # most are this short
    value = shift = 0
    for index in range(at, min(at + 10, len(data))):
        value |= (data[index] & 0x7F) << shift
        if data[index] < 0x80:
            return value, index + 1
        shift += 7
    return (value, at + 10) if at + 10 <= len(data) else (0, 0)
