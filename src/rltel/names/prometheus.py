"""OpenTelemetry names as Prometheus has them. One suffix for a unit, never two."""

import re
from typing import Literal

_UNFIT = re.compile(r"[^a-zA-Z0-9_]")
_RUNS = re.compile(r"_{2,}")
_SUFFIXES = {"s": "seconds", "ms": "milliseconds", "By": "bytes", "%": "percent"}


def prometheus_name(name: str, unit: str, instrument: Literal["gauge", "counter", "histogram"]) -> str:
    """Dots to underscores, then the unit's suffix, then ``_total`` for a counter.

    A name that says its unit already, in full or short (``step.duration_ms`` in ms), has it once all the same.
    """
    plain = label_name(name)
    if instrument == "counter":
        plain = plain.removesuffix("_total")
    suffix = _unit_suffix(unit)
    if suffix:
        plain = f"{plain.removesuffix(f'_{suffix}').removesuffix(f'_{label_name(unit)}')}_{suffix}"
    return f"{plain}_total" if instrument == "counter" else plain


def label_name(attribute: str) -> str:
    """An attribute's name as a label."""
    return _RUNS.sub("_", _UNFIT.sub("_", attribute))


def _unit_suffix(unit: str) -> str:
    """``{sample}/s`` is ``per_second``; annotations alone, and no unit, are nothing."""
    if unit.endswith("}/s"):
        return "per_second"
    return "" if unit.startswith("{") else _SUFFIXES.get(unit, "")
