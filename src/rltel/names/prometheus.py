"""OpenTelemetry names as Prometheus has them. One suffix for a unit, never two."""

import re
from typing import Literal

_UNFIT = re.compile(r"[^a-zA-Z0-9_]")
_RUNS = re.compile(r"_{2,}")
_SUFFIXES = {"s": "seconds", "ms": "milliseconds", "By": "bytes", "%": "percent"}


def prometheus_name(name: str, unit: str, instrument: Literal["gauge", "counter", "histogram"]) -> str:
    """Dots to underscores, then the unit's suffix, then ``_total`` for a counter."""
    plain = label_name(name)
    suffix = _unit_suffix(unit)
    if suffix and not plain.endswith(f"_{suffix}"):
        plain = f"{plain}_{suffix}"
    if instrument == "counter" and not plain.endswith("_total"):
        plain = f"{plain}_total"
    return plain


def label_name(attribute: str) -> str:
    """An attribute's name as a label."""
    return _RUNS.sub("_", _UNFIT.sub("_", attribute))


def _unit_suffix(unit: str) -> str:
    """``{sample}/s`` is ``per_second``; annotations alone, and no unit, are nothing."""
    if unit.endswith("}/s"):
        return "per_second"
    return "" if unit.startswith("{") else _SUFFIXES.get(unit, "")
