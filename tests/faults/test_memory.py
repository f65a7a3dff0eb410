"""Memory is flat: what a long run holds does not grow with its commits. `benchmarks/endurance.py` does a million."""

from pathlib import Path
from typing import Any

import pytest

from faults.rest import AT_REST
from realparts.trainer import started

EARLY, LATE = 5_000, 20_000

MEASURE = """
import gc
from collections import deque
rltel.flush(120)
gc.collect()
sizes = {}
for each in gc.get_objects():
    if isinstance(each, (list, dict, set, tuple, deque)):
        sizes[type(each).__name__] = sizes.get(type(each).__name__, 0) + len(each)
say("held", sizes)
"""
TRAINING = """
for number in range({first}, {last}):
    with rltel.slice("iteration"):
        rltel.scalar(reward=1.0)
        rltel.distribution(seq_len=[1.0, 2.0, 3.0])
        rltel.count(episodes=1)
    rltel.commit(step=number)
    if number % 100 == 0:
        rltel.flush(120)
"""

DESTINATIONS: dict[str, dict[str, Any]] = {
    "with every local destination": {
        "trace": {"enabled": True},
        "tensorboard": {"path": "{run_dir}/tb"},
        "prometheus": {"enabled": True, "port": 0},
    },
    "with all steps but every hundredth left out": {
        "tensorboard": {"path": "{run_dir}/tb"},
        "run": {"log_interval": 100},
    },
    "with an endpoint that is away, whose queue is full": {
        "otlp": {"enabled": True, "endpoint": "http://127.0.0.1:1"},
        "pipeline": {"queue_mb": 0.5, "shutdown_timeout_s": 0.5},
    },
}


@pytest.mark.parametrize("name", DESTINATIONS)
def test_what_is_held_after_20_000_commits_is_what_was_held_after_5_000(tmp_path: Path, name: str) -> None:
    """Items in all containers of the process, by type. One kept for each commit would be 15,000 more."""
    away = "otlp" in DESTINATIONS[name]
    first = TRAINING.format(first=0, last=EARLY)
    rest = TRAINING.format(first=EARLY, last=LATE)
    measure = MEASURE
    if away:  # there is no end of flushing then: only the pipeline's own thread has to come to rest
        first, rest = (part.replace("rltel.flush(120)", "time.sleep(0.002)") for part in (first, rest))
        measure = measure.replace("rltel.flush(120)", "at_rest(telemetry)")
    program = "".join((AT_REST, first, measure, rest, measure))
    with started(DESTINATIONS[name], tmp_path / "run", steps=1, at={0: program}) as running:
        ended = running.end(280)
    assert ended.code == 0, ended.err
    early, late = ended.said("held")
    grown = {kind: late[kind] - early.get(kind, 0) for kind in late}
    assert {kind: items for kind, items in grown.items() if items > (LATE - EARLY) / 3} == {}
