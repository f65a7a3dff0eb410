"""CRC-32C, which event files want for every record: with NumPy, since a loop in Python costs more than all the rest.

A CRC is linear: every byte contributes a number that depends only on its value and its distance from the end. So a
block's CRC is the XOR of looked-up numbers, and blocks join by moving what came before along.
"""

from functools import cache

import numpy as np
import numpy.typing as npt

_POLYNOMIAL = 0x82F63B78
_BLOCK = 512
_SHORT = 64  # below this the loop is faster than NumPy's calls
_ONES = 0xFFFFFFFF

Table = npt.NDArray[np.uint32]


def masked_crc32c(data: bytes) -> int:
    """The CRC as records have it: rotated and shifted by a constant, so that a CRC of CRCs is no trouble."""
    crc = crc32c(data)
    return (((crc >> 15) | (crc << 17)) + 0xA282EAD8) & _ONES


def crc32c(data: bytes) -> int:
    """CRC-32C (Castagnoli) of some bytes."""
    if len(data) < _SHORT:
        return _by_loop(data)
    table, offsets = _by_distance()
    blocks = -(-len(data) // _BLOCK)
    padded = np.zeros(blocks * _BLOCK, np.intp)
    begin = len(padded) - len(data)  # zeros in front change nothing while the register is zero ...
    padded[begin:] = np.frombuffer(data, np.uint8)
    padded[begin : begin + 4] ^= 0xFF  # ... so its first value, all ones, goes into the first four bytes
    parts = np.bitwise_xor.reduce(table.take(padded.reshape(blocks, _BLOCK) + offsets), axis=1)
    crc = 0
    for part in parts.tolist():
        crc = part ^ _moved(crc)
    return crc ^ _ONES


def _by_loop(data: bytes) -> int:
    table, crc = _by_value(), _ONES
    for byte in data:
        crc = (crc >> 8) ^ table[(crc ^ byte) & 0xFF]
    return crc ^ _ONES


def _moved(crc: int) -> int:
    """What the register becomes after a block of zeros."""
    first, second, third, fourth = _moves()
    return first[crc & 0xFF] ^ second[crc >> 8 & 0xFF] ^ third[crc >> 16 & 0xFF] ^ fourth[crc >> 24]


@cache
def _by_value() -> list[int]:
    """What one byte contributes at the end."""
    table = []
    for value in range(256):
        crc = value
        for _ in range(8):
            crc = (crc >> 1) ^ (_POLYNOMIAL if crc & 1 else 0)
        table.append(crc)
    return table


@cache
def _by_distance() -> tuple[Table, npt.NDArray[np.intp]]:
    """For each place in a block and each value what it contributes, flat; and where each place's part begins."""
    last = np.array(_by_value(), np.uint32)
    places = [last]
    for _ in range(_BLOCK - 1):
        places.append((places[-1] >> 8) ^ last[places[-1] & 0xFF])
    return np.concatenate(places[::-1]), np.arange(_BLOCK, dtype=np.intp) * 256


@cache
def _moves() -> list[list[int]]:
    table, _ = _by_distance()
    return table[: 4 * 256].reshape(4, 256).tolist()
