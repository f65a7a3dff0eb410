"""The runtime manifest: what an off-policy run's processes and queues were and did, as in UniLab's run summaries.

Versions 1 and 2 have the same stable fields and are both read; version 1 is written. Fields that are not listed here,
``shutdown`` among them, are the producer's own: they pass as they are.
"""

from collections.abc import Iterator, Mapping
from typing import Annotated, Any

from msgspec import Meta

from rltel.core.config import Count, NotNegative
from rltel.core.errors import RltelError
from rltel.core.wording import fits, misfit
from rltel.runs.diagnostics import NotEmpty, diagnostics_problems

READS = (1, 2)
"""Versions of the manifest that are read."""
WRITES = 1
"""The version that `make_manifest` writes."""
_Whole = Annotated[int, Meta(ge=0)]
_TOP = {
    "inference_ring_capacity": Count,
    "collector_metrics_interval": Count,
    "collector_backend_device": NotEmpty | None,
}
_FLIGHT = ("queue_depth", "publication_lag", "max_in_flight", "max_publication_lag")
_INGRESS = (
    *("ingress_depth", "ingress_slot_rows", "published_sequence", "release_sequence", "occupancy"),
    *("high_water_occupancy", "backpressure_waits", "early_returns", "dropped_batches", "closed_returns"),
    "stop_returns",
)
_SECTIONS: dict[str, dict[str, Any]] = {
    "inference_flight": dict.fromkeys(_FLIGHT, _Whole),
    "replay_ingress": {**dict.fromkeys(_INGRESS, _Whole), "backpressure_wait_s": NotNegative},
    "inference_memory_budget": {"ipc_event_count": _Whole},
}
_NEEDED_AT_THE_END = ("inference_flight", "replay_ingress")


class ManifestError(RltelError, ValueError):
    """A runtime manifest that breaks its contract; a line for each field that does."""


def check_manifest(manifest: Any, *, completed: bool = False) -> None:
    """Raise `ManifestError` unless the manifest is right. ``completed``: the run came to its end, so all is needed."""
    found = problems(manifest, completed=completed)
    if found:
        raise ManifestError("\n".join(found))


def problems(manifest: Any, *, completed: bool = False) -> list[str]:
    """What is wrong with a manifest, as ``replay_ingress.occupancy: expected a whole number >= 0, got -1``."""
    if not isinstance(manifest, Mapping):
        return [f"runtime manifest: expected a mapping, got {manifest!r}"]
    version = manifest.get("schema_version")
    if type(version) is not int or version not in READS:  # True and 1.0 are no versions
        given = "nothing" if "schema_version" not in manifest else repr(version)
        return [f"schema_version: expected {' or '.join(map(str, READS))}, got {given}"]
    return [
        *_top_problems(manifest, completed),
        *(line for name in _SECTIONS for line in _section_problems(manifest, name, completed)),
        *diagnostics_problems(manifest.get("backend_diagnostics")),
    ]


def _top_problems(manifest: Mapping[str, Any], completed: bool) -> Iterator[str]:
    for name, kind in _TOP.items():
        if name not in manifest:
            if completed:
                yield f"{name}: a completed run needs it"
        elif not fits(manifest[name], kind) and (completed or manifest[name] is not None):
            yield misfit(name, kind, manifest[name])


def _section_problems(manifest: Mapping[str, Any], name: str, completed: bool) -> Iterator[str]:
    section = manifest.get(name)
    if section is None:
        if completed and name in _NEEDED_AT_THE_END:
            yield f"{name}: a completed run needs it"
    elif not isinstance(section, Mapping):
        yield misfit(name, dict[str, Any], section)
    else:
        for field, kind in _SECTIONS[name].items():
            if field not in section:
                yield f"{name}.{field}: is missing"
            elif not fits(section[field], kind):
                yield misfit(f"{name}.{field}", kind, section[field])


def make_manifest(
    *,
    inference_ring_capacity: int,
    collector_metrics_interval: int,
    collector_backend_device: str | None,
    inference_flight: Mapping[str, int],
    replay_ingress: Mapping[str, float],
    ipc_event_count: int | None = None,
    shutdown: Mapping[str, Any] | None = None,
    backend_diagnostics: Mapping[str, Any] | None = None,
    completed: bool = True,
    **more: Any,
) -> dict[str, Any]:
    """A manifest of version 1, checked, for the run summary's ``runtime_manifest``.

    Args:
        inference_ring_capacity: Slots of the ring that carries observations and actions, at least 1.
        collector_metrics_interval: Ticks between a collector's reports, at least 1.
        collector_backend_device: The accelerator of the collector's backend; None if it has none.
        inference_flight: `InFlight.fields` at the end, or the last report's.
        replay_ingress: `ReplayIngress.fields` at the end.
        ipc_event_count: CUDA inference IPC events, where there is a budget of them.
        shutdown: `make_shutdown`: how the run ended. `rltel soak` needs it of a completed run.
        backend_diagnostics: What the physics backend says of its optimisations.
        completed: Whether the run came to its end.
        more: The producer's own diagnostics, kept as they are.

    Raises:
        ManifestError: A line for each field that is wrong.
    """
    made: dict[str, Any] = {
        **more,
        "schema_version": WRITES,
        "inference_ring_capacity": inference_ring_capacity,
        "collector_metrics_interval": collector_metrics_interval,
        "collector_backend_device": collector_backend_device,
        "inference_flight": dict(inference_flight),
        "replay_ingress": dict(replay_ingress),
    }
    if ipc_event_count is not None:
        made["inference_memory_budget"] = {"ipc_event_count": ipc_event_count}
    if shutdown is not None:
        made["shutdown"] = dict(shutdown)
    if backend_diagnostics is not None:
        made["backend_diagnostics"] = dict(backend_diagnostics)
    check_manifest(made, completed=completed)
    return made
