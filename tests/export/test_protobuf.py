"""The wire format by hand, read by the rule of the format and by the official classes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import TracePacket

from rltel.export.protobuf import block, tagged, uint, varint


@given(st.integers(0, 2**70))
def test_of_numbers(number: int) -> None:
    written = varint(number)
    value = sum((byte & 0x7F) << 7 * place for place, byte in enumerate(written))
    assert value == number
    assert all(byte >= 0x80 for byte in written[:-1])
    assert written[-1] < 0x80


@pytest.mark.parametrize("number", [-1, -(2**40)])
def test_a_negative_number_is_refused(number: int) -> None:
    with pytest.raises(ValueError, match="byte must be in range"):
        varint(number)


@given(st.integers(0, 2**64 - 1), st.binary(max_size=300))
def test_fields_as_the_official_classes_write_them(number: int, data: bytes) -> None:
    official = TracePacket(timestamp=number, compressed_packets=data).SerializeToString()
    assert uint(8, number) + block(50, data) == official
    assert tagged(varint(50 << 3 | 2), data) == block(50, data)
