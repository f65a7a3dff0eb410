"""How the counters of a drained replay ingress fit together."""

from collections.abc import Iterator, Mapping
from typing import Any

from rltel.core.config import Count
from rltel.core.wording import fits, misfit


def ingress_problems(ingress: Mapping[str, Any], total_env_steps: Any) -> list[str]:
    """What does not fit, of a completed run whose fields are each right by themselves."""
    return [*_shape(ingress), *_flow(ingress), *_drops(ingress), *_steps(ingress, total_env_steps)]


def _shape(ingress: Mapping[str, Any]) -> Iterator[str]:
    for name in ("ingress_depth", "ingress_slot_rows"):
        if ingress[name] < 1:
            yield misfit(name, Count, ingress[name])
    high, depth = ingress["high_water_occupancy"], ingress["ingress_depth"]
    if not 0 < high <= depth:
        yield f"high_water_occupancy: expected 1 to ingress_depth ({depth}), got {high}"


def _flow(ingress: Mapping[str, Any]) -> Iterator[str]:
    published, released, held = ingress["published_sequence"], ingress["release_sequence"], ingress["occupancy"]
    if held != published - released:
        yield f"occupancy: expected published - released ({published} - {released}), got {held}"
    if held != 0 or published != released:
        yield f"occupancy: expected nothing left at the end, got {held} ({published} published, {released} released)"


def _drops(ingress: Mapping[str, Any]) -> Iterator[str]:
    early, dropped = ingress["early_returns"], ingress["dropped_batches"]
    closed, stopped = ingress["closed_returns"], ingress["stop_returns"]
    if not early == dropped == closed + stopped:
        yield (
            "early_returns, dropped_batches and closed_returns + stop_returns: expected one number, got "
            f"{early}, {dropped} and {closed} + {stopped}"
        )
    if dropped or early:
        yield f"dropped_batches: expected none of a completed run, got {dropped} (and {early} early returns)"


def _steps(ingress: Mapping[str, Any], total_env_steps: Any) -> Iterator[str]:
    if not fits(total_env_steps, Count):
        yield misfit("total_env_steps", Count, total_env_steps)
        return
    published, rows = ingress["published_sequence"], ingress["ingress_slot_rows"]
    if published * rows != total_env_steps:
        yield (
            f"published_sequence: expected total_env_steps / ingress_slot_rows ({total_env_steps} / {rows}), "
            f"got {published}"
        )
