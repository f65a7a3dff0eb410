"""What a run summary has to say for a soak to pass."""

import copy
import json
from pathlib import Path
from typing import Any

import pytest

from realparts.soak_trainer import FULL, MANIFEST, SHUTDOWN, SUMMARY, failed
from rltel.runs.soak.contract import findings_of, producer_class
from rltel.runs.soak.finding import Finding

VECTORS = json.loads((Path(__file__).parents[2] / "vectors" / "unilab_vectors.json").read_text())["vectors"]
(V10,) = (each for each in VECTORS if each["id"] == "V10-manifest-and-soak")


def found(summary: dict[str, Any], *, require_manifest: bool = False) -> list[Finding]:
    return list(findings_of(summary, require_manifest=require_manifest))


def with_manifest(**sections: Any) -> dict[str, Any]:
    return {**SUMMARY, "runtime_manifest": {**copy.deepcopy(MANIFEST), **sections}}


@pytest.mark.parametrize("case", [pytest.param(case, id=case["name"]) for case in V10["soak_cases"]])
def test_v10(case: dict[str, Any]) -> None:
    changed = dict(case["changed"])
    manifest = {**MANIFEST, "replay_ingress": changed.pop("replay_ingress")}
    wrong = found({**SUMMARY, **changed, "runtime_manifest": manifest})
    assert (wrong == []) is case["passes"]
    assert {each.kind for each in wrong} <= {"schema_violation"}


@pytest.mark.parametrize("version", [1, 2])
def test_a_completed_run_passes_with_either_version(version: int) -> None:
    assert found(with_manifest(schema_version=version)) == []


def test_a_manifest_is_needed_only_if_asked_for() -> None:
    assert found(SUMMARY) == []
    (wrong,) = found(SUMMARY, require_manifest=True)
    assert wrong.kind == "schema_violation"


@pytest.mark.parametrize(
    ("summary", "said"),
    [
        ({"status": "completed"}, "metric_schema_version: expected 1, got nothing"),
        ({"status": "completed", "metric_schema_version": True}, "metric_schema_version: expected 1, got true"),
        ({"status": "completed", "metric_schema_version": 2}, "metric_schema_version: expected 1, got 2"),
        (
            {**SUMMARY, "backend_diagnostics": {"available": False}},
            "backend_diagnostics.unavailable_reason: expected a string that is not empty, got null",
        ),
        (
            with_manifest(replay_ingress={**MANIFEST["replay_ingress"], "occupancy": -1}),
            "runtime_manifest.replay_ingress.occupancy: expected a whole number >= 0, got -1",
        ),
        (
            with_manifest(replay_ingress={**MANIFEST["replay_ingress"], "occupancy": 1}),
            "runtime_manifest.replay_ingress: occupancy: expected published - released (65 - 65), got 1",
        ),
        (
            {**FULL, "total_env_steps": None},
            "runtime_manifest.replay_ingress: total_env_steps: expected a whole number >= 1, got null",
        ),
    ],
)
def test_what_breaks_the_schema_is_named(summary: dict[str, Any], said: str) -> None:
    wrong = found(summary)
    assert (wrong[0].reason, wrong[0].kind) == (f"run_summary.json: {said}", "schema_violation")


def test_a_flight_has_to_be_drained() -> None:
    (wrong,) = found(with_manifest(inference_flight={**MANIFEST["inference_flight"], "queue_depth": 1}))
    assert "queue_depth 1" in wrong.reason
    assert wrong.kind == "unknown_failure"


@pytest.mark.parametrize(
    ("shutdown", "said"),
    [
        (None, "runtime_manifest.shutdown: is missing"),
        ({**SHUTDOWN, "owner": ""}, 'shutdown.owner: expected a string that is not empty, got ""'),
        ({**SHUTDOWN, "classification": "collector_failure"}, "expected normal_completion of a completed run"),
        ({**SHUTDOWN, "cleanup": {"errors": [{"type": "OSError"}]}}, "cleanup.errors: expected none"),
    ],
)
def test_a_completed_run_has_to_have_ended_well(shutdown: Any, said: str) -> None:
    (wrong,) = found(with_manifest(shutdown=shutdown))
    assert said in wrong.reason
    assert wrong.kind == "shutdown_contract_violation"


def test_a_failed_run_cannot_have_ended_normally() -> None:
    wrong = found(failed("normal_completion"))
    assert wrong[-1].kind == "shutdown_contract_violation"
    assert producer_class(failed("normal_completion")) is None


def test_a_failed_run_says_what_it_knows() -> None:
    error = {"type": "RuntimeError", "message": "no answer"}
    reasons = [each.reason for each in found({**failed("collector_failure", exception=error), "error": "x"})]
    assert reasons[0] == 'run_summary.json: status: expected "completed", got "failed" ("x")'
    assert reasons[-1] == "the producer says collector_failure, by collector in close/end: RuntimeError: no answer"


def test_an_early_failure_s_manifest_may_be_incomplete() -> None:
    summary = {**SUMMARY, "status": "failed", "runtime_manifest": {"schema_version": 1}}
    assert {each.kind for each in found(summary)} == {None}


@pytest.mark.parametrize(
    ("summary", "kind"),
    [
        (None, None),
        (FULL, None),
        (failed("backend_worker_failure"), "backend_worker_failure"),
        (failed("made up"), None),
        (failed("collector_failure", phase=""), None),
        ({**SUMMARY, "status": "collector_died"}, "collector_failure"),
        ({**SUMMARY, "status": "failed"}, "learner_failure"),
        ({**SUMMARY, "status": "interrupted"}, "external_cancellation"),
        ({**SUMMARY, "status": "running"}, None),
        ({**SUMMARY, "status": [1]}, None),
        ({**SUMMARY, "status": "failed", "runtime_manifest": "broken"}, "learner_failure"),
    ],
)
def test_the_producer_s_class_counts_if_it_is_one(summary: Any, kind: str | None) -> None:
    """Without a ``shutdown``, as from trainers without a manifest, the status says who it was."""
    assert producer_class(summary) == kind
