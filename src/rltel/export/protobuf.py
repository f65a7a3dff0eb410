"""Protobuf's wire format, as far as the encoders that work by hand need it."""

_SHORT = [bytes((low,)) if low < 0x80 else bytes((low & 0x7F | 0x80, low >> 7)) for low in range(1 << 10)]
"""Varints of small numbers: most lengths, tags and numbers of names."""


def varint(value: int) -> bytes:
    """A non-negative integer in base 128. Raises ValueError for a negative one."""
    if 0 <= value < len(_SHORT):
        return _SHORT[value]
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def uint(field: int, value: int) -> bytes:
    """A field that holds a non-negative integer."""
    return varint(field << 3) + varint(value)


def block(field: int, data: bytes) -> bytes:
    """A field that holds a string, bytes or a message."""
    return varint(field << 3 | 2) + varint(len(data)) + data


def tagged(tag: bytes, data: bytes) -> bytes:
    """The same, where the tag is at hand, encoded."""
    return tag + varint(len(data)) + data
