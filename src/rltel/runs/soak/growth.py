"""Whether the tree grows after its warm-up: memory, descriptors, processes."""

from collections import deque
from collections.abc import Mapping
from statistics import median
from typing import Any

from rltel.runs.soak.finding import TOO_SHORT, Finding
from rltel.runs.soak.settings import Limits

_OF = 5  # a median of so many samples at each end: one that met a copy in memory or a short-lived child does not count
_FIELDS = {"rss_kib": "rss_kib_total", "descriptors": "fd_count_total", "processes": "process_count"}


class Growth:
    """Medians of the first samples after the warm-up, against those of the last."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._first: list[Mapping[str, Any]] = []
        self._last: deque[Mapping[str, Any]] = deque(maxlen=_OF)

    def look(self, elapsed_s: float, tree: Mapping[str, Any]) -> Finding | None:
        """Take a sample's ``process``; returns which limit is broken, if any."""
        if elapsed_s < self._limits.warmup_s:
            return None
        numbers = {name: tree[field] for name, field in _FIELDS.items()}
        (self._first if len(self._first) < _OF else self._last).append(numbers)
        return self._broken()

    def grown(self) -> dict[str, float] | None:
        """How much more there is now than at first; None before there are enough samples."""
        if len(self._last) < _OF:
            return None
        return {name: _median(self._last, name) - _median(self._first, name) for name in _FIELDS}

    def unchecked(self) -> Finding | None:
        """A limit that was asked for and that too few samples could show to hold is not kept."""
        if not self._limits.is_set or self.grown() is not None:
            return None
        taken = len(self._first) + len(self._last)
        return Finding(
            f"limits of growth: expected at least {2 * _OF} samples after a warm-up of {self._limits.warmup_s:g} s, "
            f"got {taken}: run longer, sample more often, or shorten the warm-up",
            TOO_SHORT,
        )

    def _broken(self) -> Finding | None:
        grown = self.grown()
        if grown is None:
            return None
        limit_mib = self._limits.rss_growth_mib
        checks = (
            ("memory", "MiB", grown["rss_kib"] / 1024, limit_mib),
            ("descriptors", "", grown["descriptors"], self._limits.descriptor_growth),
            ("processes", "", grown["processes"], self._limits.process_growth),
        )
        for what, unit, amount, limit in checks:
            if limit is not None and amount > limit:
                said = f"{what} grew by {amount:.10g} {unit}".strip()
                return Finding(f"{said} since the warm-up; the limit is {limit:g}", "resource_leak")
        return None


def _median(samples: "deque[Mapping[str, Any]] | list[Mapping[str, Any]]", name: str) -> float:
    return float(median(sample[name] for sample in samples))
