"""``shutdown``: how a producer says that its run ended."""

from typing import Any

import pytest

from rltel.runs.manifest import ManifestError
from rltel.runs.shutdown import make_shutdown, shutdown_problems


def test_says_who_and_what() -> None:
    made = make_shutdown(
        "collector_failure",
        owner="collector",
        phase="train/step",
        error=OSError("gone"),
        cleanup_errors=[KeyError("x")],
    )
    assert made["exception"] == {"type": "OSError", "message": "gone"}
    assert made["cleanup"] == {"errors": [{"type": "KeyError", "message": "'x'"}]}
    assert shutdown_problems(made) == []


def test_knows_its_classes() -> None:
    with pytest.raises(ManifestError, match=r"expected one of normal_completion, .*, got 'fine'"):
        make_shutdown("fine", owner="learner", phase="end")


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"owner": ""}, 'shutdown.owner: expected a string that is not empty, got ""'),
        ({"phase": 3}, "shutdown.phase: expected a string that is not empty, got 3"),
        ({"exception": {"type": 1}}, "shutdown.exception: expected null or its type and message as strings"),
        ({"cleanup": None}, "shutdown.cleanup.errors: expected a list, got None"),
        ({"cleanup": {"errors": "x"}}, "shutdown.cleanup.errors: expected a list"),
    ],
)
def test_an_error_names_the_path(wrong: dict[str, Any], said: str) -> None:
    made = {**make_shutdown("normal_completion", owner="learner", phase="end"), **wrong}
    (found,) = shutdown_problems(made)
    assert found.startswith(said)


def test_other_fields_are_the_producer_s_own() -> None:
    made = make_shutdown("normal_completion", owner="learner", phase="end")
    assert shutdown_problems({**made, "inference_ring": [1]}) == []
