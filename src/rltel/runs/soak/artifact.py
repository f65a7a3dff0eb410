"""The soak's artifact, version 0.3.0 of UniLab's: one JSON file, written whole or not at all."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rltel.core.files import replace
from rltel.runs.soak.finding import TOO_SHORT, Finding

SCHEMA_VERSION = "0.3.0"


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a soak came to. ``classification`` is None if it passed."""

    findings: Sequence[Finding]
    classification: str | None

    @property
    def passed(self) -> bool:
        """Whether nothing was found."""
        return not self.findings

    @property
    def reason(self) -> str | None:
        """All findings as a sentence, the first one first."""
        return "; ".join(finding.reason for finding in self.findings) or None


def judge(findings: Sequence[Finding], producer: str | None) -> Verdict:
    """The producer's class if it names one, as it knows who began; else the first class that was found.

    That a run was too short is the reason only if there is no other.
    """
    if not findings:
        return Verdict((), None)
    is_short_only = all(finding.kind == TOO_SHORT for finding in findings)
    others = (finding.kind for finding in findings if finding.kind not in (None, TOO_SHORT))
    return Verdict(tuple(findings), producer or next(others, TOO_SHORT if is_short_only else "unknown_failure"))


def make_artifact(
    verdict: Verdict,
    *,
    command: Sequence[str],
    context: Mapping[str, Any],
    started: datetime,
    duration_s: float,
    returncode: int | None,
    monitor: Mapping[str, Any],
    samples: Sequence[Mapping[str, Any]],
    resource_summary: Mapping[str, Any],
    shutdown: Mapping[str, Any] | None,
    residual: Sequence[Mapping[str, Any]],
    run_summary: Mapping[str, Any] | None,
    console_log: Path,
) -> dict[str, Any]:
    """The artifact as plain data that JSON can hold."""
    made: dict[str, Any] = {
        "schema_version": SCHEMA_VERSION,
        "status": "passed" if verdict.passed else "failed",
        "failure_reason": verdict.reason,
        "failure_classification": verdict.classification,
        "command": list(command),
        "context": dict(context),
        "started_at_utc": _utc(started),
        "ended_at_utc": _utc(datetime.now(UTC)),
        "duration_s": round(duration_s, 6),
        "returncode": returncode,
        "monitor": dict(monitor),
        "samples": list(samples),
        "resource_summary": dict(resource_summary),
        "shutdown": None if shutdown is None else dict(shutdown),
        "post_shutdown": {"residual_processes": list(residual)},
        "run_summary": run_summary,
        "console_log": str(console_log),
    }
    return {name: _finite(value) for name, value in made.items()}


def write_artifact(path: Path, artifact: Mapping[str, Any]) -> None:
    """Write it so that a reader sees all of it, or what was there before."""
    replace(path, artifact)


def _finite(value: Any) -> Any:
    """NaN and the infinities, which a trainer's summary may hold and JSON has not, as words."""
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, Mapping):
        return {key: _finite(item) for key, item in value.items()}
    return [_finite(item) for item in value] if isinstance(value, (list, tuple)) else value


def _utc(moment: datetime) -> str:
    return f"{moment:%Y-%m-%dT%H:%M:%SZ}"
