"""Seeds: ranks that are seeded alike have ids of their own, and the program's own random numbers stay as seeded."""

from pathlib import Path
from typing import Any

import pytest

from realparts.otlp_receiver import otlp_sink
from realparts.perfetto_reader import read_packets
from realparts.trainer import plain_result, trained
from rltel import read_jsonl

TORCH = "import torch; torch.manual_seed({seed})\n"
IDS = """
import opentelemetry.trace
from rltel.core.context import new_flow, new_id, new_trace_id
with rltel.slice("iteration"):
    header = rltel.inject()["traceparent"]
say("ids", [new_id(), new_flow(), new_trace_id(), header, telemetry.process_track])
say("trace", [telemetry.root.trace_id, telemetry.root.span_id])
say("run", telemetry.identity.run_id)
"""


def test_open_telemetry_python_4376_ranks_with_one_seed_have_ids_and_files_of_their_own(tmp_path: Path) -> None:
    run_dir, said = tmp_path / "run", []
    with otlp_sink() as receiver:
        otlp, end = {"enabled": True, "endpoint": receiver.endpoint}, {"shutdown_timeout_s": 60.0}
        config = {"trace": {"enabled": True}, "otlp": otlp, "pipeline": end}
        for rank in ("0", "1"):
            environ = {"RANK": rank, "WORLD_SIZE": "2", "RLTEL_RUN_ID": "shared"}
            ended = trained(config, run_dir, before=TORCH.format(seed=42), after=IDS, environ=environ)
            assert ended.result == plain_result(), ended.err
            said.append(ended)
        spans = [span.span.span_id for span in receiver.spans()]
        assert len(spans) == len(set(spans)) > 200  # of both, three each step
    ids = [each for ended in said for made in (*ended.said("ids"), *ended.said("trace")) for each in made]
    assert len(set(ids)) == len(ids) == 2 * 7
    assert [ended.said("run") for ended in said] == [["shared"], ["shared"]]
    files = sorted(path.relative_to(run_dir) for path in run_dir.rglob("*") if path.suffix in {".jsonl", ".pftrace"})
    assert [str(path) for path in files] == [
        "metrics/learner-0.1.jsonl",
        "metrics/learner-1.1.jsonl",
        "trace/learner-0.1.pftrace",
        "trace/learner-1.1.pftrace",
    ]
    uuids = [
        {packet.track_descriptor.uuid for packet in read_packets(run_dir / file) if packet.HasField("track_descriptor")}
        for file in files[2:]
    ]
    assert not set.intersection(*uuids)
    assert {line.process["rank"] for line in read_jsonl(run_dir)} == {0, 1}


def test_runs_with_one_seed_have_run_ids_of_their_own(tmp_path: Path) -> None:
    config = {"trace": {"enabled": True}}
    runs = [trained(config, tmp_path / name, after=IDS).said("run")[0] for name in "ab"]
    assert len(set(runs)) == 2


DRAWS = """
import random, numpy
torch = sys.modules.get("torch")
say("draws", [random.random(), numpy.random.random(), torch and torch.rand(1).item()])
"""
DESTINATIONS: dict[str, dict[str, Any]] = {
    "local": {
        "trace": {"enabled": True, "thread_time": True},
        "tensorboard": {"path": "{run_dir}/tb"},
        "prometheus": {"enabled": True, "port": 0, "push_url": "http://127.0.0.1:1"},
        "console": {"enabled": True, "interval_s": 0.01},
    },
    "http": {"otlp": {"enabled": True, "endpoint": "http://127.0.0.1:1"}},
    "grpc": {"otlp": {"enabled": True, "endpoint": "http://127.0.0.1:1", "protocol": "grpc"}},
    "wandb": {"wandb": {"mode": "offline", "project": "p"}},
    "swanlab": {"swanlab": {"mode": "local", "project": "p"}},
    "trackio": {"trackio": {"mode": "local", "project": "p"}},
    "table": {"console": {"enabled": True, "interval_s": 0.01, "table": True}},
}
TERMINAL = "import io\nclass Terminal(io.StringIO):\n    isatty = lambda self: True\nsys.stdout = Terminal()\n"


@pytest.mark.parametrize("name", DESTINATIONS)
def test_the_program_s_own_random_numbers_are_what_they_are_without_telemetry(tmp_path: Path, name: str) -> None:
    """After init, while it trains (the result says), and after the end."""
    before = TERMINAL + (TORCH.format(seed=7) if name == "local" else "")
    at = {0: DRAWS, 20: f"rltel.flush({1 if name in ('http', 'grpc') else 30})\n{DRAWS}"}
    after = f"rltel.shutdown()\n{DRAWS}"
    config = {**DESTINATIONS[name], "pipeline": {"shutdown_timeout_s": 5.0}}
    ours = trained(config, tmp_path / "run", before=before, at=at, after=after)
    plain = trained(None, before=before, at=at, after=after)
    assert ours.code == plain.code == 0, ours.err
    assert ours.said("draws") == plain.said("draws")
    assert ours.result == plain.result
