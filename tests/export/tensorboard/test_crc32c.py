"""The checksum, against TensorBoard's own and the value that the standard names."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tensorboard.compat.tensorflow_stub.pywrap_tensorflow import masked_crc32c as official

from rltel.export.tensorboard.crc32c import crc32c, masked_crc32c


def test_the_standard_s_check_value() -> None:
    assert crc32c(b"123456789") == 0xE3069283


@pytest.mark.parametrize("length", [0, 1, 3, 4, 8, 63, 64, 65, 511, 512, 513, 1023, 1024, 1025, 10_000])
def test_equals_tensorboard_s_at_every_edge_of_the_blocks(length: int) -> None:
    data = bytes(number * 31 % 251 for number in range(length))
    assert masked_crc32c(data) == official(data)
    assert masked_crc32c(bytes(length)) == official(bytes(length))


@given(st.binary(max_size=2000))
def test_equals_tensorboard_s(data: bytes) -> None:
    assert masked_crc32c(data) == official(data)
