"""Errors that only say that another rank is gone, and those that say why."""

import pytest

from realparts.requirements import need_package
from rltel.core.errors import ReductionError
from rltel.reduce.lost_peers import is_lost_peer

dist = need_package("torch.distributed")

CLOSED = RuntimeError("[/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:553] Connection closed by peer [::1]:1")


def raised_from(cause: BaseException) -> BaseException:
    error = ReductionError("reducing 3 keys")
    error.__cause__ = cause
    return error


@pytest.mark.parametrize(
    "error",
    [
        CLOSED,
        dist.DistBackendError("NCCL error"),
        dist.DistNetworkError("failed to recv"),
        dist.DistStoreError("wait timeout"),
        raised_from(CLOSED),
    ],
)
def test_those_of_the_communication(error: BaseException) -> None:
    assert is_lost_peer(error)


@pytest.mark.parametrize(
    "error",
    [
        None,
        RuntimeError("CUDA out of memory (pretend)"),
        ValueError(str(CLOSED)),
        ReductionError("ranks are at different steps"),
        KeyboardInterrupt(),
    ],
)
def test_all_others_say_why(error: BaseException | None) -> None:
    assert not is_lost_peer(error)


def test_causes_in_a_circle_end() -> None:
    first, second = ValueError("a"), ValueError("b")
    first.__cause__, second.__cause__ = second, first
    assert not is_lost_peer(first)
