"""Takes the time off a packet, fast: what is left of it then repeats, and need be looked at only once.

Packets of rltel (and of most producers) begin with their timestamp. The end of a slice is, but for its time, the same
bytes as the end before it; so is the begin of a slice without attributes. Readers keep what they made of such a rest in
a dict and look it up for the next million.
"""

import struct
from collections.abc import Iterable, Iterator

from rltel.export.protobuf import varint
from rltel.traces.reader import read_varint

_TIMESTAMP_TAG = 0x40  # field 8 of TracePacket
NO_TIME = -1
_LOW = struct.Struct("<HHB").unpack_from  # a varint's first five bytes: 35 bits, half a minute of nanoseconds
_NOT_FIVE = 1 << 62  # for pairs of bytes in which the varint ends: it has less than five bytes before its last
_VALUES = [(x & 0x7F) | (x >> 1 & 0x3F80) if x & 0x8080 == 0x8080 else _NOT_FIVE for x in range(1 << 16)]
_PAIRS = [bytes((x & 0x7F | 0x80, x >> 7 | 0x80)) for x in range(1 << 14)]
_HIGHS: dict[int, bytes] = {}
_MOST_KEPT = 1 << 14
_SHORTEST = 8


def stamped(packets: Iterable[bytes]) -> Iterator[tuple[int, bytes]]:
    """Each packet as its timestamp (as it stands there) and the rest of its bytes.

    `NO_TIME` and the whole packet where the timestamp is not the first field.
    """
    for raw in packets:
        if len(raw) < _SHORTEST or raw[0] != _TIMESTAMP_TAG:
            yield _split(raw)
            continue
        first, second, fifth = _LOW(raw, 1)
        low = _VALUES[first] + (_VALUES[second] << 14) + (fifth - 0x80 << 28)
        if fifth < 0x80 or low >= _NOT_FIVE:
            yield _split(raw)
            continue
        sixth, seventh = raw[6], raw[7]
        if sixth < 0x80:
            yield low + (sixth << 35), raw[7:]
        elif seventh < 0x80:
            yield low + (sixth - 0x80 << 35) + (seventh << 42), raw[8:]
        else:
            high, after = read_varint(raw, 6)
            yield (low + (high << 35), raw[after:]) if after and not high >> 29 else (NO_TIME, raw)


def _split(raw: bytes) -> tuple[int, bytes]:
    if not raw or raw[0] != _TIMESTAMP_TAG:
        return NO_TIME, raw
    time, after = read_varint(raw, 1)
    return (time, raw[after:]) if after and not time >> 64 else (NO_TIME, raw)


def unstamped(time_ns: int, rest: bytes) -> bytes:
    """The whole packet again."""
    return rest if time_ns == NO_TIME else b"\x40" + varint(time_ns) + rest


def stamp(time_ns: int) -> bytes:
    """A timestamp as the first field of a packet."""
    high = _HIGHS.get(time_ns >> 42)  # the same for over an hour
    if high is None:
        if time_ns < 1 << 42:
            return b"\x40" + varint(time_ns)
        if len(_HIGHS) >= _MOST_KEPT:
            _HIGHS.clear()
        high = _HIGHS[time_ns >> 42] = varint(time_ns >> 42)
    return b"\x40" + _PAIRS[time_ns & 0x3FFF] + _PAIRS[time_ns >> 14 & 0x3FFF] + _PAIRS[time_ns >> 28 & 0x3FFF] + high
