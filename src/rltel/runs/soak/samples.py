"""The samples that an artifact keeps, and the extremes of all that were taken."""

from collections.abc import Mapping
from typing import Any

from rltel.runs.soak.summary import manifest_of

_EXTREMES = {
    "max_process_count": ("process", "process_count"),
    "max_process_rss_kib": ("process", "rss_kib_total"),
    "max_fd_count": ("process", "fd_count_total"),
    "max_gpu_used_memory_mib": ("gpu", "used_memory_mib_total"),
    "max_eventfd_count": ("process", "fd_classes_total", "eventfd"),
    "max_shared_memory_fd_count": ("process", "fd_classes_total", "shared_memory"),
    "max_progress_bytes": ("progress", "bytes_total"),
}
_OF_MANIFEST = {
    "ipc_event_count": ("inference_memory_budget", "ipc_event_count"),
    "max_in_flight": ("inference_flight", "max_in_flight"),
    "max_publication_lag": ("inference_flight", "max_publication_lag"),
    "replay_ingress_depth": ("replay_ingress", "ingress_depth"),
    "replay_ingress_slot_rows": ("replay_ingress", "ingress_slot_rows"),
    "replay_ingress_high_water_occupancy": ("replay_ingress", "high_water_occupancy"),
    "replay_ingress_final_occupancy": ("replay_ingress", "occupancy"),
    "replay_ingress_backpressure_waits": ("replay_ingress", "backpressure_waits"),
    "replay_ingress_backpressure_wait_s": ("replay_ingress", "backpressure_wait_s"),
    "replay_ingress_early_returns": ("replay_ingress", "early_returns"),
    "replay_ingress_dropped_batches": ("replay_ingress", "dropped_batches"),
}


class Samples:
    """Samples of a run of any length in bounded memory: when full, every second one goes, and half as many come."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._stride = 1
        self.taken = 0
        self._kept: list[Mapping[str, Any]] = []
        self._last: Mapping[str, Any] | None = None
        self._extremes: dict[str, float] = {}

    def add(self, sample: Mapping[str, Any]) -> None:
        """Take one in."""
        for name, path in _EXTREMES.items():
            value = _at(sample, path)
            if value is not None:
                self._extremes[name] = max(value, self._extremes.get(name, value))
        if self.taken % self._stride == 0:
            self._kept.append(sample)
        self.taken += 1
        self._last = sample
        if len(self._kept) > self._limit:
            del self._kept[1::2]  # the first stays
            self._stride *= 2

    @property
    def kept(self) -> list[Mapping[str, Any]]:
        """Evenly many of those taken, the first and the last among them."""
        if self._last is None or self._kept[-1] is self._last:
            return list(self._kept)
        return [*self._kept, self._last]

    def summary(self, run_summary: Mapping[str, Any] | None, residual: int) -> dict[str, Any]:
        """``resource_summary``. What nobody measured is null."""
        manifest = manifest_of(run_summary)
        return {
            "sample_count": self.taken,
            **{name: self._extremes.get(name) for name in _EXTREMES},
            "residual_process_count": residual,
            **{name: _at(manifest, path) for name, path in _OF_MANIFEST.items()},
        }


def _at(around: Any, path: tuple[str, ...]) -> Any:
    for name in path:
        if not isinstance(around, Mapping):
            return None
        around = around.get(name)
    return around
