"""The OpenTelemetry resource: which process this is, in the words of the conventions."""

from collections.abc import Mapping
from pathlib import Path

from opentelemetry.sdk.resources import Resource

from rltel.core.config import RunConfig
from rltel.core.identity import Identity
from rltel.core.wording import writable
from rltel.export.detect import detected
from rltel.version import VERSION


def resource_of(identity: Identity, run: RunConfig, environ: Mapping[str, str], root: Path = Path("/")) -> Resource:
    """Attributes of this process. ``OTEL_SERVICE_NAME`` and ``OTEL_RESOURCE_ATTRIBUTES`` are honoured over ours.

    Args:
        identity: its place in the run.
        run: the run's names, and whether hosts may be named.
        environ: the environment.
        root: of the file system, where a pod's files are.
    """
    attributes: dict[str, str | int] = {
        **detected(environ, run.include_host, root),
        "service.namespace": "rltel",
        "service.instance.id": identity.instance_id,
        "rl.run.id": identity.run_id,
        "rl.role": identity.role,
        "rl.rank": identity.index,  # the place: collectors inherit one rank, and two series of one name would be one
        "rl.world_size": identity.world_size,
        "rltel.version": VERSION,
    }
    named = {"rl.algorithm": run.algo, "rl.environment.name": run.task}
    attributes.update({name: value for name, value in named.items() if value})
    if "OTEL_SERVICE_NAME" not in environ and "service.name=" not in environ.get("OTEL_RESOURCE_ATTRIBUTES", ""):
        attributes["service.name"] = run.name or "rl-training"
    from_environment = {
        part.partition("=")[0].strip() for part in environ.get("OTEL_RESOURCE_ATTRIBUTES", "").split(",")
    }
    return Resource.create(
        {
            name: writable(value) if isinstance(value, str) else value
            for name, value in attributes.items()
            if name not in from_environment
        }
    )
