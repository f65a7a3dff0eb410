"""What a run summary has to say for a soak to pass, and what it says of a run that failed."""

from collections.abc import Iterator, Mapping
from typing import Any

from rltel.core.wording import shown
from rltel.runs.diagnostics import diagnostics_problems
from rltel.runs.manifest import problems
from rltel.runs.shutdown import SHUTDOWN_CLASSES, shutdown_problems
from rltel.runs.soak.finding import Finding
from rltel.runs.soak.ingress import ingress_problems

METRIC_SCHEMA = 1
_BY_STATUS = {
    "collector_died": "collector_failure",
    "failed": "learner_failure",
    "interrupted": "external_cancellation",
}
"""What a summary's status says of the cause where no ``shutdown`` says it better."""


def findings_of(summary: Mapping[str, Any], *, require_manifest: bool) -> Iterator[Finding]:
    """What is wrong with a run, by its summary. Its manifest is held to its contract where there is one."""
    status = summary.get("status")
    completed = status == "completed"
    if not completed:
        yield Finding(f'run_summary.json: status: expected "completed", got {shown(status, "status")}{_error(summary)}')
    version = summary.get("metric_schema_version")
    if type(version) is not int or version != METRIC_SCHEMA:
        given = shown(version, "version") if "metric_schema_version" in summary else "nothing"
        yield _schema(f"metric_schema_version: expected {METRIC_SCHEMA}, got {given}")
    for line in diagnostics_problems(summary.get("backend_diagnostics")):
        yield _schema(line)
    if summary.get("runtime_manifest") is not None:
        yield from _of_manifest(summary, summary["runtime_manifest"], completed)
    elif require_manifest:
        yield _schema("runtime_manifest: is missing, and this soak requires it")


def producer_class(summary: Mapping[str, Any] | None) -> str | None:
    """The failure class that the producer itself names, if it is a valid one."""
    if summary is None or summary.get("status") == "completed":
        return None
    manifest = summary.get("runtime_manifest")
    shutdown = manifest.get("shutdown") if isinstance(manifest, Mapping) else None
    if shutdown is None:
        status = summary.get("status")
        return _BY_STATUS.get(status) if isinstance(status, str) else None
    if shutdown_problems(shutdown) or shutdown["classification"] == SHUTDOWN_CLASSES[0]:
        return None
    return str(shutdown["classification"])


def _of_manifest(summary: Mapping[str, Any], manifest: Any, completed: bool) -> Iterator[Finding]:
    wrong = problems(manifest, completed=completed)
    # Of a run that failed, an incomplete manifest is a consequence and not the cause.
    yield from (_schema(f"runtime_manifest.{line}", None if not completed else "schema_violation") for line in wrong)
    if not wrong and completed:
        yield from _of_completed(summary, manifest)
    shutdown = manifest.get("shutdown") if isinstance(manifest, Mapping) else None
    yield from _of_shutdown(shutdown, completed)


def _of_completed(summary: Mapping[str, Any], manifest: Mapping[str, Any]) -> Iterator[Finding]:
    flight = manifest["inference_flight"]
    if flight["queue_depth"] or flight["publication_lag"]:
        yield Finding(
            "runtime_manifest.inference_flight: expected nothing under way at the end, got "
            f"queue_depth {flight['queue_depth']}, publication_lag {flight['publication_lag']}",
            "unknown_failure",
        )
    for line in ingress_problems(manifest["replay_ingress"], summary.get("total_env_steps")):
        yield _schema(f"runtime_manifest.replay_ingress: {line}")


def _of_shutdown(shutdown: Any, completed: bool) -> Iterator[Finding]:
    if shutdown is None:
        kind = "shutdown_contract_violation" if completed else None
        yield Finding("runtime_manifest.shutdown: is missing", kind)
        return
    wrong = [f"runtime_manifest.{line}" for line in shutdown_problems(shutdown)]
    if not wrong:
        wrong += _ending_problems(shutdown, completed)
    yield from (Finding(line, "shutdown_contract_violation") for line in wrong)
    if not wrong and not completed:
        yield Finding(_described(shutdown))


def _ending_problems(shutdown: Mapping[str, Any], completed: bool) -> Iterator[str]:
    ended = shutdown["classification"]
    is_normal = ended == SHUTDOWN_CLASSES[0]
    path = "runtime_manifest.shutdown"
    if completed and not is_normal:
        yield f"{path}.classification: expected normal_completion of a completed run, got {ended}"
    if not completed and is_normal:
        yield f"{path}.classification: expected a failure's class, as the run is not completed, got {ended}"
    errors = shutdown["cleanup"]["errors"]
    if completed and errors:
        yield f"{path}.cleanup.errors: expected none of a completed run, got {shown(errors, 'errors')}"


def _described(shutdown: Mapping[str, Any]) -> str:
    said = f"the producer says {shutdown['classification']}, by {shutdown['owner']} in {shutdown['phase']}"
    error = shutdown.get("exception")
    return said if error is None else f"{said}: {error['type']}: {error['message']}"


def _error(summary: Mapping[str, Any]) -> str:
    error = summary.get("error")
    return "" if error is None else f" ({shown(error, 'error')})"


def _schema(line: str, kind: str | None = "schema_violation") -> Finding:
    return Finding(f"run_summary.json: {line}", kind)
