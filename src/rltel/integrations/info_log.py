"""What an environment puts into ``info["log"]``, as numbers for a trainer to log."""

import functools
import logging
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from rltel.core.errors import RecordError
from rltel.names.schema import Removed, removed
from rltel.record.fold import is_tensor
from rltel.record.inputs import summary

_NUMERIC = "biuf"  # NumPy's kinds; it would read numbers in text, and NaN in None

_log = logging.getLogger("rltel")


@functools.cache
def _said_once(gone: Removed) -> None:
    _log.warning(
        'info["log"]: %s... is not emitted any more (%s): left out; %s has it (said once)',
        *(gone.prefix, gone.about, gone.instead),
    )


def forward_info_log(log: Mapping[str, Any], on_removed: Callable[[str], None] | None = None) -> dict[str, float]:
    """The entries whose key has a slash (``reward/upright``), each as one float: of an array or tensor, the mean.

    Left out are entries without a slash, which are the trainer's to place; means of nothing; and tags that the metric
    schema removed (``Episode_Reward/<term>``), with one warning a process. NaN and infinity stay.

    Args:
        log: as the environment gives it. A tensor on a device is waited for.
        on_removed: called with each removed tag, for who counts them.

    Raises `RecordError` for a value that is no number and has none in it.
    """
    numbers: dict[str, float] = {}
    for key, value in log.items():
        gone = removed(key)
        if gone is not None:
            _said_once(gone)
            if on_removed is not None:
                on_removed(key)
        elif "/" in key.strip("/"):
            numbers |= _mean(key, value)
    return numbers


def _mean(key: str, value: Any) -> dict[str, float]:
    """By its key, or nothing if it is a mean of nothing."""
    if isinstance(value, (int, float)):
        return {key: float(value)}
    array = np.asarray(value.detach().cpu().double() if is_tensor(value) else value)
    if array.dtype.kind not in _NUMERIC:
        raise RecordError(f'info["log"]: {key}: expected a number, array or tensor, got {summary(value)}')
    return {key: float(array.mean(dtype=np.float64))} if array.size else {}
