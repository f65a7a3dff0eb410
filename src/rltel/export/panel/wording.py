"""How numbers and texts are written on the panel: short, and never as something that they are not."""

import math

_MANY = 1e7
_THOUSAND = 1e3
_FEW = 1e-3
_DAY_S = 86_400


def number(value: float) -> str:
    """A metric: four decimals where they say something, exponents where they would not."""
    size = abs(value)
    if not math.isfinite(value):
        return str(value)
    if value == 0:
        return "0"
    if size >= _MANY or size < _FEW:
        return f"{value:.3e}"
    return f"{value:,.1f}" if size >= _THOUSAND else f"{value:.4f}"


def signed(value: float, decimals: int) -> str:
    """A return or reward, with so many decimals; huge ones with an exponent."""
    return f"{value:.3e}" if _MANY <= abs(value) < math.inf else f"{value:,.{decimals}f}"


def amount(value: float) -> str:
    """A count or a rate: ``22,756``; small rates with what makes them differ from 0."""
    if not math.isfinite(value):
        return str(value)
    if abs(value) >= 1e12:
        return f"{value:.3e}"
    return f"{value:,.0f}" if value == int(value) or abs(value) >= 100 else f"{value:,.2f}"


def millis(value: float) -> str:
    """Milliseconds."""
    return f"{value:,.0f}" if _THOUSAND * 100 <= abs(value) < math.inf else f"{value:,.2f}"


def percent(share: float | None) -> str:
    """A share without decimals; nothing where there is none."""
    return "" if share is None else f"{share * 100:.0f}%"


def duration(seconds: float | None) -> str:
    """``1:02:03``; ``2d 01:02:03``; ``-`` for what is not known."""
    if seconds is None or not math.isfinite(seconds):
        return "-"
    days, rest = divmod(int(seconds), _DAY_S)
    hours, minutes, left = rest // 3600, rest // 60 % 60, rest % 60
    return f"{days}d {hours:02}:{minutes:02}:{left:02}" if days else f"{hours}:{minutes:02}:{left:02}"


def age(seconds: float) -> str:
    """How long ago: ``14s``, ``3m``, ``2h``."""
    if seconds < 100:
        return f"{seconds:.0f}s"
    return f"{seconds / 60:.0f}m" if seconds < 6000 else f"{seconds / 3600:.0f}h"
