"""``shutdown`` of the runtime manifest: how the run ended, as its producer saw it."""

from collections.abc import Mapping, Sequence
from typing import Any

from rltel.core.wording import fits, misfit
from rltel.runs.diagnostics import NotEmpty
from rltel.runs.manifest import ManifestError

SHUTDOWN_CLASSES = (
    *("normal_completion", "learner_failure", "collector_failure", "backend_worker_failure"),
    *("timeout/stale_tick", "external_cancellation", "unknown_failure"),
)
"""How a producer can say that its run ended."""


def make_shutdown(
    classification: str,
    *,
    owner: str,
    phase: str,
    error: BaseException | None = None,
    cleanup_errors: Sequence[BaseException] = (),
) -> dict[str, Any]:
    """The manifest's ``shutdown``: who ended the run, in which phase, with which error.

    Raises:
        ManifestError: The class is not one of `SHUTDOWN_CLASSES`, or owner or phase is empty.
    """
    made = {
        "classification": classification,
        "owner": owner,
        "phase": phase,
        "exception": None if error is None else _told(error),
        "cleanup": {"errors": [_told(each) for each in cleanup_errors]},
    }
    found = shutdown_problems(made)
    if found:
        raise ManifestError("\n".join(found))
    return made


def shutdown_problems(shutdown: Any) -> list[str]:
    """What is wrong with the fields of ``shutdown`` that others read; the rest of it is the producer's own."""
    if not isinstance(shutdown, Mapping):
        return [misfit("shutdown", dict[str, Any], shutdown)]
    found = [misfit(f"shutdown.{name}", NotEmpty, shutdown.get(name)) for name in ("owner", "phase")
             if not fits(shutdown.get(name), NotEmpty)]  # fmt: skip
    if shutdown.get("classification") not in SHUTDOWN_CLASSES:
        choices = ", ".join(SHUTDOWN_CLASSES)
        found.append(f"shutdown.classification: expected one of {choices}, got {shutdown.get('classification')!r}")
    error = shutdown.get("exception")
    if error is not None and not (
        isinstance(error, Mapping) and all(isinstance(error.get(name), str) for name in ("type", "message"))
    ):
        found.append(f"shutdown.exception: expected null or its type and message as strings, got {error!r}")
    cleanup = shutdown.get("cleanup")
    if not isinstance(cleanup, Mapping) or not isinstance(cleanup.get("errors"), list):
        found.append(f"shutdown.cleanup.errors: expected a list, got {cleanup!r}")
    return found


def _told(error: BaseException) -> dict[str, str]:
    return {"type": type(error).__name__, "message": str(error)}
