"""Limits of growth, on made-up samples."""

import pytest

from rltel.runs.soak.growth import Growth
from rltel.runs.soak.settings import Limits, SoakError


def tree(rss_kib: float = 0, descriptors: int = 0, processes: int = 1) -> dict[str, float]:
    return {"rss_kib_total": rss_kib, "fd_count_total": descriptors, "process_count": processes}


def kinds(growth: Growth, sizes: list[float], start_s: float = 100.0) -> list[str | None]:
    looks = (growth.look(start_s + number, tree(size)) for number, size in enumerate(sizes))
    return [None if found is None else found.kind for found in looks]


def test_growth_beyond_the_limit_is_a_leak() -> None:
    growth = Growth(Limits(rss_growth_mib=1))
    assert kinds(growth, [1000.0] * 5 + [2025.0] * 5)[-1] == "resource_leak"
    found = growth.look(200.0, tree(2025.0))
    assert found is not None
    assert found.reason == "memory grew by 1.000976562 MiB since the warm-up; the limit is 1"


def test_growth_up_to_the_limit_is_none() -> None:
    assert kinds(Growth(Limits(rss_growth_mib=1)), [1000.0] * 5 + [2024.0] * 50) == [None] * 55


def test_what_grows_before_the_warm_up_has_ended_does_not_count() -> None:
    growth = Growth(Limits(rss_growth_mib=1, warmup_s=50))
    kinds(growth, [float(1 << number) for number in range(40)], start_s=0.0)
    assert growth.grown() is None
    assert kinds(growth, [1e9] * 20) == [None] * 20


def test_a_peak_is_no_growth() -> None:
    assert set(kinds(Growth(Limits(rss_growth_mib=1)), [0.0] * 6 + [1e9, 0.0, 0.0, 1e9] + [0.0] * 9)) == {None}


@pytest.mark.parametrize(
    ("limits", "last", "said"),
    [
        (Limits(descriptor_growth=3), tree(descriptors=4), "descriptors grew by 4 since"),
        (Limits(process_growth=0), tree(processes=2), "processes grew by 1 since"),
    ],
)
def test_descriptors_and_processes_have_limits(limits: Limits, last: dict[str, float], said: str) -> None:
    growth = Growth(limits)
    for _ in range(5):
        growth.look(100.0, tree())
    found = [growth.look(100.0, last) for _ in range(5)][-1]
    assert found is not None
    assert said in found.reason


def test_without_limits_growth_is_only_told() -> None:
    growth = Growth(Limits())
    assert kinds(growth, [0.0] * 5 + [1e9] * 5) == [None] * 10
    assert growth.grown() == {"rss_kib": 1e9, "descriptors": 0.0, "processes": 0.0}
    assert growth.unchecked() is None


def test_a_limit_that_too_few_samples_could_check_is_not_kept() -> None:
    growth = Growth(Limits(rss_growth_mib=1))
    kinds(growth, [0.0] * 9)
    found = growth.unchecked()
    assert found is not None
    assert "expected at least 10 samples after a warm-up of 60 s, got 9" in found.reason


def test_a_negative_limit_is_an_error() -> None:
    with pytest.raises(SoakError, match="descriptor_growth: expected a number >= 0, got -1"):
        Limits(descriptor_growth=-1)
