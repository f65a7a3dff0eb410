"""The runtime manifest: both versions are read, version 1 is written, and what is wrong is named by its path."""

import copy
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from export.making import environment
from realparts.soak_trainer import MANIFEST
from realparts.unilab import need_unilab
from rltel.runs.diagnostics import diagnostics_problems
from rltel.runs.manifest import ManifestError, check_manifest, make_manifest, problems

VECTORS = json.loads((Path(__file__).parents[1] / "vectors" / "unilab_vectors.json").read_text())["vectors"]
(V10,) = (each for each in VECTORS if each["id"] == "V10-manifest-and-soak")
CASES = [pytest.param(case, id=case["name"]) for case in V10["manifest_cases"]]
OLD_VERSION = "version 1 offered to a v2 reader"
GOOD: dict[str, Any] = V10["manifest_cases"][0]["manifest"]


def changed(**values: Any) -> dict[str, Any]:
    """The good manifest with ``section__field`` set; ... takes it away."""
    made = copy.deepcopy(GOOD)
    for path, value in values.items():
        *around, name = path.split("__")
        holder = made
        for part in around:
            holder = holder[part]
        if value is ...:
            del holder[name]
        else:
            holder[name] = value
    return made


@pytest.mark.parametrize("case", CASES)
def test_v10(case: dict[str, Any]) -> None:
    """All but one as in UniLab. Its reader takes version 2 only, ours takes what it wrote before as well."""
    expected = case["valid"] or case["name"] == OLD_VERSION
    assert (problems(case["manifest"], completed=case["completed"]) == []) is expected


def test_unilab_refuses_version_1_and_we_read_it() -> None:
    """The page calls 1 the current version, the released code 2; the fields are the same."""
    (case,) = (each for each in V10["manifest_cases"] if each["name"] == OLD_VERSION)
    assert (case["valid"], problems(case["manifest"], completed=True)) == (False, [])


def test_the_real_validator_agrees_with_ours_on_every_case() -> None:
    broken = [
        changed(replay_ingress__backpressure_wait_s=float("inf")),
        changed(replay_ingress__stop_returns=...),
        changed(inference_ring_capacity=0),
        changed(inference_flight=None),
        changed(backend_diagnostics={"available": True, "backend_type": "x", "diagnostics": {}}),
        changed(backend_diagnostics={"available": False, "unavailable_reason": "no GPU"}),
        changed(schema_version=3),
    ]
    cases = [(each["manifest"], each["completed"]) for each in V10["manifest_cases"]]
    cases += [(manifest, completed) for manifest in broken for completed in (True, False)]
    code = (
        "import json, sys\n"
        "from uni_rl.logging.runtime_manifest_schema import validate_runtime_manifest as validate\n"
        "for manifest, completed in json.load(sys.stdin):\n"
        "    try: validate(manifest, completed=completed)\n"
        "    except (TypeError, ValueError) as error: print(f'no: {error}')\n"
        "    else: print('yes')\n"
    )
    ran = subprocess.run(
        [sys.executable, "-c", code],
        env=environment(PYTHONPATH=str(need_unilab())),
        input=json.dumps(cases),
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    theirs = [line == "yes" for line in ran.stdout.splitlines()]
    ours = [not problems(manifest, completed=completed) for manifest, completed in cases]
    differ = [case for case, mine, his in zip(cases, ours, theirs, strict=True) if mine is not his]
    assert [manifest["schema_version"] for manifest, _ in differ] == [1]


@pytest.mark.parametrize(
    ("manifest", "said"),
    [
        (
            changed(replay_ingress__occupancy=-1),
            "replay_ingress.occupancy: expected a whole number >= 0, got -1",
        ),
        (
            changed(replay_ingress__dropped_batches=True),
            "replay_ingress.dropped_batches: expected a whole number >= 0, got true",
        ),
        (
            changed(replay_ingress__backpressure_wait_s=float("nan")),
            "replay_ingress.backpressure_wait_s: expected a number >= 0, got NaN",
        ),
        (changed(inference_flight__max_in_flight=...), "inference_flight.max_in_flight: is missing"),
        (changed(inference_flight=...), "inference_flight: a completed run needs it"),
        (changed(inference_ring_capacity=0), "inference_ring_capacity: expected a whole number >= 1, got 0"),
        (
            changed(collector_backend_device=" "),
            'collector_backend_device: expected a string that is not empty or null, got " "',
        ),
        (changed(schema_version=3), "schema_version: expected 1 or 2, got 3"),
        (changed(schema_version=1.0), "schema_version: expected 1 or 2, got 1.0"),
        (changed(schema_version=...), "schema_version: expected 1 or 2, got nothing"),
        ([], "runtime manifest: expected a mapping, got []"),
        (
            changed(replay_ingress=[1]),
            "replay_ingress: expected a mapping with strings as keys, got [1]",
        ),
        (
            changed(inference_memory_budget={}),
            "inference_memory_budget.ipc_event_count: is missing",
        ),
    ],
)
def test_an_error_names_path_need_and_given(manifest: Any, said: str) -> None:
    with pytest.raises(ManifestError) as error:
        check_manifest(manifest, completed=True)
    assert str(error.value) == said


def test_all_that_is_wrong_is_said_at_once() -> None:
    found = problems(changed(replay_ingress__occupancy=-1, inference_ring_capacity="1", inference_flight=...))
    assert [line.partition(":")[0] for line in found] == ["inference_ring_capacity", "replay_ingress.occupancy"]


def test_a_failed_run_may_lack_what_it_did_not_come_to() -> None:
    assert problems({"schema_version": 2}) == []
    assert problems({"schema_version": 2}, completed=True)


def test_shutdown_and_unknown_fields_are_the_producer_s_own() -> None:
    assert problems(changed(shutdown="whatever", cuda_graph=[{}]), completed=True) == []


@pytest.mark.parametrize(
    ("payload", "said"),
    [
        ("x", 'backend_diagnostics: expected a mapping with strings as keys, got "x"'),
        ({}, "backend_diagnostics.available: expected true or false, got null"),
        (
            {"available": False, "unavailable_reason": ""},
            'backend_diagnostics.unavailable_reason: expected a string that is not empty, got ""',
        ),
        (
            {"available": True, "diagnostics": {}},
            "backend_diagnostics.backend_type: expected a string that is not empty, got null",
        ),
        (
            {"available": True, "backend_type": "mjwarp"},
            "backend_diagnostics.diagnostics: expected a mapping with strings as keys, got null",
        ),
        (
            {"available": True, "backend_type": "m", "diagnostics": {"graph": {"requested": 1, "enabled": True}}},
            "backend_diagnostics.diagnostics.graph.requested: expected true or false, got 1",
        ),
        (
            {
                "available": True,
                "backend_type": "m",
                "diagnostics": {"graph": {"requested": True, "enabled": True, "disable_reason": "no"}},
            },
            "backend_diagnostics.diagnostics.graph.disable_reason: expected null, as it is enabled, got 'no'",
        ),
    ],
)
def test_backend_diagnostics_are_held_to_their_contract(payload: Any, said: str) -> None:
    assert diagnostics_problems(payload) == [said]
    assert problems(changed(backend_diagnostics=payload)) == [said]


def test_writes_version_1_with_the_producer_s_own_fields() -> None:
    made = make_manifest(
        inference_ring_capacity=1,
        collector_metrics_interval=100,
        collector_backend_device="cuda:0",
        inference_flight=GOOD["inference_flight"],
        replay_ingress=GOOD["replay_ingress"],
        ipc_event_count=4,
        shutdown=MANIFEST["shutdown"],
        inference_epoch=3,
    )
    assert (made["schema_version"], made["inference_epoch"]) == (1, 3)
    assert made["inference_memory_budget"] == {"ipc_event_count": 4}
    assert problems(json.loads(json.dumps(made)), completed=True) == []


@pytest.mark.parametrize("wrong", [{"inference_ring_capacity": 0}, {"inference_flight": {}}])
def test_writes_no_manifest_that_it_would_not_read(wrong: dict[str, Any]) -> None:
    given: dict[str, Any] = {
        "inference_ring_capacity": 1,
        "collector_metrics_interval": 1,
        "collector_backend_device": None,
        "inference_flight": GOOD["inference_flight"],
        "replay_ingress": GOOD["replay_ingress"],
    }
    make: Callable[..., object] = make_manifest
    with pytest.raises(ManifestError, match=next(iter(wrong))):
        make(**{**given, **wrong})
