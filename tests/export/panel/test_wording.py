"""How numbers are written."""

import math

import pytest

from rltel.export.panel.wording import age, amount, duration, millis, number, percent, signed


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0"), (-0.0, "0"), (0.25, "0.2500"), (-12.3456, "-12.3456"), (0.0001, "1.000e-04"), (1234.56, "1,234.6"),
        (12345678.0, "1.235e+07"), (math.nan, "nan"), (math.inf, "inf"), (-math.inf, "-inf"), (1e300, "1.000e+300"),
    ],
)  # fmt: skip
def test_metrics(value: float, text: str) -> None:
    assert number(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [(22755.56, "22,756"), (8.0, "8"), (8.5, "8.50"), (0.02, "0.02"), (math.nan, "nan"), (1e15, "1.000e+15")],
)
def test_amounts(value: float, text: str) -> None:
    assert amount(value) == text


@pytest.mark.parametrize(
    ("value", "text"), [(0.05, "0.05"), (1234.5, "1,234.50"), (123456.7, "123,457"), (math.nan, "nan")]
)
def test_milliseconds(value: float, text: str) -> None:
    assert millis(value) == text


@pytest.mark.parametrize(
    ("share", "text"), [(0.024, "2%"), (0.068, "7%"), (0.002, "0%"), (1.2, "120%"), (math.nan, "nan%"), (None, "")]
)
def test_shares_without_decimals(share: float | None, text: str) -> None:
    assert percent(share) == text


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.4, "0:00:00"), (3723, "1:02:03"), (200_000, "2d 07:33:20"), (None, "-"), (math.nan, "-")]
)
def test_durations(seconds: float | None, text: str) -> None:
    assert duration(seconds) == text


@pytest.mark.parametrize(("seconds", "text"), [(14.2, "14s"), (180, "3m"), (7300, "2h")])
def test_ages(seconds: float, text: str) -> None:
    assert age(seconds) == text


@pytest.mark.parametrize(
    ("value", "decimals", "text"),
    [(-123.4567, 3, "-123.457"), (-123.4567, 2, "-123.46"), (1e9, 2, "1.000e+09"), (math.nan, 2, "nan")],
)
def test_returns(value: float, decimals: int, text: str) -> None:
    assert signed(value, decimals) == text
