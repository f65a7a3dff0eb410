"""``backend_diagnostics``: what a physics backend says of its optimisations (a CUDA graph and the like).

It stands in the runtime manifest, or, for trainers without one (PPO), at the top of the run summary.
"""

from collections.abc import Iterator, Mapping
from typing import Annotated, Any

from msgspec import Meta

from rltel.core.wording import fits, misfit

NotEmpty = Annotated[str, Meta(pattern=r"\S", description="a string that is not empty")]


def diagnostics_problems(payload: Any, path: str = "backend_diagnostics") -> list[str]:
    """What is wrong with a physics backend's diagnostics; none at all is right.

    An available payload names its backend, and says of each optimisation whether it was requested, whether it is
    enabled, and if not, why. One that is not available says why.
    """
    if payload is None:
        return []
    if not isinstance(payload, Mapping):
        return [misfit(path, dict[str, Any], payload)]
    available = payload.get("available")
    if not isinstance(available, bool):
        return [misfit(f"{path}.available", bool, available)]
    needed: dict[str, Any] = {"backend_type": NotEmpty} if available else {"unavailable_reason": NotEmpty}
    if not available and payload.get("backend_type") is not None:
        needed["backend_type"] = NotEmpty
    found = [misfit(f"{path}.{name}", kind, payload.get(name)) for name, kind in needed.items()
             if not fits(payload.get(name), kind)]  # fmt: skip
    if available:
        found += _optimisation_problems(payload.get("diagnostics"), f"{path}.diagnostics")
    return found


def _optimisation_problems(entries: Any, path: str) -> Iterator[str]:
    if not isinstance(entries, Mapping):
        yield misfit(path, dict[str, Any], entries)
        return
    for name, entry in entries.items():
        where = f"{path}.{name}"
        if not isinstance(entry, Mapping):
            yield misfit(where, dict[str, Any], entry)
            continue
        wrong = [flag for flag in ("requested", "enabled") if not isinstance(entry.get(flag), bool)]
        yield from (misfit(f"{where}.{flag}", bool, entry.get(flag)) for flag in wrong)
        reason = entry.get("disable_reason")
        if entry.get("enabled") is True and reason is not None:
            yield f"{where}.disable_reason: expected null, as it is enabled, got {reason!r}"
        if entry.get("enabled") is False and not fits(reason, NotEmpty):
            yield f"{where}.disable_reason: expected why it is disabled, got {reason!r}"
