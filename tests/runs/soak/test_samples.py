"""Samples of a long run in bounded memory."""

from itertools import pairwise
from typing import Any

import pytest

from rltel.runs.soak.samples import Samples


def sample(number: int, **process: Any) -> dict[str, Any]:
    return {"elapsed_s": number, "process": {"process_count": 1, **process}, "gpu": {"used_memory_mib_total": None}}


@pytest.mark.parametrize("taken", [1, 2, 10, 11, 12, 1000, 65_000])
def test_keeps_evenly_many_with_the_first_and_the_last(taken: int) -> None:
    samples = Samples(10)
    for number in range(taken):
        samples.add(sample(number))
    times = [each["elapsed_s"] for each in samples.kept]
    assert (times[0], times[-1], samples.taken) == (0, taken - 1, taken)
    assert min(taken, 5) <= len(times) <= 11
    assert len({late - early for early, late in pairwise(times[:-1])}) <= 1


def test_extremes_are_those_of_all_samples() -> None:
    samples = Samples(2)
    for number in range(100):
        samples.add(sample(number, rss_kib_total=5000 if number == 37 else 10))
    found = samples.summary(None, 0)
    assert (found["max_process_rss_kib"], found["sample_count"]) == (5000, 100)


def test_what_nobody_measured_is_null_and_no_zero() -> None:
    samples = Samples(2)
    samples.add(sample(0))
    found = samples.summary({"runtime_manifest": {"inference_flight": {"max_in_flight": 0}}}, 2)
    assert (found["max_gpu_used_memory_mib"], found["max_eventfd_count"], found["ipc_event_count"]) == (None,) * 3
    assert (found["max_in_flight"], found["residual_process_count"]) == (0, 2)
